#!/usr/bin/env bash
# Guess: a convolution of PyTorch that is called with images of many sizes, one after the other, holds no more memory
#   than with the largest of them.
# Versions: torch 2.13.0 (CPU build, oneDNN 3.12.0) and numpy 2.2.6, Python 3.11, on an AMD EPYC with AVX-512.
# Behaviour: some 0.08 MB stay for each new size, here 80 MB after 1,000. Two caches hold them, of 1,024 entries each:
#   PyTorch's of reordered parameters and primitives, and oneDNN's of primitives, whose code is compiled for a size.
#   Calls at sizes that were met before add nothing. LRU_CACHE_CAPACITY and ONEDNN_PRIMITIVE_CACHE_CAPACITY bound the
#   two; with 1 in both, nothing grows, and each change of the size compiles again.
# Seen:
#   caches as they are: MB after 1000 sizes 80, after the same sizes again 80
#   caches of one entry: MB after 1000 sizes 3, after the same sizes again 3
# Where pip finds no CPU build of PyTorch, this downloads gigabytes. Exit status 1: the behaviour changed.
set -euo pipefail

python=${PYTHON:-python3}
if ! grep -qs RssAnon /proc/self/status; then
  echo "skipped: the system does not report a process's own memory"
  exit 0
fi
if ! grep -qs avx2 /proc/cpuinfo; then
  echo "skipped: seen on processors with AVX2 and more only"
  exit 0
fi
if ! "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))'; then
  echo "skipped: the pinned wheels are for Python 3.10 to 3.13"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "torch==2.13.0" "numpy==2.2.6"

cat > "$folder/seen.py" <<'PY'
import sys

import torch

torch.set_num_threads(1)
torch.set_grad_enabled(False)
layer = torch.nn.Conv2d(64, 96, 3, padding=1).to(memory_format=torch.channels_last)
pixels = torch.randn(80 * 80 * 64)


def call(height, width):
    layer(pixels[: height * width * 64].view(1, height, width, 64).permute(0, 3, 1, 2))


def held():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if "RssAnon" in line) / 1000


for height in range(73, 81):
    call(height, 80)
before = held()
sizes = [(height, width) for height in range(20, 60) for width in range(20, 45)]
grown = []
for _ in range(2):
    for size in sizes:
        call(*size)
    grown.append(held() - before)
print(f"{sys.argv[1]}: MB after {len(sizes)} sizes {grown[0]:.0f}, after the same sizes again {grown[1]:.0f}")
bounded = "one entry" in sys.argv[1]
sys.exit(0 if (grown[1] < 15 if bounded else grown[0] > 40 and grown[1] < 1.25 * grown[0]) else 1)
PY
export OMP_NUM_THREADS=1
"$folder/venv/bin/python" "$folder/seen.py" "caches as they are"
LRU_CACHE_CAPACITY=1 ONEDNN_PRIMITIVE_CACHE_CAPACITY=1 "$folder/venv/bin/python" "$folder/seen.py" "caches of one entry"

#!/usr/bin/env bash
# PyTorch's exact GELU of large numbers and of infinity, on a CPU.
#
# Guess: gelu(x) = x * Phi(x) is x for large x, and infinity for infinity; setting oneDNN aside changes rounding only.
# Versions: torch 2.13.0 (CPU build), Python 3.11, x86-64 with AVX-512.
# Behaviour: for float32 arrays of two or more numbers PyTorch calls oneDNN, whose GELU of infinity is not a number,
#   and whose GELU overflows to infinity from about 1.7e38 on, half of float32's largest. One number alone, float64,
#   oneDNN set aside, and approximate="tanh" give x. In bfloat16 and float16 infinity becomes not a number, too.
# Seen:
#   gelu(inf): oneDNN [nan, nan], without [inf, inf], one number [inf], tanh [inf, inf]
#   gelu(2e38): oneDNN [inf, inf], without [2.0e+38, 2.0e+38], one number [2.0e+38], tanh [2.0e+38, 2.0e+38]
# Exits 1 if oneDNN's are those of the others.
set -euo pipefail

python=${PYTHON:-python3}
if ! "$python" -c 'import platform, sys; sys.exit(platform.machine() != "x86_64" or sys.version_info < (3, 10))'; then
  echo "skipped: the pinned wheels are for x86-64 and Python 3.10 or later"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "torch==2.13.0" "numpy==2.2.6"

cat > "$folder/gelu.py" <<'PY'
import math
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from torch.nn.functional import gelu

if not torch.backends.mkldnn.is_available():
    print("skipped: this build of PyTorch has no oneDNN")
    sys.exit(0)


def shown(values):
    return "[" + ", ".join(f"{v:.1e}" if math.isfinite(v) else str(v) for v in values.tolist()) + "]"


same = []
for number in (math.inf, 2e38):
    x = torch.full((2,), number)
    found = gelu(x)
    with torch.backends.mkldnn.flags(enabled=False):
        without = gelu(x)
    ways = {"oneDNN": found, "without": without, "one number": gelu(x[:1]), "tanh": gelu(x, approximate="tanh")}
    print(f"gelu({number:g}): " + ", ".join(f"{way} {shown(y)}" for way, y in ways.items()))
    same.append(torch.equal(found, without) or not torch.equal(without, x))
sys.exit(1 if any(same) else 0)
PY
if ! "$folder/venv/bin/python" "$folder/gelu.py"; then
  echo "changed: oneDNN's GELU is that of the others"
  exit 1
fi

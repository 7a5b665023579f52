#!/usr/bin/env bash
# PyTorch's precision of float32 in cuDNN, set alone, and what matrix products on a GPU may then do.
#
# Guess: torch.backends.cudnn.fp32_precision concerns cuDNN: convolutions and recurrent layers. Products by cuBLAS have
#   torch.backends.cuda.matmul.fp32_precision, which stays as it was.
# Versions: torch 2.13.0 (CPU build; the settings are there without a GPU), Python 3.11.
# Behaviour: setting cuDNN's precision to "tf32" sets that of matrix products, too. From then on, reading
#   torch.backends.cuda.matmul.allow_tf32 is an error. Set afterwards, "ieee" of the products alone stays.
# Seen:
#   before: matmul none, allow_tf32 False
#   cudnn tf32: matmul tf32, allow_tf32 RuntimeError
#   matmul ieee: matmul ieee, cudnn conv tf32
# Where pip finds no CPU build of PyTorch, this downloads gigabytes. Exit status 1: the behaviour changed.
set -euo pipefail

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))'; then
  echo "skipped: the pinned wheels are for Python 3.10 to 3.13"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "torch==2.13.0" "numpy==2.2.6"

cat > "$folder/seen.py" <<'PY'
import torch

backends = torch.backends


def legacy():
    try:
        return backends.cuda.matmul.allow_tf32
    except RuntimeError:
        return "RuntimeError"


print(f"before: matmul {backends.cuda.matmul.fp32_precision}, allow_tf32 {legacy()}")
backends.cudnn.fp32_precision = "tf32"
print(f"cudnn tf32: matmul {backends.cuda.matmul.fp32_precision}, allow_tf32 {legacy()}")
backends.cuda.matmul.fp32_precision = "ieee"
print(f"matmul ieee: matmul {backends.cuda.matmul.fp32_precision}, cudnn conv {backends.cudnn.conv.fp32_precision}")
PY
"$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen.txt"
diff "$folder/seen.txt" - <<'SEEN'
before: matmul none, allow_tf32 False
cudnn tf32: matmul tf32, allow_tf32 RuntimeError
matmul ieee: matmul ieee, cudnn conv tf32
SEEN

#!/usr/bin/env bash
# Guess: torch.set_float32_matmul_precision("medium") concerns GPUs; layers on a CPU go on computing in float32,
#   and the precision can be asked for at any time.
# Versions: torch 2.13.0 (CPU build, oneDNN 3.12.0), on an Intel Xeon with AMX.
# Behaviour: On a processor with AMX or AVX-512 instructions for bfloat16, PyTorch 2.13.0 computes float32
#   products on the CPU in bfloat16 then, in eager layers too. So it does once oneDNN's own setting is "bf16",
#   and asking for the precision raises. ONEDNN_DEFAULT_FPMATH_MODE=BF16 does it to oneDNN's layers, whatever
#   PyTorch is told. A comparison of libraries in float32 sets all three (dietlab/targets/cpu/contenders).
# Seen: largest error over the largest value
#   highest: 5e-07
#   medium: 3e-03
#   oneDNN's own setting: 3e-03, and get_float32_matmul_precision() raises RuntimeError
#   ONEDNN_DEFAULT_FPMATH_MODE=BF16 and highest, packed weights: 3e-03
# Where pip finds no CPU build of PyTorch, this downloads gigabytes. Exit status 1: the behaviour changed.
set -euo pipefail

if ! grep -qE 'amx_bf16|avx512_bf16' /proc/cpuinfo; then
    echo "skipped: this processor has no instructions for bfloat16"
    exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.2.6

cat >"$folder/seen.py" <<'PYTHON'
import os
import subprocess
import sys

import torch

PACKED = "packed"
x, w = (torch.randn(64, 512, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))


def error(packed=False):
    """The largest error over the largest value."""
    right = x.double() @ w.double().T
    if packed:
        layer = torch.ops.mkldnn._reorder_linear_weight(w, len(x))
        found = torch.ops.mkldnn._linear_pointwise(x, layer, None, "none", [], "")
    else:
        found = torch.nn.functional.linear(x, w)
    return ((found.double() - right).abs().max() / right.abs().max()).item()


torch.set_num_threads(1)
if sys.argv[1:] == [PACKED]:
    torch.set_float32_matmul_precision("highest")
    print(error(packed=True))
    sys.exit()
highest = error()
print(f"highest: {highest:.0e}")
torch.set_float32_matmul_precision("medium")
medium = error()
print(f"medium: {medium:.0e}")
torch.set_float32_matmul_precision("highest")
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
own, told = error(), "answers"
try:
    torch.get_float32_matmul_precision()
except RuntimeError as raised:
    told = f"raises {type(raised).__name__}"
print(f"oneDNN's own setting: {own:.0e}, and get_float32_matmul_precision() {told}")
forced = {**os.environ, "ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}
child = subprocess.run([sys.executable, __file__, PACKED], env=forced, capture_output=True, text=True, check=True)
variable = float(child.stdout)
print(f"ONEDNN_DEFAULT_FPMATH_MODE=BF16 and highest, packed weights: {variable:.0e}")
rough = all(found > 1e-4 for found in (medium, own, variable))
sys.exit(0 if rough and highest < 1e-5 and told.startswith("raises") else 1)
PYTHON

if ! (cd "$folder" && "$folder/venv/bin/python" seen.py); then
    echo "changed: float32 products are computed otherwise"
    exit 1
fi

#!/usr/bin/env bash
# Guess: torch.ops.mkldnn._reorder_linear_weight(w, rows) packs weights for oneDNN; rows only tunes the layout,
#   and the packed weights serve any number of rows about as well.
# Versions: torch 2.13.0 (CPU build, oneDNN 3.12.0), on an Intel Xeon with AVX-512.
# Behaviour: Told of one row, oneDNN leaves the weights as they are: with 64 rows they are then read in plain
#   order ("wei:f32::blocked:ab"), where weights that were packed for 64 rows are in blocks. A contender packs
#   for the number of rows that it is called with, and refuses others (dietlab/targets/cpu/contenders/pytorch.py).
# Seen:
#   64 rows, packed for 1: weights in ab
#   64 rows, packed for 64: weights in AB16b64a
# Where pip finds no CPU build of PyTorch, this downloads gigabytes. Exit status 1: the behaviour changed.
set -euo pipefail

if ! grep -q avx512f /proc/cpuinfo; then
    echo "skipped: seen on processors with AVX-512 only"
    exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.2.6

cat >"$folder/seen.py" <<'PYTHON'
import re
import subprocess
import sys

import torch

if sys.argv[1:]:
    torch.set_num_threads(1)
    packed = torch.ops.mkldnn._reorder_linear_weight(torch.randn(768, 512), int(sys.argv[1]))
    with torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
        torch.ops.mkldnn._linear_pointwise(torch.randn(64, 512), packed, None, "none", [], "")
    sys.exit()
layouts = []
for rows in (1, 64):
    command = [sys.executable, __file__, str(rows)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in told.splitlines() if "exec,cpu,inner_product" in line]
    layouts.append(re.search(r"wei:f32:\w*:blocked:(\w+)", line).group(1))
    print(f"64 rows, packed for {rows}: weights in {layouts[-1]}")
sys.exit(0 if layouts[0] in ("ab", "ba") and layouts[1] not in ("ab", "ba") else 1)
PYTHON

if ! (cd "$folder" && "$folder/venv/bin/python" seen.py); then
    echo "changed: weights that were packed for one row are in blocks"
    exit 1
fi

#!/usr/bin/env bash
# Attention that OpenVINO compiled for any length, called with one token first.
#
# Guess: what a compiled model with a dynamic length computes does not depend on the lengths of earlier calls.
# Versions: openvino 2026.4.1 and numpy 2.2.6, Python 3.11, on an Intel Xeon with AVX-512.
# Behaviour: on a CPU, scaled dot product attention in float32 without a mask becomes one kernel of OpenVINO's snippets.
#   If the first call has one token, later calls of 16 tokens and more (with AVX2 only, of 8 and more: a vector's
#   numbers) are far off float64, by more than the largest number. After a first call of another length, with a mask of
#   zeros, or with SNIPPETS_MODE=DISABLE they are right.
# Seen:
#   AVX512_CORE, first 1 token: wrong for 16, 17, 32
#   AVX512_CORE, first 2 tokens: right
#   AVX512_CORE, first 1 token, a mask: right
#   AVX512_CORE, first 1 token, no snippets: right
#   AVX2, first 1 token: wrong for 8, 15, 16, 17, 32
#   and right with AVX2 where it is with AVX-512
# Exit status 1: the behaviour changed.
set -euo pipefail

python=${PYTHON:-python3}
if ! grep -qs avx512vl /proc/cpuinfo; then
  echo "skipped: seen on processors with AVX-512 only"
  exit 0
fi
if ! "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))'; then
  echo "skipped: the pinned wheels are for Python 3.10 to 3.13"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "openvino==2026.4.1" "numpy==2.2.6"

cat > "$folder/seen.py" <<'PY'
import os
import sys

sys.modules["openvino_telemetry"] = None

import numpy as np
import openvino as ov
from openvino import opset13 as ops

rng = np.random.default_rng(0)
off = {}
for case in ("1 token", "2 tokens", "1 token, a mask", "1 token, no snippets"):
    given = [ops.parameter([1, 2, -1, 16], np.float32) for _ in range(3)]
    given += [ops.parameter([-1, -1], np.float32)] if "mask" in case else []
    options = {"INFERENCE_PRECISION_HINT": "f32"} | ({"SNIPPETS_MODE": "DISABLE"} if "snippets" in case else {})
    call = ov.Core().compile_model(ov.Model([ops.scaled_dot_product_attention(*given)], given), "CPU", options)
    for length in (int(case[0]), 1, 7, 8, 15, 16, 17, 32):
        arrays = [rng.standard_normal((1, 2, length, 16), np.float32) for _ in range(3)]
        found = call([*arrays, np.zeros((length, length), np.float32)][: len(given)])[0]
        q, k, v = (array.astype(np.float64) for array in arrays)
        weights = np.exp(q @ k.swapaxes(2, 3) / 4)
        expected = weights / weights.sum(-1, keepdims=True) @ v
        off[length] = np.abs(found - expected).max() / np.abs(expected).max()
    wrong = [f"{n}" if x > 1 else f"{n} by {x:.0e}" for n, x in sorted(off.items()) if not x < 1e-5]
    print(f"{os.environ['ONEDNN_MAX_CPU_ISA']}, first {case}: {'wrong for ' + ', '.join(wrong) if wrong else 'right'}")
PY
for isa in AVX512_CORE AVX2; do
  ONEDNN_MAX_CPU_ISA=$isa "$folder/venv/bin/python" "$folder/seen.py" | tee -a "$folder/seen.txt"
done
diff "$folder/seen.txt" - <<'SEEN'
AVX512_CORE, first 1 token: wrong for 16, 17, 32
AVX512_CORE, first 2 tokens: right
AVX512_CORE, first 1 token, a mask: right
AVX512_CORE, first 1 token, no snippets: right
AVX2, first 1 token: wrong for 8, 15, 16, 17, 32
AVX2, first 2 tokens: right
AVX2, first 1 token, a mask: right
AVX2, first 1 token, no snippets: right
SEEN

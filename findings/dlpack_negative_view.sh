#!/usr/bin/env bash
# A negative view, such as the imaginary part of a conjugate, handed to another library by DLPack.
#
# Guess: PyTorch keeps the sign of such a view in a bit and not in memory, so export is refused or the numbers are made
#   first, as export of a conjugate is refused (BufferError) and numpy() refuses negative views.
# Versions: torch 2.13.0 (CPU build), numpy 2.2.6 and apache-tvm-ffi 0.1.14.post1, Python 3.11.
# Behaviour: __dlpack__ exports the memory without the sign and without an error. What imports it (PyTorch, NumPy,
#   tvm_ffi) has the opposite numbers. resolve_neg() before it gives the right ones.
# Seen:
#   the view [-2.0, 4.0]
#   torch.from_dlpack [2.0, -4.0]
#   numpy.from_dlpack [2.0, -4.0]
#   tvm_ffi.from_dlpack [2.0, -4.0]
#   after resolve_neg [-2.0, 4.0]
#   numpy() refused, conjugate refused
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
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  "torch==2.13.0" "numpy==2.2.6" "apache-tvm-ffi==0.1.14.post1"

cat > "$folder/seen.py" <<'PY'
import numpy as np
import torch
import tvm_ffi

complex_numbers = torch.tensor([1 + 2j, 3 - 4j])
view = complex_numbers.conj().imag


def refused(call):
    try:
        call()
    except (RuntimeError, BufferError):
        return "refused"
    return "allowed"


print("the view", view.tolist())
print("torch.from_dlpack", torch.from_dlpack(view).tolist())
print("numpy.from_dlpack", np.from_dlpack(view).tolist())
print("tvm_ffi.from_dlpack", np.from_dlpack(tvm_ffi.from_dlpack(view)).tolist())
print("after resolve_neg", torch.from_dlpack(view.resolve_neg()).tolist())
print(f"numpy() {refused(view.numpy)}, conjugate {refused(lambda: torch.from_dlpack(complex_numbers.conj()))}")
PY
"$folder/venv/bin/python" "$folder/seen.py" | tee "$folder/seen.txt"
diff "$folder/seen.txt" - <<'SEEN'
the view [-2.0, 4.0]
torch.from_dlpack [2.0, -4.0]
numpy.from_dlpack [2.0, -4.0]
tvm_ffi.from_dlpack [2.0, -4.0]
after resolve_neg [-2.0, 4.0]
numpy() refused, conjugate refused
SEEN

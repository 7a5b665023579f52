#!/usr/bin/env bash
# An empty array of NumPy as the argument of a function that TVM compiled for any number of rows.
#
# Guess: an array without elements is contiguous by any rule, so that a call with no rows does nothing, with every
#   NumPy that TVM accepts.
# Versions: apache-tvm 0.27.0.post1 and apache-tvm-ffi 0.1.14.post1; numpy 2.2.6 and 2.4.6; Python 3.11 to 3.13.
# Behaviour: NumPy gives an array with an extent of 0 strides of 0, also that of numpy.ascontiguousarray, whose
#   flags.c_contiguous is true. NumPy 2.2 leaves the strides of contiguous arrays out of the DLPack exchange, by which
#   TVM takes arguments; NumPy 2.4 hands them over. The check that TVM compiles into a function compares strides also
#   where there are no elements, and refuses the call as of an array that is not compact.
# Seen:
#   numpy 2.2.6: strides (0, 0), contiguous True: called
#   numpy 2.4.6: strides (0, 0), contiguous True: ValueError: expected to be compact array
# Exit status 1: the behaviour changed.
set -euo pipefail

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'; then
  echo "skipped: the pinned wheels are for Python 3.11 to 3.13"
  exit 0
fi
if ! command -v cc > /dev/null; then
  echo "skipped: TVM links what it compiles, and no C compiler is here"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/seen.py" <<'PY'
import numpy as np
import tvm
from tvm import te

rows = te.var("rows")
x = te.placeholder((rows, 16), "float32", name="x")
y = te.compute((rows, 16), lambda i, j: x[i, j] + 1.0, name="y")
built = tvm.compile(te.create_prim_func([x, y]), target="llvm")
empty, out = (np.ascontiguousarray(np.empty((0, 16), np.float32)) for _ in range(2))
try:
    built["main"](empty, out)
    said = "called"
except ValueError as error:
    said = f"ValueError: {str(error).strip().splitlines()[-1].strip()}"
print(f"numpy {np.__version__}: strides {empty.strides}, contiguous {empty.flags.c_contiguous}: {said}")
PY

"$python" -m venv "$folder/venv"
for numpy in 2.2.6 2.4.6; do
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    "apache-tvm==0.27.0.post1" "apache-tvm-ffi==0.1.14.post1" "numpy==$numpy"
  "$folder/venv/bin/python" "$folder/seen.py" | tee -a "$folder/seen.txt"
done
diff "$folder/seen.txt" - <<'SEEN'
numpy 2.2.6: strides (0, 0), contiguous True: called
numpy 2.4.6: strides (0, 0), contiguous True: ValueError: expected to be compact array
SEEN

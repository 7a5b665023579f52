#!/usr/bin/env bash
# An array of an image as the input of LiteRT's compiled model, without a copy.
#
# Guess: memory that TensorBuffer.create_from_host_memory makes of an array with four dimensions can be the input of a
#   model with four dimensions; the documentation says that it references existing host memory, and shows an array of
#   two.
# Versions: ai-edge-litert 2.3.0, flatbuffers 25.12.19 and numpy 2.2.6, Python 3.11, on an AMD EPYC with AVX-512.
# Behaviour: the memory has one dimension, whatever the array has, and as an input it is refused: a model of any size
#   says that the ranks differ, one of a fixed size that its tensor has no signature. As an output it is taken and
#   written. What the model itself makes with create_input_buffers is taken, after a copy with write.
# Seen:
#   the array's shape (1, 5, 6, 8), its memory's [240]
#   any size, input from the array: refused, rank mismatch
#   any size, input copied, output in the array: right
#   fixed size, input from the array: refused, no dims_signature exists
#   fixed size, input copied, output in the array: right
# Exit status 1: the behaviour changed.
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
  "ai-edge-litert==2.3.0" "flatbuffers==25.12.19" "numpy==2.2.6"

cat > "$folder/seen.py" <<'PY'
import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.compiled_model import CompiledModel, TensorBuffer


def relu(dims):
    """Returns a model of one operator."""
    shape, signature = [max(1, size) for size in dims], dims if min(dims) < 0 else None
    tensors = [schema.TensorT(name=name, shape=shape, shapeSignature=signature, hasRank=True) for name in "xy"]
    code = schema.BuiltinOperator.RELU
    graph = schema.SubGraphT(tensors, [0], [1], [schema.OperatorT(inputs=[0], outputs=[1])], "main")
    codes = [schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code)]
    builder = flatbuffers.Builder(0)
    builder.Finish(schema.ModelT(3, codes, [graph], "relu", [schema.BufferT()]).Pack(builder), b"TFL3")
    return bytes(builder.Output())


def aligned(shape):
    raw = np.empty(np.prod(shape) * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + raw.size - 64].view(np.float32).reshape(shape)


x, y = aligned((1, 5, 6, 8)), aligned((1, 5, 6, 8))
x[...] = np.random.default_rng(0).standard_normal(x.shape, np.float32)
y.fill(np.nan)
taken, written = map(TensorBuffer.create_from_host_memory, (x, y))
print(f"the array's shape {x.shape}, its memory's {taken.get_tensor_details()['shape']}")
for name, dims in (("any", [1, -1, -1, 8]), ("fixed", list(x.shape))):
    model = CompiledModel.from_buffer(relu(dims))
    if name == "any":
        model.resize_input_tensor(0, x.shape)
    try:
        model.run_by_index(0, [taken], [written])
        print(f"{name} size, input from the array: taken")
    except RuntimeError as error:
        why = [text for text in ("rank mismatch", "no dims_signature exists") if text in str(error)]
        print(f"{name} size, input from the array: refused, {', '.join(why)}")
    (copied,) = model.create_input_buffers(0)
    copied.write(x)
    model.run_by_index(0, [copied], [written])
    right = (y == np.maximum(x, 0)).all()
    print(f"{name} size, input copied, output in the array: {'right' if right else 'wrong'}")
PY
"$folder/venv/bin/python" "$folder/seen.py" 2> "$folder/log.txt" | tee "$folder/seen.txt"
diff "$folder/seen.txt" - <<'SEEN'
the array's shape (1, 5, 6, 8), its memory's [240]
any size, input from the array: refused, rank mismatch
any size, input copied, output in the array: right
fixed size, input from the array: refused, no dims_signature exists
fixed size, input copied, output in the array: right
SEEN

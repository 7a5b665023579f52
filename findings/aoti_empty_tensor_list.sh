#!/usr/bin/env bash
# A custom operator with a list of tensors, in a model that PyTorch compiles ahead of time.
#
# Guess: an empty list reaches the operator as an empty list, as it does in eager mode, in torch.compile and in the
#   exported program.
# Versions: torch 2.13.0 (CPU build) and numpy 2.2.6, Python 3.11, GCC 12, on an AMD EPYC with AVX-512.
# Behaviour: compiled ahead of time, None takes the place of an empty Tensor[], and the call is refused: in Python by the
#   schema, in C++ by an internal assert ("Expected TensorList but got None"). A list of one tensor arrives. PyTorch
#   mended the same for empty lists of integers later (pull request 194324).
# Seen:
#   1 tensor: eager [1], compiled [1], exported [1], ahead of time [1]
#   0 tensors: eager [0], compiled [0], exported [0], ahead of time refused
# Where pip finds no CPU build of PyTorch, this downloads gigabytes. Exit status 1: the behaviour changed.
set -euo pipefail

python=${PYTHON:-python3}
if ! command -v g++ > /dev/null; then
  echo "skipped: PyTorch needs a C++ compiler to compile ahead of time"
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
import torch

given = []


@torch.library.custom_op("demo::count", mutates_args=())
def count(x: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    given.append(len(others))
    return x.clone()


@count.register_fake
def _(x, others):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        return torch.ops.demo.count(x, [x] * self.number)


def seen(call, x):
    given.clear()
    try:
        call(x)
    except RuntimeError as error:
        return "refused" if "NoneType" in str(error) else error
    return given[:]


for number, noun in ((1, "tensor"), (0, "tensors")):
    model, x = Model(number).eval(), torch.randn(3, 4)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},))
    ahead = torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))
    calls = {"eager": model, "compiled": torch.compile(model), "exported": program.module(), "ahead of time": ahead}
    calls["compiled"](x)  # compiles
    print(f"{number} {noun}: " + ", ".join(f"{name} {seen(call, x)}" for name, call in calls.items()))
PY
TORCHINDUCTOR_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" "$folder/seen.py" 2> "$folder/log.txt" \
  | tee "$folder/seen.txt"
diff "$folder/seen.txt" - <<'SEEN'
1 tensor: eager [1], compiled [1], exported [1], ahead of time [1]
0 tensors: eager [0], compiled [0], exported [0], ahead of time refused
SEEN

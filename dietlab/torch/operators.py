"""Compiles and registers the operators ``torch.ops.dietlab.linear`` and ``.batch_matmul``, and for comparison
``.static_linear``.

They are in C++, which is compiled once for each version of PyTorch, and kept where PyTorch keeps its
extensions. ``torch.compile`` and ``torch.export`` keep the operators whole.
"""

from __future__ import annotations

import re
import sys
from hashlib import sha256
from pathlib import Path

import torch
import tvm_ffi
from torch.utils import cpp_extension

from dietlab.errors import MissingDependencyError

FOLDER = Path(__file__).parent
HEADERS = ("calls.h",)
FLAGS = ("-O2", "-fopenmp")


def register_operators() -> None:
    """Makes the operators of tuned libraries known to PyTorch, unless they are.

    Raises:
        MissingDependencyError: if they must be compiled and there is no C++ compiler or no ninja.
    """
    _register("linear", "operators.cpp")


def register_static_linear() -> None:
    """Makes the operator of programs that were tuned for one number of rows known to PyTorch, unless it is.

    Raises:
        MissingDependencyError: if it must be compiled and there is no C++ compiler or no ninja.
    """
    _register("static_linear", "static_linear.cpp")


def _register(operator: str, source: str) -> None:
    if hasattr(torch.ops.dietlab, operator):
        return
    # Compiled code fits one version of PyTorch and one text only.
    version = re.sub(r"\W", "_", torch.__version__)
    texts = [(FOLDER / name).read_bytes() for name in (source, *HEADERS)]
    digest = sha256(b"".join(texts) + " ".join(FLAGS).encode()).hexdigest()[:8]
    name = f"dietlab_{digest}_torch_{version}"
    folder = Path(cpp_extension._get_build_directory(name, verbose=False))
    if not (folder / f"{name}.so").is_file():
        print(f"dietlab compiles {source} for PyTorch {torch.__version__} once (30 s)", file=sys.stderr)
    found = tvm_ffi.libinfo
    libtvm_ffi = Path(found.find_libtvm_ffi())
    try:
        cpp_extension.load(
            name,
            [str(FOLDER / source)],
            extra_include_paths=[found.find_include_path(), found.find_dlpack_include_path()],
            extra_cflags=list(FLAGS),
            extra_ldflags=[*FLAGS, str(libtvm_ffi), f"-Wl,-rpath,{libtvm_ffi.parent}"],
            build_directory=str(folder),
            is_python_module=False,
        )
    except (OSError, RuntimeError) as error:
        raise MissingDependencyError(
            "PyTorch compiles dietlab's operators, once, with a C++ compiler and ninja",
            str(error).splitlines()[0],
            "apt-get install g++, pip install ninja.",
        ) from error


register_operators()

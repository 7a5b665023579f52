"""Compiles PyTorch operators in C++, once for each version of PyTorch and of TVM's interface.

The compiler is called directly. PyTorch's own way of compiling extensions (2.13) allows no blanks in paths,
and uses a file as a lock. A killed process leaves this file behind for ever.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch
import tvm_ffi
from torch.utils import cpp_extension

from dietlab.base.errors import DietlabError, MissingDependencyError
from dietlab.base.files import replacing, turn, write_whole, writing

FOLDER = Path(__file__).parent
COMPILED = FOLDER / "compiled"
"""Folder where ``python -m dietlab.torch`` writes operators, for all users of this environment."""

HEADERS = ("calls.h", "libraries.h", "convolution.h")
FLAGS = ("-std=c++20", "-O2", "-fopenmp", "-fPIC", "-shared")


def extension(source: str) -> Path:
    """Returns the compiled form of a source file of this folder; compiles it on first use.

    Raises:
        MissingDependencyError: if it must be compiled and that fails.
    """
    name = _name(source)
    for folder in (COMPILED, home()):
        if (found := folder / name / f"{name}.so").is_file():
            return found
    found = home() / name / f"{name}.so"
    try:
        with turn(found.with_name("compiling"), "one process at a time compiles an operator"):
            if not found.is_file():
                _compile(source, found)
            return found
    except OSError as error:
        print(
            f"dietlab keeps what it compiles in {home()}, which cannot be written ({error.strerror}): this "
            "process compiles for itself. `python -m dietlab.torch`, where the environment can be written, "
            "does it once.",
            file=sys.stderr,
        )
        own = Path(tempfile.mkdtemp(prefix="dietlab-"))
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        _compile(source, own / f"{name}.so")
        return own / f"{name}.so"


def keep(source: str) -> Path:
    """Copies the compiled form of a source file into the package, and returns the copy; no other folder is
    needed then.

    Raises:
        MissingDependencyError: if it must be compiled and that fails.
        DietlabError: if the package's folder cannot be written.
    """
    name = _name(source)
    kept = COMPILED / name / f"{name}.so"
    if not kept.is_file():
        with writing("the operators", kept, DietlabError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, extension(source).read_bytes())
    return kept


def home() -> Path:
    """Returns the folder for files compiled on first use: PyTorch's folder for extensions, which
    TORCH_EXTENSIONS_DIR can set."""
    return Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root())


@cache
def _name(source: str) -> str:
    """Returns a name that is unique for all that the compiled code depends on."""
    texts = b"".join((FOLDER / name).read_bytes() for name in (source, *HEADERS))
    facts = f"{' '.join(FLAGS)} {tvm_ffi.__version__}"
    digest = sha256(texts + facts.encode()).hexdigest()[:8]
    version = re.sub(r"\W", "_", torch.__version__)
    return f"dietlab_{Path(source).stem}_{digest}_torch_{version}"


def _compile(source: str, into: Path) -> None:
    """Compiles a file, whole or not at all.

    Raises:
        MissingDependencyError: if there is no compiler, or it fails.
        OSError: if ``into`` cannot be written.
    """
    print(f"dietlab compiles {source} for PyTorch {torch.__version__} once (30 s)", file=sys.stderr)
    found = tvm_ffi.libinfo
    libtvm_ffi = Path(found.find_libtvm_ffi())
    includes = [*cpp_extension.include_paths(), found.find_include_path(), found.find_dlpack_include_path()]
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    with replacing(into) as unfinished:
        command = [*compiler, *FLAGS, abi, *(f"-isystem{path}" for path in includes), str(FOLDER / source)]
        command += [*libraries, "-ltorch", "-ltorch_cpu", "-lc10", str(libtvm_ffi)]
        command += [f"-Wl,-rpath,{libtvm_ffi.parent}", "-o", str(unfinished)]
        try:
            unfinished.touch()  # fails if the folder cannot be written, which is no fault of the compiler
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            raise _missing(f"no {error.filename}", "apt-get install g++, or name one: CXX=path.") from None
        if done.returncode:
            raise _missing(_reason(done.stderr), "GCC 11 or later compiles them: apt-get install g++.")


def _missing(value: str, remedy: str) -> MissingDependencyError:
    return MissingDependencyError(
        "a C++ compiler compiles dietlab's operators for PyTorch, once", value, remedy
    )


def _reason(said: str) -> str:
    """Returns the line of a compiler's output with the error."""
    lines = said.strip().splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "no reason")

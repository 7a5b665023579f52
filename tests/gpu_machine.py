"""Stands for a machine that is lent with a GPU: Python 3.12, PyTorch, no TVM, no network, gone at any moment.

The GPU is the stub driver's, PyTorch a stand-in (the wheel for Python 3.12 comes with gigabytes of CUDA), and
nvcc the one of this machine, behind whose cubins the emulator's libraries lie.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from time import monotonic, sleep

import pytest
from conftest import ROOT
from cuda_emulation.fake_driver import HERE, StubDevice, build_driver
from cuda_emulation.nvcc import write_wrapper

from dietlab.targets.cuda.lowering.nvcc import compilers, require_compiler

MIB = 1 << 20
COMMAND_SECONDS = 600
"""What such a machine gives a command."""
PACKAGES = ("numpy", "pandas", "scipy")
"""What it has besides PyTorch, of all that dietlab needs."""
NAMESPACES = ("unshare", "-n", "-p", "-f", "--mount-proc", "--kill-child=KILL")
"""Runs a command without a network; its processes end with it, as with the machine."""

WATCH_IMPORTS = """
import os, sys
from importlib.machinery import PathFinder
class Watcher:
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            with open(os.environ["IMPORTED"], "a") as file:
                file.write(f"{name} {spec.origin}\\n")
        return spec
if "IMPORTED" in os.environ:
    sys.meta_path.insert(sys.meta_path.index(PathFinder), Watcher())
"""
"""Becomes ``sitecustomize``: what is imported from where, line by line, also by processes that are killed."""


def find_python(version: str) -> Path | None:
    """Returns a Python of that version: the PATH's, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    named = shutil.which(f"python{version}")
    for path in (*([Path(named)] if named else []), *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))):
        if subprocess.run([path, "-c", "import ensurepip, venv"], capture_output=True).returncode == 0:
            return path
    return None


def find_isolation() -> tuple[str, ...] | None:
    """Returns a command that keeps the network from another, as root or as a user; None if neither may."""
    for command in (NAMESPACES, (*NAMESPACES, "-r")):
        try:
            subprocess.run([*command, "true"], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return command
    return None


CALL = re.compile(r"^call (\d+), bring (.*):\n    (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Call:
    """A command that ``pack_for_gpu.sh`` prints, and the folders that are brought along."""

    brought: tuple[str, ...]
    command: str


def calls_of(printed: str) -> tuple[Call, ...]:
    return tuple(Call(tuple(brought.split()), command) for _, brought, command in CALL.findall(printed))


@dataclass(frozen=True)
class Clone:
    """A copy of what git tracks here and would track, as a repository."""

    folder: Path

    def pack(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "scripts/pack_for_gpu.sh", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=300)

    def files(self) -> list[str]:
        """Those that travel with every call."""
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True)
        return [name for name in listed.stdout.split("\0") if name and (self.folder / name).is_file()]

    def parts(self) -> list[Path]:
        return sorted(self.folder.glob(".gpu[0-9]*/*"))


def clone_into(folder: Path) -> Clone:
    for name in Clone(ROOT).files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return Clone(folder)


def lines_in(state: Path, name: str) -> list[str]:
    """The lines of the files of a bench's state that match a name; none if there is no state or file yet."""
    if not state.is_file():
        return []
    with tarfile.open(state) as archive:
        found = [member for member in archive if fnmatch(member.name, f"*{name}")]
        return [line for member in found for line in archive.extractfile(member).read().decode().splitlines()]  # type: ignore[union-attr]


@dataclass(frozen=True)
class Image:
    """What every such machine begins with: ``venv``, ``bin`` with nvcc, ``driver``."""

    folder: Path
    isolation: tuple[str, ...]

    @classmethod
    def make(cls, folder: Path, python: Path, isolation: tuple[str, ...], constraints: Path) -> Image:
        """Installs it; the packages come from the package index."""
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        pip = [folder / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", "-c", constraints]
        subprocess.run([*pip, *PACKAGES], check=True)
        (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (site / "sitecustomize.py").write_text(WATCH_IMPORTS)
        shutil.copy(HERE / "stand_in_torch.py", site / "torch.py")
        (folder / "driver").mkdir()
        _, runtime = build_driver(folder / "driver", StubDevice(name="NVIDIA H200"))
        # PyTorch's wheels bring the CUDA runtime so; the loader does not look there.
        packaged = site / "nvidia" / "cu13" / "lib" / runtime.name
        packaged.parent.mkdir(parents=True)
        runtime.rename(packaged)
        compiler = require_compiler()
        (folder / "bin").mkdir()
        write_wrapper(
            folder / "bin" / "nvcc", compiler.command, [f"-I{include}" for include in compiler.includes]
        )
        return cls(folder, isolation)


def image_or_skip(folder: Path) -> Image:
    """Returns what machines begin with; skips the test where it cannot be made."""
    python, isolation = find_python("3.12"), find_isolation()
    if python is None:
        pytest.skip("there is no Python 3.12, neither on the PATH nor of pyenv")
    if isolation is None:
        pytest.skip("unshare may not take the network from a process here")
    if next(compilers(), None) is None:
        pytest.skip("no CUDA compiler is installed (pip install nvidia-cuda-nvcc nvidia-cuda-cccl)")
    return Image.make(folder, python, isolation, ROOT / "constraints.txt")


def rehearsal_log(name: str, usual: Path) -> Path:
    """Returns a new log, in the folder that ``REHEARSAL_LOGS`` names if it is set, else in the usual one."""
    folder = Path(os.environ.get("REHEARSAL_LOGS") or usual).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("")
    return folder / name


def mib_in(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / MIB


@dataclass(frozen=True)
class Machine:
    """One machine: its copy of the working tree stays from call to call, as do its other folders.

    Args:
        compiler: whether nvcc is on its PATH.
    """

    image: Image
    folder: Path
    log: Path
    compiler: bool = True

    def call(
        self,
        clone: Path,
        tracked: list[str],
        brought: tuple[str, ...],
        command: str,
        come_back: Path,
        until: Callable[[Path], bool] | None = None,
    ) -> int:
        """Runs a command in a copy of the working tree with the folders that are ``brought`` along.

        Args:
            come_back: gets what the command left in ``$OUT``.
            until: the machine is taken away, by SIGKILL, as soon as this is true of ``$OUT``.

        Returns:
            the exit status, -9 if it was taken away.
        """
        for name in ("home", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        tree, out = self.folder / "tree", self.folder / "out"
        for name in tracked:
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(clone / name, tree / name)
        for name in brought:
            shutil.rmtree(tree / name, ignore_errors=True)
            shutil.copytree(clone / name, tree / name)
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        with self.log.open("a", encoding="utf-8") as log:
            sizes = ", ".join(f"{name} ({mib_in(tree / name):.1f} MiB)" for name in brought)
            log.write(f"\n[{self.folder.name}] brought {sizes}\n$ {command}\n")
            log.flush()
            limited = ["timeout", str(COMMAND_SECONDS), "sh", "-c", command]
            child = subprocess.Popen(
                [*self.image.isolation, *limited],
                cwd=tree,
                env=self._environment(out),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            started = monotonic()
            while child.poll() is None:
                if until is not None and until(out):
                    child.send_signal(signal.SIGKILL)
                sleep(0.05)
            log.write(f"[{self.folder.name}] status {child.wait()} after {monotonic() - started:.0f} s\n")
        come_back.mkdir(parents=True, exist_ok=True)
        for path in out.iterdir():
            (come_back / path.name).unlink(missing_ok=True)
            shutil.copy(path, come_back / path.name)
            (come_back / path.name).chmod(0o444)
        return child.returncode

    def imports(self) -> dict[str, Path]:
        """What any Python on it imported, and from where."""
        lines = (line.split(maxsplit=1) for line in (self.folder / "imported").read_text().splitlines())
        return {name: Path(origin) for name, origin in lines if origin.startswith("/")}

    def _environment(self, out: Path) -> dict[str, str]:
        python = self.image.folder / "venv" / "bin"
        compiler = (str(self.image.folder / "bin"),) if self.compiler else ()
        return {
            "PATH": os.pathsep.join((*compiler, str(python), "/usr/bin", "/bin")),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "OUT": str(out),
            "LD_LIBRARY_PATH": str(self.image.folder / "driver"),
            "IMPORTED": str(self.folder / "imported"),
            # The stand-in has none of PyTorch's C++, which tvm_ffi would compile against.
            "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
            "LANG": "C.UTF-8",
        }


def base_of(image: Image) -> Path:
    """Where the Python of a machine has its standard library."""
    command = [image.folder / "venv" / "bin" / "python", "-c", "import sys; print(sys.base_prefix)"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())

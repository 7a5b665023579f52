"""Starts a worker: ``python -m dietlab.measure.timing.worker MODULE`` runs MODULE as ``python -m MODULE``
does, with PyTorch hidden.

TVM imports PyTorch wherever it is installed, in case somebody passes its tensors, and that is four fifths of
the time that a worker takes to start. Only the workers that time PyTorch use it: :func:`show_torch`.
"""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    """Runs the module that the command names, in a process where ``import torch`` raises an ImportError."""
    del sys.argv[0]
    sys.modules["torch"] = None  # type: ignore[assignment]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def show_torch() -> None:
    """Lets this process import PyTorch from here on; nothing happens where it was not hidden."""
    if sys.modules.get("torch", sys) is None:
        del sys.modules["torch"]


if __name__ == "__main__":
    main()

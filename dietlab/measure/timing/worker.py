"""Starts a worker: ``python -m dietlab.measure.timing.worker MODULE`` runs MODULE like ``python -m MODULE``,
with PyTorch hidden.

TVM imports PyTorch if PyTorch is installed, which takes four fifths of the time to start a worker. Only
workers that time PyTorch need the import: they call :func:`show_torch`.
"""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    """Runs the module of the command line, in a process where ``import torch`` raises an ImportError."""
    del sys.argv[0]
    sys.modules["torch"] = None  # type: ignore[assignment]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def show_torch() -> None:
    """Lets this process import PyTorch from here on, if it was hidden."""
    if sys.modules.get("torch", sys) is None:
        del sys.modules["torch"]


if __name__ == "__main__":
    main()

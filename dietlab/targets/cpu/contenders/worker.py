"""Checks one contender's results on a CPU, then times it, in a separate process:
``python -m dietlab.targets.cpu.contenders.worker`` answers the requests of
:mod:`dietlab.measure.timing.bench`.

Contenders are the vendors, ``library`` (``options``: ``{"library": folder}``), ``libraries``
(``{"libraries": [folder, ..]}``) and ``ansor`` (``{"library": folder}``); the last two have programs only for
shapes that were tuned. Other options are those of :class:`~dietlab.measure.timing.target.TimingTarget` and
``problems``, a folder through which contenders share operands and right results. Start the process with
:func:`~dietlab.compare.vendor.contender_env`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from dietlab.compare.contenders import AnsorContender, LibrariesContender, LibraryContender, opened_contender
from dietlab.compare.vendor import Kind
from dietlab.measure.timing.bench import Bench, Service
from dietlab.measure.timing.contender import Contender
from dietlab.measure.timing.process import serve
from dietlab.measure.timing.worker import show_torch
from dietlab.problem import Workload
from dietlab.targets.cpu.ansor import load_tuned
from dietlab.targets.cpu.contenders import VENDORS
from dietlab.targets.cpu.device import Host


def make_contender(name: str, threads: int, options: Mapping[str, Any]) -> Contender:
    """Returns the contender of that name, as :func:`~dietlab.compare.contenders.opened_contender` does."""
    ours: dict[str, Callable[[], Contender]] = {
        "library": lambda: LibraryContender(options["library"], threads),
        "libraries": lambda: LibrariesContender(options["libraries"], threads),
        "ansor": lambda: AnsorContender(options["library"], "cpu", load_tuned),
    }
    return opened_contender(name, VENDORS, threads, ours, get_args(Kind))


def opened(request: Mapping[str, Any], workload: Workload) -> Bench:
    """Returns the bench of the contender that a request opens."""
    threads, options = int(request["threads"]), request.get("options") or {}
    contender = make_contender(request["contender"], threads, options)
    return Bench(Host.opened(threads, options), contender, workload, problems=options.get("problems"))


if __name__ == "__main__":
    import tvm_ffi  # noqa: F401, before PyTorch shows: workers of other libraries start sooner without it

    show_torch()
    serve(Service(opened))

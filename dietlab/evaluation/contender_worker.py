"""Checks one contender's results on a CPU, then times it, in a separate process:
``python -m dietlab.evaluation.contender_worker`` answers as :mod:`dietlab.timing.bench` says.

Contenders are the vendors, ``library`` (``options``: ``{"library": folder}``), ``libraries``
(``{"libraries": [folder, ..]}``) and ``ansor`` (``{"library": folder}``); the last two have no program for
shapes that none was tuned for. Other options are those of :class:`~dietlab.timing.target.TimingTarget` and
``problems``, a folder through which contenders share operands and right results. Start the process with
:func:`~dietlab.evaluation.vendors.contender_env`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietlab.evaluation.contenders import make_contender
from dietlab.timing.bench import Bench, Service
from dietlab.timing.host import Host
from dietlab.timing.process import serve
from dietlab.timing.worker import show_torch
from dietlab.workloads import Workload


def opened(request: Mapping[str, Any], workload: Workload) -> Bench:
    """Returns the bench of the contender that a request opens."""
    threads, options = int(request["threads"]), request.get("options") or {}
    contender = make_contender(request["contender"], threads, options)
    return Bench(Host.opened(threads, options), contender, workload, problems=options.get("problems"))


if __name__ == "__main__":
    import tvm_ffi  # noqa: F401, before PyTorch shows: workers of other libraries start sooner without it

    show_torch()
    serve(Service(opened))

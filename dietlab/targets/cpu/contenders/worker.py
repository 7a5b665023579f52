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

from dietlab.base.errors import MissingDependencyError
from dietlab.compare.contenders import AnsorContender, LibrariesContender, LibraryContender, opened_contender
from dietlab.compare.vendor import Kind
from dietlab.measure.timing.bench import Bench, Service
from dietlab.measure.timing.contender import Contender, NoFormError
from dietlab.measure.timing.process import serve
from dietlab.measure.timing.worker import show_torch
from dietlab.problem import Shape, Workload, workload_from_json
from dietlab.targets.cpu.ansor import load_tuned
from dietlab.targets.cpu.contenders import VENDORS
from dietlab.targets.cpu.contenders.sizes import at_sizes
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


class CpuService(Service):
    """Also answers ``{"op": "sizes", "shapes": [..], ..}`` with the result of :func:`at_sizes`. The request's
    other fields are those of an opening request."""

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["op"] != "sizes":
            return super().__call__(request)
        workload = workload_from_json(request["workload"])
        try:
            contender = make_contender(
                request["contender"], int(request["threads"]), request.get("options") or {}
            )
            contender.kind(workload)
        except (MissingDependencyError, NoFormError) as error:
            return {"absent": str(error)}
        return at_sizes(contender, workload, [Shape.from_json(shape) for shape in request["shapes"]])


if __name__ == "__main__":
    import tvm_ffi  # noqa: F401, before PyTorch shows: workers of other libraries start sooner without it

    show_torch()
    serve(CpuService(opened))

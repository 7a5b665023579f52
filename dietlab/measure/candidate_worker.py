"""Checks and times candidates: ``python -m dietlab.measure.candidate_worker``.

The worker answers the requests that :mod:`dietlab.measure.timing.bench` describes. In a request, ``plan`` is
a library's path, and ``options`` are made by :class:`~dietlab.measure.timing.target.TimingTarget`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dietlab.measure.candidates import Candidates
from dietlab.measure.timing.bench import Bench, Service
from dietlab.measure.timing.process import serve
from dietlab.measure.timing.target import timing_target
from dietlab.problem import Workload


def opened(request: Mapping[str, Any], workload: Workload) -> Bench:
    """Returns the bench for a workload's candidates."""
    options, cores = request["options"], int(request["threads"])
    device = timing_target(options["kind"]).device(cores, options)
    return Bench(device, Candidates(options["kind"], cores, device.arena), workload, keeps=False)


if __name__ == "__main__":
    serve(Service(opened))

"""Checks one contender's results on a GPU, then times it, in a separate process.

``python -m dietlab.evaluation.gpu.worker`` answers (JSON, a line each), as
:mod:`dietlab.evaluation.contender_worker` does on a CPU::

    {"op": "open", "contender": "cublas", "workload": {..}, "options": {"l2_bytes": 52428800}}
        -> {"version", "kind", "unprobed"} or {"absent": reason}
    {"op": "check", "shape": {"T": 5}, "seed": 0}
        -> {"max_error", "tolerance", "correct", "reason"}
    {"op": "time", "shape": {"T": 5}, "cache": "hot", "min_seconds": 0.004}
        -> {"seconds", "calls", "copies", "retaken", "kept", "probe", "graph", "host_share"}

Contenders are those of :mod:`dietlab.evaluation.gpu` and ``library`` (``options``: ``{"library": folder}``;
``check`` and ``time`` may name a ``plan``) and ``ansor`` (``{"library": folder}``), which answers
``{"absent": reason}`` for shapes that were not tuned. Other options: ``samples``, a folder through which the
contenders of a match share operands and right results, and ``device``, which is ``cuda`` unless it is ``cpu``
in a test.

What ``cache`` says about the moment before a timed call:

``hot``
    The same call ran just before. Operands and output are in L2 as far as they fit.
``rotating``
    Calls go round copies of *all* operands and the output, as when candidates are tuned; together they cover
    twice L2, so that none is there when its turn comes (tiny operators run into limits to their number).

``probe`` is the seconds of one cycle of the multiprocessors' clock, the least around the block (None where it
cannot be read; ``unprobed`` says why). A block during which the clock changed by more than
:data:`~dietlab.timing.disturbance.SLOWER` is timed again (``retaken``), and at last counts as it is
(``kept``). Only the block's own moments are compared: a GPU at its power limit keeps a clock for each kind of
work, which is part of what is measured. ``graph`` and ``host_share``: see
:class:`~dietlab.evaluation.gpu.clock.TimedBlock`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dietlab.errors import DietlabError, MeasureError, MissingDependencyError
from dietlab.evaluation.contenders import NotTunedError
from dietlab.evaluation.gpu import GPU_CACHE_STATES
from dietlab.evaluation.gpu.case import DeviceCase
from dietlab.evaluation.gpu.clock import BlockClock, EventClock, HostClock, TimedBlock, cycle_probe
from dietlab.evaluation.gpu.contenders import GpuContender, GpuSetting, make_gpu_contender
from dietlab.evaluation.gpu.pytorch import open_torch
from dietlab.evaluation.gpu.sample_cache import shared_sample
from dietlab.evaluation.vendors import Call, NoFormError
from dietlab.shapes import Shape
from dietlab.timing.disturbance import Probe, take
from dietlab.timing.lru_by_bytes import LruByBytes
from dietlab.timing.process import serve
from dietlab.timing.rotation import copies_beyond
from dietlab.timing.worker import show_torch
from dietlab.workloads import Workload, workload_from_json

L2_BYTES = 64 << 20
"""Bytes of L2 where the request does not tell: no GPU up to Hopper has more."""
KEPT_BYTES = 1 << 30
"""The most bytes of prepared shapes in device memory."""


class GpuBench:
    """An open contender with the shapes it was last asked for.

    Args:
        setting: the device and the options, as the module's text says.
        probe: seconds of a cycle; None times blocks without looking at the clock.
    """

    def __init__(
        self, contender: GpuContender, workload: Workload, setting: GpuSetting, probe: Probe | None = None
    ) -> None:
        self.contender = contender
        self._workload, self._setting, self._probe = workload, setting, probe
        self._l2_bytes = int(setting.options.get("l2_bytes") or L2_BYTES)
        samples = setting.options.get("samples")
        self._samples = Path(samples) if samples else None
        self._cases: LruByBytes[DeviceCase] = LruByBytes(KEPT_BYTES, lambda case: case.bytes)

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compares one call with the float64 reference; see :class:`~dietlab.timing.sample.Sample`."""
        case = self._case(request)
        (call,) = self._calls(case, request, 1)
        verdict = case.check(call)
        return {**asdict(verdict), "correct": verdict.correct}

    def time(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the seconds a call over one block of calls; see the module's text."""
        cache, seconds = request.get("cache", "hot"), float(request.get("min_seconds", 0.004))
        if cache not in GPU_CACHE_STATES:
            known = ", ".join(GPU_CACHE_STATES)
            raise MeasureError(f"the cache state on a GPU is one of {known}", repr(cache))
        case = self._case(request)
        copies = copies_beyond(case.sample.bytes, self._l2_bytes, packed=False) if cache == "rotating" else 1
        block = self._block(case, request, (cache, request.get("plan"), seconds), copies)
        taken = take(block.run, self._probe)
        self._setting.clock.wait()
        return {
            **asdict(taken),
            "calls": block.calls,
            "copies": copies,
            "graph": block.graph,
            "host_share": round(block.host_share, 3),
        }

    def forget(self) -> None:
        """Lets go of all operands."""
        self._cases.clear()

    def alive(self) -> bool:
        """Returns whether the device still answers: after a fault it does not, until the process ends."""
        try:
            self._setting.clock.wait()
        except Exception:  # whatever PyTorch makes of the driver's error
            return False
        return True

    def _case(self, request: Mapping[str, Any]) -> DeviceCase:
        shape, seed = Shape.from_json(request["shape"]), int(request.get("seed", 0))
        return self._cases.get((shape, seed), lambda: self._new_case(shape, seed))

    def _new_case(self, shape: Shape, seed: int) -> DeviceCase:
        sample = shared_sample(self._samples, self._workload, shape, seed)
        return DeviceCase(self._setting.torch, self._setting.device, sample)

    def _calls(self, case: DeviceCase, request: Mapping[str, Any], copies: int) -> list[Call]:
        plan = request.get("plan")
        return case.bound(copies, plan, partial(self.contender.bind, self._workload, plan=plan))

    def _block(
        self, case: DeviceCase, request: Mapping[str, Any], key: tuple[str, int | None, float], copies: int
    ) -> TimedBlock:
        if key not in case.blocks:
            capture = self.contender.capture if self._setting.device == "cuda" else None
            calls = self._calls(case, request, copies)
            case.blocks[key] = self._setting.clock.block(calls, key[2], capture)
        return case.blocks[key]


class GpuService:
    """Answers the requests that the module's text lists."""

    def __init__(self) -> None:
        self._bench: GpuBench | None = None

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["op"] == "open":
            return self._open(request)
        bench = self._bench
        if bench is None:
            raise MeasureError("a contender is opened first", request["op"])
        try:
            return bench.check(request) if request["op"] == "check" else bench.time(request)
        except NotTunedError as error:
            return {"absent": str(error)}
        except DietlabError:
            raise
        except Exception as error:
            bench.forget()  # perhaps there was too little memory
            if not bench.alive():
                # The parent sees a crash and opens the contender anew for its next question.
                raise SystemExit(f"the GPU answers no more: {error}") from error
            raise

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        options, workload = request.get("options") or {}, workload_from_json(request["workload"])
        try:
            setting = setting_for(options)
            contender = make_gpu_contender(request["contender"], setting)
            kind = contender.kind(workload)
        except (MissingDependencyError, NoFormError) as error:
            return {"absent": str(error)}
        probe, unprobed = None, "a CPU stands in for the GPU"
        if setting.device == "cuda":
            probe, unprobed = cycle_probe(setting.torch)
        self._bench = GpuBench(contender, workload, setting, probe)
        return {"version": contender.version(), "kind": kind, "unprobed": unprobed}


def setting_for(options: Mapping[str, Any]) -> GpuSetting:
    """Returns PyTorch, the device and its clock.

    Raises:
        MissingDependencyError: without PyTorch, or without the device.
    """
    device = str(options.get("device", "cuda"))
    torch = open_torch(device)
    clock: BlockClock = EventClock(torch) if device == "cuda" else HostClock()
    return GpuSetting(torch, device, clock, options)


if __name__ == "__main__":
    show_torch()
    serve(GpuService())

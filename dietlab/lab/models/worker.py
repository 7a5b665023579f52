"""Checks a contender's results for a whole model, then times it, in a separate process.

``python -m dietlab.lab.models.worker`` answers as :mod:`dietlab.measure.timing.bench` says. Calls follow each
other without other work between: a model's weights are larger than any cache. With ``options`` ``{"lengths":
[..]}`` a contender serves these lengths only. One more request is answered::

    {"op": "shares", "shape": {"T": 5}} -> {"contractions", "attention"}, or nothing if no profiler sees them
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from dietlab.base.errors import MissingDependencyError
from dietlab.lab.models.runtimes import AHEAD, KINDS, onnx_shares, runtime, time_shares
from dietlab.lab.models.zoo import Model
from dietlab.measure.timing.disturbance import fma_probe, take, timed_once
from dietlab.measure.timing.process import serve
from dietlab.measure.timing.protocol import clock_for
from dietlab.measure.timing.worker import show_torch
from dietlab.problem import Shape
from dietlab.targets.cpu.contenders.pytorch import in_float32

TOLERANCE = 1e-4
"""The largest difference that an output may have from PyTorch's, over the root mean square of the output if
this is above 1. Outputs of transformers are normalised, so that it is about 1."""


class Service:
    """Answers the requests that the module's text lists."""

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        with torch.no_grad():
            answer = {"open": self._open, "check": self._check, "time": self._time, "shares": self._shares}
            return answer[request["op"]](request)

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        options, threads = request["options"], int(request["threads"])
        self.name, self.options, self.threads = request["contender"], options, threads
        in_float32(torch)
        torch.set_num_threads(threads)
        self.model = Model.from_json(request["workload"])
        self.clock = clock_for(threads)
        self.met: dict[Shape, Any] = {}
        self.probe = fma_probe(options["probe"], self.clock) if options.get("probe") else None
        try:
            self.original = self.model.build()
            self.run, version = runtime(self.name, self.model, self.original, {**options, "threads": threads})
        except MissingDependencyError as error:
            return {"absent": str(error)}
        return {"version": version, "kind": KINDS[self.name]}

    def _check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        shape = Shape.from_json(request["shape"])
        size = self.model.size_of(shape)
        if size not in self.options.get("lengths", [size]):
            return {"absent": f"it was not made for {shape}"}
        given = self.model.input(shape)
        # The first size of the process starts and compiles everything else, too.
        known = [*self.met.values()] if shape not in self.met else []
        if known:
            self.run(known[-1])  # others ran meanwhile
        found, seconds = timed_once(partial(self.run, given))
        self.met[shape] = given
        wanted = self.original(given)[0]  # after it, for oneDNN keeps what it made
        error = (found - wanted).abs().max().item()
        allowed = TOLERANCE * max(1.0, wanted.square().mean().sqrt().item())
        right = math.isfinite(error) and error <= allowed
        reason = "" if right else f"differs by {error:.1e} from PyTorch, above {allowed:.0e}"
        judged = {"correct": right, "max_error": error, "tolerance": allowed, "reason": reason}
        return {**judged, "first_seconds": seconds if known else None}

    def _time(self, request: Mapping[str, Any]) -> dict[str, Any]:
        given = self.model.input(Shape.from_json(request["shape"]))
        started = self.clock()
        self.run(given)  # others ran meanwhile
        count = max(1, math.ceil(float(request["min_seconds"]) / (self.clock() - started)))
        block = partial(self._block, given, count)
        # A call that outlasts the scheduler's slice is always interrupted: only the probe shows disturbances.
        taken = take(block, self.probe, request.get("usual_probe"))
        return {**vars(taken), "calls": count, "copies": 1}

    def _shares(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self.name in AHEAD:
            return {}
        given = self.model.input(Shape.from_json(request["shape"]))
        if self.name == "onnxruntime":
            return asdict(onnx_shares(Path(self.options["onnx"]), self.threads, given))
        return asdict(time_shares(self.run, given))

    def _block(self, given: Any, count: int) -> float:
        started = self.clock()
        for _ in range(count):
            self.run(given)
        return (self.clock() - started) / count


if __name__ == "__main__":
    import tvm_ffi  # noqa: F401, before PyTorch shows

    show_torch()
    serve(Service())

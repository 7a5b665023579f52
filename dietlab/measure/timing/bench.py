"""Checks and times a contender, in a process that answers requests.

A worker's process answers these requests, each a line of JSON::

    {"op": "open", "contender": "mkl", "workload": {..}, "threads": 1, "options": {..}}
        -> {"version", "kind", "unprobed"} or {"absent": reason}
    {"op": "check", "shape": {"T": 5}, "seed": 0, "plan": 3}
        -> {"max_error", "tolerance", "correct", "reason", "first_seconds"}
    {"op": "time", "shape": {"T": 5}, "plan": 3, "cache": "hot", "min_seconds": 0.004, "usual_probe": 6e-5}
        -> {"seconds", "calls", "copies", "retaken", "kept", "probe", "graph", "host_share"}

``seconds`` is the time of one call, measured over one block of calls;
:class:`~dietlab.measure.timing.device.Device` describes the ``cache`` states. ``plan`` is the number of a
library's micro-kernel, or the file of a candidate (left out: the contender chooses). A contender without a
program for a shape answers ``{"absent": reason}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, overload

from dietlab.base.errors import MeasureError, MissingDependencyError
from dietlab.measure.timing.contender import Call, Contender, NoFormError, NotTunedError, Plan, Prepared
from dietlab.measure.timing.device import Copy, Device, TimedBlock
from dietlab.measure.timing.disturbance import timed_once
from dietlab.measure.timing.lru_by_bytes import LruByBytes
from dietlab.measure.timing.problem import Problem, shared_problem
from dietlab.problem import Shape, Workload, workload_from_json

BLOCK_SECONDS = 0.004
"""The length of a block in seconds, unless a request gives another."""


@dataclass
class Layers:
    """A prepared layer for each copy of the weights that calls go round; the first layer has the problem's
    own weights. ``each`` is the number of bytes of one copy, with its other constant operands."""

    each: int
    prepared: list[Prepared] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return self.each * len(self.prepared)


@dataclass
class Case:
    """A shape of a contender: copies of the rotating operands, each with the contender prepared for it.

    Args:
        layers: the prepared layers, in the order of copies; shapes may share them.
        calls: the bound calls by number of copies and plan, if calls are kept.
        blocks: the blocks that can be timed again, by cache state, plan and seconds, if blocks are kept.
        about: the known seconds of a call by cache state and plan.
        held: the number of copies in separate memory.
        prepare_seconds: the seconds to prepare the shape's last layer; None if the shape uses the layers of
            other shapes.
    """

    problem: Problem
    layers: Layers
    copies: list[tuple[Copy, Prepared]] = field(default_factory=list)
    calls: dict[tuple[int, Plan], Sequence[Call]] = field(default_factory=dict)
    blocks: dict[tuple[str, Plan, float], TimedBlock] = field(default_factory=dict)
    about: dict[tuple[str, Plan], float] = field(default_factory=dict)
    held: int = 0
    prepare_seconds: float | None = None

    @property
    def bytes(self) -> int:
        """The number of bytes of the copies. The constant operands of the first copy do not count, since
        shapes share them."""
        return max(0, self.problem.bytes * self.held - self.problem.constant_bytes)

    def add(self, copy: Copy, prepared: Prepared) -> None:
        """Adds a copy with its contender."""
        self.held += not self.copies or copy is not self.copies[0][0]
        self.copies.append((copy, prepared))


class Bench:
    """An open contender on a device, with the shapes that were used last.

    Args:
        problems: a folder in which processes share operands and reference results (None: each computes its
            own).
        keeps: whether bound calls and blocks are kept. They are not kept for candidates: candidates are many,
            and the contender manages their packed weights.
    """

    def __init__(
        self,
        device: Device,
        contender: Contender,
        workload: Workload,
        *,
        problems: str | Path | None = None,
        keeps: bool = True,
    ) -> None:
        self.device, self.contender = device, contender
        self._workload, self._keeps = workload, keeps
        self._folder = Path(problems) if problems else None
        self._problems: LruByBytes[Problem] = LruByBytes(
            device.kept_bytes,
            lambda problem: problem.bytes - problem.constant_bytes + problem.reference.nbytes,
        )
        self._cases: LruByBytes[Case] = LruByBytes(device.kept_bytes, lambda case: case.bytes)
        self._layers: LruByBytes[Layers] = LruByBytes(device.kept_bytes, lambda layers: layers.bytes)
        self._met: set[Shape] = set()
        self._last: TimedBlock | None = None

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compares the result of a call with the float64 reference; see :func:`~dietlab.problem.tolerance`.

        ``first_seconds`` is the time of the first call at a shape, by
        :func:`~dietlab.measure.timing.disturbance.timed_once`. It includes preparing whatever serves this
        shape only, such as packed weights or a program. Operands, reference and binding are excluded.
        ``first_seconds`` is None

        - until another shape was timed: a process's first call also starts threads and libraries;
        - if preparing served other shapes too, since the call may finish it;
        - if the process knew the shape, or the request names a plan;
        - on a device where a first call mostly loads code.
        """
        case, plan = self._case(request), request.get("plan")
        last = self._last if plan is None and case.problem.shape not in self._met else None
        if last is not None:  # so that threads are awake, and caches as at later calls
            last.warm_up()
            last.run()
        call = self._calls(case, plan, 1)[0]
        output = case.copies[0][0].output
        output.poison()
        result, seconds = timed_once(call)
        output.deliver(result)
        self.device.called()
        if not self.device.slow_first_call:  # then no milliseconds of loading are included
            case.about["first", plan] = seconds
        first = None if last is None else self._first_seconds(case, seconds)
        self._met.add(case.problem.shape)
        verdict = case.problem.verdict(output.read(), intact=output.intact)
        return {**asdict(verdict), "correct": verdict.correct, "first_seconds": first}

    def time(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Times one undisturbed block of calls and returns the seconds of a call.

        Raises:
            MeasureError: for a cache state that the device does not have.
        """
        cache, plan = request.get("cache", "hot"), request.get("plan")
        seconds = float(request.get("min_seconds", BLOCK_SECONDS))
        if cache not in self.device.states:
            raise MeasureError(f"the cache state must be one of {', '.join(self.device.states)}", repr(cache))
        case = self._case(request)
        copies = self.device.copies(case.problem) if cache == "rotating" else 1
        block = case.blocks.get((cache, plan, seconds))
        if block is None:
            first = case.about.get(("first", plan), 0.0)
            about = case.about.get((cache, plan)) or (first if first > seconds else None)
            calls = self._calls(case, plan, copies)
            block = self.device.block(calls, cache, seconds, self.contender, about)
            if self._keeps:
                case.blocks[cache, plan, seconds] = block
        taken = self.device.take(block, request.get("usual_probe"))
        case.about[cache, plan] = taken.seconds
        if plan is None and not self.device.slow_first_call:
            self._met.add(case.problem.shape)
            self._last = block
        return {
            **asdict(taken),
            "calls": block.calls,
            "copies": copies,
            "graph": block.graph,
            "host_share": round(block.host_share, 3),
        }

    def forget(self) -> None:
        """Frees all operands."""
        for kept in (self._problems, self._cases, self._layers):
            kept.clear()
        self._last = None

    def _case(self, request: Mapping[str, Any]) -> Case:
        shape, seed = Shape.from_json(request["shape"]), int(request.get("seed", 0))

        def problem() -> Problem:
            return shared_problem(self._folder, self._workload, shape, seed)

        found = self._problems.get((shape, seed), problem)
        return self._cases.get((shape, seed), lambda: Case(found, self._layers_of(found, seed)))

    def _first_seconds(self, case: Case, call: float) -> float | None:
        prepared = case.prepare_seconds
        if prepared is None:
            return call
        if getattr(self.contender, "any_shape", False):
            return None
        takes_as_is = self.contender.kind(self._workload) == "plain"  # then preparing is only our own work
        return call if takes_as_is else prepared + call

    def _layers_of(self, problem: Problem, seed: int) -> Layers:
        """Returns the layers that shapes with equal constant operands share, or new ones if the contender
        prepares each shape separately."""
        if not (self.device.keeps_variables(problem) and getattr(self.contender, "any_shape", False)):
            return Layers(problem.constant_bytes)
        sizes = tuple((name, array.shape) for name, array in problem.constants.items())
        return self._layers.get((sizes, seed), lambda: Layers(problem.constant_bytes))

    def _calls(self, case: Case, plan: Plan, copies: int) -> Sequence[Call]:
        """Returns a call for each copy."""
        while len(case.copies) < copies:
            case.add(*self._another(case))
        if (copies, plan) in case.calls:
            return case.calls[copies, plan]
        # A single copy's call has run before it is timed: in the check.
        packs = copies > 1 and getattr(self.contender, "packs_in_call", False)
        calls = Calls(case.copies[:copies], plan, packs)
        if not self._keeps:
            return calls
        return case.calls.setdefault((copies, plan), list(calls))

    def _another(self, case: Case) -> tuple[Copy, Prepared]:
        problem = case.problem
        first = case.copies[0][0] if case.copies else None
        prepared = case.copies[-1][1] if case.copies else None
        copied = getattr(self.contender, "copied", None)
        if first and prepared and copied and self.device.keeps_variables(problem):
            return first, copied(prepared)
        if known := case.layers.prepared[len(case.copies) :]:
            return first or self.device.copy(problem, None), known[0]
        copy = self.device.copy(problem, first)
        if prepared is None or copy.constants:
            prepare = partial(self.contender.prepare, self._workload, copy.constants, problem.shape)
            layer, case.prepare_seconds = timed_once(prepare)
        else:
            layer = prepared
        case.layers.prepared.append(layer)
        return copy, layer


class Calls(Sequence[Call]):
    """A contender's calls on each copy. A call is bound on its first use, since a block may need few of many
    calls. If the first run packs weights (``packs``), the call then runs once."""

    def __init__(self, copies: Sequence[tuple[Copy, Prepared]], plan: Plan, packs: bool = False) -> None:
        self._copies, self._plan, self._packs = copies, plan, packs

    def __len__(self) -> int:
        return len(self._copies)

    @overload
    def __getitem__(self, number: int) -> Call: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Call]: ...
    def __getitem__(self, number: int | slice) -> Call | Sequence[Call]:
        if isinstance(number, slice):
            return Calls(self._copies[number], self._plan, self._packs)
        copy, prepared = self._copies[number]
        bind: Callable[..., Call] = prepared.bind  # who has one program only takes no plan
        call = bind(copy.variables, copy.output.array, *() if self._plan is None else (self._plan,))
        if self._packs:
            call()
        return call

    def __iter__(self) -> Iterator[Call]:
        return (self[number] for number in range(len(self)))


class Service:
    """Answers the requests of this module; ``opened`` returns the bench for an opening request."""

    def __init__(self, opened: Callable[[Mapping[str, Any], Workload], Bench]) -> None:
        self._opened = opened
        self._bench: Bench | None = None

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["op"] == "open":
            return self._open(request)
        bench = self._bench
        if bench is None:
            raise MeasureError("a contender must be opened first", request["op"])
        try:
            return bench.check(request) if request["op"] == "check" else bench.time(request)
        except NotTunedError as error:
            return {"absent": str(error)}
        except Exception as error:
            bench.forget()  # perhaps the memory was full
            try:
                bench.device.called()
            except Exception:  # after a fault a GPU does not answer until the process ends
                # The parent sees a crash and opens the contender anew for its next request.
                raise SystemExit(f"the device answers no more: {error}") from error
            raise

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        workload = workload_from_json(request["workload"])
        try:
            bench = self._opened(request, workload)
            kind = bench.contender.kind(workload)
        except (MissingDependencyError, NoFormError) as error:
            return {"absent": str(error)}
        self._bench = bench
        return {"version": bench.contender.version(), "kind": kind, "unprobed": bench.device.unprobed}

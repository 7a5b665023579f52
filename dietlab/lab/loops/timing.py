"""Times the steps in turns, each block between two probes of the processor's speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.base.statistics import median_interval
from dietlab.lab.loops.climb import DIETLAB, Climb, Timed
from dietlab.lab.loops.programs import BERT, Layer, build, check, inputs
from dietlab.lab.loops.steps import GOAL, STEPS, Step
from dietlab.lower.program import compile_plans
from dietlab.lower.runtime import aligned_empty, load_library
from dietlab.machine import Hardware
from dietlab.measure.timing.disturbance import Pace, Taken, fma_probe, take
from dietlab.measure.timing.protocol import clock_for
from dietlab.measure.timing.turns import Player, play
from dietlab.problem import Dense, Shape
from dietlab.problem.dims import Dim
from dietlab.scheme import Leaf, Scheme
from dietlab.targets.cpu.probe import compile_fma_probe

ROUNDS = 11
"""The number of blocks of each program: enough for a 95 % interval of the median that two slow blocks do not
move."""

BLOCK_SECONDS = 0.01
"""The seconds for which a block repeats a call: a thousand ticks of the clock and more."""

SLOW_SECONDS = 0.1
"""The shortest call, in seconds, whose block is not repeated when the processor slows down: it slows down in
most such blocks."""

SLOW_ROUNDS = 3
"""The number of blocks of programs with calls of :data:`SLOW_SECONDS` or more. Such programs differ by
factors and not by percents."""


@dataclass
class _Seat:
    """A program with its arrays in this process, which answers as a contender's process does."""

    run: Callable[[], object]
    clock: Callable[[], float]
    probe: Callable[[], float]
    pace: Pace = field(default_factory=Pace)

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["op"] == "check":  # against NumPy, when it was built
            self.run()
            return {"correct": True}
        once = self._block(1)
        if once > SLOW_SECONDS:
            return asdict(Taken(once))
        calls = max(1, round(request["min_seconds"] / once))
        return asdict(take(lambda: self._block(calls), self.probe, request["usual_probe"], self.run))

    def _block(self, calls: int) -> float:
        started = self.clock()
        for _ in range(calls):
            self.run()
        return (self.clock() - started) / calls


def measure(
    steps: Sequence[Step] = STEPS,
    layers: Sequence[Layer] = (BERT,),
    hardware: Hardware | None = None,
    rounds: int = ROUNDS,
    tell: Callable[[str], object] = lambda text: None,
) -> Climb:
    """Builds, checks and times programs on one core, and dietlab's own micro-kernel beside them.

    Args:
        steps: the steps whose programs are timed.
        layers: the layers; each program is built for each layer.
        hardware: a processor with one core (default: this one, whose peak is measured).
        rounds: the number of blocks of each program, one or more; slow programs have fewer.
        tell: a function that gets a line for each program that was built and each round.

    Raises:
        BuildError: if a program does not compile or computes something else.
    """
    hardware = hardware or Hardware.detect().with_cores(1)
    if rounds < 1 or hardware.cores != 1:
        raise MeasureError("timing programs needs a round and one core", f"{rounds}, {hardware.cores}")
    clock, begun = clock_for(1), 0
    contests: list[list[Player]] = []

    def take_block(player: Player, turn: int) -> None:
        nonlocal begun
        if turn == begun:
            begun += 1
            tell(f"round {begun} of {rounds}")
        if turn < SLOW_ROUNDS or player.samples[-1] <= SLOW_SECONDS:
            player.take("hot", BLOCK_SECONDS)

    with TemporaryDirectory() as folder:
        probe = fma_probe(compile_fma_probe(hardware, Path(folder) / "probe.so"), clock)
        for layer in layers:
            runs = []
            for step in steps:
                tell(f"building {step.name}, T={layer.T}")
                runs.append(_checked(step, layer, hardware))
            runs.append(_goal(layer, hardware, Path(folder) / f"goal-{len(contests)}.so"))
            contests.append([Player(_Seat(run, clock, probe), Shape.of(T=layer.T)) for run in runs])
        play(contests, rounds, take_block, DIETLAB)
    rows, names = [], [*(step.name for step in steps), DIETLAB]
    for layer, rivals in zip(layers, contests, strict=True):
        for name, player in zip(names, rivals, strict=True):
            interval, blocks = median_interval(player.samples), len(player.samples)
            rows.append(Timed(name, layer, interval.median, interval.low, interval.high, blocks))
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Climb(hardware, tuple(rows), {"at": at, "rounds": rounds})


def _checked(step: Step, layer: Layer, hardware: Hardware) -> Callable[[], object]:
    program = build(step, layer, hardware)
    check(program)
    x, w = inputs(layer)
    weights, y = program.weights(w), aligned_empty((layer.T, layer.N))
    return lambda: program.call(x, weights, y)


def _goal(layer: Layer, hardware: Hardware, path: Path) -> Callable[[], object]:
    """Returns a call of dietlab's own micro-kernel for any length up to the layer's."""
    workload = Dense(Dim(1, layer.T), layer.N, layer.K)
    compile_plans(workload, hardware, [Scheme.from_key(GOAL)], Leaf(0), path)
    library: Any = load_library(path)
    x, w = inputs(layer)
    packed = aligned_empty((int(library.packed_floats(layer.N, layer.K)),))
    y = aligned_empty((layer.T, layer.N))
    library.pack(w, packed)
    return lambda: library.run(x, packed, y)

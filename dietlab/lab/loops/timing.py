"""Times the steps in turns, each block between two probes of the processor's speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dietlab.base.errors import MeasureError
from dietlab.base.statistics import median_interval
from dietlab.lab.loops.programs import BERT, Layer, build, check, inputs
from dietlab.lab.loops.records import DIETLAB, Climb, Timed
from dietlab.lab.loops.steps import GOAL, STEPS, Step
from dietlab.lower.program import compile_plans
from dietlab.lower.runtime import aligned_empty, load_library
from dietlab.machine import Hardware
from dietlab.measure.timing.disturbance import Pace, fma_probe, take
from dietlab.measure.timing.protocol import clock_for
from dietlab.problem import Dense
from dietlab.problem.dims import Dim
from dietlab.scheme import Leaf, Scheme
from dietlab.targets.cpu.probe import compile_fma_probe

ROUNDS = 11
"""Blocks of each program: enough for a 95 % interval of the median that two slow ones do not move."""

BLOCK_SECONDS = 0.01
"""A block repeats a call for about this long: a thousand ticks of the clock and more."""

SLOW_SECONDS = 0.1
"""Calls as long as this are not taken again when the processor slows down: that happens in most of them."""

SLOW_ROUNDS = 3
"""Blocks of such programs, whose differences are factors and not percents."""


@dataclass
class _Player:
    """A program with its arrays, and its blocks' seconds a call."""

    name: str
    layer: Layer
    run: Callable[[], object]
    times: list[float] = field(default_factory=list)


def measure(
    steps: Sequence[Step] = STEPS,
    layers: Sequence[Layer] = (BERT,),
    hardware: Hardware | None = None,
    rounds: int = ROUNDS,
    tell: Callable[[str], object] = lambda text: None,
) -> Climb:
    """Builds, checks and times programs on one core, and dietlab's own micro-kernel beside them.

    Weights and inputs are the same in every call, so that they lie in the last-level cache.

    Args:
        steps: whose programs.
        layers: each program is built for each of them.
        hardware: a processor with one core (default: this one, whose peak is measured).
        rounds: blocks of each program; slow ones have fewer.
        tell: gets a line for each program that was built and each round.

    Raises:
        BuildError: if a program does not compile or computes something else.
        MeasureError: for fewer than one round, or several cores.
    """
    hardware = hardware or Hardware.detect().with_cores(1)
    if rounds < 1 or hardware.cores != 1:
        raise MeasureError("programs are timed a round or more, on one core", f"{rounds}, {hardware.cores}")
    clock, pace = clock_for(1), Pace()
    with TemporaryDirectory() as folder:
        probe = fma_probe(compile_fma_probe(hardware, Path(folder) / "probe.so"), clock)
        players = []
        for layer in layers:
            for step in steps:
                tell(f"building {step.name}, T={layer.T}")
                players.append(_player(step, layer, hardware))
            players.append(_goal(layer, hardware, Path(folder) / f"goal-{len(players)}.so"))
        for number in range(rounds):
            tell(f"round {number + 1} of {rounds}")
            for player in players:
                _block(player, clock, probe, pace)
    rows = []
    for player in players:
        interval, blocks = median_interval(player.times), len(player.times)
        rows.append(Timed(player.name, player.layer, interval.median, interval.low, interval.high, blocks))
    at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Climb(hardware, tuple(rows), {"at": at, "rounds": rounds})


def _player(step: Step, layer: Layer, hardware: Hardware) -> _Player:
    program = build(step, layer, hardware)
    check(program)
    x, w = inputs(layer)
    weights, y = program.weights(w), aligned_empty((layer.T, layer.N))
    return _Player(step.name, layer, lambda: program.call(x, weights, y))


def _goal(layer: Layer, hardware: Hardware, path: Path) -> _Player:
    """Returns dietlab's own micro-kernel, for any length up to this one."""
    workload = Dense(Dim(1, layer.T), layer.N, layer.K)
    compile_plans(workload, hardware, [Scheme.from_key(GOAL)], Leaf(0), path)
    library: Any = load_library(path)
    x, w = inputs(layer)
    packed = aligned_empty((int(library.packed_floats(layer.N, layer.K)),))
    y = aligned_empty((layer.T, layer.N))
    library.pack(w, packed)
    return _Player(DIETLAB, layer, lambda: library.run(x, packed, y))


def _block(player: _Player, clock: Callable[[], float], probe: Callable[[], float], pace: Pace) -> None:
    """Times a block of calls, as many as the first round's call allows."""
    if not player.times:
        player.run()
    started = clock()
    player.run()
    once = clock() - started
    if once > SLOW_SECONDS:
        if len(player.times) < SLOW_ROUNDS:
            player.times.append(once)
        return
    calls = max(1, round(BLOCK_SECONDS / once))

    def block() -> float:
        begun = clock()
        for _ in range(calls):
            player.run()
        return (clock() - begun) / calls

    taken = take(block, probe, pace.usual, player.run)
    pace.note(taken)
    player.times.append(taken.seconds)

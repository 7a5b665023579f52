"""Times one library as tuning times candidates and as evaluation times contenders, in turns, in each cache
state: the ratios are 1 if a time that tuning met is one that evaluation will meet.

    python scripts/timing_agreement.py [--blocks 21] [--threads 1]

Both are processes with an environment of their own; what differs is who packs the weights, who holds the
copies of a rotation, and whether calls stay bound.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from statistics import geometric_mean

from dietlab.dispatch import Dispatcher, build
from dietlab.evaluation.target import evaluation_target
from dietlab.evaluation.timing_session import OPEN_SECONDS
from dietlab.evaluation.vendors import contender_env
from dietlab.hardware import Hardware
from dietlab.measure.local import candidates_seat
from dietlab.plans import Leaf
from dietlab.shapes import Dim, Shape
from dietlab.space import build_space
from dietlab.statistics import median_interval
from dietlab.timing.protocol import CACHE_STATES
from dietlab.timing.seat import Seat
from dietlab.timing.target import timing_target
from dietlab.timing.turns import Player, play
from dietlab.workloads import BatchMatmul, Dense

WORKS = (Dense(T=Dim(1, 128), N=2304, K=768), BatchMatmul(T=Dim(1, 128), B=12, D=64))
LENGTHS = (1, 5, 16, 64, 128)
BLOCK_SECONDS = 0.004


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    hardware = Hardware.detect(measure=False).with_cores(asked.threads)
    print(f"{hardware.name}, {asked.threads} threads, {asked.blocks} blocks of {BLOCK_SECONDS * 1e3:.0f} ms")
    with tempfile.TemporaryDirectory() as name:
        for number, work in enumerate(WORKS):
            compare(work, hardware, Path(name) / str(number), asked.blocks)


def take(cache: str, player: Player, turn: int) -> None:
    player.take(cache, BLOCK_SECONDS)


def compare(work: Dense | BatchMatmul, hardware: Hardware, folder: Path, blocks: int) -> None:
    """Prints a line for each length and cache state: both medians with their intervals, and the ratio."""
    folder.mkdir()
    scheme = next(scheme for scheme in build_space(work, hardware) if scheme.rows == 6)
    op = build(Dispatcher(work, hardware, (scheme,), Leaf(0)), folder / "library")
    options, unprobed = timing_target(hardware.kind).options(hardware, folder)
    print(f"\n{work}, {scheme.key}{f', {unprobed}' if unprobed else ''}")
    request = {
        "op": "open",
        "contender": "library",
        "workload": work.to_json(),
        "threads": hardware.cores,
        "options": {**options, "library": str(folder / "library")},
    }
    module, seconds = evaluation_target(hardware.kind).WORKER
    evaluation = Seat(
        request, module, contender_env(hardware.cores), seconds=seconds, open_seconds=OPEN_SECONDS
    )
    ratios = []
    with evaluation, candidates_seat(work, hardware, options, seconds) as tuning:
        for length in LENGTHS:
            shape = Shape.of(T=length)
            players = [Player(tuning, shape, str(op.path)), Player(evaluation, shape)]
            for cache in CACHE_STATES:
                play([players], blocks, partial(take, cache), cache)
                assert all(player.correct for player in players), [player.reason for player in players]
                mine, theirs = (player.seconds(cache) for player in players)
                ratio = median_interval([other / own for other, own in zip(theirs, mine, strict=True)])
                ratios.append(ratio.median)
                both = " ".join(
                    f"{one.median * 1e6:8.1f} us ({one.low * 1e6:.1f}..{one.high * 1e6:.1f})"
                    for one in map(median_interval, (mine, theirs))
                )
                interval = f"{ratio.median:.3f} ({ratio.low:.3f}..{ratio.high:.3f})"
                print(f"T={length:<4} {cache:12} {both}  {interval}")
    print(f"geometric mean of the ratios {geometric_mean(ratios):.3f}")


if __name__ == "__main__":
    main()

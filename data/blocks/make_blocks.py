"""Records raw blocks of programs that are timed in turns, and replays them: which way of making one time of a
program's blocks tells programs apart best for the time that it takes.

    python data/blocks/make_blocks.py record data/blocks/xeon.csv.gz [--threads 1]
    python data/blocks/make_blocks.py replay data/blocks/*.csv.gz

A block that is slow by the probe is taken again at once, up to four times, as those of an evaluation are
(:mod:`dietlab.measure.timing.disturbance`); all of them are rows. The first of a turn is what there would
have been without a probe.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import numpy as np
import pandas as pd

from dietlab.machine import Hardware
from dietlab.measure import Trial
from dietlab.measure.builders import Builders
from dietlab.measure.candidates import Candidates
from dietlab.measure.contest import Candidate, built_contests, quick
from dietlab.measure.local import candidates_seat
from dietlab.measure.timing import disturbance
from dietlab.measure.timing.bench import Bench, Service
from dietlab.measure.timing.process import serve
from dietlab.measure.timing.protocol import Timing
from dietlab.measure.timing.target import timing_target
from dietlab.measure.timing.turns import Player
from dietlab.problem import Dense, Dim, Shape
from dietlab.scheme import Scheme
from dietlab.targets.cpu.device import Host, host_options

LAYERS, LENGTHS = ((2304, 768), (768, 3072)), (5, 16, 43, 128)
TILES = (
    "7x48.u2.ws.p0a 6x48.u2.ws.p0a 8x48.u2.ws.p24a 6x48.u2.ws.p24a.k256 5x64.u2.ws.p0a 6x64.u1.ws.p0a "
    "8x48.u2.ws.p64 14x32.u1.ws.p64 5x48.u1.is.p16 4x64.u2.ws.p0a 5x80.u1.ws.p24a 8x32.u4.ws.p0a"
)
SCHEMES = tuple(f"{tile}.even" for tile in TILES.split())
TURNS, BLOCK_SECONDS = 60, Timing().block_seconds
"""Turns of each program on each shape, and seconds of a block."""

ROWS = "DIETLAB_BLOCKS"
"""The variable that tells a timing process where its rows go."""

WINDOWS = (5, 10)
"""Turns that one time is made of in a replay: as many as tuning takes, and twice as many."""


class Raw(Host):
    """A host that writes a row for each block, also for those that are thrown away."""

    def take(self, block: Any, usual_probe: float | None) -> disturbance.Taken:
        blocks, probes = list[float](), list[float]()

        def told(seconds: Callable[[], float], kept: list[float]) -> float:
            kept.append(seconds())
            return kept[-1]

        assert self._probe is not None
        run, probe = partial(told, block.run, blocks), partial(told, self._probe, probes)
        taken = disturbance.take(run, probe, usual_probe, block.warm_up)
        with Path(os.environ[ROWS]).open("a", encoding="utf-8") as file:
            rows = zip(blocks, probes[::2], probes[1::2], strict=True)
            file.write(";".join(" ".join(f"{seconds:.4g}" for seconds in row) for row in rows) + "\n")
        return taken


def opened(request: Any, workload: Any) -> Bench:
    """Returns the bench of candidates on such a host, with the probe that tuning itself goes without."""
    options, cores = request["options"], int(request["threads"])
    hardware = Hardware.detect(measure=False)
    found, _ = timing_target("cpu").options(hardware, Path(os.environ[ROWS]).parent)
    device = Raw.opened(cores, {**host_options(hardware, found["probe"]), "kind": "cpu"})
    return Bench(device, Candidates(options["kind"], cores, device.arena), workload, keeps=False)


def record(path: Path, threads: int) -> None:
    """Records all layers into a compressed table."""
    hardware, tables = Hardware.detect(measure=False).with_cores(threads), []
    for cols, depth in LAYERS:
        with tempfile.TemporaryDirectory() as name:
            tables.append(_recorded(Dense(T=Dim(1, 512), N=cols, K=depth), hardware, Path(name)))
    table = pd.concat(tables)
    table.to_csv(path, index=False, float_format="%.4g", compression={"method": "gzip", "mtime": 0})
    now = datetime.now(timezone.utc)
    print(f"{len(table)} blocks of {hardware.name}, {threads} threads, {now:%Y-%m-%d %H:%M} UTC")


def _recorded(work: Dense, hardware: Hardware, folder: Path) -> pd.DataFrame:
    rows, shapes = folder / "rows.txt", tuple(Shape.of(T=length) for length in LENGTHS)
    os.environ |= {ROWS: str(rows), "PYTHONPATH": str(Path(__file__).parent)}
    trials = [Trial(Scheme.from_key(key), shapes) for key in SCHEMES]
    with Builders(hardware, folder) as builders:
        contests, _ = built_contests(builders, work, trials)
    asked, began = [], monotonic()
    with candidates_seat(work.to_json(), hardware, 60.0, Path(__file__).stem) as seat:
        rivals = [
            [(one, Player(seat, one.record.shape, str(one.built.path))) for one in some] for some in contests
        ]
        for _, player in (pair for some in rivals for pair in some):
            player.check()
            assert player.correct, player.reason
        random = Random(0)
        for turn in range(TURNS):
            for some in random.sample(rivals, len(rivals)):
                for candidate, player in random.sample(some, len(some)):
                    asked.append((turn, candidate, round(monotonic() - began, 4)))
                    player.take("rotating", BLOCK_SECONDS)
    lines = rows.read_text(encoding="utf-8").splitlines()
    return pd.DataFrame(_rows(work, asked, lines))


def _rows(
    work: Dense, asked: list[tuple[int, Candidate, float]], lines: list[str]
) -> Iterator[dict[str, Any]]:
    for (turn, candidate, at), line in zip(asked, lines, strict=True):
        about = {
            "N": work.N,
            "K": work.K,
            **candidate.record.shape.to_json(),
            "scheme": candidate.built.scheme.key,
        }
        for again, block in enumerate(line.split(";")):
            times = zip(("seconds", "probe_before", "probe_after"), map(float, block.split()), strict=True)
            yield {"turn": turn, "at": at, **about, "again": again, **dict(times)}


# ---- Replay ----

Logs = np.ndarray[Any, np.dtype[np.float64]]
"""Logarithms of seconds, ``[turns, programs]``."""


def moments(logs: Logs) -> Logs:
    """Returns a time of each program in a moment that is usual: of the sum of a program's part and a turn's,
    by least absolute deviations (alternating medians)."""
    plans = np.median(logs, axis=0)
    for _ in range(20):
        plans = np.median(logs - np.median(logs - plans, axis=1)[:, None], axis=0)
    return np.asarray(plans)


def _each(column: Callable[[list[float]], float], logs: Logs) -> Logs:
    return np.log([column(np.exp(one).tolist()) for one in logs.T])


WAYS: dict[str, tuple[str, Callable[[Logs], Logs]]] = {
    "taken again, least": ("last", partial(_each, min)),
    "least": ("first", partial(_each, min)),
    "two quickest": ("first", partial(_each, quick)),
    "median": ("first", lambda logs: np.asarray(np.median(logs, axis=0))),
    "program + moment": ("first", moments),
}
"""Ways of making one time of a program's blocks in some turns, by name: of the first block of each turn, or
of the last, which counts where blocks are taken again."""


def replay(table: pd.DataFrame) -> pd.DataFrame:
    """Returns a row for each way and number of turns: ``missed``, the root mean square error of logarithms of
    times beside the rivals', from those over all turns; ``blocks`` that it took, a program and shape; and
    ``regret``, how much slower the program is that it says is fastest."""
    found = []
    for _, shape in table.groupby(["N", "K", "T"]):
        by_turn = shape.groupby(["turn", "scheme"])["seconds"]
        logs = {name: np.log(getattr(by_turn, name)().unstack()).to_numpy() for name in ("first", "last")}
        tries = by_turn.size().unstack().to_numpy()
        # What is true: over all turns, free of the moment; no way that is judged sees more than a sixth.
        true = moments(logs["first"])
        for turns in WINDOWS:
            for start in range(0, TURNS - turns + 1, turns):
                window = slice(start, start + turns)
                for way, (blocks, of) in WAYS.items():
                    told = of(logs[blocks][window])
                    off = told - true
                    taken = tries[window].sum() if blocks == "last" else tries[window].size
                    found.append(
                        {
                            "way": way,
                            "turns": turns,
                            "blocks": taken / tries.shape[1],
                            "squared": float(((off - np.median(off)) ** 2).mean()),
                            "regret": float(np.expm1(true[told.argmin()] - true.min())),
                        }
                    )
    means = pd.DataFrame(found).groupby(["turns", "way"], sort=False).mean()
    means.insert(0, "missed", np.sqrt(means.pop("squared")))
    return means


def shown(table: pd.DataFrame) -> str:
    """Returns a replay as the README has it."""
    lines = [
        "| turns | one time is | blocks | missed by | slower than the fastest |",
        "|---|---|---|---|---|",
    ]
    for (turns, way), row in table.iterrows():
        lines.append(f"| {turns} | {way} | {row.blocks:.1f} | {row.missed:.1%} | {row.regret:.2%} |")
    return "\n".join(lines).replace("%", " %")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("op", choices=("record", "replay"))
    parser.add_argument("path", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    for path in asked.path:
        if asked.op == "record":
            record(path, asked.threads)
        print(f"{path.name}\n\n{shown(replay(pd.read_csv(path)))}\n")


if __name__ == "__main__":
    if ROWS in os.environ and len(sys.argv) == 1:
        serve(Service(opened))
    else:
        main()

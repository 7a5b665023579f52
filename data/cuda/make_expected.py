"""Writes ``expected.csv``: what the bound expects of the suites for a GPU, before a visit measures them.

    python data/cuda/make_expected.py [HARDWARE]

Run it before a visit, when the space or the bound has changed since; what a visit shows is then compared with
the file of that date.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np

from dietlab.compare.suites import SUITES, Task
from dietlab.cost import adaptation_cost
from dietlab.machine import Hardware
from dietlab.measure.timing.target import roofline_of
from dietlab.scheme import build_space

FILE = Path(__file__).with_name("expected.csv")
VISITS = ("first-gpu", "bert-gpu", "decoder-gpu", "resnet50-gpu")
EFFORT, CACHE = "quick", "rotating"
FIRST = 5
"""How many of the schemes with the least bound are named."""


def expected(task: Task, hardware: Hardware) -> Iterator[dict[str, object]]:
    """Yields a row for each shape that a task is evaluated on."""
    work, shapes = task.workload, task.evaluated(EFFORT)
    schemes = build_space(work, hardware).schemes
    bounds = adaptation_cost(work, hardware, cache=CACHE).bound(schemes, shapes)
    for number, shape in enumerate(shapes):
        order = np.argsort(bounds[:, number], kind="stable")[:FIRST]
        roofline = roofline_of(work, shape, hardware)
        yield {
            "shape": str(shape),
            "expected_us": f"{1e6 * bounds[order[0], number]:.2f}",
            "roofline_us": f"{1e6 * roofline.least_seconds(CACHE):.2f}" if roofline else "",
            "first": " ".join(schemes[index].key for index in order),
        }


def main() -> None:
    hardware = Hardware.preset(sys.argv[1] if len(sys.argv) > 1 else "h200")
    rows = [
        {
            "date": date.today().isoformat(),
            "hardware": hardware.name,
            "suite": suite,
            "task": task.name,
            **row,
        }
        for suite in VISITS
        for task in SUITES[suite].tasks
        for row in expected(task, hardware)
    ]
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

"""A dense operator whose rows, columns and depth are dynamic, and a report of it that is made up."""

from __future__ import annotations

from collections.abc import Iterator

from dietlab.compare.results import ContenderInfo, Report, Row
from dietlab.machine import Hardware
from dietlab.problem import Dense, Dim, Shape, ShapeSet

EVERY = Dense(T=Dim(1, 256), N=Dim(64, 4096), K=Dim(64, 4096))
BERT = ((2304, 768), (768, 768), (3072, 768), (768, 3072))
"""``N`` and ``K`` of the layers that are tuned for."""
ODD = Shape.of(N=100, K=333)
"""A layer that is held out."""
LENGTHS = (1, 3, 8, 24, 64, 200)
PLAN = "6x16.u4.ws.p0.even"
CHIP = Hardware.preset("haswell-1core")
TUNED = ShapeSet.layers(BERT, lengths=LENGTHS, workload=EVERY)
OTHERS = {"mkl-packed": 1.2, "openblas": 2.0, "oracle": 0.98}
"""Each contender's time over ours for one row; ours is relatively slower the more rows there are."""


def shape_rows(shape: Shape, cache: str) -> Iterator[Row]:
    """Yields our row and the contenders'; vendors were not measured on :data:`ODD` but for one."""
    ours = EVERY.flops(shape) / 50e9
    factor = 1 - 0.1 * LENGTHS.index(shape["T"]) / len(LENGTHS)
    times = {"dietlab": ours, **{name: ours * times * factor for name, times in OTHERS.items()}}
    held_out = shape.without("T") == ODD
    for name, seconds in times.items():
        mine = name == "dietlab"
        yield Row(
            shape,
            held_out,
            name,
            cache,
            seconds,
            0.95 * seconds,
            1.1 * seconds,
            EVERY.flops(shape) / seconds / 1e9,
            True,
            speedup=None if mine else seconds / ours,
            padding_waste=0.125 if mine else None,
            regret=0.02 * LENGTHS.index(shape["T"]) if mine else None,
            roofline=0.8 if mine else None,
            plan=PLAN if mine else None,
        )


def layers_report(*caches: str) -> Report:
    """Returns a report of five layers, one of them held out, at six lengths each."""
    odd = (Shape.of(T=length, **ODD.to_json()) for length in LENGTHS)
    shapes = ShapeSet.of({**dict.fromkeys(TUNED.shapes, 2.0), **dict.fromkeys(odd, 1.0)})
    shapes = shapes.hold_out(ODD.to_json())
    return Report(
        workload=EVERY.to_json(),
        hardware=CHIP.to_json(),
        versions={},
        tuning={},
        library={},
        rows=tuple(row for cache in caches or ("hot",) for s in shapes for row in shape_rows(s, cache)),
        contenders=(
            ContenderInfo("mkl-packed", "prepacked"),
            ContenderInfo("openblas", "plain"),
            ContenderInfo("oracle", "bound"),
        ),
        shape_set=shapes,
    )

"""The steps: each is a name, a reason, and the schedule primitives that make its program.

A change takes a ``tvm.s_tir.Schedule`` of the plain loops ``y[i, j] += x[i, k] * w[j, k]`` and a tile. It
finds its loops by their place, so that a recipe is a list of changes, applied in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dietlab.base.errors import BuildError

VECTOR = 16
"""The number of lanes of a float32 vector, as AVX-512 has. A processor with narrower vectors takes two
vectors for one."""

ASKS_AHEAD = "dietlab.prefetch"
"""The annotation of a loop over K that prefetches weights: its value is the distance in steps."""

SUMMING = ("y_rf_update", "y_rf", "y_update", "y")
"""The names of the block that multiplies and adds, the latest first: a change may rename the block."""


@dataclass(frozen=True)
class Tile:
    """The sizes that a schedule is made with: the numbers of ``rows`` and ``cols`` of outputs, where columns
    fill whole vectors; the number of steps of K in a K-``block``; and the number of steps that a prefetch is
    ``ahead`` of its use.
    """

    rows: int = 8
    cols: int = 48
    block: int = 192
    ahead: int = 16

    def __post_init__(self) -> None:
        if min(self.rows, self.cols, self.block, self.ahead) < 1 or self.cols % VECTOR:
            raise BuildError(
                f"a tile must have a row or more, a multiple of {VECTOR} columns, a block and a distance",
                self,
                f"Take cols={VECTOR * max(1, round(self.cols / VECTOR))}, for example.",
            )

    @property
    def vectors(self) -> int:
        """Returns the number of vectors in a row of the tile."""
        return self.cols // VECTOR


Change = Callable[[Any, Tile], None]
"""A change of a ``tvm.s_tir.Schedule`` in place."""


@dataclass(frozen=True)
class Step:
    """A step of the climb. A sentence, ``why``, has its reason.

    Args:
        name: the step's name in figures and tables.
        recipe: all changes of the plain loops that make its program, in order.
        tile: the sizes of the tile.
    """

    name: str
    why: str
    recipe: tuple[Change, ...] = ()
    tile: Tile = Tile()

    @property
    def packs(self) -> bool:
        """Returns whether the step's program reads packed weights, ``[N / cols, K, cols]``."""
        return pack in self.recipe


def summing(schedule: Any) -> str:
    """Returns the name of the block that multiplies and adds."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    names = {schedule.get(block).name_hint for block in blocks}
    return next(name for name in SUMMING if name in names)


# --- changes ----------------------------------------------------------------------------------


def reorder(schedule: Any, tile: Tile) -> None:
    """Puts ``j`` innermost: neighbouring outputs are summed side by side."""
    i, j, k = schedule.get_loops("y")
    schedule.reorder(i, k, j)


def split_into_tiles(schedule: Any, tile: Tile) -> None:
    """Splits rows and columns: the loops over one tile lie inside those over tiles."""
    i, j, k = schedule.get_loops("y")
    i0, i1 = schedule.split(i, [None, tile.rows])
    j0, j1 = schedule.split(j, [None, tile.cols])
    schedule.reorder(j0, i0, k, i1, j1)


def pack(schedule: Any, tile: Tile) -> None:
    """Stores the weights in panels, in the order in which a tile reads them."""
    cols = tile.cols
    schedule.transform_layout(summing(schedule), ("read", 1), lambda j, k: (j // cols, k, j % cols))


def vectorise(schedule: Any, tile: Tile) -> None:
    """Computes the columns of a tile a vector at a time."""
    *_, j1 = schedule.get_loops(summing(schedule))
    _, lane = schedule.split(j1, [None, VECTOR])
    schedule.vectorize(lane)


def unroll(schedule: Any, tile: Tile) -> None:
    """Writes the loops over rows and vectors of a tile out: no counters, and constant indices."""
    *_, i1, v, _ = schedule.get_loops(summing(schedule))
    schedule.unroll(i1)
    schedule.unroll(v)


def keep_in_registers(schedule: Any, tile: Tile) -> None:
    """Sums into a local array that becomes registers. The sums are stored when the tile is done."""
    block = summing(schedule)
    store = schedule.cache_write(block, 0, "local")
    *_, tiles, k, _, _, _ = schedule.get_loops(block)
    schedule.reverse_compute_at(store, tiles, preserve_unit_loops=True)
    schedule.decompose_reduction(block, k)
    *_, i1, j1 = schedule.get_loops(store)
    v, lane = schedule.split(j1, [None, VECTOR])
    schedule.vectorize(lane)
    schedule.unroll(i1)
    schedule.unroll(v)


def block_reduction(schedule: Any, tile: Tile) -> None:
    """Sums a K-block of all row tiles before the next: its weights stay in the first-level cache. The blocks'
    sums are added when a panel is done."""
    j0, i0, k, i1, j1 = schedule.get_loops("y")
    k0, k1 = schedule.split(k, [None, tile.block])
    schedule.reorder(j0, k0, i0, k1, i1, j1)
    panel, *_ = schedule.get_loops(schedule.rfactor(k0, 0))
    schedule.reverse_compute_at("y", panel, preserve_unit_loops=True)
    *_, parts, row, col = schedule.get_loops("y")
    schedule.reorder(row, parts, col)
    v, lane = schedule.split(col, [None, VECTOR])
    schedule.vectorize(lane)
    schedule.unroll(v)


def prefetch(schedule: Any, tile: Tile) -> None:
    """Prefetches weights some steps before their use. No primitive inserts prefetches: this change marks the
    loop over K, and the build adds the prefetches."""
    *_, k, _, _, _ = schedule.get_loops(summing(schedule))
    schedule.annotate(k, ASKS_AHEAD, tile.ahead)


# --- the climb --------------------------------------------------------------------------------

_TILED = (split_into_tiles, pack, vectorise, unroll, keep_in_registers)

STEPS = (
    Step("plain loops", "One output after the other, each a sum over K: what the formula says."),
    Step(
        "reorder",
        "j innermost sums neighbouring outputs side by side; but neighbouring weights w[j, k] lie K apart.",
        (reorder,),
    ),
    Step(
        "tile",
        "A tile of 8 rows and 48 columns uses each loaded value several times before it leaves the cache.",
        _TILED[:1],
    ),
    Step(
        "pack",
        "Weights are constant: stored once in the order of use, they are read in a straight line.",
        _TILED[:2],
    ),
    Step("vectorise", "One instruction multiplies and adds 16 neighbouring columns.", _TILED[:3]),
    Step(
        "unroll",
        "The rows of a tile are written out: no counters, and every index in it is a constant.",
        _TILED[:4],
    ),
    Step("registers", "24 vectors of sums stay in registers over all of K; y is written once.", _TILED),
    Step(
        "prefetch",
        "Weights are asked for 16 steps before their use, so that they come while others are multiplied.",
        (*_TILED, prefetch),
    ),
    Step(
        "K-blocks",
        "A block of K at a time: 36 KiB of weights stay in the first-level cache for all row tiles.",
        (_TILED[0], block_reduction, *_TILED[1:], prefetch),
    ),
)
"""The steps of the climb in the first lesson, in order; each place of its figure is one of these steps."""

OTHER_TILES = tuple(
    Step(
        f"{rows}x{cols}", "The program of the step before K-blocks, with another tile.", STEPS[7].recipe, tile
    )
    for rows, cols in ((1, 48), (4, 16), (4, 48), (8, 32), (14, 32), (16, 64))
    for tile in [Tile(rows=rows, cols=cols)]
)
"""Steps with other tiles, for comparison with the climb's: tiles with too few sums, with too many sums for
the registers, and with a number between."""


def before(step: Step) -> Step:
    """Returns the step that ``step`` changes: the one before it, or the plain loops if ``step`` drops changes
    of the step before.
    """
    if step not in STEPS[1:]:
        raise BuildError("every step of the climb but the first must change another step", step.name)
    previous = STEPS[STEPS.index(step) - 1]
    return previous if set(previous.recipe) <= set(step.recipe) else STEPS[0]


def change_of(step: Step) -> Change:
    """Returns the change that a step adds to the one before it."""
    (added,) = (change for change in step.recipe if change not in before(step).recipe)
    return added


GOAL = "8x48.u4.ws.p16.even"
"""The key of the scheme that is the goal line: dietlab's own micro-kernel with a tile of the last step's
size."""

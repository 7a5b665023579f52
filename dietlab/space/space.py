"""Stage 1: the micro-kernels that fit the hardware, and why the others do not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Literal

from dietlab.errors import SpaceError
from dietlab.hardware import Hardware
from dietlab.space.micro_kernel import Along, Edge, MicroKernel, Order
from dietlab.workloads import NO_EPILOGUE, Workload, axis_of, batch_of, largest

if TYPE_CHECKING:
    import pandas as pd

UNROLLS = (1, 2, 4, 8)
ORDERS: tuple[Order, ...] = ("ws", "is")
PREFETCHES = ((0, False), (16, False), (0, True))
"""Steps ahead into L1, and whether the next panel is asked into L2."""

MAX_VECTORS = 8
FMA_LATENCY = 4
"""Cycles until a multiply-add's result can be used (4 from Skylake and Zen 2 on, per the vendors'
optimization manuals): with fewer accumulators than that the unit idles."""

FLOAT_BYTES = 4

STACK_BYTES = 4 << 20
"""What a core's weights on the fly may take of its stack, which commonly has 8 MiB."""

Cover = Literal["composed", "paper"]
"""How plans cover a shape: by several micro-kernels exactly, or by one with local padding (DietCode)."""


@dataclass(frozen=True)
class Limit:
    """A bound that the hardware or the operator sets: ``measure(kernel) <= most``."""

    reason: str
    most: float
    unit: str
    measure: Callable[[MicroKernel], float]

    def excess(self, kernel: MicroKernel) -> float:
        """How far beyond the bound, relative to it (0 or less when it fits)."""
        return (self.measure(kernel) - self.most) / max(self.most, 1.0)


@dataclass(frozen=True)
class Rejection:
    """Candidates that broke one limit first, and the one that broke it least."""

    reason: str
    count: int
    most: float
    unit: str
    nearest_miss: MicroKernel
    nearest_value: float


@dataclass(frozen=True)
class Space:
    """The search space of one workload on one processor.

    ``micro_kernels`` are in ascending order and serve *every* shape; sizes come from the hardware,
    never from factors of a shape (paper, section 3.1).
    """

    workload: Workload
    hardware: Hardware
    micro_kernels: tuple[MicroKernel, ...]
    rejected: tuple[Rejection, ...] = ()

    def __len__(self) -> int:
        return len(self.micro_kernels)

    def __iter__(self) -> Iterator[MicroKernel]:
        return iter(self.micro_kernels)

    def __contains__(self, kernel: object) -> bool:
        return kernel in self.micro_kernels

    def restricted_to(self, kernels: Iterable[MicroKernel]) -> Space:
        """The same space with only ``kernels`` in it, for example those that were recorded.

        Raises:
            SpaceError: if one of them does not fit, or none is left.
        """
        kept = tuple(sorted(set(kernels)))
        strangers = [kernel.key for kernel in kept if kernel not in self]
        if strangers or not kept:
            raise SpaceError(
                "a space is restricted to some of its own micro-kernels",
                f"{', '.join(strangers[:3])}{' ...' if len(strangers) > 3 else ''}" or "none",
                "Were they recorded on other hardware, or for another operator?",
            )  # fmt: skip
        return replace(self, micro_kernels=kept)

    @property
    def rejections(self) -> pd.DataFrame:
        """One row a reason: how many candidates it rejected, the bound, and the nearest miss."""
        import pandas as pd

        return pd.DataFrame(
            [(r.reason, r.count, r.most, r.unit, r.nearest_miss.key, r.nearest_value) for r in self.rejected],
            columns=["reason", "count", "most", "unit", "nearest_miss", "nearest_value"],
        )


def build_space(workload: Workload, hardware: Hardware, edges: Iterable[Edge] = ("even",)) -> Space:
    """All micro-kernels that fit ``hardware``, for every shape of ``workload`` at once.

    Args:
        edges: which treatments of the edge tile to include; one, unless they are compared.
            ``("padded",)`` is DietCode's space: one micro-kernel a shape, with local padding.

    Raises:
        SpaceError: if nothing fits.
    """
    lanes = hardware.cpu.lanes
    limits = cpu_limits(workload, hardware)
    kept: list[MicroKernel] = []
    misses: dict[str, list[tuple[float, MicroKernel]]] = {limit.reason: [] for limit in limits}
    # Along the depth vectors need it to be what is contiguous in the weights.
    along: tuple[Along, ...] = ("cols", "depth") if workload.weights == "transposed" else ("cols",)
    for kernel in _candidates(lanes, hardware.cpu.vector_registers, tuple(edges), along):
        broken = next((limit for limit in limits if limit.excess(kernel) > 0), None)
        if broken is None:
            kept.append(kernel)
        else:
            misses[broken.reason].append((broken.excess(kernel), kernel))
    if not kept:
        raise SpaceError(
            "at least one micro-kernel fits the hardware", {r: len(m) for r, m in misses.items()}
        )
    rejected = tuple(_rejection(limit, misses[limit.reason]) for limit in limits if misses[limit.reason])
    return Space(workload, hardware, tuple(sorted(kept)), rejected)


def edges_of(cover: Cover, workload: Workload) -> tuple[Edge, ...]:
    """The treatments of the edge tile that a cover searches over.

    A copy of the edge tile needs a static reduction axis; without one the paper's cover is by loop
    partitioning.
    """
    if cover == "composed":
        return ("even",)
    return ("padded",) if isinstance(axis_of(workload, "depth").extent, int) else ("partitioned",)


def cpu_limits(workload: Workload, hardware: Hardware) -> tuple[Limit, ...]:
    """What bounds a register-tile micro-kernel, in the order in which it is checked."""
    cpu = hardware.cpu
    lanes = cpu.lanes
    return (
        Limit(
            "accumulators and operands fit the vector registers", cpu.vector_registers, "registers",
            lambda k: k.registers(lanes),
        ),
        Limit(
            "accumulators hide the latency of a multiply-add", 0, "idle cycles a step",
            lambda k: FMA_LATENCY - k.rows * k.vectors(lanes),
        ),
        *_layout_limits(workload),
        *_size_limits(workload, hardware),
    )  # fmt: skip


def _layout_limits(workload: Workload) -> tuple[Limit, ...]:
    """What goes together with how the weights lie in memory."""
    packed, transposed = workload.weights == "packed", workload.weights == "transposed"
    static_depth = isinstance(axis_of(workload, "depth").extent, int)
    batched = batch_of(workload) is not None
    return (
        Limit(
            "what is asked for ahead is a packed panel that stays, or the next product of a batch",
            0, "panels ahead",
            lambda k: int(k.ahead and not (batched or (packed and k.order == "ws"))),
        ),
        Limit(
            "weights that vary and lie in rows are stationary", 0, "passes over them",
            lambda k: int(transposed and k.order != "ws"),
        ),
        Limit(
            "dot products are composed, read both operands in order and leave no epilogue", 0, "exceptions",
            lambda k: (
                (k.along == "depth")
                * ((not k.composed) + (k.prefetch > 0) + (workload.epilogue != NO_EPILOGUE))
            ),
        ),
        Limit(
            "a padded copy has a size known beforehand", 0, "copies",
            lambda k: int(k.edge == "padded" and k.rows > 1 and not static_depth),
        ),
    )  # fmt: skip


def _size_limits(workload: Workload, hardware: Hardware) -> tuple[Limit, ...]:
    """What the extents and the caches allow; a dynamic extent counts with its largest value."""
    cpu, lanes = hardware.cpu, hardware.cpu.lanes
    cols, depth = (largest(workload, role) for role in ("cols", "depth"))
    padded_cols = -(-cols // lanes) * lanes
    # The others have nothing to do, whatever the tile; products of a batch are dealt whole.
    busy_cores = min(hardware.cores, padded_cols // lanes) if batch_of(workload) is None else 1
    return (
        Limit("the tile is no wider than the output", padded_cols, "columns", lambda k: k.cols),
        Limit(
            "every core gets a panel of weights", padded_cols, "columns",
            lambda k: (busy_cores - 1) * k.cols + lanes,
        ),
        Limit(
            "the reduction axis fills an unrolled step", depth, "steps",
            lambda k: k.unroll if k.along == "cols" else (k.unroll - 1) * lanes + 1,
        ),
        Limit(
            "a stationary panel of weights fits L2", cpu.l2_bytes * 3 / 4, "bytes",
            lambda k: k.cols * depth * FLOAT_BYTES if k.order == "ws" and k.cols > lanes else 0,
        ),
        Limit(
            "a panel transposed on the fly fits the stack", STACK_BYTES, "bytes",
            lambda k: (
                k.cols * depth * FLOAT_BYTES if workload.weights == "transposed" and k.along == "cols" else 0
            ),
        ),
        Limit(
            "the padded copy of the edge tile fits half of L2", cpu.l2_bytes / 2, "bytes",
            lambda k: k.rows * depth * FLOAT_BYTES if k.edge == "padded" and k.rows > 1 else 0,
        ),
    )  # fmt: skip


def _candidates(
    lanes: int, registers: int, edges: tuple[Edge, ...], axes: tuple[Along, ...]
) -> Iterator[MicroKernel]:
    sizes = product(range(1, registers + 1), range(1, MAX_VECTORS + 1))
    for (rows, vectors), unroll, order, (steps, ahead), edge, along in product(
        sizes, UNROLLS, ORDERS, PREFETCHES, edges, axes
    ):
        cols = vectors * lanes if along == "cols" else vectors
        yield MicroKernel(rows, cols, unroll, order, steps, edge, ahead, along)


def _rejection(limit: Limit, misses: list[tuple[float, MicroKernel]]) -> Rejection:
    _, nearest = min(misses)
    return Rejection(limit.reason, len(misses), limit.most, limit.unit, nearest, limit.measure(nearest))

"""The cost model of a CPU: register tiles, and how much computing hides the fetch of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dietlab.cost.adaptation import AdaptationCost
from dietlab.cost.bundle import Bundle, Calls, FiveParts, Formulas, Rows, Same, Sizes, Speed, peak_speed
from dietlab.cost.formulas import FloatArray, f_occ
from dietlab.machine import Hardware
from dietlab.measure import Record
from dietlab.problem import IntArray, Workload, batched, precision_of, static_extent
from dietlab.scheme import EDGES
from dietlab.targets.cpu.kernel import CpuMicroKernel, CpuScheme
from dietlab.targets.cpu.limits import cpu_of
from dietlab.targets.cpu.space import FMA_LATENCY
from dietlab.targets.cpu.units import LINE_BYTES, UNITS

EDGE_STEPS = 6.0
"""The cost of calling, starting and storing a tile, in steps of the reduction: one load and one store per
vector (a step has one multiply-add per vector), and some tens of cycles around them."""

SUMS_STEPS = 2.0
"""The cost of adding up accumulators across lanes, in steps of the reduction for each lane."""

TRANSPOSED_ROWS = 7.0
"""The cost of transposing a panel of weights on the fly, in rows of a tile. A vector takes four exchanges of
registers, a load and a store; for a row it takes one multiply-add."""

LEAST_RATIO = 0.3
"""The least ratio of fetch time to compute time at which a record counts for the fit of a share of hiding."""

LEAST_RECORDS = 12
"""The least number of such records to fit a share. With fewer records a share keeps its default."""

LEAST_KERNELS = 3
"""The least number of schemes among these records."""

SHARES = np.linspace(0.0, 1.0, 51)
"""The shares of hiding that the fit tries."""

REFERENCE_DEPTH = 768
"""The depth, in steps, that the cache features assume where the depth is dynamic. A micro-kernel has one
throughput for all depths, so any number will do; this is the depth of BERT-base's layers."""

CPU_FEATURES = (
    "rows",
    "vectors",
    "unroll",
    "weight_stationary",
    "prefetch",
    "ahead",
    "along_depth",
    "checked",
    "partitioned",
    "accumulators",
    "registers_of_file",
    "loads_per_multiply_add",
    "flops_per_byte",
    "panel_bytes_of_l1",
    "panel_bytes_of_l2",
    "rows_bytes_of_l1",
    "code_vectors",
    "column_waste",
    "passes",
    "unit_rate",
)
"""Names of a scheme's features: its loops, reuse, registers and bytes by cache level."""


class Hiding(NamedTuple):
    """Two shares of a pass's computing, if several row tiles prefetch weights: the share that overlaps a
    fetch from memory, and the share that overlaps a fetch from the last-level cache. A share is 1 where the
    processor computes and fetches at once."""

    memory: float
    cache: float


ALL_HIDDEN = Hiding(1.0, 1.0)


@dataclass(frozen=True)
class CpuAdaptation(Formulas):
    """The adaptation of register tiles; see :class:`~dietlab.cost.adaptation.AdaptationCost`.

    A call also pays for fetching the weights once from the memory or cache that holds them between calls (an
    addition to the paper)::

        seconds(M, S) = flops(S) / (f_mk(M) * cores * f_pad(M, S) * f_occ(M, S) * f_stream(M, S))

    The micro-kernels of one plan share its passes over the weights, and its cores.

    Row tiles that share a pass over the weights prefetch the next column tile. Where that keeps up, a pass
    takes as long as the slower of fetching and computing; some processors do little of both at once. A share
    ``h`` of the computing hides the fetch (:class:`Hiding`)::

        seconds = computing + max(0, fetch - h * computing)
    """

    FEATURES = CPU_FEATURES
    hiding: Hiding = ALL_HIDDEN

    @property
    def unhindered(self) -> Speed:
        """One flop/s: so slow that no fetch takes longer than the computing."""
        return Same(1.0)

    @property
    def expected(self) -> Speed:
        """The share of the peak that tiles allow (:func:`reach`)."""
        peak = peak_speed(self.workload, self.hardware)
        return lambda scheme: peak * reach(scheme.kernel, self.hardware)

    def features(self, schemes: Sequence[CpuScheme]) -> Rows:
        """Returns the features of each scheme (:data:`CPU_FEATURES`), which no dynamic dimension changes."""
        return [_features(scheme, self.workload, self.hardware) for scheme in schemes]

    def knobs(self, schemes: Sequence[CpuScheme]) -> Rows:
        """Returns the parameters of schemes in numbers."""
        return [self._knobs(scheme) for scheme in schemes]

    def _knobs(self, scheme: CpuScheme) -> list[float]:
        kernel = scheme.kernel
        numbers = [kernel.rows, kernel.cols, kernel.unroll, kernel.prefetch, kernel.ahead, kernel.block]
        units = [kernel.facts.rate] if precision_of(self.workload).narrow else []  # others have one
        return [*numbers, kernel.along == "depth", scheme.order == "ws", EDGES.index(scheme.edge), *units]

    def loops(self, kernel: CpuMicroKernel) -> tuple[int, int]:
        """Returns the K-block, and the number of vectors across a tile."""
        return kernel.block, kernel.vectors(cpu_of(self.hardware).lanes)

    @property
    def levels(self) -> dict[str, int]:
        """The sizes of the caches."""
        cpu = cpu_of(self.hardware)
        return {"L1": cpu.l1d_bytes, "L2": cpu.l2_bytes, "the last level": cpu.last_level_bytes}

    def fitted(self, records: Sequence[Record], throughput: Speed | None = None) -> CpuAdaptation:
        """Returns the adaptation with the hiding that fits records best; the same adaptation without
        throughputs."""
        if throughput is None:
            return self
        return replace(self, hiding=_fitted_hiding(self, records, throughput))

    @property
    def constants(self) -> dict[str, Any]:
        """The shares of computing that hide the fetch of weights."""
        return {"hiding": list(self.hiding)}

    def with_constants(self, value: Mapping[str, Any]) -> CpuAdaptation:
        """Returns the adaptation with a file's shares; without shares in the file, computing hides all
        fetches."""
        return replace(self, hiding=Hiding(*value.get("hiding", ALL_HIDDEN)))

    def from_cache(self, calls: Calls) -> npt.NDArray[np.bool_]:
        """Returns, for each call, whether the last-level cache holds the weights between calls. They come
        from memory if they rotate or would fill more than half of that cache."""
        weight_bytes = self._weight_bytes * calls["cols"] * calls["depth"]
        return np.asarray((self.cache != "rotating") & (2 * weight_bytes <= cpu_of(self.hardware).l3_bytes))

    @property
    def _weight_bytes(self) -> int:
        return precision_of(self.workload).itemsize

    def sizes(self, scheme: CpuScheme) -> Sizes:
        kernel = scheme.kernel
        more = {"across": kernel.vectors(cpu_of(self.hardware).lanes), "block": kernel.block}
        group, sizes, paid = super().sizes(scheme)
        return Sizes((group, scheme.order, kernel.ahead, kernel.along), {**sizes, **more}, paid)

    def parts(self, bundle: Bundle, calls: Calls) -> FiveParts:
        heights, counts = zip(*bundle.tiles(calls), strict=True)
        tiles, depth = sum(counts), bundle.depth(calls)
        width, edge_steps = self._width(bundle, calls), self._edge_steps(bundle, calls)
        steps = [2.0 * h * width / (bundle.speed(h) * self._hidden(bundle, h)) for h in heights]
        step_of_all = sum(step * count for step, count in zip(steps, counts, strict=True))
        warm, edges = depth * step_of_all, edge_steps * step_of_all
        # Not slower for low tiles: exchanging registers waits for no multiply-add.
        edges = edges + self._transposed_rows(bundle) * depth * 2.0 * width / bundle.speed(bundle["rows"])
        first = (depth + edge_steps) * _of_first(steps, counts)
        waiting = self._waiting(bundle, calls, tiles, warm + edges, first)
        useful, busy = bundle.useful(calls), self._busy(bundle, calls, tiles)
        idle = (warm + edges + waiting) * (1 / busy - 1)
        # A call without rows makes no pass.
        passes = (tiles > 0) * calls["batch"] * bundle.column_tiles(calls) / self.hardware.cores
        parts = warm * useful, edges, warm * (1 - useful), waiting, idle
        return FiveParts(*(passes * part for part in parts))

    def static(self, bundle: Bundle, calls: Calls) -> FloatArray:
        tiles = np.asarray(sum(count for _, count in bundle.tiles(calls)))
        static: FloatArray = bundle.useful(calls) * self._busy(bundle, calls, tiles)
        return static

    def throughput(self, bundle: Bundle, calls: Calls, seconds: FloatArray) -> FloatArray:
        heights, counts = zip(*bundle.tiles(calls), strict=True)
        passes = calls["batch"] * bundle.column_tiles(calls) / self.hardware.cores
        spent = seconds / passes * self._busy(bundle, calls, sum(counts))
        paid = [height / self._hidden(bundle, height) for height in heights]
        rows = sum(one * count for one, count in zip(paid, counts, strict=True))
        steps = rows * (bundle.depth(calls) + self._edge_steps(bundle, calls))
        transposed = self._transposed_rows(bundle) * calls["depth"]
        flops = 2.0 * self._width(bundle, calls) * (steps + transposed)
        fetch, first = self._fetch(bundle, calls), _of_first(paid, counts) / rows
        rest = spent - fetch
        # The first tile's computing is unknown where it waits for its weights. A time below that of the
        # fetch would give a senseless rest.
        bound = _fetches_once(bundle) & (fetch > spent * first)
        bound &= (rest > 0.5 * spent * (1 - first)) & (first < 1)
        return np.asarray(np.where(bound, flops * (1 - first) / np.where(bound, rest, 1.0), flops / spent))

    @staticmethod
    def _width(bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the mean number of columns of a tile; composed tiles are no wider than needed."""
        if bundle.like.kernel.composes_columns:
            return np.asarray(calls["cols"] / np.maximum(1, bundle.column_tiles(calls)))
        return bundle["cols"].astype(np.float64)

    def _hidden(self, bundle: Bundle, heights: IntArray) -> FloatArray:
        """Returns the share of its throughput that a low tile reaches. Multiply-adds wait if the accumulators
        are fewer than the cycles of a multiply-add's latency. Tuning measures no candidate that low."""
        return np.asarray(np.minimum(1.0, heights * bundle["across"] / FMA_LATENCY))

    def _edge_steps(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the cost of starting and ending a tile in all its passes, in steps of the reduction."""
        blocks = np.where(bundle["block"] > 0, bundle["block"], np.maximum(1, calls["depth"]))
        sums = SUMS_STEPS * cpu_of(self.hardware).lanes if bundle.like.kernel.along == "depth" else 0.0
        return np.asarray(EDGE_STEPS * -(-calls["depth"] // blocks) + sums)

    def _transposed_rows(self, bundle: Bundle) -> float:
        transposes = self.workload.weights == "transposed" and bundle.like.kernel.along == "cols"
        return TRANSPOSED_ROWS if transposes else 0.0

    def _busy(self, bundle: Bundle, calls: Calls, tiles: IntArray) -> FloatArray:
        """Returns ``f_occ`` of the pieces that cores divide: products of a batch, transposed panels, or
        tiles."""
        if self.workload.weights != "packed" and batched(self.workload):
            pieces = calls["batch"]
        else:
            pieces = bundle.column_tiles(calls) * (1 if self.workload.weights == "transposed" else tiles)
        return f_occ(pieces, self.hardware.cores)

    def _waiting(
        self, bundle: Bundle, calls: Calls, tiles: IntArray, computing: FloatArray, first: FloatArray
    ) -> FloatArray:
        """Returns the seconds that one pass waits for weights. If each tile prefetches a part of the next
        panel, the fetch overlaps with the computation of all tiles of the pass. If the first tile fetches the
        weights for all tiles, the fetch overlaps with this tile's computation. Otherwise each tile fetches
        the weights while it computes."""
        fetch = self._fetch(bundle, calls)
        if bundle.like.kernel.ahead:
            shares = np.where(self.from_cache(calls), self.hiding.cache, self.hiding.memory)
            return np.maximum(0.0, fetch - np.where(tiles == 1, 1.0, shares) * computing)
        if _fetches_once(bundle):
            return np.maximum(0.0, fetch - first)
        return np.maximum(0.0, tiles * fetch - computing)

    def _fetch(self, bundle: Bundle, calls: Calls) -> FloatArray:
        """Returns the seconds to fetch the weights of one column tile."""
        memory = self.hardware.dram_gbps
        levels = self.hardware.l3_gbps, memory / self.hardware.cores if memory else None
        # A fetch of unknown bandwidth takes no time.
        modelled = self.kind != "paper" and self.workload.weights == "packed"
        cache, own = (1e9 * gbps if gbps and modelled else np.inf for gbps in levels)
        rates = np.where(self.from_cache(calls), cache, own)
        return np.asarray(self._weight_bytes * bundle["cols"] * calls["depth"] / rates)


def reach(kernel: CpuMicroKernel, hardware: Hardware) -> float:
    """Returns the share of the peak that a tile allows, in (0, 1]: multiply-adds over all instructions of a
    step (loads and prefetches too), times the unit's rate over that of the fastest unit.

    A step of the reduction loads an operand for each row and each vector of the tile and multiplies all
    pairs. A core begins as many loads as multiply-adds in a cycle (two of each on x86 since Haswell and Zen),
    yet they count one after the other, as do prefetches: on the surveys in ``data/cost`` this ranks better
    than the larger of both counts. A matrix unit loads and multiplies whole groups of rows.
    """
    facts, units = kernel.facts, cpu_of(hardware).units(kernel.facts.dtype)
    fastest = max((UNITS[unit].rate for unit in units), default=facts.rate)
    rows, vectors = kernel.rows // facts.tile_rows, kernel.vectors(cpu_of(hardware).lanes)
    lines = vectors * cpu_of(hardware).vector_bytes / LINE_BYTES if kernel.prefetch else 0.0
    return facts.rate / fastest / (1 + (rows + vectors + lines) / (rows * vectors))


def _fetches_once(bundle: Bundle) -> bool:
    """Returns whether a pass waits for its weights in its first tile only."""
    return bundle.like.order == "ws" and not bundle.like.kernel.ahead


def _of_first(values: Sequence[FloatArray], counts: Sequence[IntArray]) -> FloatArray:
    """Returns, for each plan, the value of its first region that has tiles."""
    found = values[-1]
    for value, count in zip(reversed(values), reversed(counts), strict=True):
        found = np.where(count > 0, value, found)
    return found


def _fitted_hiding(formulas: CpuAdaptation, records: Sequence[Record], throughput: Speed) -> Hiding:
    """Returns the shares that minimise the absolute errors of the logarithms of predicted times. A share that
    too few records inform (:data:`LEAST_RECORDS`) keeps its value in ``formulas``.

    Args:
        records: records in the cache state of ``formulas``, some also with operands in the last-level cache.
        throughput: the flop/s of one core that a scheme reaches by itself.
    """
    cost, found = AdaptationCost(formulas), formulas.hiding
    hot = cost.with_cache("hot")
    for seen, times in ((hot, [r.cached_seconds for r in records]), (cost, [r.seconds for r in records])):
        measured = [(r, t) for r, t in zip(records, times, strict=True) if t and r.scheme.kernel.ahead]
        found = found._replace(**_fitted_shares(seen, measured, throughput))
    return found


def _fitted_shares(
    cost: AdaptationCost, times: Sequence[tuple[Record, float]], throughput: Speed
) -> dict[str, float]:
    """Returns the share of each level that fits its times best, where enough of them inform it."""
    schemes, shapes = [record.scheme for record, _ in times], [record.shape for record, _ in times]
    waits, computing = (
        cost.changed(hiding=Hiding(share, share)).seconds_of(schemes, shapes, throughput)
        for share in (0.0, np.inf)
    )
    fetch, measured = waits - computing, np.array([seconds for _, seconds in times])
    formulas: Any = cost.formulas
    informs, cached = fetch > LEAST_RATIO * computing, formulas.from_cache(Calls.of(cost.workload, shapes))
    found = {}
    for level, here in (("memory", informs & ~cached), ("cache", informs & cached)):
        kernels = {scheme for scheme, used in zip(schemes, here, strict=True) if used}
        if np.count_nonzero(here) >= LEAST_RECORDS and len(kernels) >= LEAST_KERNELS:
            waiting = np.maximum(0.0, fetch[here] - SHARES[:, None] * computing[here])
            off = np.abs(np.log((computing[here] + waiting) / measured[here])).sum(axis=1)
            found[level] = round(float(SHARES[off.argmin()]), 2)
    return found


def _features(scheme: CpuScheme, workload: Workload, hardware: Hardware) -> list[float]:
    cpu, kernel = cpu_of(hardware), scheme.kernel
    vectors = kernel.vectors(cpu.lanes)
    whole = static_extent(workload, "depth") or REFERENCE_DEPTH
    # Dynamic columns are wasted as the shape has it, which the adaptation cost counts.
    cols = static_extent(workload, "cols") or kernel.cols
    depth = kernel.block or whole
    accumulators = kernel.rows * vectors
    step_bytes = 4.0 * (kernel.rows + kernel.cols)
    covered = -(-cols // kernel.cols) * kernel.cols
    return [
        kernel.rows,
        vectors,
        kernel.unroll,
        scheme.order == "ws",
        kernel.prefetch,
        kernel.ahead,
        kernel.along == "depth",
        scheme.edge == "checked",
        scheme.edge == "partitioned",
        accumulators,
        kernel.registers(cpu.lanes) / cpu.vector_registers,
        (kernel.rows + vectors) / accumulators,
        2.0 * kernel.rows * kernel.cols / step_bytes,
        4.0 * kernel.cols * depth / cpu.l1d_bytes,
        4.0 * kernel.cols * depth / cpu.l2_bytes,
        4.0 * kernel.rows * depth / cpu.l1d_bytes,
        accumulators * kernel.unroll,
        covered / cols - 1.0,
        whole / depth,
        kernel.facts.rate,
    ]


adaptation = CpuAdaptation

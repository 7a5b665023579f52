"""The analytic half of the cost model: the adaptation cost, which is the time lost by stitching micro-kernels
over a shape.

A micro-kernel computes at a throughput ``f_mk``. A plan made of it also pays for
padding (``f_pad``) and for idle processors (``f_occ``)::

    seconds(M, S) = flops(S) / (f_mk(M) * processors * f_pad(M, S) * f_occ(M, S))

and for losses of its processor; each kind of processor has a class of formulas. A composed plan is the sum of
its regions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dietlab.cost.bundle import Adaptation, Bundle, Calls, Formulas, Speed
from dietlab.cost.formulas import FloatArray, Parts
from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.measure import CacheState
from dietlab.problem import Shape, Workload
from dietlab.scheme import Scheme

MEASURED_SECONDS = 0.01
"""The longest call, in seconds at the processor's peak, of a shape that a candidate is measured on."""

Formula = Callable[[Bundle, Calls], FloatArray]
"""A function that returns a value for each call of a bundle."""


@dataclass(frozen=True)
class AdaptationCost:
    """The adaptation of schemes of one workload to shapes on one processor: for tables and for single pairs.

    Args:
        formulas: the formulas of the kind of processor.
    """

    formulas: Formulas

    @property
    def workload(self) -> Workload:
        """The operator."""
        return self.formulas.workload

    @property
    def hardware(self) -> Hardware:
        """The processor."""
        return self.formulas.hardware

    @property
    def kind(self) -> Adaptation:
        """The losses that the cost counts: ``"paper"`` or ``"streamed"``."""
        return self.formulas.kind

    @property
    def cache(self) -> CacheState:
        """The cache state in which a call finds its operands."""
        return self.formulas.cache

    def changed(self, **fields: Any) -> AdaptationCost:
        """Returns the cost with other values in the fields of its formulas."""
        return AdaptationCost(replace(self.formulas, **fields))

    def with_cache(self, cache: CacheState) -> AdaptationCost:
        """Returns the cost for calls whose operands are in another cache state."""
        return self.changed(cache=cache)

    def static(self, scheme: Any, shape: Shape) -> float:
        """Returns ``f_pad * f_occ``, which needs no measurement."""
        return float(self.statics([scheme], [shape])[0, 0])

    def statics(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns :meth:`static` of every scheme on every shape, ``[schemes, shapes]``."""
        return self._table(schemes, shapes, None, self.formulas.static)

    def seconds(self, scheme: Any, shape: Shape, throughput: Speed) -> float:
        """Returns the predicted seconds of a call.

        Args:
            throughput: a function that returns the flop/s of a scheme's full tiles on one core or
                multiprocessor. It is also called for the schemes of fewer rows in a composed plan.
        """
        return float(self.seconds_of([scheme], [shape], throughput)[0])

    def table(self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed) -> FloatArray:
        """Returns :meth:`seconds` of every scheme on every shape, ``[schemes, shapes]``."""
        return self._table(schemes, shapes, throughput, self.formulas.seconds)

    def seconds_of(self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed) -> FloatArray:
        """Returns :meth:`seconds` of single pairs, ``[pairs]``: the first scheme on the first shape, the
        second scheme on the second shape, and so on."""
        return self._pairs(schemes, shapes, throughput, self.formulas.seconds)

    def bound(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns the seconds of calls whose tiles compute at the processor's peak, ``[schemes, shapes]``.
        Learned models correct these."""
        return self._table(schemes, shapes, self.formulas.peak, self.formulas.seconds)

    def bound_of(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns :meth:`bound` of single pairs, ``[pairs]``."""
        return self._pairs(schemes, shapes, self.formulas.peak, self.formulas.seconds)

    def expected(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns the expected seconds of calls before any call is measured, ``[schemes, shapes]``. The first
        round of a search uses these."""
        return self._table(schemes, shapes, self.formulas.expected, self.formulas.seconds)

    def parts(self, scheme: Any, shape: Shape, throughput: Speed) -> Parts:
        """Returns the seconds of a call by part, which add up to :meth:`seconds`."""
        bundle = Bundle.of([scheme], [self.formulas.sizes(scheme)], throughput)
        found = self.formulas.parts(bundle, Calls.of(self.workload, [shape]))
        return Parts(*(float(part[0]) for part in found))

    def throughput(self, scheme: Any, shape: Shape, seconds: float) -> float:
        """Returns the throughput at which :meth:`seconds` equals the measured time, if the whole plan has one
        throughput. One measurement on any shape determines it."""
        return float(self.throughputs([scheme], [shape], [seconds])[0])

    def throughputs(
        self, schemes: Sequence[Any], shapes: Sequence[Shape], seconds: Sequence[float]
    ) -> FloatArray:
        """Returns :meth:`throughput` of single pairs, ``[pairs]``."""
        found, calls, spent = np.empty(len(schemes)), Calls.of(self.workload, shapes), np.array(seconds)
        for numbers, bundle in self._bundles(schemes, None):
            found[numbers] = self.formulas.throughput(bundle, calls.at(numbers), spent[numbers])
        return found

    def working_shares(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns, for single pairs, the share of a call's time for useful multiply-adds, in [0, 1], if they
        never wait for operands, ``[pairs]``. The larger the share, the more a measurement on this shape says
        about the scheme itself."""

        def share(bundle: Bundle, calls: Calls) -> FloatArray:
            parts = self.formulas.parts(bundle, calls)
            return parts.compute / np.where(parts.total > 0, parts.total, 1.0)

        return self._pairs(schemes, shapes, self.formulas.unhindered, share)

    def _table(
        self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed | None, of: Formula
    ) -> FloatArray:
        found, calls = np.empty((len(schemes), len(shapes))), Calls.of(self.workload, shapes)
        for numbers, bundle in self._bundles(schemes, throughput):
            found[numbers] = of(bundle.column, calls)
        return found

    def _pairs(
        self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Speed | None, of: Formula
    ) -> FloatArray:
        found, calls = np.empty(len(schemes)), Calls.of(self.workload, shapes)
        for numbers, bundle in self._bundles(schemes, throughput):
            found[numbers] = of(bundle, calls.at(numbers))
        return found

    def _bundles(
        self, schemes: Sequence[Any], throughput: Speed | None
    ) -> Iterator[tuple[list[int], Bundle]]:
        """Yields, for each group of schemes, the indices of the schemes and their bundle."""
        sizes = [self.formulas.sizes(scheme) for scheme in schemes]
        found: dict[Hashable, list[int]] = {}
        for number, one in enumerate(sizes):
            found.setdefault(one.group, []).append(number)
        for numbers in found.values():
            yield numbers, Bundle.of([schemes[n] for n in numbers], [sizes[n] for n in numbers], throughput)


def adaptation_cost(
    workload: Workload,
    hardware: Hardware,
    kind: Adaptation = "streamed",
    cache: CacheState = "hot",
    **constants: Any,
) -> AdaptationCost:
    """Returns the adaptation cost of ``workload`` on ``hardware``, with the formulas of its target.

    The ``kind`` ``"paper"`` counts padding and idle processors only; ``"streamed"`` adds the traffic of
    operands, which depends on the cache state: hot operands come from the last-level cache, rotating ones
    from memory. On a GPU, the kind ``"streamed"`` is a bound from all throughputs of a multiprocessor.

    Args:
        cache: where a call finds its operands.
        constants: the constants of the formulas, such as ``resident`` of a GPU or ``hiding`` of a CPU.
    """
    make: Callable[..., Formulas] = part(hardware.kind, "cost").adaptation
    return AdaptationCost(make(workload, hardware, kind, cache, **constants))


def best_shape(scheme: Scheme, shapes: tuple[Shape, ...], cost: AdaptationCost) -> Shape:
    """Returns ``S*``, the shape on which ``scheme`` wastes least; among ties, the largest whose call takes at
    most :data:`MEASURED_SECONDS`.

    Args:
        shapes: the shapes to choose among, at least one.
        cost: the adaptation cost, which gives the waste on each shape.
    """
    peak = 1e9 * cost.hardware.cores * (cost.hardware.peak_for(cost.workload.dtype) or 100.0)
    short = [s for s in shapes if cost.workload.flops(s) <= MEASURED_SECONDS * peak] or [min(shapes)]
    known = np.round(cost.statics([scheme], short)[0], 6).tolist()
    return max(zip(known, short, strict=True))[1]

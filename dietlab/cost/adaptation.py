"""The analytic half of the cost model: the adaptation cost, which stitching micro-kernels over a shape
loses.

A micro-kernel computes at a throughput ``f_mk``. A plan made of it also pays for
padding (``f_pad``) and for idle processors (``f_occ``)::

    seconds(M, S) = flops(S) / (f_mk(M) * processors * f_pad(M, S) * f_occ(M, S))

and for what its processor adds to that; each kind has a class. A composed plan is the sum of
its regions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from dietlab.cost.formulas import FloatArray, Parts
from dietlab.machine import Hardware
from dietlab.machine.target import part
from dietlab.measure import CacheState
from dietlab.problem import Shape, Workload
from dietlab.scheme import Scheme

Adaptation = Literal["paper", "streamed"]
"""``paper``: padding and idle processors only; ``streamed``: the operands' traffic too."""

MEASURED_SECONDS = 0.01
"""The most seconds that a candidate's call may take at the processor's peak, on the shape that it is
measured on."""


class AdaptationCost(Protocol):
    """The adaptation of schemes of one workload to shapes on one processor, whose kind they are of."""

    @property
    def workload(self) -> Workload:
        """The operator."""

    @property
    def hardware(self) -> Hardware:
        """The processor."""

    @property
    def kind(self) -> Adaptation:
        """The parts that it counts: ``"paper"`` or ``"streamed"``."""

    @property
    def cache(self) -> CacheState:
        """The cache state in which a call finds its operands."""

    def with_cache(self, cache: CacheState) -> AdaptationCost:
        """Returns the cost for calls whose operands are in another cache state."""

    def static(self, scheme: Any, shape: Shape) -> float:
        """Returns ``f_pad * f_occ``: what is known before anything is measured."""

    def statics(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns :meth:`static` of every scheme on every shape, ``[schemes, shapes]``."""

    def seconds(self, scheme: Any, shape: Shape, throughput: Callable[[Any], float]) -> float:
        """Returns the predicted seconds of a call.

        Args:
            throughput: flop/s of one core or multiprocessor that a scheme reaches by itself; asked
                for the lower ones of a composed plan too.
        """

    def table(
        self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Callable[[Any], float]
    ) -> FloatArray:
        """Returns :meth:`seconds` of every scheme on every shape, ``[schemes, shapes]``."""

    def seconds_of(
        self, schemes: Sequence[Any], shapes: Sequence[Shape], throughput: Callable[[Any], float]
    ) -> FloatArray:
        """Returns :meth:`seconds` of single pairs: of the first scheme on the first shape, and so on."""

    def bound(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns the seconds of calls whose tiles compute as fast as the processor lets them, ``[schemes,
        shapes]``: what learned models correct."""

    def bound_of(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns :meth:`bound` of single pairs, ``[pairs]``."""

    def parts(self, scheme: Any, shape: Shape, throughput: Callable[[Any], float]) -> Parts:
        """Returns the seconds of a call by part, which add up to :meth:`seconds`."""

    def throughput(self, scheme: Any, shape: Shape, seconds: float) -> float:
        """Returns the inverse of :meth:`seconds` with one throughput for the whole plan: the label that one
        measurement gives for every shape."""

    def throughputs(
        self, schemes: Sequence[Any], shapes: Sequence[Shape], seconds: Sequence[float]
    ) -> FloatArray:
        """Returns :meth:`throughput` of single pairs."""

    def working_share(self, scheme: Any, shape: Shape) -> float:
        """Returns the share of a call that useful multiply-adds take, in [0, 1], if operands never keep them
        waiting: how much a measurement on this shape says about the scheme itself."""

    def working_shares(self, schemes: Sequence[Any], shapes: Sequence[Shape]) -> FloatArray:
        """Returns :meth:`working_share` of single pairs."""


def adaptation_cost(
    workload: Workload,
    hardware: Hardware,
    kind: Adaptation = "streamed",
    cache: CacheState = "hot",
    **constants: Any,
) -> AdaptationCost:
    """Returns the adaptation on ``hardware``.

    ``kind="paper"`` has padding and idle processors only; ``"streamed"`` adds the traffic of operands, which
    depends on the cache state: hot ones come from the last-level cache, rotating ones from memory. On a GPU
    it is a bound from all throughputs of a multiprocessor.

    Args:
        workload: the operator whose schemes are stitched over its shapes.
        hardware: the processor that they run on; its kind says which adaptation that is.
        kind: ``"paper"`` or ``"streamed"``.
        cache: where a call finds its operands.
        constants: what is particular to its target, such as ``resident`` of a GPU or ``hiding`` of a CPU.
    """
    make: Callable[..., AdaptationCost] = part(hardware.kind, "cost").adaptation
    return make(workload, hardware, kind, cache, **constants)


def best_shape(scheme: Scheme, shapes: tuple[Shape, ...], cost: AdaptationCost) -> Shape:
    """Returns ``S*``: the shape on which a scheme wastes least; of equals the largest that is not so
    large that measuring it takes long.

    Args:
        scheme: a candidate.
        shapes: those it may be measured on, at least one.
        cost: says what each shape wastes.
    """
    peak = 1e9 * cost.hardware.cores * (cost.hardware.peak_for(cost.workload.dtype) or 100.0)
    short = [s for s in shapes if cost.workload.flops(s) <= MEASURED_SECONDS * peak] or [min(shapes)]
    known = np.round(cost.statics([scheme], short)[0], 6).tolist()
    return max(zip(known, short, strict=True))[1]

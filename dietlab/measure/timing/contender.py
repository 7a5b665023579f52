"""The interface of contenders, which are checked and timed: vendors, our libraries, per-shape programs,
candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from dietlab.base.errors import MeasureError
from dietlab.problem import Shape, Workload

Array = Any
"""An array on the contender's device: NumPy's on the host, PyTorch's or TVM's on a GPU."""

Operands = Mapping[str, Array]

Call = Callable[[], object]
"""The timed call. It writes ``out``, or returns a new tensor if the library cannot."""

Plan = int | str | None
"""A choice of program: the number of a library's micro-kernel, or the file of a candidate; None for the
contender's own choice."""


class NoFormError(MeasureError):
    """A library that is installed, but cannot compute this workload."""


class NotTunedError(MeasureError):
    """A contender without a program for a shape."""


class Prepared(Protocol):
    """A contender prepared for one shape, with its constant operands."""

    def bind(self, operands: Operands, out: Array, plan: Plan) -> Call:
        """Returns a call without arguments that computes ``out`` from the variable operands. It keeps all
        arrays alive."""


class Contender(Protocol):
    """A contender computes the workload.

    Besides these methods it may have

    - ``any_shape``: true if a prepared layer serves every shape with the same constant operands; the copies
      of a rotation are then made once;
    - ``packs_in_call``: true if the first call of a prepared layer packs weights; in a rotation, each copy is
      then called once before any is timed;
    - ``copied(prepared)``: returns the prepared layer (the last copy) with copies of its packed weights, so
      that they are packed only once;
    - ``capture(graph)``: a context that records the calls inside it into a CUDA graph;
    - ``on_each(call)``: runs a call on each of its threads, so that their caches can be emptied.
    """

    def kind(self, workload: Workload) -> str:
        """Returns its group in reports: ``"plain"``, ``"prepacked"`` and so on.

        Raises:
            NoFormError: if it cannot compute the workload.
        """

    def version(self) -> str: ...

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        """Prepares the workload at ``shape`` with its constant operands.

        Raises:
            NotTunedError: if the contender has no program for the shape.
        """

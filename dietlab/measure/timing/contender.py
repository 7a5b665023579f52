"""The interface of contenders, which are checked and timed: vendors, our libraries, per-shape programs,
candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

    def bind(self, operands: Operands, out: Array) -> Call:
        """Returns a call without arguments that computes ``out`` from the operands that are not constant. It
        keeps all arrays alive. Of a contender with several programs it takes a :data:`Plan`, too."""


class Contender(Protocol):
    """A contender computes the workload.

    Besides these methods it may have

    - ``name``, which a report and the command line call it;
    - ``computes``, the operators that it has, such as ``batch-matmul``, which stands for those whose names go
      on behind a hyphen (default: :data:`~dietlab.compare.contenders.COMPUTES`);
    - ``dtypes``, the types of operands that it knows, where float32 is not the only one;
    - ``package``, which must be installed for it, and ``where`` else it is absent;
    - ``default``, false if it takes part only where it is named;
    - ``any_shape``, true if what it prepares serves every shape with the same constant operands: copies of a
      rotation are then made once;
    - ``packs_in_call``, true if the first call of what it prepared packs weights: in a rotation, each copy is
      called once before any is timed;
    - ``copied(prepared)``, which returns a prepared layer with copies of its packed weights, as if it had
      prepared a copy of the constant operands: packing once is enough then. It is given the last copy;
    - ``on_each(call)``, which runs a call on each of its threads, so that their caches can be emptied.
    """

    def kind(self, workload: Workload) -> str:
        """Returns its group in reports: ``"plain"``, ``"prepacked"`` and so on.

        Raises:
            NoFormError: if it cannot compute the workload.
        """

    def version(self) -> str:
        """Returns the version of the library that is timed, as it tells it."""

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        """Prepares the workload at ``shape`` with its constant operands.

        Raises:
            NotTunedError: if the contender has no program for the shape.
        """


@dataclass(frozen=True)
class WithConstants:
    """A :class:`Prepared` of what binds a call on all operands, and of those that are constant."""

    bound: Callable[..., Call]
    constants: Operands = field(default_factory=dict)

    def bind(self, operands: Operands, out: Array, *plan: Plan) -> Call:
        return self.bound({**self.constants, **operands}, out, *plan)

"""The interface of contenders: vendor libraries, dietlab's libraries, per-shape programs and candidates. All
are checked and timed in the same way."""

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
"""The timed call. It writes ``out``, or returns a new tensor if the library cannot write ``out``.

It may have a method ``ready``, for a library that a call at another size than the last resizes: the method
resizes it, before calls at one size are timed. A first call at a size is timed without it."""

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
        """Returns a call without arguments that computes ``out`` from the operands that are not constant. The
        call keeps all arrays alive. If the contender has several programs, ``bind`` also takes a
        :data:`Plan`."""


class Contender(Protocol):
    """A contender computes the workload.

    Besides these methods it may have

    - ``name``, its name in reports and on the command line;
    - ``computes``, its operators; ``batch-matmul`` includes all operators whose names begin with
      ``batch-matmul-`` (default: :data:`~dietlab.compare.contenders.COMPUTES`);
    - ``adds_before``, the names of operators whose residual it can add before the activation;
    - ``dtypes``, its types of operands, if it has others than float32;
    - ``package``, a package that must be installed, and ``where``, a text that reports add about its absence;
    - ``default``, false if it takes part only when it is named, or the names of the operators in whose
      evaluations it also takes part without being named;
    - ``any_shape``, true if a prepared layer serves every shape with the same constant operands, so that the
      copies of a rotation are made once;
    - ``packs_in_call``, true if the first call of a prepared layer packs weights, so that each copy of a
      rotation is called once before any is timed;
    - ``copied(prepared)``, which returns a prepared layer with a copy of the packed weights of ``prepared``,
      the last copy, so that weights are packed only once for a rotation;
    - ``on_each(call)``, which runs a call on each of its threads, so that their caches can be emptied.
    """

    def kind(self, workload: Workload) -> str:
        """Returns the contender's group in reports: ``"plain"``, ``"prepacked"`` and so on.

        Raises:
            NoFormError: if the contender cannot compute the workload.
        """

    def version(self) -> str:
        """Returns the version of the timed library, as the library reports it."""

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        """Prepares the workload at ``shape`` with its constant operands.

        Raises:
            NotTunedError: if the contender has no program for the shape.
        """


def make_ready(call: Call) -> None:
    """Calls the method ``ready`` of a call, if it has one."""
    ready: Callable[[], object] | None = getattr(call, "ready", None)
    if ready is not None:
        ready()


@dataclass(frozen=True)
class WithConstants:
    """A :class:`Prepared` made of a function that binds a call on all operands, and of the constant
    operands."""

    bound: Callable[..., Call]
    constants: Operands = field(default_factory=dict)

    def bind(self, operands: Operands, out: Array, *plan: Plan) -> Call:
        return self.bound({**self.constants, **operands}, out, *plan)

"""Contenders of an evaluation: vendors, whose results are checked, our libraries, per-shape programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dietlab.base.cards import counted
from dietlab.base.contracts import name_of, require_methods, shown
from dietlab.base.errors import MeasureError
from dietlab.base.registry import Registry
from dietlab.compare.ansor.contender import tuned_library
from dietlab.compare.target import evaluation_target
from dietlab.compare.vendor import Maker
from dietlab.lower.runtime import on_each_thread
from dietlab.measure.timing.contender import (
    Array,
    Call,
    Contender,
    NoFormError,
    NotTunedError,
    Operands,
    Plan,
    Prepared,
    WithConstants,
)
from dietlab.problem import OPERATORS, USUAL, Shape, Workload, gathered
from dietlab.tuning.operator import Operator, load

COMPUTES = ("dense", "batch-matmul", "matmul")
"""The operators of a vendor without the field ``computes``, by their names (:func:`forms_of`): dietlab's
operators when the field was introduced."""


def opened_contender(
    name: str,
    vendors: Registry[Maker],
    made_with: object,
    ours: Mapping[str, Callable[[], Contender]],
    kinds: Sequence[str],
) -> Contender:
    """Returns the contender that a request opens.

    Args:
        name: the name of a vendor, or one of ``ours``.
        made_with: the argument that each vendor class of the target takes.
        kinds: the kinds that a vendor may have.

    Raises:
        MissingDependencyError: if the vendor's library is not installed.
        MeasureError: if there is no such contender.
    """
    if name in vendors:
        vendor = vendors[name](made_with)
        require_methods(f"the contender {name}", vendor, ("version", "kind", "prepare"), MeasureError)
        return Vendor(vendor, kinds)
    if name not in ours:
        raise MeasureError(f"a contender is one of {', '.join([*vendors, *ours])}", repr(name))
    return ours[name]()


@dataclass(frozen=True)
class Vendor:
    """A vendor of dietlab or of another package. Checks every value that the vendor returns. An operator that
    the vendor does not compute gives a row with a reason."""

    contender: Contender
    kinds: Sequence[str]

    def __getattr__(self, name: str) -> Any:
        """Returns any other attribute of the vendor, such as ``any_shape``."""
        return getattr(self.contender, name)

    def kind(self, workload: Workload) -> str:
        name = getattr(self.contender, "name", name_of(self.contender))
        dtypes = getattr(self.contender, "dtypes", (USUAL,))
        if workload.dtype not in dtypes:
            raise NoFormError(f"{name} can only compute {' or '.join(dtypes)}", workload.dtype)
        kind = self.contender.kind(workload)
        if kind not in self.kinds:
            kinds = " or ".join(map(repr, self.kinds))
            raise MeasureError(f"{self._returned('kind')} must be {kinds}", shown(kind))
        computes = getattr(self.contender, "computes", COMPUTES)
        if not any(f"{form}-".startswith(f"{one}-") for form in forms_of(workload) for one in computes):
            known = " or ".join(computes)
            rule = f"{name} can only compute {known}"
            raise NoFormError(rule, workload, "Compare with one that computes it.")
        if workload.epilogue.before and workload.operator not in getattr(self.contender, "adds_before", ()):
            rule = f"{name} must be able to add a residual before the activation"
            raise NoFormError(rule, workload, "Compare with torch or onednn-packed, on a convolution.")
        return kind

    def version(self) -> str:
        version = self.contender.version()
        if not isinstance(version, str):
            raise MeasureError(f"{self._returned('version')} must be a text", shown(version))
        return version

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        layer = self.contender.prepare(workload, constants, shape)
        require_methods(self._returned("prepare"), layer, ("bind",), MeasureError)
        return WithConstants(partial(self._bound, layer))

    def _returned(self, method: str) -> str:
        return f"what {method} of {name_of(self.contender)} returns"

    def _bound(self, layer: Prepared, operands: Operands, out: Array, *_: Plan) -> Call:
        call = layer.bind(operands, out)
        if not callable(call):
            what = f"what bind of {name_of(layer)} returns, which {name_of(self.contender)} prepared,"
            raise MeasureError(f"{what} must be a call without arguments", shown(call))
        return call


def forms_of(workload: Workload) -> tuple[str, ...]:
    """Returns the names under which a vendor's ``computes`` may list an operator: its own name and, for an
    operator of another package, the name of dietlab's product with the same layout of operands: ``dense``,
    ``batch-matmul`` or, if the rows of ``w`` run along the depth, ``matmul``. An operator whose rows are
    collected from the input is none of them."""
    if workload.operator in OPERATORS.own or gathered(workload):
        return (workload.operator,)
    if any(axis.role == "batch" for axis in workload.axes):
        return workload.operator, "batch-matmul"
    return workload.operator, "matmul" if workload.weights == "direct" else "dense"


class LibraryContender:
    """A library of ours, as built: micro-kernels and dispatcher."""

    def __init__(self, folder: str, cores: int = 1) -> None:
        self._operator = load(folder)
        self.any_shape = bool(self._operator.workload.constants)  # else it prepares nothing
        self.on_each = partial(on_each_thread, cores)

    def kind(self, workload: Workload) -> str:
        return "library"

    def version(self) -> str:
        return str(counted(len(self._operator.micro_kernels), "micro-kernel"))

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        return prepared(self._operator, constants)


class LibrariesContender:
    """Several libraries of ours under one name, each for the shapes of its operator."""

    def __init__(self, folders: Sequence[str], cores: int = 1) -> None:
        self._operators = [load(folder) for folder in folders]
        self.on_each = partial(on_each_thread, cores)

    def kind(self, workload: Workload) -> str:
        return "library"

    def version(self) -> str:
        return str(counted(len(self._operators), "layer"))

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        for operator in self._operators:
            if serves(operator.workload, workload, shape):
                return prepared(operator, constants)
        names = "; ".join(str(operator.workload) for operator in self._operators)
        raise NotTunedError("one of the libraries must serve the shape", shape, f"They are {names}.")


def serves(operator: Workload, workload: Workload, shape: Shape) -> bool:
    """Returns whether an operator covers a shape of another workload: every axis has the shape's extent, or a
    range that contains it."""
    if operator.operator != workload.operator:
        return False
    extents = {axis.name: axis.at(shape) for axis in workload.axes}
    return all(axis.low <= extents[axis.name] <= axis.high for axis in operator.axes)


def prepared(operator: Operator, constants: Operands) -> Prepared:
    """Returns a library of ours with packed weights, if they are constant. Otherwise every call passes all
    operands, also the constants."""
    if operator.workload.constants:
        layer = operator.pack(**constants)
        return WithConstants(lambda operands, out, plan=None: layer.bind(**operands, out=out, plan=plan))
    names = [name for name in operator.workload.signature if name != "out"]
    return WithConstants(
        lambda given, out, plan=None: operator.bind({name: given[name] for name in names}, out, plan),
        constants,
    )


class AnsorContender:
    """One statically tuned program for each shape of a folder.

    Args:
        loaded: a function that loads a tuned library by its path and the contents of its JSON, and returns
            another function, which prepares the program from the workload and its constant operands.
    """

    def __init__(
        self,
        folder: str,
        target: str,
        loaded: Callable[[Path, Mapping[str, Any]], Callable[[Workload, Operands], Prepared]],
    ) -> None:
        self._folder, self._target, self._loaded = folder, target, loaded
        self.programs: dict[Shape, Callable[[Workload, Operands], Prepared]] = {}

    def kind(self, workload: Workload) -> str:
        evaluation_target(self._target).require_form(workload)
        return "per-shape tuning"

    def version(self) -> str:
        return f"MetaSchedule of TVM {version('apache-tvm')}"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        if shape not in self.programs:
            self.programs[shape] = self._loaded(*tuned_library(self._folder, shape))
        return self.programs[shape](workload, constants)

"""Contenders of an evaluation behind one interface: vendors, our libraries, per-shape programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, get_args

from dietlab.base.cards import counted
from dietlab.base.contracts import name_of, require_methods, shown
from dietlab.base.errors import MeasureError
from dietlab.compare.ansor.contender import AnsorLayer, load_ansor
from dietlab.compare.vendor import Kind, Vendor
from dietlab.lower.runtime import on_each_thread
from dietlab.measure.timing.contender import (
    Call,
    NoFormError,
    NotTunedError,
    Operands,
    Plan,
    Prepared,
)
from dietlab.problem import USUAL, FloatArray, Shape, Workload
from dietlab.problem.dims import holds
from dietlab.tuning.operator import Operator, load


@dataclass(frozen=True)
class VendorContender:
    vendor: Vendor

    @property
    def any_shape(self) -> bool:
        return bool(getattr(self.vendor, "any_shape", False))

    @property
    def packs_in_call(self) -> bool:
        return bool(getattr(self.vendor, "packs_in_call", False))

    def kind(self, workload: Workload) -> str:
        known = getattr(self.vendor, "dtypes", (USUAL,))
        if workload.dtype not in known:
            name = getattr(self.vendor, "name", name_of(self.vendor))
            raise NoFormError(f"{name} computes {' or '.join(known)}", workload.dtype)
        kind, kinds = self.vendor.kind(workload), get_args(Kind)
        if kind not in kinds:
            what = f"what kind of {name_of(self.vendor)} returns"
            raise MeasureError(f"{what} is {' or '.join(map(repr, kinds))}", shown(kind))
        return kind

    def version(self) -> str:
        version = self.vendor.version()
        if not isinstance(version, str):
            raise MeasureError(f"what version of {name_of(self.vendor)} returns is a text", shown(version))
        return version

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        name = name_of(self.vendor)
        layer = self.vendor.prepare(workload, constants, shape)
        require_methods(f"what prepare of {name} returns", layer, ("bind",), MeasureError)
        return WithoutPlans(layer, name)


@dataclass(frozen=True)
class WithoutPlans:
    """A layer that computes in one way, of the vendor of that class."""

    layer: Any
    vendor: str

    def bind(self, operands: Operands, out: FloatArray, plan: Plan) -> Call:
        call: Call = self.layer.bind(operands, out)
        if not callable(call):
            what = f"what bind of {name_of(self.layer)} returns, which {self.vendor} prepared,"
            raise MeasureError(f"{what} is a call without arguments", shown(call))
        return call


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
    """Several libraries of ours under one name: each serves only the shapes that its operator has."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._operators = [load(folder) for folder in folders]

    def kind(self, workload: Workload) -> str:
        return "library"

    def version(self) -> str:
        return str(counted(len(self._operators), "layer"))

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        for operator in self._operators:
            if serves(operator.workload, workload, shape):
                return prepared(operator, constants)
        names = "; ".join(str(operator.workload) for operator in self._operators)
        raise NotTunedError("one of the libraries serves the shape", shape, f"They are {names}.")


def serves(operator: Workload, workload: Workload, shape: Shape) -> bool:
    """Returns whether an operator was made for a shape of another workload: each axis has that extent, or a
    range with it."""
    if operator.operator != workload.operator:
        return False
    extents = {axis.name: axis.at(shape) for axis in workload.axes}
    return all(holds(axis.extent, extents[axis.name]) for axis in operator.axes)


def prepared(operator: Operator, constants: Operands) -> Prepared:
    """Returns a library of ours with its weights packed, if they are constant."""
    if not operator.workload.constants:
        return LibraryCalls(operator, constants)
    return LibraryLayer(operator.pack(**constants))


@dataclass(frozen=True)
class LibraryCalls:
    """An operator of ours whose operands all come with every call, also those that the workload could
    have had packed."""

    operator: Any
    constants: Operands

    def bind(self, operands: Operands, out: FloatArray, plan: Plan) -> Call:
        given = {**operands, **self.constants}
        ordered = {name: given[name] for name in self.operator.workload.signature if name != "out"}
        call: Call = self.operator.bind(ordered, out, plan=plan)
        return call


@dataclass(frozen=True)
class LibraryLayer:
    """An operator of ours with packed weights."""

    layer: Any

    def bind(self, operands: Operands, out: FloatArray, plan: Plan) -> Call:
        more = {"residual": operands["residual"]} if "residual" in operands else {}
        call: Call = self.layer.bind(operands["x"], out, plan=plan, **more)
        return call


@dataclass(frozen=True)
class AnsorContender:
    """One statically tuned program for each shape of a folder."""

    folder: str

    def kind(self, workload: Workload) -> str:
        if "w" not in workload.constants or workload.epilogue.residual:
            raise NoFormError("per-shape tuning has constant weights and no residual", workload)
        return "per-shape tuning"

    def version(self) -> str:
        return f"MetaSchedule of TVM {version('apache-tvm')}"

    def prepare(self, workload: Workload, constants: Operands, shape: Shape) -> Prepared:
        try:
            operator = load_ansor(self.folder, shape)
        except MeasureError as error:
            raise NotTunedError(error.invariant, error.value, error.remedy) from None
        return AnsorCalls(operator.pack(constants["w"], constants.get("bias")))


@dataclass(frozen=True)
class AnsorCalls:
    layer: AnsorLayer

    def bind(self, operands: Operands, out: FloatArray, plan: Plan) -> Call:
        return self.layer.bind(operands["x"], out)

"""Operators by name: dietlab's own and those of users."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from typing import Any

from dietlab.base.carried import require_carried
from dietlab.base.contracts import require_methods, shown
from dietlab.base.errors import WorkloadError, mismatch
from dietlab.base.registry import Registry
from dietlab.problem.agreement import METHODS, REMEDY, require_workload
from dietlab.problem.batch_matmul import BatchMatmul
from dietlab.problem.contraction import Workload
from dietlab.problem.convolution import Conv1d, Conv2d
from dietlab.problem.dense import Dense
from dietlab.problem.shapes import Dim

CLASS = "class"
"""The field of an operator's JSON value that names its class, unless the class is dietlab's own."""


@dataclass(frozen=True)
class OperatorKind:
    """An operator's class, its dimensions, and an example for the command line.

    Args:
        make: a function that returns the operator, given its dimensions and options by name.
        read: a function that returns the operator of a JSON value made by its ``to_json``.
        dims: the names of its dimensions.
        example: options of the command line, such as ``"--dim T=1:16 --dim N=96"``.
    """

    make: Callable[..., Workload]
    read: Callable[[Mapping[str, Any]], Workload]
    dims: tuple[str, ...]
    example: str

    @classmethod
    def of(cls, made: type) -> OperatorKind:
        """Returns the kind of a class, which has ``from_json`` and a constructor that requires only the
        dimensions."""
        needed = [p.name for p in signature(made).parameters.values() if p.default is Parameter.empty]
        example = " ".join(f"--dim {name}={'64' if at else '1:128'}" for at, name in enumerate(needed))
        return cls(made, made.from_json, tuple(needed), example)  # type: ignore[attr-defined]


def _operator(name: str, value: object) -> OperatorKind:
    if isinstance(value, OperatorKind):
        return value
    if not isinstance(value, type):
        raise WorkloadError(f"the operator {name} must be entered as its class", shown(value))
    missing = [verb for verb in ("from_json", *METHODS) if not callable(getattr(value, verb, None))]
    if missing:
        raise WorkloadError(
            f"the class of the operator {name} must have {', '.join(('from_json', *METHODS))}",
            f"{shown(value)} without {', '.join(missing)}",
            REMEDY,
        )
    return OperatorKind.of(value)


OPERATORS: Registry[OperatorKind] = Registry(
    "the operator",
    "dietlab.operators",
    {
        "dense": OperatorKind(
            Dense, Dense.from_json, ("T", "N", "K"), "--dim T=1:128 --dim N=2304 --dim K=768"
        ),
        **{
            f"batch-matmul-{form}": OperatorKind(
                partial(BatchMatmul, form=form),
                BatchMatmul.from_json,
                ("T", "B", "D"),
                "--dim T=1:128 --dim B=192 --dim D=64",
            )
            for form in ("nt", "nn")
        },
        "conv2d": OperatorKind(
            Conv2d,
            Conv2d.from_json,
            ("N", "H", "W", "IC", "OC"),
            "--dim N=1 --dim H=7:80 --dim W=7:80 --dim IC=64 --dim OC=96",
        ),
        "conv1d": OperatorKind(
            Conv1d,
            Conv1d.from_json,
            ("N", "L", "IC", "OC"),
            "--dim N=1 --dim L=50:900 --dim IC=64 --dim OC=96",
        ),
    },
    _operator,
    WorkloadError,
    travels=True,
    also=lambda kind: getattr(kind.make, "operator", None),
)
"""Operators by name. ``OPERATORS["product"] = Product`` enters your own class in this process and in
processes that it starts; the class's ``operator`` must be this name."""


def make_workload(operator: str, dims: Mapping[str, Dim | int], **options: Any) -> Workload:
    """Returns an operator from its name and dimensions.

    Args:
        operator: a key of :data:`OPERATORS`, such as ``"dense"``, or ``MODULE:CLASS``.
        dims: a number or a range for each dimension, by name.
        options: the operator's other fields, such as ``bias=True`` or ``dtype="bfloat16"``.

    Raises:
        WorkloadError: if the operator, a dimension or an option is unknown, a dimension is missing, or a
            user's operator does not satisfy ``Workload``.
    """
    known = OPERATORS.named(operator)
    if wrong := mismatch(dims, known.dims):
        rule = f"{operator} must have the dimensions {', '.join(known.dims)}"
        raise WorkloadError(rule, wrong, f"For example {known.example}.")
    try:
        signature(known.make).bind(**{**dims, **options})
    except TypeError as error:
        unknown = ", ".join(sorted(set(options) - set(signature(known.make).parameters)))
        raise WorkloadError(f"{operator} must support the given options", unknown or error) from None
    made = known.make(**{**dims, **options})
    if operator not in OPERATORS.own:
        require_workload(made)
        require_entered(made)
    return made


def workload_to_json(workload: Workload) -> dict[str, Any]:
    """Returns the JSON value of an operator for files: the result of its ``to_json`` and, for a user's
    operator, the place of its class.

    Args:
        workload: the operator.
    """
    kind = type(workload)
    place = {} if workload.operator in OPERATORS.own else {CLASS: f"{kind.__module__}:{kind.__qualname__}"}
    return {**workload.to_json(), **place}


def without_class(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a JSON value of an operator without the place of its class, which may differ between files.

    Args:
        value: a result of :func:`workload_to_json`.
    """
    return {name: field for name, field in value.items() if name != CLASS}


def workload_from_json(value: Mapping[str, Any]) -> Workload:
    """Returns the operator of a JSON value made by ``workload.to_json()`` or :func:`workload_to_json`.

    Args:
        value: a result of either function.

    Raises:
        WorkloadError: for an unknown operator; modules that a file names are not imported.
    """
    try:
        known = OPERATORS.found(value.get("operator"))
    except WorkloadError as error:
        if CLASS not in value or value["operator"] in OPERATORS:
            raise
        remedy = (
            f"It is {value[CLASS]}, and reading a file imports nothing: `dietlab --import {value[CLASS]} "
            "...` does; in Python, enter the class in dietlab.problem.OPERATORS."
        )
        raise WorkloadError(error.invariant, error.value, remedy) from None
    return known.read(without_class(value))


def require_entered(workload: Workload) -> None:
    """Checks that files and other processes can represent an operator: its name is known, and reading its
    JSON value returns an equal operator.

    Args:
        workload: the operator.

    Raises:
        WorkloadError: if they cannot represent it.
    """
    require_methods("an operator", workload, ("to_json",), WorkloadError)
    name, kind = workload.operator, type(workload).__name__
    if name not in OPERATORS:
        raise WorkloadError(
            "an operator that is saved or measured must be known by its name",
            f"{name!r}, which is not one of {', '.join(OPERATORS)}",
            f"Enter it: OPERATORS[{name!r}] = {kind}.",
        )
    try:
        written = json.loads(json.dumps(workload_to_json(workload)))
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"to_json of {kind} must return a JSON value", error) from None
    again = workload_from_json(written)
    if again != workload:
        raise WorkloadError(
            f"reading the JSON value of the operator {name!r} must return an equal operator",
            f"{again} for {workload}",
            f"Is another class entered by that name, or does from_json of {kind} leave something out?",
        )
    require_carried(OPERATORS, name)

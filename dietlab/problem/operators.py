"""The operators by name: those that come with dietlab, and those of others."""

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
from dietlab.problem.dense import Dense
from dietlab.problem.shapes import Dim

CLASS = "class"
"""Where the JSON value of an operator says which class it is of, if that did not come with dietlab."""


@dataclass(frozen=True)
class OperatorKind:
    """An operator's class, its dimensions, and an example of them for the command line.

    Args:
        make: returns the operator, from its dimensions and options by name.
        read: returns it from what its ``to_json`` returned.
        dims: the names of its dimensions.
        example: options of the command line, such as ``"--dim T=1:16 --dim N=96"``.
    """

    make: Callable[..., Workload]
    read: Callable[[Mapping[str, Any]], Workload]
    dims: tuple[str, ...]
    example: str

    @classmethod
    def of(cls, made: type) -> OperatorKind:
        """Returns it for a class with ``from_json``, whose dimensions are what its constructor must be given.

        Args:
            made: the class of the operator.
        """
        needed = [p.name for p in signature(made).parameters.values() if p.default is Parameter.empty]
        example = " ".join(f"--dim {name}={'64' if at else '1:128'}" for at, name in enumerate(needed))
        return cls(made, made.from_json, tuple(needed), example)  # type: ignore[attr-defined]


def _operator(name: str, value: object) -> OperatorKind:
    if isinstance(value, OperatorKind):
        return value
    if not isinstance(value, type):
        raise WorkloadError(f"the operator {name} is entered as its class", shown(value))
    missing = [verb for verb in ("from_json", *METHODS) if not callable(getattr(value, verb, None))]
    if missing:
        raise WorkloadError(
            f"the class of the operator {name} has {', '.join(('from_json', *METHODS))}",
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
    },
    _operator,
    WorkloadError,
    travels=True,
    also=lambda kind: getattr(kind.make, "operator", None),
)
"""Operators by name. ``OPERATORS["product"] = Product`` enters a class of your own, whose ``operator`` is
that name, in this process and in those that it starts."""


def make_workload(operator: str, dims: Mapping[str, Dim | int], **options: Any) -> Workload:
    """Returns an operator from its name and dimensions, as the command line gives them.

    Args:
        operator: such as ``"dense"``, a key of :data:`OPERATORS`, or ``MODULE:CLASS``.
        dims: each a number or a range, by the operator's names.
        options: its other fields, such as ``bias=True`` or ``dtype="bfloat16"``.

    Raises:
        WorkloadError: if the operator, a dimension or an option is unknown, or one is missing; or if the
            operator of others breaks what ``Workload`` says.
    """
    known = OPERATORS.named(operator)
    if wrong := mismatch(dims, known.dims):
        raise WorkloadError(
            f"{operator} has the dimensions {', '.join(known.dims)}", wrong, f"For example {known.example}."
        )
    try:
        signature(known.make).bind(**{**dims, **options})
    except TypeError as error:
        unknown = ", ".join(sorted(set(options) - set(signature(known.make).parameters)))
        raise WorkloadError(f"{operator} knows its options", unknown or error) from None
    made = known.make(**{**dims, **options})
    if operator not in OPERATORS.own:
        require_workload(made)
        require_entered(made)
    return made


def workload_to_json(workload: Workload) -> dict[str, Any]:
    """Returns an operator as files have it: what its ``to_json`` returns and, if it did not come with
    dietlab, where its class is.

    Args:
        workload: the operator.
    """
    kind = type(workload)
    place = {} if workload.operator in OPERATORS.own else {CLASS: f"{kind.__module__}:{kind.__qualname__}"}
    return {**workload.to_json(), **place}


def without_class(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a JSON value of an operator without where its class is, which two files of it may differ in.

    Args:
        value: what :func:`workload_to_json` returned.
    """
    return {name: field for name, field in value.items() if name != CLASS}


def workload_from_json(value: Mapping[str, Any]) -> Workload:
    """Returns the inverse of ``workload.to_json()`` and of :func:`workload_to_json`.

    Args:
        value: what they returned.

    Raises:
        WorkloadError: for an operator that is not known here; no module is imported because a file names it.
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
    """Checks that files and other processes can tell an operator: it is known by its name, and is read back
    as it was written.

    Args:
        workload: the operator.

    Raises:
        WorkloadError: if it is not.
    """
    require_methods("an operator", workload, ("to_json",), WorkloadError)
    name, kind = workload.operator, type(workload).__name__
    if name not in OPERATORS:
        raise WorkloadError(
            "processes that measure, and files, know an operator by its name",
            f"{name!r}, which is not one of {', '.join(OPERATORS)}",
            f"Enter it: OPERATORS[{name!r}] = {kind}.",
        )
    try:
        told = json.loads(json.dumps(workload_to_json(workload)))
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"to_json of {kind} returns a JSON value", error) from None
    again = workload_from_json(told)
    if again != workload:
        raise WorkloadError(
            f"the operator {name!r} is read from what its to_json returned, and equals it",
            f"{again} for {workload}",
            f"Is another class entered by that name, or does from_json of {kind} leave something out?",
        )
    require_carried(OPERATORS, name)

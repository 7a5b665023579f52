"""Options of the ``dietlab`` command that describe an operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from dietlab.base.errors import DietlabError
from dietlab.cli.names import Named
from dietlab.problem import ACTIVATIONS, OPERATORS, PRECISIONS, USUAL, Dim, make_workload


def _default_dims(operator: str) -> list[str]:
    """Returns ``["T=1:128", ...]`` of an operator's example; none for others' operators, whose example is
    made up."""
    return OPERATORS[operator].example.replace("--dim", "").split() if operator in OPERATORS.own else []


class Sides(click.ParamType):
    """A number, or one for each dimension of an image: ``3``, ``3x5``; ``0:1x2`` has a pair for the first."""

    name = "sides"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            sides = [tuple(map(int, side.split(":"))) for side in str(value).split("x")]
        except ValueError:
            self.fail(f"{value!r} is not a number such as 3, or several such as 3x5.", param, ctx)
        numbers = tuple(side[0] if len(side) == 1 else side for side in sides)
        return numbers[0] if len(numbers) == 1 and isinstance(numbers[0], int) else numbers


SIDES = {
    "kernel": "elements of the kernel, such as 3, or 3x5 for height and width. Default: 3.",
    "stride": "distance from one position of the kernel to the next. Default: 1.",
    "padding": "zeros around the image: a number, or before and after it, such as 0:1x0:1. Default: 0.",
    "dilation": "distance from one element of the kernel to the next. Default: 1.",
}
"""The options of a convolution's kernel, and what they say."""

_WORKLOAD_OPTIONS = (
    click.argument("operator", default="dense", metavar="[OPERATOR]", type=Named(OPERATORS)),
    click.option(
        "--dim",
        "dims",
        multiple=True,
        metavar="NAME=LOW:HIGH",
        help="A dimension; a range makes it dynamic. Default: "
        + "; ".join(f"{name}: {' '.join(_default_dims(name))}" for name in OPERATORS.own)
        + ".",
    ),
    click.option("--bias", is_flag=True, help="Add a bias (not of batched products)."),
    click.option(
        "--activation",
        type=click.Choice(ACTIVATIONS),
        default="none",
        show_default=True,
        help="Applied to the sum while it is in registers (not of batched products).",
    ),
    click.option(
        "--residual",
        type=click.Choice(["last", "before"]),
        is_flag=False,
        flag_value="last",
        help="Add a residual last, or before the activation (not to batched products).",
    ),
    click.option(
        "--dtype",
        type=click.Choice(list(PRECISIONS)),
        default=USUAL,
        show_default=True,
        help="Type of the operands. Sums are float32, those of int8 int32. A CPU takes float32, and packed "
        "int8 and bfloat16 weights; a GPU, floats.",
    ),
    click.option(
        "--out-dtype",
        type=click.Choice(list(dict.fromkeys(out for p in PRECISIONS.values() for out in p.outputs))),
        help="dense, conv1d, conv2d in int8: type of the output. Default: float32.",
    ),
    *(
        click.option(f"--{option}", type=Sides(), metavar="NUMBER[xNUMBER]", help=f"conv1d, conv2d: {text}")
        for option, text in SIDES.items()
    ),
    click.option(
        "--groups",
        type=click.IntRange(min=1),
        default=1,
        help="conv1d, conv2d: groups of channels. As many as channels make it depthwise. Default: 1.",
    ),
    click.option(
        "--variable-weights", is_flag=True, help="dense: w comes with every call and is not packed before."
    ),
)


def workload_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that describe an operator; the command gets it as ``workload``."""

    @wraps(command)
    def with_workload(
        operator: str,
        dims: tuple[str, ...],
        bias: bool,
        activation: str,
        residual: str | None,
        dtype: str,
        out_dtype: str | None,
        variable_weights: bool,
        **others: Any,
    ) -> Any:
        # Operators of others need not have fields that keep their default.
        given: dict[str, tuple[Any, Any]] = {
            "bias": (bias, False),
            "residual": ({"last": True, "before": "before"}.get(residual or "", False), False),
            "constant": (not variable_weights, True),
            "activation": (activation, "none"),
            "dtype": (dtype, USUAL),
            "out_dtype": (out_dtype, None),
            **{option: (others.pop(option), None) for option in SIDES},
            "groups": (others.pop("groups"), 1),
        }
        options = {name: value for name, (value, usual) in given.items() if value != usual}
        pairs = dims or _default_dims(operator)
        return command(workload=make_workload(operator, parse_dims(pairs), **options), **others)

    for option in reversed(_WORKLOAD_OPTIONS):
        with_workload = option(with_workload)
    return with_workload


def parse_dims(pairs: Sequence[str]) -> dict[str, Dim | int]:
    dims: dict[str, Dim | int] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            example = "For example --dim T=1:128 or --dim N=2304."
            raise DietlabError("a dimension reads NAME=EXTENT or NAME=LOW:HIGH", repr(pair), example)
        if name in dims:
            found = f"{name}={dims[name]} and {pair}"
            raise DietlabError("a dimension must be given once", found, "Leave one of them out.")
        dims[name] = Dim.parse(text)
    return dims

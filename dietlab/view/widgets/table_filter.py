"""Conditions on the rows of a table: ``rows >= 8 and T == 64``, read without running any code."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import RecordError

if TYPE_CHECKING:
    import pandas as pd

Mask = npt.NDArray[np.bool_]

COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
CONDITION = re.compile(r"[<>=!]|\b(and|or|not)\b")
"""The pattern that tells a condition; any other text is a part of a key."""
LONGEST = 300
"""The most characters of a condition: longer ones may nest too deeply for Python's parser."""
EXAMPLE = 'Write for example: rows >= 8 and T == 64, or a part of a key, such as "8x32".'


def rows_that_fit(frame: pd.DataFrame, text: str) -> Mask:
    """Returns, for each row of a table, whether a condition holds there.

    Args:
        text: a condition or a part of a key in the column ``scheme``; an empty text fits all rows. A
            condition compares columns, numbers, texts in quotes and ``+ - * /`` of them; ``and``, ``or`` and
            ``not`` join comparisons.
    """
    wanted = text.strip()
    if not CONDITION.search(wanted):
        found = frame["scheme"].astype(str).str.contains(wanted, case=False, regex=False)
        return np.array(found, dtype=bool)
    try:
        if len(wanted) > LONGEST:
            raise SyntaxError(f"it has {len(wanted)} characters, at most {LONGEST}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's parser: what is odd is refused below
            tree = ast.parse(wanted, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RecordError("a filter must be a condition", f"{wanted[:60]!r}: {error}", EXAMPLE) from None
    return _holds(frame, tree)


def _holds(frame: pd.DataFrame, tree: ast.expr) -> Mask:
    if isinstance(tree, ast.BoolOp):
        parts = np.array([_holds(frame, part) for part in tree.values])
        join = np.logical_and if isinstance(tree.op, ast.And) else np.logical_or
        return np.array(join.reduce(parts, axis=0), dtype=bool)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        return ~_holds(frame, tree.operand)
    if not isinstance(tree, ast.Compare):
        raise RecordError("each part of a condition must compare", ast.unparse(tree), EXAMPLE)
    values = [_value(frame, part) for part in (tree.left, *tree.comparators)]
    mask: Mask = np.ones(len(frame), dtype=bool)
    for left, op, right in zip(values, tree.ops, values[1:], strict=False):
        if type(op) not in COMPARISONS:
            raise RecordError("a condition needs <, <=, ==, !=, >= or >", ast.unparse(tree), EXAMPLE)
        try:
            held = COMPARISONS[type(op)](left, right)
        except TypeError:
            rule = "a number can only be compared with a number, and a text with a text"
            raise RecordError(rule, ast.unparse(tree), EXAMPLE) from None
        mask &= np.broadcast_to(np.array(held, dtype=bool), mask.shape)
    return mask


def _value(frame: pd.DataFrame, tree: ast.expr) -> Any:
    """Returns the value of an expression: one for all rows, or an array with one for each row. A value is a
    number or a text. Missing numbers are NaN, which equals nothing."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, (int, float, str)):
        return tree.value
    if isinstance(tree, ast.Name):
        return _column(frame, tree.id)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_number(frame, tree.operand)
    if isinstance(tree, ast.BinOp) and type(tree.op) in ARITHMETIC:
        left, right = _number(frame, tree.left), _number(frame, tree.right)
        with np.errstate(all="ignore"):
            return ARITHMETIC[type(tree.op)](left, right)
    raise RecordError("a condition can only have columns, numbers and texts", ast.unparse(tree), EXAMPLE)


def _number(frame: pd.DataFrame, tree: ast.expr) -> Any:
    """Returns a number or an array of them, in double precision: a text is never multiplied."""
    value = _value(frame, tree)
    if isinstance(value, str) or np.asarray(value).dtype.kind not in "bif":
        raise RecordError("arithmetic needs numbers", ast.unparse(tree), EXAMPLE)
    return np.asarray(value, dtype=float)


def _column(frame: pd.DataFrame, name: str) -> Any:
    import pandas as pd

    if name not in frame:
        raise RecordError("a condition must name columns", name, f"They are: {', '.join(map(str, frame))}.")
    column = frame[name]
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype=float, na_value=np.nan)
    return column.fillna("").astype(str).to_numpy(dtype=object)

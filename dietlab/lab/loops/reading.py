"""A step as a reader sees it: its reason, its primitives, and the program before and after."""

from __future__ import annotations

import inspect
from textwrap import dedent, indent

from dietlab.lab.loops.programs import BERT, Layer, nest, scheduled
from dietlab.lab.loops.records import step_named
from dietlab.lab.loops.steps import before, change_of


def told(name: str, layer: Layer = BERT) -> str:
    """Returns a step as a text: why, the schedule's primitives, and the loops before and after.

    Args:
        name: of a step.
        layer: the extents of the loops.

    Raises:
        MissingDependencyError: without TVM.
        RecordError: for another name.
    """
    step = step_named(name)
    after = nest(scheduled(step, layer))
    if not step.recipe:
        return f"{step.why}\n\n{after}"
    source = inspect.getsource(change_of(step))
    primitives = dedent(source.rpartition('"""')[2]).strip()
    earlier = nest(scheduled(before(step), layer))
    return f"{step.why}\n\n{primitives}\n\nbefore\n{indent(earlier, '  ')}\nafter\n{indent(after, '  ')}"

"""Chains: modules that call others one after the other. A chain computes a layer together with the batch norm
and the activation after it.

A chain is recognised by its code: it is PyTorch's ``Sequential``, or its ``forward`` reads as one of::

    return self.act(self.dense(x))            x = self.dense(x)
                                              x = self.act(x)
                                              return x

Only its ``forward`` changes. Layer and activation can still be called, hooked and replaced: each call of the
chain reads them anew.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules import module as hooks_of_all

from dietlab.torch.activations import activation_of
from dietlab.torch.layers import TunedLayer

Step = Callable[[Tensor], Tensor]


class Chain(torch.nn.Module):  # type: ignore[misc]
    """A base that is added to the class of a chain."""

    dietlab_class: type[torch.nn.Module]
    """The module's original class."""

    dietlab_steps: tuple[str, ...]
    """The attributes that the chain calls, in order; empty: all its children."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Returns how to unpickle the module: its class, made at run time, cannot be found by name."""
        _, (_, *arguments), *state = super().__reduce_ex__(2)
        return (_make, (self.dietlab_class, *arguments), *state)


def chain_steps(parent: torch.nn.Module) -> tuple[str, ...] | None:
    """Returns the attributes that a module calls, each on the result of the one before; empty: all its
    children. None if the module is no chain, or its code cannot be read.
    """
    kind = type(parent)
    if "forward" in vars(parent) or kind.__call__ is not torch.nn.Module.__call__:
        return None
    if any(getattr(kind, name) is not getattr(object, name) for name in ("__reduce_ex__", "__reduce__")):
        return None
    if kind.forward is torch.nn.Sequential.forward:
        return () if kind.__iter__ is torch.nn.Sequential.__iter__ else None
    return _read(kind.forward)


def make_chain(parent: torch.nn.Module, steps: tuple[str, ...]) -> None:
    """Lets a chain compute its layers with the next activations, in place; ``steps`` is the result of
    :func:`chain_steps`."""
    kind: Any = type(parent)
    parent.__class__ = _chain_class(kind, steps)


def steps_named(parent: torch.nn.Module, names: tuple[str, ...]) -> list[Step]:
    """Returns the present steps of a chain: the attributes ``names``, or all its children."""
    return [getattr(parent, name) for name in names] if names else list(parent._modules.values())


def parts_of(steps: Sequence[Step]) -> Iterator[tuple[Step, str, Step | None]]:
    """Yields each step, with the activation (``""`` for none) and the batch norm that are computed with it.

    What is computed with the layer before it is no step itself.
    """
    alone = _someone_hooks_all()
    at = 0
    while at < len(steps):
        step, activation, norm = steps[at], "", None
        at += 1
        if isinstance(step, TunedLayer) and not alone and not _hooked(step):
            if at < len(steps) and step.folds(steps[at]) and not _hooked(steps[at]):
                norm = steps[at]
                at += 1
            if at < len(steps):
                activation = _computed_with(step, steps[at])
                at += bool(activation)
        yield step, activation, norm


def run_steps(steps: Sequence[Step], input: Tensor) -> Tensor:
    """Returns the result of all steps on a tensor, ``[..., K]`` or an image."""
    for step, activation, norm in parts_of(steps):
        if norm is not None:
            input = step.activated(input, activation or "none", norm)  # type: ignore[attr-defined]
        else:
            input = step.activated(input, activation) if activation else step(input)  # type: ignore[attr-defined]
    return input


def _computed_with(layer: Any, after: Any) -> str:
    """Returns the activation after a layer, if the layer's libraries have it and no hook needs the result
    between them; else an empty text."""
    if isinstance(after, torch.nn.Module) and _hooked(after):
        return ""
    activation = activation_of(after)
    return activation if activation in layer.libraries else ""


def _hooked(module: Any) -> bool:
    """Returns whether a call of a module does more than its class's ``forward``."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
        or module.__dict__.get("_compiled_call_impl") is not None
    )


def _someone_hooks_all() -> bool:
    """Returns whether PyTorch has hooks for every module."""
    return bool(
        hooks_of_all._global_forward_hooks
        or hooks_of_all._global_forward_pre_hooks
        or hooks_of_all._global_backward_hooks
        or hooks_of_all._global_backward_pre_hooks
    )


@cache
def _chain_class(kind: type[torch.nn.Module], steps: tuple[str, ...]) -> type[Chain]:
    @wraps(kind.forward)
    def forward(self: Chain, *arguments: Any, **named: Any) -> Any:
        if named or len(arguments) != 1:
            return kind.forward(self, *arguments, **named)
        return run_steps(steps_named(self, steps), arguments[0])

    own = {"forward": forward, "dietlab_class": kind, "dietlab_steps": steps}
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, (Chain, kind), {**names, **own})


def _make(kind: type[torch.nn.Module], *arguments: Any) -> torch.nn.Module:
    """Makes a module that was pickled or copied. The module is a chain if the code of its class still is
    one."""
    made = kind.__new__(kind, *arguments)
    steps = chain_steps(made)
    if steps is not None:
        make_chain(made, steps)
    return made


@cache
def _read(forward: object) -> tuple[str, ...] | None:
    """Returns the attributes of ``self`` that a function calls one after the other; None if it does more."""
    # The source of a function that wraps another is the other's.
    if type(forward) is not FunctionType or hasattr(forward, "__wrapped__") or forward.__closure__:
        return None
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):
        return None
    function = parsed.body[0]
    if not isinstance(function, ast.FunctionDef) or function.decorator_list:
        return None
    if not _same_code(forward.__code__, function):
        return None
    taken = function.args
    if taken.posonlyargs or taken.kwonlyargs or taken.vararg or taken.kwarg or taken.defaults:
        return None
    if len(taken.args) != 2:
        return None
    return _chained(function.body, *(argument.arg for argument in taken.args)) or None


def _same_code(running: CodeType, function: ast.FunctionDef) -> bool:
    """Returns whether the source is that of the running code: a file may change after it was imported."""
    alone = ast.Module([function], [])
    made = compile(alone, running.co_filename, "exec", dont_inherit=True)
    found = next(constant for constant in made.co_consts if isinstance(constant, CodeType))
    return (found.co_code, found.co_names, found.co_varnames) == (
        running.co_code,
        running.co_names,
        running.co_varnames,
    )


def _chained(body: list[ast.stmt], owner: str, value: str) -> tuple[str, ...]:
    """Returns the attributes that statements call; empty if they do anything else."""
    steps = list[str]()
    for number, statement in enumerate(body):
        last = number + 1 == len(body)
        if number == 0 and not last and _is_text(statement):
            continue
        # Each statement assigns to one name, and the last one returns.
        name = _single_name(statement.targets) if isinstance(statement, ast.Assign) else ""
        right = isinstance(statement, ast.Return) if last else name not in ("", owner)
        if not right or statement.value is None:  # type: ignore[attr-defined]
            return ()
        found, start = _calls(statement.value, owner)  # type: ignore[attr-defined]
        if start != value or not (found or last):
            return ()
        steps += found
        value = name
    return tuple(steps)


def _calls(value: ast.expr, owner: str) -> tuple[list[str], str]:
    """Returns two values: the attributes of ``self`` that an expression calls, the innermost first, and the
    name of the innermost call's argument. The name is empty for any other expression."""
    called = list[str]()
    while isinstance(value, ast.Call):
        function = value.func
        if not isinstance(function, ast.Attribute) or value.keywords or len(value.args) != 1:
            return [], ""
        if not isinstance(function.value, ast.Name) or function.value.id != owner:
            return [], ""
        called.append(function.attr)
        value = value.args[0]
    return called[::-1], value.id if isinstance(value, ast.Name) else ""


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _single_name(targets: list[ast.expr]) -> str:
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""

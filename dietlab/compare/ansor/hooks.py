"""Hooks that make MetaSchedule start in seconds, and the functions that its pool processes import by name.

Importing ``tvm.s_tir.tensor_intrin`` parses the intrinsics of every target, and its parser calls
``inspect.stack()``, which scans all modules for each frame. That takes 35 to 70 CPU-seconds, in the tuner and
again in each process of TVM's own builder, whose builds then exceed their time limit of 30 s.
:func:`quicken_tvm` saves this time in the tuner; our builders never import the intrinsics.

All functions but :func:`quicken_tvm` run in MetaSchedule's pool, so this module has no heavy import at its
top.
"""

from __future__ import annotations

import importlib
import inspect
import platform
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

INTRINSICS = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu"}
MODULE = "tvm.s_tir.tensor_intrin"
BLOCK_SECONDS = 1e-4
"""The shortest time of a block of calls, in seconds: reading the clock takes a thousandth of it."""


def machine_intrinsics() -> tuple[str, ...]:
    """Returns the intrinsics of this machine's processor."""
    machine = INTRINSICS.get(platform.machine())
    return (machine,) if machine else ()


def quicken_tvm(intrinsics: Sequence[str] = ()) -> None:
    """Imports TVM with the given intrinsics only (modules of ``tvm.s_tir.tensor_intrin``), and replaces
    ``inspect.getmodule`` in this process by a cheaper function. Must be the first call in a process that only
    tunes."""
    if MODULE not in sys.modules:
        inspect.getmodule = _frame_module(inspect.getmodule)
        package = importlib.import_module("tvm.s_tir")
        stub = types.ModuleType(MODULE)
        stub.__path__ = [str(Path(str(package.__file__)).parent / "tensor_intrin")]
        sys.modules[MODULE] = stub
        package.tensor_intrin = stub  # type: ignore[attr-defined]
    for name in intrinsics:
        importlib.import_module(f"{MODULE}.{name}")


def _frame_module(original: Callable[..., Any]) -> Callable[..., Any]:
    def getmodule(object: Any, _filename: str | None = None) -> Any:
        if inspect.isframe(object):
            return sys.modules.get(object.f_globals.get("__name__", ""))
        return original(object, _filename)

    return getmodule


def least_seconds(
    clock: Callable[[], float],
    module: Any,
    _device: object,
    config: Any,
    repeated_args: Sequence[Sequence[Any]],
) -> list[float]:
    """Returns, for each set of arguments, the seconds of a call in the fastest block. Times blocks until
    ``config.min_repeat_ms`` are spent: at least 3 blocks, at most ``config.repeat``.

    Args:
        clock: the clock to read: for one thread its CPU time, which preemption does not change; for several
            threads wall-clock time.
    """
    main, found = module["main"], []
    for args in repeated_args:
        main(*args)
        first = max(_block_seconds(main, args, 1, clock), 1e-7)
        calls = max(1, round(BLOCK_SECONDS / first))
        blocks = int(config.min_repeat_ms / 1e3 / (first * calls))
        wanted = max(3, min(int(config.repeat), blocks))
        found.append(min(_block_seconds(main, args, calls, clock) for _ in range(wanted)))
    return found


def _block_seconds(
    main: Callable[..., object], args: Sequence[Any], calls: int, clock: Callable[[], float]
) -> float:
    started = clock()
    for _ in range(calls):
        main(*args)
    return (clock() - started) / calls

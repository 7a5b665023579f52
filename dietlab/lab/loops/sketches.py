"""Ansor's view of the same loops: the sketches that its rules make, as TVM's MetaSchedule has them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dietlab.compare.ansor.contender import require_packages
from dietlab.compare.ansor.hooks import MODULE, quicken_tvm
from dietlab.lab.loops.programs import BERT, Layer, plain
from dietlab.lower.compiler import tvm_module


def sketches(layer: Layer = BERT, seed: int = 0) -> tuple[Any, ...]:
    """Returns what MetaSchedule's rules for a CPU make of the plain loops: one ``tvm.s_tir.Schedule`` for
    each sketch, its tile sizes drawn at random from the factors of the extents. Its ``trace`` says which.

    Args:
        layer: the extents.
        seed: of the draws.

    Raises:
        MissingDependencyError: without TVM, or without what its tuner needs.
    """
    tvm_module()
    require_packages()
    with _quickened():
        from tvm.s_tir import meta_schedule as ms
        from tvm.target import Target

        rules = "from-target"  # those of the target's kind; one core, so that no loop is made parallel
        space = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=[], mutator_probs={})
        target = Target({"kind": "llvm", "num-cores": 1})
        options = {"space_generator": space, "rand_state": seed + 1, "num_threads": 1}
        return tuple(ms.TuneContext(plain(layer).mod, target=target, **options).generate_design_space())


@contextmanager
def _quickened() -> Iterator[None]:
    """Spares a process the minute in which MetaSchedule reads the intrinsics of every target, and leaves no
    trace: whatever comes after finds them as if nothing had been here."""
    known, lookup = MODULE in sys.modules, inspect.getmodule
    quicken_tvm()
    try:
        yield
    finally:
        inspect.getmodule = lookup
        if not known:
            del sys.modules[MODULE], sys.modules["tvm.s_tir"].tensor_intrin


def decisions(schedule: Any) -> tuple[tuple[int, ...], ...]:
    """Returns the tile sizes that were drawn for a sketch: the factors of each loop, the outermost first.

    Args:
        schedule: a ``tvm.s_tir.Schedule`` with its trace, as a space generator returns it.
    """
    drawn = schedule.trace.decisions.items()
    return tuple(
        tuple(int(n) for n in sizes) for what, sizes in drawn if what.kind.name == "SamplePerfectTile"
    )

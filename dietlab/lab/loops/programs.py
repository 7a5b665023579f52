"""Programs of the steps: scheduled, printed in a few lines, built, and checked against NumPy; and Ansor's
sketches of the same loops."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dietlab.base.errors import BuildError, WorkloadError
from dietlab.compare.ansor.contender import require_packages
from dietlab.compare.ansor.hooks import MODULE, quicken_tvm
from dietlab.lab.loops.steps import ASKS_AHEAD, VECTOR, Step
from dietlab.lower.compiler import last_line, tvm_module
from dietlab.lower.runtime import aligned_empty
from dietlab.machine import Hardware
from dietlab.targets.cpu.lowering import target_of

Array = npt.NDArray[np.float32]

LARGEST_ERROR = 1e-3
"""The largest error that an output may have: sums of a thousand products of standard normal float32 values
have a tenth of it."""

WRITTEN_OUT = re.compile(r"^for .* in T\.(unroll|vectorized)\(")
"""The pattern of printed loops that are no loops in the machine code."""


@dataclass(frozen=True)
class Layer:
    """A dense layer of fixed extents ``T``, ``N`` and ``K``, ``y[T, N] = x[T, K] @ w[N, K].T`` in float32."""

    T: int = 128
    N: int = 2304
    K: int = 768

    def __post_init__(self) -> None:
        if min(self.T, self.N, self.K) < 1:
            raise WorkloadError("the extents of a layer must be at least 1", self)

    @property
    def flops(self) -> int:
        """The number of operations of a call, two for each multiply-add."""
        return 2 * self.T * self.N * self.K

    @property
    def moved_bytes(self) -> int:
        """The number of bytes that any program moves: both inputs and the output, once."""
        return 4 * (self.T * self.K + self.N * self.K + self.T * self.N)


BERT = Layer()
"""The largest layer of BERT-base's attention, at 128 words."""


def plain(rows: int | None, cols: int, depth: int) -> Any:
    """Returns a fresh ``tvm.s_tir.Schedule`` of the three loops, one block named ``y``; ``rows`` of None
    are dynamic."""
    tvm = tvm_module()
    from tvm import te

    n, depth_, zero = (tvm.tirx.IntImm("int64", size) for size in (cols, depth, 0))
    m = te.var("m", "int64") if rows is None else tvm.tirx.IntImm("int64", rows)
    x, w = te.placeholder((m, depth_), "float32", "x"), te.placeholder((n, depth_), "float32", "w")
    k = te.reduce_axis((zero, depth_), "k")
    y = te.compute((m, n), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), "y")
    return tvm.s_tir.Schedule(te.create_prim_func([x, w, y]).with_attr("global_symbol", "main"))


def scheduled(step: Step, layer: Layer = BERT) -> Any:
    """Returns the schedule of one step's program, a ``tvm.s_tir.Schedule``.

    Args:
        step: a step of the climb.
        layer: the layer; if the step packs, its columns are a multiple of the tile's.

    Raises:
        BuildError: if the columns are no multiple, or a primitive does not apply.
    """
    if step.packs and layer.N % step.tile.cols:
        found = f"N={layer.N}, panels of {step.tile.cols}"
        raise BuildError("panels must divide the columns", found, "Take a layer whose N is a multiple.")
    schedule = plain(layer.T, layer.N, layer.K)
    for change in step.recipe:
        try:
            change(schedule, step.tile)
        except Exception as error:  # TVM raises several exception types
            raise BuildError(f"{change.__name__} must be applicable", last_line(error)) from error
    return schedule


def nest(schedule: Any) -> str:
    """Returns the loops and stores of a program as TVM prints them, without the blocks' declarations and the
    first zeros of a sum.

    Args:
        schedule: a ``tvm.s_tir.Schedule``.
    """
    kept: list[tuple[int, str]] = []
    skip = False
    for line in re.sub(r"T\.int64\((-?\d+)\)", r"\1", schedule.mod["main"].script()).splitlines():
        text = line.strip()
        if skip or not re.match(r"for |\w+\[.*\] = ", text):
            skip = text.startswith("with T.init")
            continue
        depth = len(line) - len(line.lstrip())
        if WRITTEN_OUT.search(text) and kept and WRITTEN_OUT.search(kept[-1][1]) and kept[-1][0] < depth:
            kept[-1] = (kept[-1][0], f"{kept[-1][1][:-1]}, {text.removeprefix('for ')}")
        else:
            kept.append((depth, _shorter(text)))
    return "\n".join(_indented(kept))


def _shorter(text: str) -> str:
    """Returns a line of a program: a loop unchanged; a store shortened, with the names of the axes as indices
    and ``+=`` for a sum."""
    if text.startswith("for "):
        return text
    for axes, names in (("v0, v1, v2", "k_0, i, j"), ("v0, v1", "i, j")):
        text = text.replace(axes, names)
    text = re.sub(r"\bv_?([ijk](?:_\w+)?)\b", r"\1", text)
    return re.sub(r"^(\S.*?\]) = \1 \+ ", r"\1 += ", text)


def _indented(lines: Sequence[tuple[int, str]]) -> list[str]:
    """Returns lines that only loops indent: lines below an omitted line move left."""
    found: list[str] = []
    around: list[int] = []
    for depth, text in lines:
        while around and around[-1] >= depth:
            around.pop()
        found.append("  " * len(around) + text)
        if text.startswith("for "):
            around.append(depth)
    return found


@dataclass(frozen=True)
class Program:
    """A ``step``'s program for one ``layer``, built for this processor: ``call`` takes the arrays ``x``,
    ``w`` (packed if the step packs) and ``y``; ``assembly`` is the assembly code by LLVM."""

    step: Step
    layer: Layer
    call: Any
    assembly: str

    def weights(self, w: Array) -> Array:
        """Returns the weights ``[N, K]`` in the order in which the program reads them."""
        if not self.step.packs:
            return w
        cols = self.step.tile.cols
        packed = aligned_empty((self.layer.N // cols, self.layer.K, cols))
        packed[...] = w.reshape(self.layer.N // cols, cols, self.layer.K).transpose(0, 2, 1)
        return packed


def build(step: Step, layer: Layer, hardware: Hardware) -> Program:
    """Builds one step's program.

    Args:
        step: a step of the climb.
        layer: a layer of fixed extents.
        hardware: the processor for whose instructions the program is compiled.

    Raises:
        BuildError: if it does not compile.
    """
    tvm = tvm_module()
    module = _with_prefetches(scheduled(step, layer).mod)
    try:
        built = tvm.compile(module, target=target_of(hardware))
    except Exception as error:  # TVM raises several exception types
        raise BuildError("the program must compile", last_line(error)) from error
    return Program(step, layer, built["main"], built.mod.inspect_source("asm"))


def inputs(layer: Layer, seed: int = 0) -> tuple[Array, Array]:
    """Returns ``x [T, K]`` and ``w [N, K]``, standard normal and aligned: the programs load whole cache
    lines.

    Args:
        layer: the layer, which has the extents.
        seed: the seed of NumPy's random numbers.
    """
    random = np.random.default_rng(seed)
    x, w = aligned_empty((layer.T, layer.K)), aligned_empty((layer.N, layer.K))
    for array in (x, w):
        random.standard_normal(out=array, dtype=np.float32)
    return x, w


def check(program: Program, seed: int = 0) -> float:
    """Returns the largest difference between an output and NumPy's, for the :func:`inputs` of ``seed``.

    Args:
        program: the program, which is called once.

    Raises:
        BuildError: if the difference exceeds rounding.
    """
    layer = program.layer
    x, w = inputs(layer, seed)
    y = aligned_empty((layer.T, layer.N))
    y.fill(np.nan)
    program.call(x, program.weights(w), y)
    error = float(np.abs(y - x.astype(np.float64) @ w.T.astype(np.float64)).max())
    if not error <= LARGEST_ERROR:
        raise BuildError(f"{program.step.name}: the result must equal NumPy's", f"off by {error:.2g}")
    return error


def instructions(program: Program) -> dict[str, int]:
    """Returns three counts of the assembly's instructions: ``fma`` (multiply-adds of a vector), ``branches``
    (conditional jumps) and ``prefetches``.

    Args:
        program: the program, which has the assembly.
    """
    patterns = {"fma": r"vfn?m(add|sub)\d+ps", "branches": "j(?!mp$).*", "prefetches": "prefetch.*"}
    words = [line.split()[0] for line in program.assembly.splitlines() if line.strip()]
    return {name: sum(bool(re.fullmatch(p, word)) for word in words) for name, p in patterns.items()}


def _with_prefetches(module: Any) -> Any:
    """Returns the module with prefetches at the head of each marked loop: they fetch all vectors of the
    panel's row that the loop reads some steps later. Prefetches beyond the end of the weights do no harm.
    """
    function = module["main"]
    return tvm_module().IRModule({"main": function.with_body(_asking(function.body, function.params[1], ()))})


def _asking(node: Any, weights: Any, loops: tuple[Any, ...]) -> Any:
    """Returns a statement with prefetches added to its marked loops; ``loops`` are the variables of the loops
    around it."""
    tirx, s_tir = tvm_module().tirx, tvm_module().s_tir
    if isinstance(node, s_tir.SBlockRealize):
        block = node.block
        head = (block.iter_vars, block.reads, block.writes, block.name_hint)
        body = _asking(block.body, weights, loops)
        rest = (block.init, block.alloc_buffers, block.match_buffers, block.annotations)
        return s_tir.SBlockRealize(node.iter_values, node.predicate, s_tir.SBlock(*head, body, *rest))
    if isinstance(node, tirx.SeqStmt):
        return tirx.SeqStmt([_asking(part, weights, loops) for part in node.seq])
    if not isinstance(node, tirx.For):
        return node
    notes = dict(node.annotations)
    ahead = notes.pop(ASKS_AHEAD, None)
    body = _asking(node.body, weights, (*loops, node.loop_var))
    if ahead is not None:
        _, depth, cols = (int(extent) for extent in weights.shape)
        panel, *inner = loops
        # Below two loops K is whole; below three, the second is that over K-blocks.
        step = node.loop_var + (inner[0] * node.extent if len(inner) > 1 else 0)
        row = panel * depth + step + int(ahead)
        fetched = [_prefetch(tirx, weights, row * cols + first) for first in range(0, cols, VECTOR)]
        body = tirx.SeqStmt([*fetched, body])
    return tirx.For(node.loop_var, node.min, node.extent, node.kind, body, node.thread_binding, notes)


def _prefetch(tirx: Any, buffer: Any, offset: Any) -> Any:
    read, first_level, data = (tirx.IntImm("int32", n) for n in (0, 3, 1))  # LLVM Language Reference
    pointer = buffer.access_ptr("r", offset=offset)
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", pointer, read, first_level, data))


# --- sketches ---------------------------------------------------------------------------------


def sketches(layer: Layer = BERT, seed: int = 0) -> tuple[Any, ...]:
    """Returns the sketches that MetaSchedule's rules for a CPU make of the plain loops: one
    ``tvm.s_tir.Schedule`` for each. Its tile sizes are drawn at random from the factors of the extents; its
    ``trace`` has the drawn sizes.

    Args:
        layer: the layer, which has the extents.
        seed: the seed of the draws.
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
        return tuple(
            ms.TuneContext(
                plain(layer.T, layer.N, layer.K).mod, target=target, **options
            ).generate_design_space()
        )


@contextmanager
def _quickened() -> Iterator[None]:
    """Skips the minute in which MetaSchedule reads the intrinsics of every target; restores the modules
    afterwards."""
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

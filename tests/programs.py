"""Compiled plans, called so that every wrong read or write shows."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dietlab.lower.contraction import sizes_of
from dietlab.lower.runtime import aligned_empty, as_tensor, load_library
from dietlab.machine import Hardware
from dietlab.problem import FloatArray, Shape, Workload, tolerance
from dietlab.scheme import Leaf, MicroKernel
from dietlab.targets.cpu.lowering import compile_packing
from dietlab.targets.cpu.lowering.geometry import Geometry
from dietlab.targets.cpu.lowering.library import library_module

GUARD = np.float32(-54321.0)
"""No result of standard normal operands comes near it."""

PROT_NONE = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


def shape_of(work: Workload, size: int) -> Shape:
    return Shape.of(**dict.fromkeys(work.dims, size))


def fenced(array: FloatArray, *, behind: bool = True) -> FloatArray:
    """A copy that ends (or begins) where a page begins (or ends) that nobody may touch: a read or a write
    beyond it ends the process."""
    if not array.size:
        return array.copy()
    page = mmap.PAGESIZE
    size = -(-array.nbytes // page) * page
    memory = mmap.mmap(-1, size + page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + (size if behind else 0)
    assert _LIBC.mprotect(ctypes.c_void_p(address), page, PROT_NONE) == 0
    start = size - array.nbytes if behind else page
    copy: FloatArray = np.frombuffer(memory, np.float32, array.size, start).reshape(array.shape)
    copy[...] = array
    return copy


class Program:
    """A library of several plans of one operator; ``program(inputs, plan)`` is the result of one of them."""

    def __init__(
        self,
        work: Workload,
        hardware: Hardware,
        kernels: Sequence[MicroKernel],
        folder: Path,
        only: Sequence[int] | None = None,
    ) -> None:
        self.work, self.kernels = work, kernels
        self.geometry = Geometry.of(work, hardware, kernels)
        calls = None if only is None else [[sizes_of(work, shape_of(work, n)) for n in only]] * len(kernels)
        module = library_module(self.geometry, kernels, Leaf(0), every_plan=True, only=calls)
        self.artifact = compile_packing(module, self.geometry, hardware, folder / "program.so")
        self.library = load_library(self.artifact.path, cores=hardware.cores)

    def packed(self, inputs: Mapping[str, FloatArray]) -> FloatArray:
        packed = aligned_empty((self.library.packed_floats(*inputs["w"].shape),))
        packed.fill(np.nan)
        self.library.pack(*(fenced(inputs[name]) for name in self.work.constants), packed)
        return packed

    def __call__(
        self, inputs: Mapping[str, FloatArray], plan: int, *, behind: bool = True, packed: Any = None
    ) -> FloatArray:
        """No element before or behind an operand can be read, none before or behind the output written."""
        operands = [fenced(v, behind=behind) for n, v in inputs.items() if n not in self.work.constants]
        if self.work.constants:
            operands.insert(1, self.packed(inputs) if packed is None else packed)
        rows = inputs["x"].shape[-2]
        shape = [rows if extent == "T" else int(extent) for extent in self.work.signature["out"]]
        out = fenced(np.full(shape, np.nan, np.float32), behind=behind)
        self.library.run_plan(*map(as_tensor, (*operands, out)), plan)
        return out

    def check(self, sizes: Iterable[int], plans: Iterable[int] | None = None, seed: int = 0) -> None:
        """Every plan is right on every size."""
        for size in sizes:
            inputs = self.work.inputs(shape_of(self.work, size), seed + size)
            expected, allowed = self.work.reference(inputs), tolerance(self.work, inputs)
            packed = self.packed(inputs) if self.work.constants else None
            for plan in range(len(self.kernels)) if plans is None else plans:
                result = self(inputs, plan, behind=(size + plan) % 3 > 0, packed=packed)
                error = np.abs(result - expected).max(initial=0.0)
                assert error <= allowed, (str(self.work), self.kernels[plan].key, size, error)

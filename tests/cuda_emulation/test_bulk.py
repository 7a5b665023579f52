"""Bulk copies and their barriers on the emulator: what they bring, and what breaks a rule of theirs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from .emulator import Emulated, TensorMap
from .errors import EmulatorError

LINES, ELEMENTS = 8, 64
BYTES = 2 * LINES * ELEMENTS
SHARED_BYTES = BYTES + 16

WAYS = (
    "waits",
    "for the phase before, too",
    "for phase 2",
    "where no barrier is",
    "where no barrier begins",
    "overwrites it",
    "twice",
    "never",
    "too late",
)

KERNEL = r"""
#include <cuda.h>
__forceinline__ __device__ void wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{ .reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2; selp.u32 %0, 1, 0, over; }"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);
}
extern "C" __global__ void __launch_bounds__(128) bring_kernel(const __grid_constant__ CUtensorMap A_map,
    ushort* __restrict__ B, int element, int line, int expected, int offset, int registers, int how) {
  extern __shared__ __align__(1024) ushort shared[];
  int thread = ((int)threadIdx.x);
  uint32_t tile = __cvta_generic_to_shared((&(shared[0])));
  uint32_t full = __cvta_generic_to_shared((&(shared[512])));
  if (thread == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(full), "r"(1) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
  __syncthreads();
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(registers));
  if (thread == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" : : "r"(full), "r"(expected) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 : : "r"(tile + offset), "l"((void*)(&(A_map))), "r"(element), "r"(line), "r"(full) : "memory");
  }
  if (how == 1 && thread == 0) { wait(full, 1); }
  if (how == 2) { wait(full, 2); }
  if (how == 3) { wait(tile, 0); }
  if (how == 4) { wait(full + 4, 0); }
  if (how == 5) { shared[513] = 0; }
  if (how < 7) { wait(full, 0); }
  if (how == 6) { wait(full, 1); }
  for (int i = 0; i < 4; ++i) { B[((thread * 4) + i)] = shared[((thread * 4) + i)]; }
  if (how == 8) { wait(full, 0); }
}
"""  # noqa: E501


@cache
def kernel() -> Emulated:
    """One for all tests, which tell it at run time what to do otherwise."""
    return Emulated.of(KERNEL)


def brought(
    element: int = 0,
    line: int = 0,
    *,
    expected: int = BYTES,
    offset: int = 0,
    registers: int = 240,
    how: str = "waits",
    shape: tuple[int, int] = (20, 72),
    box: tuple[int, int] = (LINES, ELEMENTS),
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What the kernel finds in shared memory, and the matrix."""
    a = np.arange(1, shape[0] * shape[1] + 1, dtype=np.uint16).reshape(shape)
    b = np.zeros(LINES * ELEMENTS, np.uint16)
    values = [TensorMap(a, box), b, element, line, expected, offset, registers, WAYS.index(how)]
    kernel().launch("bring_kernel", 1, 128, values, SHARED_BYTES)
    return b.reshape(LINES, ELEMENTS // 8, 8), a


@pytest.mark.parametrize(("element", "line"), [(0, 0), (8, 3), (64, 16), (72, 0), (0, 20), (-64, 0), (0, -3)])
def test_a_box_comes_swizzled_and_zero_where_it_sticks_out(element: int, line: int) -> None:
    found, a = brought(element, line)
    padded = np.zeros((LINES, ELEMENTS), np.uint16)
    for i in range(LINES):
        for j in range(ELEMENTS):
            if 0 <= line + i < a.shape[0] and 0 <= element + j < a.shape[1]:
                padded[i, j] = a[line + i, element + j]
    for i in range(LINES):
        for cell in range(8):
            np.testing.assert_array_equal(found[i, cell ^ i], padded[i, 8 * cell : 8 * cell + 8])


def test_what_nobody_waited_for_has_not_come() -> None:
    with pytest.raises(EmulatorError, match="the block ended while a bulk copy was on its way"):
        brought(how="never")
    found, _ = brought(how="too late")
    assert (found == 0xFFFF).any()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"expected": BYTES - 128}, "0 of 1 arrivals and -128 bytes are missing"),
        ({"expected": BYTES + 128}, "0 of 1 arrivals and 128 bytes are missing"),
        ({"how": "twice"}, "1 of 1 arrivals and 0 bytes are missing"),
        ({"how": "for phase 2"}, "the parity of a phase is 0 or 1"),
        ({"how": "where no barrier is"}, r"at offset 0 of shared memory, where no mbarrier\.init was"),
        ({"how": "where no barrier begins"}, "offset 1028 of shared memory, which is no multiple of 8"),
        ({"how": "overwrites it"}, "the mbarrier at offset 1024 was overwritten"),
        ({"offset": 16}, "of shared memory|of 1040 bytes"),
        ({"registers": 100}, "the number is a multiple of 8 from 24 to 256"),
    ],
)
def test_a_broken_rule_is_told(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(EmulatorError, match=complaint):
        brought(**options)


def test_the_phase_before_the_first_is_over() -> None:
    found, _ = brought(how="for the phase before, too")
    assert not (found == 0xFFFF).any()


@pytest.mark.parametrize(
    ("shape", "box"), [((20, 68), (8, 64)), ((20, 72), (8, 128)), ((20, 72), (257, 64)), ((20, 72), (8, 24))]
)
def test_a_matrix_that_no_descriptor_fits_is_refused(shape: tuple[int, int], box: tuple[int, int]) -> None:
    """Lines begin at multiples of 16 bytes; a box is 256 lines at most, each as long as the swizzle."""
    with pytest.raises(EmulatorError, match="a matrix can be described for bulk copies"):
        brought(shape=shape, box=box)


def test_a_descriptor_that_was_never_encoded_is_told() -> None:
    values = [np.zeros(64, np.uint16), np.zeros(512, np.uint16), 0, 0, BYTES, 0, 240, 0]
    with pytest.raises(EmulatorError, match="A_map is a number"):
        kernel().launch("bring_kernel", 1, 128, values, SHARED_BYTES)

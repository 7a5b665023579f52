"""Blocks per multiprocessor: NVIDIA's published examples, and what must hold for all sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import HardwareError
from dietlab.machine import Hardware
from dietlab.targets.cuda.limits import GpuLimits
from dietlab.targets.cuda.occupancy import LIMITERS, Limiter, blocks_per_sm, limiter


def limits(capability: str, shared_kib: int, threads: int = 2048, blocks: int = 32) -> GpuLimits:
    """What a multiprocessor has. From 8.0 on the driver keeps 1 KiB of the shared memory for each block."""
    reserved, unit = (1024, 128) if capability >= "8" else (0, 256)
    return GpuLimits(
        capability,
        threads_per_block=1024,
        threads_per_sm=threads,
        blocks_per_sm=blocks,
        registers_per_block=65536,
        registers_per_sm=65536,
        registers_per_thread=255,
        register_unit=256,
        smem_per_block_bytes=(shared_kib << 10) - reserved,
        smem_per_sm_bytes=shared_kib << 10,
        smem_reserved_bytes=reserved,
        smem_unit_bytes=unit,
        l2_bytes=1 << 20,
    )


VOLTA = limits("7.0", 96)
TURING = limits("7.5", 64, threads=1024, blocks=16)
A100 = limits("8.0", 164)
AMPERE = limits("8.6", 100, threads=1536, blocks=16)
HOPPER = limits("9.0", 228)


@pytest.mark.parametrize(
    ("gpu", "threads", "registers", "shared_bytes", "blocks", "bound"),
    [
        # CUDA C++ Best Practices Guide, "Calculating Occupancy": 37 registers of a thread at 7.0.
        (VOLTA, 128, 37, 0, 12, "registers"),
        (VOLTA, 320, 37, 0, 4, "registers"),
        # CUDA C++ Programming Guide, "Multiprocessor Level": two blocks of 512 threads with 64 registers
        # match the 65,536 exactly, and with one register more only one block fits.
        (VOLTA, 512, 64, 0, 2, "registers"),
        (VOLTA, 512, 65, 0, 1, "registers"),
        # By hand: 166 registers of 32 threads take 21 units of 256; 3 such warps fit each quarter.
        (HOPPER, 256, 166, 0, 1, "registers"),
        (HOPPER, 128, 166, 0, 3, "registers"),
        (HOPPER, 256, 64, 0, 4, "registers"),
        (HOPPER, 384, 168, 0, 1, "registers"),
        (HOPPER, 128, 32, 0, 16, "threads"),
        (HOPPER, 32, 16, 0, 32, "blocks"),
        (HOPPER, 1, 16, 0, 32, "blocks"),
        (HOPPER, 33, 16, 0, 32, "threads"),
        (HOPPER, 65, 16, 0, 21, "threads"),
        # 48 KiB and the driver's KiB: 49 KiB of 228, of 164 and of 100.
        (HOPPER, 128, 32, 48 << 10, 4, "shared memory"),
        (A100, 128, 32, 48 << 10, 3, "shared memory"),
        (AMPERE, 128, 32, 48 << 10, 2, "shared memory"),
        (HOPPER, 128, 32, 227 << 10, 1, "shared memory"),
        (HOPPER, 128, 32, (227 << 10) + 1, 0, "shared memory"),
        # (228 KiB / 3 - 1 KiB) fits three times; a byte more is rounded up to 128 and fits twice.
        (HOPPER, 128, 32, 75 << 10, 3, "shared memory"),
        (HOPPER, 128, 32, (75 << 10) + 1, 2, "shared memory"),
        (TURING, 128, 64, 0, 8, "threads"),
        (TURING, 32, 32, 0, 16, "blocks"),
        (TURING, 64, 32, 4 << 10, 16, "threads"),
        (TURING, 64, 32, (4 << 10) + 1, 15, "shared memory"),
        (TURING, 256, 64, 33 << 10, 1, "shared memory"),
        (AMPERE, 256, 32, 0, 6, "threads"),
        (HOPPER, 1024, 64, 0, 1, "registers"),
        (HOPPER, 1024, 65, 0, 0, "registers"),
        # Two rounds of four warps are checked, though only five warps exist.
        (HOPPER, 160, 255, 0, 1, "registers"),
        (HOPPER, 288, 255, 0, 0, "registers"),
        (HOPPER, 256, 255, 0, 1, "registers"),
        (HOPPER, 1025, 16, 0, 0, "threads"),
        (HOPPER, 32, 256, 0, 0, "registers"),
        (HOPPER, 128, 0, 0, 16, "threads"),
    ],
)
def test_blocks_and_what_bounds_them(
    gpu: GpuLimits, threads: int, registers: int, shared_bytes: int, blocks: int, bound: Limiter
) -> None:
    assert blocks_per_sm(gpu, threads, registers, shared_bytes) == blocks
    assert limiter(gpu, threads, registers, shared_bytes) == bound


SIZES = st.tuples(st.integers(1, 1100), st.integers(0, 260), st.integers(0, 240 << 10))
GPUS = st.sampled_from([VOLTA, TURING, A100, AMPERE, HOPPER])


@given(GPUS, SIZES, st.integers(0, 64), st.integers(0, 4096))
def test_more_registers_or_shared_memory_never_hold_more_blocks(
    gpu: GpuLimits, sizes: tuple[int, int, int], registers: int, shared_bytes: int
) -> None:
    threads, least_registers, least_shared = sizes
    blocks = blocks_per_sm(gpu, *sizes)
    assert blocks_per_sm(gpu, threads, least_registers + registers, least_shared) <= blocks
    assert blocks_per_sm(gpu, threads, least_registers, least_shared + shared_bytes) <= blocks


@given(GPUS, SIZES, st.integers(0, 512))
def test_more_threads_never_hold_more_blocks(
    gpu: GpuLimits, sizes: tuple[int, int, int], threads: int
) -> None:
    assert blocks_per_sm(gpu, sizes[0] + threads, *sizes[1:]) <= blocks_per_sm(gpu, *sizes)


@given(GPUS, SIZES)
def test_blocks_that_fit_exceed_no_limit(gpu: GpuLimits, sizes: tuple[int, int, int]) -> None:
    threads, registers, shared_bytes = sizes
    blocks = blocks_per_sm(gpu, *sizes)
    warps = -(-threads // gpu.warp_threads)
    assert 0 <= blocks <= gpu.blocks_per_sm
    assert blocks * warps * gpu.warp_threads <= gpu.threads_per_sm
    assert blocks * warps * gpu.warp_threads * registers <= gpu.registers_per_sm
    assert blocks * (shared_bytes + gpu.smem_reserved_bytes) <= gpu.smem_per_sm_bytes
    assert blocks == 0 or threads <= gpu.threads_per_block
    assert blocks == 0 or registers <= gpu.registers_per_thread
    assert blocks == 0 or shared_bytes <= gpu.smem_per_block_bytes
    assert limiter(gpu, *sizes) in LIMITERS


@given(GPUS, SIZES)
def test_easing_all_but_the_limiter_gains_nothing(gpu: GpuLimits, sizes: tuple[int, int, int]) -> None:
    threads, registers, shared_bytes = sizes
    bound, blocks = limiter(gpu, *sizes), blocks_per_sm(gpu, *sizes)
    if bound in ("threads", "blocks"):
        assert blocks_per_sm(gpu, threads, 0, 0) == blocks
    elif bound == "registers":
        assert blocks_per_sm(gpu, threads, registers, 0) == blocks
    else:
        assert blocks_per_sm(gpu, threads, 0, shared_bytes) == blocks


@pytest.mark.parametrize("sizes", [(0, 32, 0), (-1, 32, 0), (128, -1, 0), (128, 32, -1)])
def test_impossible_blocks_are_refused(sizes: tuple[int, int, int]) -> None:
    for function in (blocks_per_sm, limiter):
        with pytest.raises(HardwareError, match="a block must have threads, and no negative sizes"):
            function(HOPPER, *sizes)


@pytest.mark.parametrize(
    ("preset", "like"), [("t4", TURING), ("a100", A100), ("h100", HOPPER), ("h200", HOPPER)]
)
def test_presets_hold_as_many_blocks(preset: str, like: GpuLimits) -> None:
    found = Hardware.preset(preset).limits
    assert isinstance(found, GpuLimits)
    for sizes in [(32, 16, 0), (128, 32, 48 << 10), (256, 64, 0), (256, 166, 3000), (512, 65, 20 << 10)]:
        assert blocks_per_sm(found, *sizes) == blocks_per_sm(like, *sizes)

"""Describes this machine's GPUs as NVIDIA's driver reports them. Nothing runs on them; peaks follow from
clocks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from dietlab.base.errors import HardwareError
from dietlab.machine import Hardware
from dietlab.machine.roofline import Ceiling
from dietlab.machine.target import SIZES, Knob, some_cores
from dietlab.targets.cuda.limits import RATES, GpuLimits, float32_lanes, gpu_of
from dietlab.targets.cuda.rates import SHARED_BYTES, gpu_rates

LIBRARY = "libcuda.so.1"
"""The driver's own library, which comes with it; the CUDA toolkit is not needed."""

OLDEST = (7, 0)
"""The first compute capability with tensor cores (Volta)."""

NO_DEVICE = 100
"""``CUDA_ERROR_NO_DEVICE`` (CUDA Driver API, ``CUresult``)."""

MULTIPROCESSORS, CLOCK_KHZ, MEMORY_CLOCK_KHZ, BUS_BITS, MAJOR, MINOR = 16, 13, 36, 37, 75, 76
ATTRIBUTES = {
    "threads_per_block": 1,
    "warp_threads": 10,
    "registers_per_block": 12,
    "l2_bytes": 38,
    "threads_per_sm": 39,
    "smem_per_sm_bytes": 81,
    "registers_per_sm": 82,
    "smem_per_block_bytes": 97,  # what a kernel gets that opts in
    "blocks_per_sm": 106,
    "smem_reserved_bytes": 111,
}
"""The values of ``CUdevice_attribute`` (CUDA Driver API) for the fields of :class:`GpuLimits`."""

REGISTERS_PER_THREAD = 255
REGISTER_UNIT = 256

PRESETS = {
    "Tesla T4": "t4",
    "NVIDIA GeForce RTX 3090": "rtx3090",
    "NVIDIA A100-SXM4-40GB": "a100",
    "NVIDIA A100-SXM4-80GB": "a100",
    "NVIDIA A100-PCIE-40GB": "a100",
    "NVIDIA A100 80GB PCIe": "a100",
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H200": "h200",
}
"""The presets with the peaks of a device's multiprocessors, by the driver's name. There are none for cards of
the same family with lower clocks (H100 PCIe, H200 NVL)."""


LIMITS = GpuLimits
KNOBS = (
    Knob("threads_per_block", "threads per block", SIZES),
    Knob("registers_per_thread", "registers per thread", SIZES),
    Knob("registers_per_block", "registers per block", SIZES),
    Knob("smem_per_block_bytes", "shared memory per block", SIZES),
    Knob("cores", "multiprocessors", some_cores),
)


def detect(*, measure: bool, device: int) -> Hardware:
    """Returns one of this machine's GPUs; nothing is measured."""
    return detect_gpu(device)


def measured(hardware: Hardware) -> Hardware:
    """Returns the GPU unchanged: nothing is measured, since peaks follow from clocks."""
    return hardware


def ceilings(hardware: Hardware) -> list[Ceiling]:
    """Returns two bandwidths: of L2, and of the shared memory of all multiprocessors."""
    rates = gpu_rates(hardware)
    cycles = hardware.cores * rates.hertz / 1e9
    return [
        Ceiling("L2", rates.l2_bytes * cycles, "an estimate: bytes of a cycle"),
        Ceiling("shared memory", SHARED_BYTES * cycles, "32 banks of 4 bytes in a cycle"),
    ]


def detect_gpu(device: int = 0, driver: Any = None) -> Hardware:
    """Returns one GPU of this machine, as its driver describes it.

    Peaks follow from the highest clocks. The speed of tensor cores, which the driver does not report, is that
    of a preset for the same device.

    Args:
        device: the driver's number of the GPU (``CUDA_VISIBLE_DEVICES`` applies).
        driver: the library ``libcuda`` as :mod:`ctypes` shows it; None loads it.

    Raises:
        HardwareError: if there is no driver or no such device, or the device is too old.
    """
    driver = _library() if driver is None else driver
    handle = _handle(driver, device)
    read = partial(_attribute, driver, handle)
    name, capability = _name(driver, handle), (read(MAJOR), read(MINOR))
    if capability < OLDEST:
        rule = f"a GPU must have compute capability {_dotted(OLDEST)} or later"
        raise HardwareError(rule, f"{name} with {_dotted(capability)}")
    preset = PRESETS.get(name.partition(" MIG ")[0])
    return Hardware(
        name=name,
        source="detected; peaks follow from clocks" + (f", tensor cores as in {preset}" if preset else ""),
        cores=read(MULTIPROCESSORS),
        limits=_limits(read, capability, gpu_of(Hardware.preset(preset)) if preset else None),
        # A fused multiply-add counts two; 1e6 kHz are 1 GHz. Some drivers give no clocks.
        peak_gflops=2 * float32_lanes(capability) * read(CLOCK_KHZ) / 1e6 or None,
        # Memory of all these devices transfers on both edges of its clock.
        dram_gbps=2 * read(MEMORY_CLOCK_KHZ) * (read(BUS_BITS) // 8) / 1e6 or None,
    )


def detect_gpus() -> list[Hardware]:
    """Returns the GPUs of this machine that dietlab knows; none without a driver."""
    found = []
    with suppress(HardwareError):
        driver = _library()
        for device in range(_count(driver)):
            with suppress(HardwareError):  # one that is too old
                found.append(detect_gpu(device, driver))
    return found


def _limits(read: Callable[[int], int], capability: tuple[int, int], preset: GpuLimits | None) -> GpuLimits:
    known = {field: getattr(preset, field) for field in ("half_gflops", *RATES)} if preset else {}
    return GpuLimits(
        compute_capability=_dotted(capability),
        registers_per_thread=REGISTERS_PER_THREAD,
        register_unit=REGISTER_UNIT,
        smem_unit_bytes=256 if capability < (8, 0) else 128,
        **{field: read(number) for field, number in ATTRIBUTES.items()},
        **known,
    )


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _library() -> Any:
    try:
        library = ctypes.CDLL(LIBRARY)
        # A stand-in for the driver, with which libraries are built, has its name and no cuInit.
        missing = None if hasattr(library, "cuInit") else f"{LIBRARY} has no cuInit"
    except OSError as error:
        missing = str(error)
    if missing is not None:
        raise HardwareError(
            "describing a GPU needs an NVIDIA driver",
            f"no driver ({missing})",
            "Install it, or use a preset, as in Hardware.preset('h100') (--hardware h100).",
        )
    return library


def _handle(driver: Any, device: int) -> int:
    """Returns the driver's handle of a device, once the driver is initialised and has it."""
    count, handle = _count(driver), ctypes.c_int(0)
    if not count:
        raise HardwareError(
            "the NVIDIA driver must show a GPU",
            "a driver, but no device",
            "nvidia-smi -L lists GPUs, which CUDA_VISIBLE_DEVICES may hide; or use a preset.",
        )
    if not 0 <= device < count:
        raise HardwareError(f"the number of a GPU of this machine must be 0 to {count - 1}", device)
    _check(driver, "cuDeviceGet", driver.cuDeviceGet(ctypes.pointer(handle), device))
    return handle.value


def _count(driver: Any) -> int:
    """Returns the number of devices, once the driver is initialised."""
    count = ctypes.c_int(0)
    status = driver.cuInit(0)
    if status != NO_DEVICE:
        _check(driver, "cuInit", status)
        _check(driver, "cuDeviceGetCount", driver.cuDeviceGetCount(ctypes.pointer(count)))
    return count.value


def _name(driver: Any, handle: int) -> str:
    text = ctypes.create_string_buffer(256)
    _check(driver, "cuDeviceGetName", driver.cuDeviceGetName(text, len(text), handle))
    return text.value.decode(errors="replace")


def _attribute(driver: Any, handle: int, number: int) -> int:
    value = ctypes.c_int(0)
    status = driver.cuDeviceGetAttribute(ctypes.pointer(value), number, handle)
    _check(driver, f"cuDeviceGetAttribute({number})", status)
    return value.value


def _check(driver: Any, call: str, status: int) -> None:
    if status == 0:
        return
    words = ctypes.c_char_p()
    driver.cuGetErrorString(status, ctypes.pointer(words))  # leaves them empty for an error it does not know
    raise HardwareError(
        "the NVIDIA driver must answer",
        f"{call}: {(words.value or b'no words for it').decode(errors='replace')} (error {status})",
        "nvidia-smi may say more; an old driver needs an update.",
    )

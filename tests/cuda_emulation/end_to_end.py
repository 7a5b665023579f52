"""TVM on the stub driver, from schedule to launch log; prints what it found as one line of JSON.

Run by test_emulator.py as ``python -m cuda_emulation.end_to_end`` in the folder of the tests.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .fake_driver import FakeDriver, image, install

GROW = """
extern "C" __global__ void __launch_bounds__(256) grow_kernel(int last) {
  extern __shared__ __align__(16) unsigned char bytes[];
  if (((int)threadIdx.x) == 0) { bytes[last] = 1; }
}
"""


class Config(ctypes.Structure):
    """``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class Grow:
    """The kernel above, launched through the driver's functions."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver.library
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.driver.cuModuleLoadData(ctypes.byref(module), image(GROW)) == 0
        assert self.driver.cuModuleGetFunction(ctypes.byref(self.function), module, b"grow_kernel") == 0

    def allow(self, shared_bytes: int) -> int:
        return int(self.driver.cuFuncSetAttribute(self.function, 8, shared_bytes))

    def launch(
        self,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (32, 1, 1),
        shared_bytes: int = 16,
        last: int = 0,
        stream: int = 0,
    ) -> int:
        config = Config((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared_bytes, stream)
        value = ctypes.c_int(last)
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        return int(self.driver.cuLaunchKernelEx(ctypes.byref(config), self.function, arguments, None))


def refusals(driver: FakeDriver) -> dict[str, Any]:
    """The driver's answers to launches that break one rule each, and to a kernel that faults."""
    grow = Grow(driver)
    refused = {
        "plain": grow.launch(),
        "threads": grow.launch(block=(257, 1, 1)),
        "empty grid": grow.launch(grid=(0, 1, 1)),
        "grid y": grow.launch(grid=(1, 65536, 1)),
        "grid z": grow.launch(grid=(1, 1, 65536)),
        "block z": grow.launch(block=(1, 1, 65)),
        "stream": grow.launch(stream=77),
        "shared 49153": grow.launch(shared_bytes=49153),
        "attribute 232449": grow.allow(232449),
        "attribute 232448": grow.allow(232448),
        "shared 232448": grow.launch(shared_bytes=232448, last=232447),
    }
    fault = grow.launch(shared_bytes=4096, last=4096)
    return {"refused": refused, "fault": fault, "failure": driver.failure()}


def vector_add(tvm: Any) -> Any:
    """C = A + B for any length, 64 elements a block."""
    from tvm import s_tir, te

    n = te.var("n", "int64")
    a, b = (te.placeholder((n,), "float32", name) for name in "AB")
    schedule = s_tir.Schedule(te.create_prim_func([a, b, te.compute((n,), lambda i: a[i] + b[i], "C")]))
    (loop,) = schedule.get_loops(schedule.get_sblock("C"))
    block, thread = schedule.split(loop, [None, 64])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    most = {"max_num_threads": 1024, "max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90", **most, "host": {"kind": "llvm"}})
    with target:
        return tvm.compile(schedule.mod, target=target)


class Adder:
    """The compiled operator on the stub device."""

    def __init__(self, tvm: Any, function: Any) -> None:
        self.tvm, self.function, self.device = tvm, function, tvm.cuda(0)

    def error(self, n: int) -> float:
        """The largest error over ``n`` elements."""
        a, b = np.random.default_rng(n).standard_normal((2, n), dtype=np.float32)
        tensors = [self.tvm.runtime.tensor(x, self.device) for x in (a, b, np.full(n, np.nan, np.float32))]
        self.function(*tensors)
        return float(np.abs(tensors[2].numpy() - (a + b)).max(initial=0.0))


def streams(driver: FakeDriver, adder: Adder) -> dict[str, Any]:
    """Launches on the default stream and on two others, and what the log says of them."""
    driver.forget()
    adder.error(5)
    handles = [adder.device.create_raw_stream() for _ in range(2)]
    for handle in handles:
        adder.device.set_raw_stream(handle)
        adder.error(5)
    adder.device.set_raw_stream(0)
    return {
        "streams": [int(handle) for handle in handles],
        "launched_on": [launch.stream for launch in driver.launches()],
    }


def message(call: Any) -> str:
    """The text of the error that ``call`` raises."""
    try:
        call()
    except Exception as error:
        return str(error)
    return "no error"


def main() -> None:
    driver = install()
    import tvm

    device = tvm.cuda(0)
    found: dict[str, Any] = {
        "device": [device.compute_version, device.multi_processor_count, device.device_name]
    }
    found |= refusals(driver)
    compiled = vector_add(tvm)
    adder = Adder(tvm, compiled["main"])
    driver.forget()
    found["errors"] = [adder.error(n) for n in (1, 64, 65, 200)]
    found["launches"] = [asdict(launch) for launch in driver.launches()]
    driver.forget()
    adder.error(0)
    found["empty"] = [launch.grid for launch in driver.launches()]
    found |= streams(driver, adder)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "add.so")
        compiled.export_library(path)
        found["exported"] = Adder(tvm, tvm.runtime.load_module(path)["main"]).error(100)
    driver.limit_memory(1 << 20)
    found["out_of_memory"] = message(lambda: adder.error(1 << 20))
    found["live_bytes"] = driver.live_bytes
    print(json.dumps(found))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The first minutes on a GPU: what it is, how fast PyTorch is on it, and whether our kernels are right.

Small kernels of all units (CUDA cores in fp32, tensor cores by warps, by groups of warps and from bulk copies
in bf16 and fp16) are compiled, compared with a float64 reference, run under compute-sanitizer (memcheck,
racecheck, synccheck) and timed. Whatever fails is a row of the result, not the end.

    python3 scripts/gpu_first_light.py --out runs/first-light

writes first_light.json (all rows) and first_light.log (a line a row) into --out. Where the GPU has no
compiler beside it, the kernels are compiled elsewhere:

    python3 scripts/gpu_first_light.py --pack .gpulight --hardware h100
    python3 scripts/gpu_first_light.py --ready .gpulight --out runs/first-light
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

from dietlab.base.errors import DietlabError
from dietlab.base.events import audience
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner, Timing, Trial
from dietlab.measure.builders import Builders, Built
from dietlab.measure.ready import ReadyLibraries, pack_libraries
from dietlab.problem import BatchMatmul, Conv1d, Conv2d, Dense, Dim, Shape, Workload, workload_from_json
from dietlab.scheme import Space, build_space
from dietlab.targets.cuda import contenders
from dietlab.targets.cuda.kernel import CudaScheme
from dietlab.targets.cuda.lowering.nvcc import require_compiler

LENGTHS = (1, 17, 129)
"""Evaluated extents of the dynamic dimension: one row, an edge of one row beyond 16, one beyond 128."""
DIM = Dim(1, 256)
CHECKERS = ("memcheck", "racecheck", "synccheck")
PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
"""Where CUDA's toolkit puts compute-sanitizer when it is not on the PATH."""
FOUND = 86
"""Exit status by which compute-sanitizer says that it found something; none of Python's."""
CHECK_SECONDS = 120.0
"""The longest a kernel may take under a checker, in seconds: they slow it down some hundred times."""
TIMED_SHARE = 0.2
"""The share of --seconds that checkers leave to timing."""
AT_ONCE = 12
"""Checked kernels at the same time: most of it is the start of Python and TVM on the host."""
TIMING = Timing(blocks=3)
COPY_BYTES = 1 << 30
MATMUL_SIZE = 8192
REPEATS = 10

Choice = Callable[[CudaScheme], bool]


@dataclass(frozen=True)
class Case:
    """A kernel to try: its unit, what is special about it, the operator, and which micro-kernels show it."""

    unit: str
    feature: str
    workload: Workload
    fits: Choice

    @property
    def name(self) -> str:
        return f"{self.unit} {self.workload.dtype} {self.feature}"

    def scheme(self, hardware: Hardware) -> CudaScheme:
        """Returns the middle one of the space's micro-kernels that fit, without a bound on registers: with
        one, some spill.

        Raises:
            LookupError: if this GPU has none.
        """
        space = space_of(self.workload, hardware)
        found = [
            scheme
            for scheme in space
            if scheme.kernel.unit == self.unit and scheme.kernel.resident == 1 and self.fits(scheme)
        ]
        if not found:
            raise LookupError(f"no such micro-kernel fits {hardware.limits.arch}")
        return found[len(found) // 2]


@lru_cache
def space_of(workload: Workload, hardware: Hardware) -> Space:
    return build_space(workload, hardware, ("padded", "even"))


def is_whole(scheme: CudaScheme) -> bool:
    kernel = scheme.kernel
    return kernel.slices == kernel.cluster == 1 and not kernel.persistent


def is_plain(scheme: CudaScheme) -> bool:
    return scheme.edge == "padded" and is_whole(scheme)


def is_narrow(scheme: CudaScheme) -> bool:
    """Whether the copies of single weights leave registers for the sums."""
    return is_plain(scheme) and scheme.kernel.cols <= 64


def is_even(scheme: CudaScheme) -> bool:
    return scheme.edge == "even" and is_whole(scheme)


def is_shared(scheme: CudaScheme) -> bool:
    return scheme.kernel.multicast > 1


def is_shared_at_the_end(scheme: CudaScheme) -> bool:
    return scheme.kernel.ending > 1


def remains(scheme: CudaScheme) -> bool:
    """Whether blocks have several tiles of a wide layer."""
    return scheme.kernel.persistent and scheme.cols <= 128


def is_sliced(scheme: CudaScheme) -> bool:
    return scheme.kernel.slices > 1


def is_split(scheme: CudaScheme) -> bool:
    return scheme.kernel.splits > 1


def layer(dtype: str = "float32", depth: int = 256, cols: int = 256) -> Workload:
    return Dense(T=DIM, N=cols, K=depth, dtype=dtype)


def product(dtype: str = "float32") -> Workload:
    """Weights that are not transposed, with a dynamic reduction."""
    return BatchMatmul(T=DIM, B=4, D=64, form="nn", dtype=dtype)


def images(dtype: str = "float32", channels: int = 32, **options: Any) -> Workload:
    """A convolution over images of a dynamic height, 13 pixels wide."""
    return Conv2d(N=2, H=DIM, W=13, IC=channels, OC=64, padding=1, dtype=dtype, **options)


CASES = (
    Case("fma", "plain", layer(), is_plain),
    Case("fma", "slices", layer(), is_sliced),
    Case("fma", "splits", layer(), is_split),
    Case("fma", "two heights", layer(), is_even),
    Case("fma", "unaligned", layer(depth=251), is_plain),
    Case("fma", "direct weights", product(), is_plain),
    Case("mma", "plain", layer("bfloat16"), is_plain),
    Case("mma", "splits", layer("float16"), is_split),
    Case("mma", "direct weights", product("bfloat16"), is_plain),
    Case("wgmma", "plain", layer("bfloat16"), is_plain),
    Case("wgmma", "splits, two heights", layer("float16"), lambda k: is_split(k) and k.edge == "even"),
    Case("wgmma", "direct weights", product("bfloat16"), is_plain),
    Case("tma", "plain", layer("bfloat16"), is_plain),
    Case("tma", "splits", layer("float16"), is_split),
    Case("tma", "two heights", layer("bfloat16"), is_even),
    Case("tma", "multicast", layer("bfloat16"), is_shared),
    Case("tma", "last wave shared", layer("bfloat16", depth=1024), is_shared_at_the_end),
    Case("tma", "blocks that remain", layer("bfloat16", depth=128, cols=20480), remains),
    Case("swapped", "plain", layer("bfloat16"), is_plain),
    Case("swapped", "splits", layer("float16"), is_split),
    Case("swapped", "two heights", layer("bfloat16"), is_even),
    Case("fma", "images", images(), is_plain),
    Case("fma", "images, two heights", images(stride=2), is_even),
    Case("fma", "images of three channels", images(channels=3), is_plain),
    Case("fma", "images, splits", images(), is_split),
    Case("fma", "sequences", Conv1d(N=4, L=DIM, IC=32, OC=96, kernel=3, padding=((2, 0),)), is_plain),
    Case("mma", "images", images("bfloat16"), is_narrow),
    Case("wgmma", "images", images("float16", channels=64), is_plain),
)


def shapes_of(workload: Workload, lengths: Sequence[int] = LENGTHS) -> tuple[Shape, ...]:
    """The shapes with each extent of the dynamic dimension."""
    return tuple(Shape.of(**dict.fromkeys(workload.dims, length)) for length in lengths)


@dataclass
class Log:
    """The rows so far; each is in the log and in an unfinished JSON file before the next begins."""

    folder: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._text, self._unfinished = (self.folder / f"first_light.{end}" for end in ("log", "json.new"))
        self._text.write_text("", encoding="utf-8")

    def add(self, what: str, name: str, status: str, **found: Any) -> None:
        self.rows.append({"what": what, "name": name, "status": status, **found})
        details = ", ".join(f"{key} {value}" for key, value in found.items())
        line = f"{status:8} {what:11} {name:36} {details}"
        print(line, flush=True)
        with self._text.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        self._unfinished.write_text(json.dumps(self.rows, indent=1), encoding="utf-8")

    def finish(self) -> None:
        self._unfinished.replace(self.folder / "first_light.json")

    def attempt(self, what: str, name: str, find: Callable[[], dict[str, Any]]) -> None:
        """Adds what ``find`` returns, or its error."""
        try:
            self.add(what, name, "ok", **find())
        except Exception as error:  # each library raises another one, and all of them are results here
            self.add(what, name, "failed", reason=str(error) or type(error).__name__)


# The machine, and PyTorch on it


def device() -> dict[str, Any]:
    found = Hardware.detect("cuda", measure=False)
    gpu = found.limits
    return {
        "GPU": found.name,
        "arch": gpu.arch,
        "multiprocessors": found.cores,
        "L2 MiB": gpu.l2_bytes >> 20,
        "shared KiB a block": gpu.smem_per_block_bytes >> 10,
        "peak fp32 GFLOP/s": round(found.peak_gflops or 0),
        "DRAM GB/s": round(found.dram_gbps or 0),
    }


def driver() -> dict[str, Any]:
    facts = contenders.facts()
    if not facts:
        raise RuntimeError("nvidia-smi does not answer")
    return dict(facts)


def compiler() -> dict[str, Any]:
    said = require_compiler().version().splitlines()
    return {"version": next((line for line in said if "release" in line), said[0])}


def pytorch() -> Any:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} sees no GPU")
    return torch


def seconds_of(torch: Any, call: Callable[[], Any]) -> float:
    """Returns the mean seconds of some calls, after as many to warm up."""
    before, first, last = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    for event in (before, first):
        event.record()
        for _ in range(REPEATS):
            call()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) * 1e-3 / REPEATS


def copy_bandwidth() -> dict[str, Any]:
    torch = pytorch()
    source, target = (torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda") for _ in range(2))
    seconds = seconds_of(torch, lambda: target.copy_(source))
    return {"GB/s read and written": round(2 * COPY_BYTES / seconds / 1e9)}


def matmul_speed(dtype: str) -> dict[str, Any]:
    torch = pytorch()
    torch.set_float32_matmul_precision("highest")
    shape = (MATMUL_SIZE, MATMUL_SIZE)
    x, w = (torch.randn(shape, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
    out = torch.empty_like(x)
    seconds = seconds_of(torch, lambda: torch.mm(x, w, out=out))
    return {"TFLOP/s": round(2 * MATMUL_SIZE**3 / seconds / 1e12, 1)}


def reference(log: Log) -> None:
    log.attempt("PyTorch", "version", lambda: {"version": pytorch().__version__})
    log.attempt("PyTorch", "copy of 1 GiB", copy_bandwidth)
    for dtype in ("bfloat16", "float32"):
        log.attempt("PyTorch", f"{MATMUL_SIZE}^3 {dtype}", partial(matmul_speed, dtype))


# Our kernels: each is judged in a process of its own


def check(library: str, workload: Workload, lengths: Sequence[int]) -> None:
    """Compares a library with the reference and prints one line of JSON; without PyTorch, which TVM imports
    where it finds it."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    from dietlab.lower.runtime import load_library
    from dietlab.measure.timing.problem import Problem
    from dietlab.targets.cuda.nvidia_packages import load_cuda_runtime

    load_cuda_runtime()
    import numpy as np
    import tvm

    run, gpu, wrong, worst = load_library(Path(library), "cuda").run, tvm.cuda(0), [], 0.0
    for shape in shapes_of(workload, lengths):
        problem = Problem.make(workload, shape)
        poison = np.full(problem.out_shape, np.nan, problem.dtype)
        arrays = [tvm.runtime.tensor(array, gpu) for array in (*problem.operands.values(), poison)]
        run(*arrays)
        gpu.sync()
        verdict = problem.verdict(arrays[-1].numpy())
        worst = max(worst, verdict.max_error / verdict.tolerance)
        wrong += [f"{shape}: {verdict.reason}"] * (not verdict.correct)
    print(json.dumps({"wrong": wrong, "error over tolerance": round(worst, 3)}))


def sanitizer() -> str | None:
    """Returns the path of compute-sanitizer."""
    return shutil.which("compute-sanitizer", path=os.pathsep.join((os.environ.get("PATH", ""), *PLACES)))


def answer_of(command: Sequence[str], seconds: float) -> tuple[int, list[str]]:
    """Returns the exit status of a command and the lines that it printed.

    Raises:
        subprocess.TimeoutExpired: if it takes longer; it is killed with the processes that it started.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as child:
        try:
            said, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise
    return child.returncode, said.splitlines()


def judged(case: Case, built: Built, prefix: Sequence[str], seconds: float) -> tuple[str, dict[str, Any]]:
    """Returns the status and the findings of one kernel in a new process."""
    if seconds <= 0:
        return "skipped", {"reason": "the time is up"}
    own = [sys.executable, __file__, "--check", str(built.path), json.dumps(case.workload.to_json())]
    started = perf_counter()
    try:
        code, said = answer_of([*prefix, *own], min(seconds, CHECK_SECONDS))
    except subprocess.TimeoutExpired:
        return "failed", {"reason": f"no answer in {perf_counter() - started:.0f} s"}
    answers = [json.loads(line) for line in said if line.startswith('{"wrong"')]
    summaries = [line.strip("= ") for line in said if "SUMMARY" in line]
    found = {"summary": summaries[-1]} if summaries else {}
    if code == FOUND:
        return "failed", {
            **found,
            "reason": " | ".join(x.strip("= ") for x in said if x.startswith("="))[:1500],
        }
    if code or not answers:
        return "failed", {"reason": f"status {code}: {' | '.join(said[-3:])}"}
    (answer,) = answers
    wrong = answer.pop("wrong")
    return ("wrong", {"reason": "; ".join(wrong)}) if wrong else ("ok", {**answer, **found})


@dataclass(frozen=True)
class Ready:
    """A case with the micro-kernel that was chosen for it, and its library; of one that was compiled
    elsewhere also the folder that it came in."""

    case: Case
    built: Built
    libraries: ReadyLibraries | None = None


def build_all(log: Log, hardware: Hardware, folder: Path, end: float) -> list[Ready]:
    """Returns what compiles; the rest are rows."""
    ready = []

    def one(case: Case) -> Built | str:
        if monotonic() > end:
            return "the time is up"
        try:
            (built,) = builders.build(case.workload, [Trial(case.scheme(hardware), shapes_of(case.workload))])
        except Exception as error:  # of a space, a compiler or a full disk
            return str(error)
        return built

    with Builders(hardware, folder) as builders, ThreadPoolExecutor(os.cpu_count()) as pool:
        for case, built in zip(CASES, pool.map(one, CASES), strict=True):
            if isinstance(built, str):
                log.add("compile", case.name, "failed", reason=built)
                continue
            if compiled(log, case, built):
                ready.append(Ready(case, built))
    return ready


def compiled(log: Log, case: Case, built: Built) -> bool:
    """Adds a row of how a kernel was compiled, and returns if it was."""
    found = {"kernel": built.scheme.key, **built.answer.get("resources", {})}
    reason = {"reason": built.failure[1]} if built.failure else {}
    log.add("compile", case.name, "failed" if reason else "ok", **reason, **found)
    return not reason


def folder_of(case: Case, folder: Path) -> Path:
    return folder / f"{CASES.index(case):02}"


def pack_all(folder: Path, hardware: Hardware) -> None:
    """Compiles the kernels for a processor that need not be here."""
    with audience(()).stage("pack", len(CASES), "kernel") as progress:
        for case in CASES:
            try:
                trial = Trial(case.scheme(hardware), shapes_of(case.workload))
            except LookupError as error:  # a unit that this GPU lacks
                print(f"{case.name}: {error}", flush=True)
                continue
            pack_libraries(folder_of(case, folder), case.workload, hardware, [trial], progress)
            print(f"{case.name}: {trial.scheme}", flush=True)


def unpack_all(log: Log, folder: Path) -> list[Ready]:
    """Returns what ``pack_all`` compiled; the rest are rows."""
    ready = []
    for case in CASES:
        try:
            libraries = ReadyLibraries.open(folder_of(case, folder))
            trials = [Trial(entry.scheme, shapes_of(case.workload)) for entry in libraries.entries]
            (built,) = libraries.built(case.workload, trials)
        except (DietlabError, ValueError) as error:
            log.add("compile", case.name, "failed", reason=str(error))
            continue
        if compiled(log, case, built):
            ready.append(Ready(case, built, libraries))
    return ready


def check_all(log: Log, ready: Sequence[Ready], what: str, prefix: Sequence[str], end: float) -> None:
    def one(item: Ready) -> tuple[str, dict[str, Any]]:
        return judged(item.case, item.built, prefix, end - monotonic())

    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        for item, (status, found) in zip(ready, pool.map(one, ready), strict=True):
            log.add(what, item.case.name, status, **found)


def time_all(log: Log, hardware: Hardware, ready: Sequence[Ready], end: float) -> None:
    for item in ready:
        if monotonic() > end:
            log.add("time", item.case.name, "skipped", reason="the time is up")
            continue
        work = item.case.workload
        with LocalRunner(hardware, TIMING, ready=item.libraries) as runner:
            for record in runner.measure(work, [Trial(item.built.scheme, shapes_of(work))]):
                name = f"{item.case.name} {record.shape}"
                if record.seconds is None:
                    log.add("time", name, "failed", reason=record.reason)
                else:
                    found = {"us": round(1e6 * record.seconds, 2), "GFLOP/s": round(record.gflops(work))}
                    log.add("time", name, "ok", **found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", default="runs/first-light", type=Path)
    parser.add_argument("--seconds", default=400.0, type=float, help="what is not begun by then is skipped")
    parser.add_argument("--check", nargs=2, metavar=("LIBRARY", "WORKLOAD"), help=argparse.SUPPRESS)
    parser.add_argument("--pack", metavar="FOLDER", type=Path, help="only compile, into this folder")
    parser.add_argument(
        "--hardware", default="h200", choices=Hardware.presets(), help="what --pack compiles for"
    )
    parser.add_argument(
        "--ready", metavar="FOLDER", type=Path, help="what --pack compiled; needs no compiler"
    )
    chosen = parser.parse_args()
    if chosen.pack:
        pack_all(chosen.pack, Hardware.preset(chosen.hardware))
        return
    if chosen.check:
        library, workload = chosen.check
        check(library, workload_from_json(json.loads(workload)), LENGTHS)
        return
    log, end = Log(chosen.out), monotonic() + chosen.seconds
    log.attempt("machine", "device", device)
    log.attempt("machine", "nvidia-smi", driver)
    if not chosen.ready:
        log.attempt("machine", "CUDA compiler", compiler)
    reference(log)
    with tempfile.TemporaryDirectory(prefix="first-light-") as folder:
        try:
            hardware = Hardware.detect("cuda", measure=False)
            end_of_checks = end - TIMED_SHARE * chosen.seconds
            ready = (
                unpack_all(log, chosen.ready)
                if chosen.ready
                else build_all(log, hardware, Path(folder), end_of_checks)
            )
            our_kernels(log, hardware, ready, end_of_checks, end)
        except Exception as error:  # the rows so far count
            log.add("kernels", "all", "failed", reason=str(error))
    log.finish()


def our_kernels(
    log: Log, hardware: Hardware, ready: Sequence[Ready], end_of_checks: float, end: float
) -> None:
    check_all(log, ready, "correct", (), end_of_checks)
    program = sanitizer()
    for checker in CHECKERS:
        if program is None:
            log.add(
                checker,
                "all",
                "skipped",
                reason="compute-sanitizer is neither on the PATH nor in CUDA's folder",
            )
            continue
        prefix = (program, "--tool", checker, f"--error-exitcode={FOUND}")
        check_all(log, ready, checker, prefix, end_of_checks)
    time_all(log, hardware, ready, end)


if __name__ == "__main__":
    main()

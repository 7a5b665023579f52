"""Cubins: compiling without a GPU, reading what kernels use, and the cache that processes share."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from struct import pack
from time import monotonic, sleep

import psutil
import pytest

from dietlab.base.errors import BuildError, MissingDependencyError
from dietlab.targets.cuda.lowering.cubin import Cubin, architecture, read_cubin
from dietlab.targets.cuda.lowering.nvcc import (
    Compiler,
    compile_cubin,
    compilers,
    parse_usage,
    require_compiler,
)

SAMPLE = """
#include <cstdint>
#include <type_traits>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

extern "C" __global__ void __launch_bounds__(128) plain(float* y, const float* x, int64_t n) {
  int64_t i = blockIdx.x * 128LL + threadIdx.x;
  if (i < n) y[i] = x[i] * 3.0f;
}

// 96 values are alive at the barrier, and two blocks of 1024 threads leave 32 registers to each thread.
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float* y, const float* x) {
  float v[96];
  #pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 96; ++i) y[i * 1024 + threadIdx.x] = v[i] * v[(i * 37 + 11) % 96];
}

extern "C" __global__ void __launch_bounds__(256) staged(float* y, const float* x) {
  __shared__ float tile[1000];
  extern __shared__ float more[];
  tile[threadIdx.x] = x[threadIdx.x];
  more[threadIdx.x] = x[threadIdx.x + 256];
  __syncthreads();
  y[threadIdx.x] = tile[(threadIdx.x * 7) % 256] + more[(threadIdx.x * 5) % 256];
}

extern "C" __global__ void local_array(float* y, const int* at, int n) {
  float v[64];
  for (int i = 0; i < n; ++i) v[at[i] & 63] = i;
  for (int i = 0; i < n; ++i) y[i] = v[at[i + n] & 63];
}
"""


@pytest.fixture(scope="module")
def sample(compiler: Compiler) -> Cubin:
    return compile_cubin(SAMPLE, "sm_90", cache=None)


@pytest.mark.cuda_compile
def test_kernels_of_one_source_are_told_apart(sample: Cubin) -> None:
    assert set(sample.kernels) == {"plain", "spilling", "staged", "local_array"}
    assert sample.arch == "sm_90"
    bounds = {name: kernel.max_threads for name, kernel in sample.kernels.items()}
    assert bounds == {"plain": 128, "spilling": 1024, "staged": 256, "local_array": None}
    plain = sample.kernels["plain"]
    assert 4 <= plain.registers <= 32 and plain.code_bytes >= 128
    assert (plain.spill_bytes, plain.stack_bytes, plain.shared_bytes) == (0, 0, 0)
    assert sample.code_bytes == sum(kernel.code_bytes for kernel in sample.kernels.values())


@pytest.mark.cuda_compile
def test_spills_are_told_from_local_arrays(sample: Cubin) -> None:
    spilling, local = sample.kernels["spilling"], sample.kernels["local_array"]
    assert spilling.registers <= 32
    assert spilling.spill_bytes >= 2 * 4 * (96 - 32)
    assert spilling.stack_bytes >= 4 * (96 - 32)
    assert (local.spill_bytes, local.stack_bytes) == (0, 4 * 64)


@pytest.mark.cuda_compile
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_90", "sm_90a"])
def test_shared_memory_is_what_the_source_declares(compiler: Compiler, arch: str) -> None:
    source = """
    extern "C" __global__ void staged(float* y) {
      __shared__ float tile[1000];
      tile[threadIdx.x] = y[threadIdx.x];
      __syncthreads();
      y[threadIdx.x] = tile[threadIdx.x ^ 7];
    }
    extern "C" __global__ void none(float* y) { y[threadIdx.x] = 1.0f; }
    """
    built = compile_cubin(source, arch, cache=None)
    shared = {name: kernel.shared_bytes for name, kernel in built.kernels.items()}
    assert shared == {"staged": 4000, "none": 0}


@pytest.mark.cuda_compile
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_file_and_messages_of_the_compiler_agree(compiler: Compiler, arch: str, tmp_path: Path) -> None:
    source, cubin = tmp_path / "kernel.cu", tmp_path / "kernel.cubin"
    source.write_text(SAMPLE)
    command = [*compiler.command, *compiler.flags(arch), "-o", str(cubin), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told = parse_usage(done.stdout + done.stderr)
    kernels = read_cubin(cubin.read_bytes(), arch).kernels
    assert set(told) == set(kernels)
    for name, usage in told.items():
        kernel = kernels[name]
        found = (kernel.registers, kernel.stack_bytes, kernel.shared_bytes)
        assert found == (usage.registers, usage.stack_bytes, usage.shared_bytes)
        # Without the messages, what lies on the stack stands for spills.
        assert kernel.spill_bytes == usage.stack_bytes
    assert told["spilling"].spill_store_bytes > 0 and told["spilling"].spill_load_bytes > 0


@pytest.mark.cuda_compile
def test_code_hash_knows_code_and_not_names(compiler: Compiler) -> None:
    kernel = 'extern "C" __global__ void {}(float* y) {{ y[threadIdx.x] *= {}; }}\n'
    alone = compile_cubin(kernel.format("first", "3.0f"), "sm_90", cache=None)
    renamed = compile_cubin(kernel.format("a_longer_name", "3.0f"), "sm_90", cache=None)
    both = compile_cubin(kernel.format("one", "5.0f") + kernel.format("two", "3.0f"), "sm_90", cache=None)
    code = alone.kernels["first"].code_hash
    assert renamed.kernels["a_longer_name"].code_hash == both.kernels["two"].code_hash == code
    assert both.kernels["one"].code_hash != code
    assert alone.code_hash == renamed.code_hash != both.code_hash


@pytest.mark.cuda_compile
def test_fast_math_makes_other_code(compiler: Compiler) -> None:
    source = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1.0f / sinf(y[threadIdx.x]); }'
    exact, fast = (compile_cubin(source, "sm_90", fast_math=on, cache=None) for on in (False, True))
    assert fast.code_bytes < exact.code_bytes


TOO_MUCH = """extern "C" __global__ void k(float* y) {
  __shared__ float t[99999]; t[threadIdx.x] = y[0]; __syncthreads(); y[0] = t[threadIdx.x + 1];
}"""


@pytest.mark.cuda_compile
@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("__global__ void k() { nothing(); }", r"the CUDA source must compile; got kernel\.cu\(1\): error: "),
        (TOO_MUCH, "too much shared data"),
        ("#include <no_such_header.h>", "no_such_header.h"),
    ],
)
def test_errors_name_the_first_thing_wrong(compiler: Compiler, source: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        compile_cubin(source, "sm_90", cache=None)


@pytest.mark.cuda_compile
def test_unknown_architecture_is_the_compilers_word(compiler: Compiler) -> None:
    with pytest.raises(BuildError, match=r"gpu.architecture|sm_999"):
        compile_cubin("", "sm_999", cache=None)


@pytest.mark.cuda_compile
def test_threads_and_the_cache_give_the_same_code(compiler: Compiler, tmp_path: Path) -> None:
    source = 'extern "C" __global__ void k(float* y) {{ y[threadIdx.x] += {}.0f; }}'
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(compile_cubin, source.format(i % 2), "sm_90", cache=tmp_path) for i in range(4)]
        built = [job.result() for job in jobs]
    assert len({cubin.code_hash for cubin in built}) == 2
    assert [compile_cubin(source.format(i), "sm_90", cache=tmp_path) for i in (0, 1)] == built[:2]


# ---------------------------------------------------------------- without a compiler

MESSAGES = """ptxas info    : 8 bytes gmem, 24 bytes cmem[3]
ptxas info    : Compiling entry function 'dense' for 'sm_90'
ptxas info    : Function properties for helper
    96 bytes stack frame, 92 bytes spill stores, 88 bytes spill loads
ptxas info    : Function properties for dense
    64 bytes stack frame, 60 bytes spill stores, 56 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 64 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 123.456 ms
ptxas info    : Compiling entry function '_Z3addPf' for 'sm_90'
ptxas info    : Function properties for _Z3addPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 360 bytes cmem[0]
"""


def test_messages_are_read_by_kernel() -> None:
    usage = parse_usage(MESSAGES)
    assert set(usage) == {"dense", "_Z3addPf"}
    dense = usage["dense"]
    assert (dense.registers, dense.stack_bytes, dense.spill_bytes, dense.shared_bytes) == (168, 64, 116, 4096)
    assert (usage["_Z3addPf"].registers, usage["_Z3addPf"].spill_bytes) == (8, 0)
    assert parse_usage("") == parse_usage("nvcc warning : something else\n") == {}


def fake_cubin(
    name: str = "k",
    registers: int = 40,
    stack: int = 0,
    shared: int = 0,
    threads: tuple[int, int, int] | None = (128, 1, 1),
    code: bytes = bytes(range(128)),
    counted_in: str = "attribute",
) -> bytes:
    """A cubin of one kernel, as compilers lay it out."""
    common = pack("<BBHII", 4, 0x11, 8, 1, stack)
    if counted_in == "attribute":
        common += pack("<BBHII", 4, 0x2F, 8, 1, registers)
    in_header = registers if counted_in == "header" else 0
    own = pack("<BBH", 3, 0x1B, 255) + (pack("<BBHIII", 4, 0x05, 12, *threads) if threads else b"")
    strings = b"\0" + name.encode() + b"\0"
    symbols = bytes(24) + pack("<IBBHQQ", 1, 0x12, 0x10, 5, 0, len(code))
    # name, type, link, info, contents (of NOBITS: how many)
    sections: list[tuple[str, int, int, int, bytes]] = [
        ("", 0, 0, 0, b""),
        (".shstrtab", 3, 0, 0, b""),
        (".strtab", 3, 0, 0, strings),
        (".symtab", 2, 2, 1, symbols),
        (".nv.info", 0x70000000, 3, 0, common),
        (f".text.{name}", 1, 3, in_header << 24 | 1, code),
        (f".nv.info.{name}", 0x70000000, 3, 5, own),
        (f".nv.constant0.{name}", 1, 0, 5, bytes(64)),
        (f".nv.shared.{name}", 8, 0, 5, bytes(shared)),
    ]
    names = b"".join(section[0].encode() + b"\0" for section in sections)
    sections[1] = (*sections[1][:4], names)
    body, headers, name_at = b"", b"", 0
    for title, kind, link, info, contents in sections:
        at = 64 + len(body)
        headers += pack("<IIQQQQIIQQ", name_at, kind, 0, 0, at, len(contents), link, info, 1, 0)
        body += b"" if kind == 8 else contents
        name_at += len(title) + 1
    identity = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7)
    rest = (0, 0, 64 + len(body), 0, 64, 0, 0, 64, len(sections), 1)
    header = pack("<16sHHIQQQIHHHHHH", identity, 2, 190, 1, *rest)
    return header + body + headers


def test_resources_are_read_from_the_file() -> None:
    kernel = read_cubin(fake_cubin("dense", 168, 48, 1024 + 4096, (32, 4, 1)), "sm_90").kernels["dense"]
    assert (kernel.registers, kernel.stack_bytes, kernel.spill_bytes) == (168, 48, 48)
    assert (kernel.shared_bytes, kernel.max_threads, kernel.code_bytes) == (4096, 128, 128)
    older = read_cubin(fake_cubin(shared=4096, threads=None), "sm_80", {"k": 0}).kernels["k"]
    assert (older.shared_bytes, older.max_threads, older.spill_bytes) == (4096, None, 0)


def test_registers_stand_in_one_place_or_the_other() -> None:
    for place in ("attribute", "header"):
        assert read_cubin(fake_cubin(registers=168, counted_in=place), "sm_90").kernels["k"].registers == 168
    with pytest.raises(BuildError, match="no count of registers for k"):
        read_cubin(fake_cubin(counted_in="nowhere"), "sm_90")


def test_spills_come_from_the_messages() -> None:
    assert read_cubin(fake_cubin(stack=48), "sm_90", {"k": 116}).kernels["k"].spill_bytes == 116
    assert read_cubin(fake_cubin(stack=48), "sm_90", {"k": 0}).kernels["k"].spill_bytes == 0
    assert read_cubin(fake_cubin(stack=48), "sm_90", {"other": 0}).kernels["k"].spill_bytes == 48


def test_code_hash_depends_on_what_runs() -> None:
    def code_hash(cubin: bytes) -> str:
        (kernel,) = read_cubin(cubin, "sm_90").kernels.values()
        return kernel.code_hash

    same = code_hash(fake_cubin())
    assert code_hash(fake_cubin("another_name")) == same
    assert code_hash(fake_cubin(threads=None)) == same
    others = [fake_cubin(code=bytes(128)), fake_cubin(registers=48), fake_cubin(shared=2048)]
    assert len({same, *map(code_hash, others)}) == 4


def test_cubins_are_values() -> None:
    one, two = (read_cubin(fake_cubin(), "sm_90") for _ in range(2))
    assert one == two and hash(one) == hash(two)
    with pytest.raises(FrozenInstanceError):
        one.arch = "sm_80"  # type: ignore[misc]


NO_CUBINS = {
    "empty": b"",
    "short": b"\x7fELF",
    "text": b"no ELF file at all, but longer than its header of sixty-four bytes would be",
    "cut": fake_cubin()[:-1],
    "cut early": fake_cubin()[:300],
    "another machine": Path(sys.executable).resolve().read_bytes()[:4096],
}


@pytest.mark.parametrize("data", NO_CUBINS.values(), ids=NO_CUBINS)
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(BuildError, match="a cubin must be a whole ELF file for CUDA"):
        read_cubin(data, "sm_90")


@pytest.mark.parametrize("arch", ["90", "sm_", "compute_90", "sm_90 -o x", ""])
def test_architectures_are_real_ones(arch: str) -> None:
    for use in (architecture, lambda arch: compile_cubin("", arch), lambda arch: read_cubin(b"", arch)):
        with pytest.raises(BuildError, match="an architecture reads like sm_90"):
            use(arch)


class FakeNvcc:
    """An ``nvcc`` that counts its runs and does what a line of shell says."""

    def __init__(self, folder: Path) -> None:
        self.path, self.cubin, self._calls = folder / "nvcc", folder / "made.cubin", folder / "calls"
        self.cubin.write_bytes(fake_cubin())
        self.does(f"cp {shlex.quote(str(self.cubin))} $OUT")

    def does(self, line: str, version: str = "13.0") -> None:
        self.path.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = --version ]; then echo fake {version}; exit 0; fi\n'
            f"echo run >> {shlex.quote(str(self._calls))}\n"
            'while [ "$1" != -o ]; do shift; done\n'
            f'OUT="$2"; SOURCE="$3"\n{line}\n'
        )
        self.path.chmod(0o755)

    @property
    def runs(self) -> int:
        return len(self._calls.read_text().splitlines()) if self._calls.exists() else 0


NewNvcc = Callable[[str], FakeNvcc]


@pytest.fixture
def new_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewNvcc:
    def make(name: str) -> FakeNvcc:
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.setenv("PATH", os.pathsep.join([str(folder), "/usr/bin", "/bin"]))
        return FakeNvcc(folder)

    return make


@pytest.fixture
def nvcc(new_nvcc: NewNvcc) -> FakeNvcc:
    return new_nvcc("bin")


def test_second_call_runs_no_compiler(nvcc: FakeNvcc, tmp_path: Path) -> None:
    cache = tmp_path / "made" / "when missing"
    first, second = (compile_cubin("source", "sm_90", cache=cache) for _ in range(2))
    assert nvcc.runs == 1 and first == second
    assert [path.suffix for path in cache.iterdir()] == [".kept"]
    compile_cubin("source", "sm_90", cache=None)
    assert nvcc.runs == 2


def test_cache_keeps_the_messages_too(nvcc: FakeNvcc, tmp_path: Path) -> None:
    nvcc.cubin.write_bytes(fake_cubin("dense", stack=64))
    nvcc.does(f"cat >&2 <<'END'\n{MESSAGES}END\ncp {shlex.quote(str(nvcc.cubin))} $OUT")
    built = [compile_cubin("", "sm_90", cache=tmp_path / "kept").kernels["dense"] for _ in range(2)]
    assert ([kernel.spill_bytes for kernel in built], nvcc.runs) == ([116, 116], 1)


def test_cache_tells_programs_apart(nvcc: FakeNvcc, new_nvcc: NewNvcc, tmp_path: Path) -> None:
    cache = tmp_path / "kept"
    programs = [("a", "sm_90", False), ("b", "sm_90", False), ("a", "sm_80", False), ("a", "sm_90", True)]
    for source, arch, fast in programs:
        compile_cubin(source, arch, fast_math=fast, cache=cache)
    assert nvcc.runs == 4
    newer = new_nvcc("newer")
    newer.does(f"cp {shlex.quote(str(newer.cubin))} $OUT", version="13.1")
    compile_cubin("a", "sm_90", cache=cache)
    assert (nvcc.runs, newer.runs) == (4, 1)


def _flipped(kept: bytes) -> bytes:
    at = kept.index(b"\x7fELF") + 70
    return kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], _flipped, lambda _: b"", lambda _: b"[]\n", lambda _: b"{}\n", lambda _: b"\xff{\n"],
)
def test_damaged_entries_are_built_again(
    nvcc: FakeNvcc, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    first = compile_cubin("source", "sm_90", cache=tmp_path / "kept")
    (entry,) = (tmp_path / "kept").iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert compile_cubin("source", "sm_90", cache=tmp_path / "kept") == first
    assert nvcc.runs == 2
    compile_cubin("source", "sm_90", cache=tmp_path / "kept")
    assert nvcc.runs == 2


def test_cache_that_cannot_be_written_costs_time_only(nvcc: FakeNvcc, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for _ in range(2):
        assert compile_cubin("source", "sm_90", cache=tmp_path / "file" / "kept").kernels
    assert nvcc.runs == 2


def test_cache_stands_in_the_home_folder(
    nvcc: FakeNvcc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    compile_cubin("source", "sm_90")
    assert len(list((tmp_path / ".cache" / "dietlab" / "compiled").iterdir())) == 1


def test_failures_are_not_kept(nvcc: FakeNvcc, tmp_path: Path) -> None:
    nvcc.does('echo "kernel.cu(7): warning: an error" >&2; echo "$SOURCE(9): error: bad" >&2; exit 2')
    for _ in range(2):
        with pytest.raises(
            BuildError, match=r"^the CUDA source must compile; got kernel\.cu\(9\): error: bad$"
        ):
            compile_cubin("source", "sm_90", cache=tmp_path / "kept")
    assert nvcc.runs == 2 and not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("echo odd; exit 3", "the CUDA source must compile; got odd"),
        ("exit 3", "the CUDA source must compile; got exit status 3"),
        ("exit 0", "the CUDA source must compile; got exit status 0"),
        ("echo \"nvcc error   : 'cicc' died due to signal 9\"; exit 1", "'cicc' died due to signal 9"),
        ("kill -9 $$", "the CUDA compiler must end by itself; got killed by signal 9"),
        ("echo text > $OUT", "a cubin must be a whole ELF file for CUDA"),
    ],
)
def test_a_compiler_that_fails_says_how(nvcc: FakeNvcc, line: str, message: str) -> None:
    nvcc.does(line)
    with pytest.raises(BuildError, match=message):
        compile_cubin("source", "sm_90", cache=None)


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_timeout_ends_the_compiler_and_its_passes(nvcc: FakeNvcc, tmp_path: Path) -> None:
    nvcc.does(f"sleep 60 & echo $! > {shlex.quote(str(tmp_path / 'pid'))}; wait")
    started = monotonic()
    told = r"the CUDA compiler must end within 2 s; got it was killed\. Pass a larger"
    with pytest.raises(BuildError, match=told):
        compile_cubin("source", "sm_90", cache=None, timeout=2)
    assert monotonic() - started < 30
    pid = int((tmp_path / "pid").read_text())
    while _alive(pid) and monotonic() - started < 30:
        sleep(0.05)
    assert not _alive(pid)


def test_threads_share_the_cache(nvcc: FakeNvcc, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(compile_cubin, f"{i % 4}", "sm_90", cache=tmp_path / "kept") for i in range(32)]
        assert len({job.result() for job in jobs}) == 1
    assert 4 <= nvcc.runs <= 32
    assert sorted(path.suffix for path in (tmp_path / "kept").iterdir()) == [".kept"] * 4


def test_processes_share_the_cache(nvcc: FakeNvcc, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from dietlab.targets.cuda.lowering.nvcc import compile_cubin\n"
        "for i in range(8): print(compile_cubin(str(i % 4), 'sm_90', cache=Path(sys.argv[1])).code_hash)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "kept")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [child.communicate(timeout=60)[0].split() for child in children]
    assert [len(lines) for lines in printed] == [8, 8, 8]
    assert len({code_hash for lines in printed for code_hash in lines}) == 1
    assert sorted(path.suffix for path in (tmp_path / "kept").iterdir()) == [".kept"] * 4
    assert 4 <= nvcc.runs <= 12


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Python packages, the only place where a compiler could be."""
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return tmp_path / "packages"


def test_without_a_compiler_the_remedy_is_told(packages: Path) -> None:
    told = r"a CUDA compiler must be installed; .* pip install nvidia-cuda-nvcc"
    with pytest.raises(MissingDependencyError, match=told):
        require_compiler()
    with pytest.raises(MissingDependencyError):
        compile_cubin("source", "sm_90")


def test_compilers_are_found_best_first(packages: Path, new_nvcc: NewNvcc) -> None:
    root = packages / "nvidia" / "cu13"
    for folder in ("bin", "lib", "include/cccl"):
        (root / folder).mkdir(parents=True)
    files = ("lib/libnvrtc.so.13", "lib/libnvrtc.alt.so.13", "lib/libnvrtc-builtins.so.13.0", "bin/ptxas")
    for name in files:
        (root / name).touch()
    (library,) = compilers()
    assert (library.name, library.command[-1]) == ("nvrtc", str(root / "lib" / "libnvrtc.so.13"))
    (root / "bin" / "nvcc").touch(mode=0o755)
    on_path = new_nvcc("bin")
    first, second, third = compilers()
    assert (first.command, second.command) == ((str(on_path.path),), (str(root / "bin" / "nvcc"),))
    assert third == library and require_compiler() == first
    assert first.includes == ()
    assert second.includes == (str(root / "include"), str(root / "include" / "cccl"))
    included = [f"-I{path}" for path in second.includes]
    assert second.flags("sm_90", fast_math=True)[-3:] == ("--use_fast_math", *included)


NVRTC = """
#include <stddef.h>
#include <string.h>
static char source[256], told[256];
static int program;
static const unsigned char made[] = {%s};
int nvrtcVersion(int* major, int* minor) { *major = 13; *minor = 2; return 0; }
const char* nvrtcGetErrorString(int code) { return code == 6 ? "NVRTC_ERROR_COMPILATION" : "other"; }
int nvrtcCreateProgram(void** p, const char* text, const char* name, int n, void* headers, void* names) {
  strncpy(source, text, 255);
  *p = &program;
  return strcmp(name, "kernel.cu") || n || headers || names;
}
int nvrtcCompileProgram(void* p, int count, const char** flags) {
  if (p != &program || strcmp(flags[0], "-arch=sm_90")) return 1;
  strcpy(told, "ptxas info    : Compiling entry function 'k' for 'sm_90'\\n"
               "ptxas info    : Function properties for k\\n"
               "    48 bytes stack frame, 5 bytes spill stores, 6 bytes spill loads\\n"
               "ptxas info    : Used 40 registers\\n");
  if (!strstr(source, "wrong")) return 0;
  strcpy(told, "kernel.cu(1): error: wrong\\n");
  return 6;
}
int nvrtcGetProgramLogSize(void* p, size_t* size) { *size = strlen(told) + 1; return p != &program; }
int nvrtcGetProgramLog(void* p, char* to) { strcpy(to, told); return p != &program; }
int nvrtcGetCUBINSize(void* p, size_t* size) { *size = sizeof made; return p != &program; }
int nvrtcGetCUBIN(void* p, char* to) { memcpy(to, made, sizeof made); return p != &program; }
"""


def test_nvrtc_compiles_where_no_nvcc_is(
    packages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linker = shutil.which("cc", path=os.defpath)
    if linker is None:
        pytest.skip("no C compiler is installed to build a stand-in for NVRTC")
    library = packages / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12"
    library.parent.mkdir(parents=True)
    (tmp_path / "nvrtc.c").write_text(NVRTC % ",".join(map(str, fake_cubin(stack=48))))
    monkeypatch.setenv("PATH", os.defpath)
    subprocess.run([linker, "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvrtc.c")], check=True)
    assert require_compiler().name == "nvrtc"
    assert require_compiler().version().startswith("nvrtc 13.2, ")
    built = compile_cubin("right", "sm_90", cache=tmp_path / "kept")
    assert built == compile_cubin("right", "sm_90", cache=tmp_path / "kept")
    assert (built.kernels["k"].registers, built.kernels["k"].spill_bytes) == (40, 11)
    with pytest.raises(BuildError, match=r"got kernel\.cu\(1\): error: wrong"):
        compile_cubin("wrong", "sm_90", cache=None)
    library.write_text("no library")
    with pytest.raises(BuildError, match=r"the CUDA source must compile; got nvrtc: error: .*libnvrtc"):
        compile_cubin("another", "sm_90", cache=None)

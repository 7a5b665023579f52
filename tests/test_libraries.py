"""Libraries that are damaged, of other versions or machines; and several processes that build one."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, cli
from schemes import cpu_scheme

from dietlab.base.errors import BuildError, DietlabError, DispatchError
from dietlab.base.files import remedy_of
from dietlab.lower import compiler, program
from dietlab.lower.target import lower_target
from dietlab.machine import Hardware, instruction_sets
from dietlab.machine.instruction_sets import FAMILIES, Requirements
from dietlab.machine.system import flags
from dietlab.problem import Dense, Dim
from dietlab.scheme import Leaf, Scheme
from dietlab.targets.cuda import lowering as cuda_lower
from dietlab.targets.cuda import machine as detect_gpu
from dietlab.tuning import Dispatcher, Operator, build, load
from dietlab.tuning.operator import lock_of

HERE = Hardware.detect(measure=False).with_cores(1)
WORK = Dense(T=Dim(1, 40), N=64, K=32)


def dispatcher(hardware: Hardware = HERE, work: Dense = WORK, unit: str = "fma") -> Dispatcher:
    return Dispatcher(work, hardware, (cpu_scheme(4, hardware.limits.lanes, unit=unit),), Leaf(0))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build(dispatcher(), folder)
    return folder / "library"


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "library")
    return tmp_path / "library"


def manifest(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return found


def change(folder: Path, **fields: Any) -> None:
    (folder / "manifest.json").write_text(json.dumps({**manifest(folder), **fields}))


# A whole library


@pytest.mark.parametrize("size", [0, 1, 63, 5000, -1])
def test_library_that_was_cut_is_refused_and_not_opened(copy: Path, size: int) -> None:
    data = (copy / "library.so").read_bytes()
    (copy / "library.so").write_bytes(data[:size])
    with pytest.raises(DispatchError, match=rf"file_bytes of its manifest, {len(data)}; got .* with \d+"):
        load(copy)


def test_library_of_the_same_size_with_other_bytes_is_refused(copy: Path) -> None:
    data = bytearray((copy / "library.so").read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)  # what a crash of the machine leaves
    (copy / "library.so").write_bytes(data)
    with pytest.raises(DispatchError, match="with the SHA-256 of its manifest"):
        load(copy)


@pytest.mark.parametrize(
    "name", ["workload", "hardware", "schemes", "micro_kernels", "packs", "file_bytes", "versions", "needs"]
)
def test_manifest_without_a_field_is_refused_by_its_name(copy: Path, name: str) -> None:
    left = {field: value for field, value in manifest(copy).items() if field != name}
    (copy / "manifest.json").write_text(json.dumps(left))
    with pytest.raises(DispatchError, match=rf"all of its fields; got .*json without {name}\. Build"):
        load(copy)
    with pytest.raises(DispatchError, match=name):
        Operator(copy, left)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"schemes": "all"}, "the field schemes .* must be of type list; got .*'all'"),
        ({"file_bytes": "30000"}, "the field file_bytes .* of type int"),
        ({"file_bytes": True}, "the field file_bytes .* of type int"),
        ({"versions": None}, "the field versions .* of type dict"),
        ({"workload": {}}, "operator|field"),
        ({"workload": {"operator": "dense"}}, "the field|dimension|no 'T'"),
        ({"hardware": {"kind": "cpu", "name": "x"}}, "all its fields; got .*no 'cores'"),
        ({"hardware": {"kind": "cpu", "name": "x", "cores": "two"}}, "all its fields; got .*two"),
        ({"hardware": {"kind": "npu", "name": "x", "cores": 1}}, "the target is"),
        ({"requires": {"machine": "x86_64"}}, "all its fields; got .*no 'instructions'"),
        ({"requires": {"machine": "x86_64", "instructions": "avx", "arch": ""}}, "all its fields"),
        ({"requires": {"machine": "x86_64", "instructions": [1], "arch": ""}}, "all its fields"),
        ({"requires": 3}, "all its fields"),
    ],
)
def test_manifest_with_a_field_of_another_type_is_refused(
    copy: Path, fields: dict[str, Any], complaint: str
) -> None:
    change(copy, **fields)
    with pytest.raises(DietlabError, match=complaint):
        load(copy)


def test_library_in_the_working_folder_is_found_and_refused_alike(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy)
    assert load(".").facts == load("library.so").facts == load(copy).facts
    change(copy, file_bytes=3)
    with pytest.raises(DispatchError, match=r"file_bytes of its manifest, 3; got library\.so"):
        load(".")


# Versions


@pytest.mark.parametrize("version", ["0.0.1", "0.1.14.post2", None])
def test_library_of_another_tvm_ffi_is_refused(copy: Path, version: str | None) -> None:
    """Its interface changed in a post release, so that nothing but the same version is known to fit."""
    versions = {**manifest(copy)["versions"], "apache-tvm-ffi": version}
    change(copy, versions={name: told for name, told in versions.items() if told})
    remedy = f"pip install apache-tvm-ffi=={version}" if version else "Build it again"
    with pytest.raises(DispatchError, match=rf"apache-tvm-ffi that it was built with.*; got .*{remedy}"):
        load(copy)


def test_runtime_of_another_version_is_refused_where_a_library_needs_it(copy: Path) -> None:
    versions = {**manifest(copy)["versions"], "apache-tvm": "0.26.0"}
    change(copy, versions=versions)
    load(copy)  # one core calls nothing of it
    change(copy, needs=["libtvm_ffi.so", "libtvm_runtime.so"])
    with pytest.raises(DispatchError, match=r"the apache-tvm that it was built with, 0\.26\.0; got apa"):
        load(copy)


# Other machines


def described(llvm_cpu: str, vector_bytes: int, registers: int) -> Hardware:
    limits = replace(HERE.limits, llvm_cpu=llvm_cpu, vector_bytes=vector_bytes, vector_registers=registers)
    return replace(HERE, name=f"a {llvm_cpu}", limits=limits)


def test_manifest_says_which_instructions_the_code_may_use(built: Path) -> None:
    requires = manifest(built)["requires"]
    family = next(family for family in FAMILIES if family.llvm_cpu == HERE.limits.llvm_cpu)
    assert requires["machine"] == family.machine and requires["arch"] == ""
    assert set(requires["instructions"]) == family.instructions <= flags()


@pytest.mark.skipif("xop" in flags(), reason="this processor has XOP")
def test_library_for_another_processor_is_refused_by_the_instructions_it_lacks(tmp_path: Path) -> None:
    """It was built here all the same: only what calls it is refused."""
    op = build(dispatcher(described("bdver1", 32, 16)), tmp_path)
    assert op.facts["kernels"] == 1 and {"fma4", "xop"} <= set(op.manifest["requires"]["instructions"])
    w, x = np.ones((64, 32), np.float32), np.ones((3, 32), np.float32)
    for called in (lambda: op.pack(w), lambda: op(x, w), lambda: op.scheme(3)):
        with pytest.raises(DispatchError, match=r"is for a bdver1; got a processor.* without .*fma4.*xop"):
            called()
    for path in (tmp_path, tmp_path / "library", tmp_path / "library" / "library.so"):
        with pytest.raises(DispatchError, match=r"fma4, .*xop.*tune and build for this one"):
            load(path)
    assert re.search(r"MISS .*library.*fma4.*xop", cli("doctor", tmp_path, exits=1).output)


def test_what_the_system_keeps_from_a_process_is_lacking(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine that shows no AVX, a kernel without its registers; the name of the processor says
    nothing of it."""
    monkeypatch.setattr(instruction_sets, "flags", lambda: flags() - {"avx2", "asimd"})
    with pytest.raises(DispatchError, match=r"a processor, or a system, without (avx2|asimd)"):
        load(copy)
    monkeypatch.setattr(instruction_sets, "flags", lambda: flags() | {"another"})
    load(copy)


def test_machine_of_another_kind_is_lacking(copy: Path) -> None:
    change(copy, requires={"machine": "riscv64", "instructions": [], "arch": ""})
    with pytest.raises(DispatchError, match=r"got a processor of \w+, not of riscv64"):
        load(copy)


def test_amx_is_lacking_where_the_system_does_not_permit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    amx = Requirements("x86_64", frozenset({"amx_int8", "amx_tile"}))
    monkeypatch.setattr(instruction_sets.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(instruction_sets, "flags", lambda: amx.instructions)
    for permitted in (True, False):
        monkeypatch.setattr(instruction_sets, "amx_permitted", lambda permitted=permitted: permitted)
        told = amx.lacking()
        assert (told == "") == permitted and (permitted or "does not let this process use AMX" in told)
    # One that computes float32 on the same processor asks for none.
    assert not Requirements("x86_64", frozenset()).lacking()


@pytest.mark.skipif("amxint8" not in HERE.limits.units("int8"), reason="this processor has no AMX")
def test_library_asks_for_amx_if_its_schemes_multiply_with_it(tmp_path: Path) -> None:
    work = Dense(T=Dim(1, 40), N=64, K=64, dtype="int8")
    for unit, key in (("amxint8", "16x32.u16.ws.p0.amxint8.even"), ("vnni", "4x32.u1.ws.p0.vnni.even")):
        scheme = Scheme.from_key(key)
        op = build(replace(dispatcher(work=work), schemes=(scheme,)), tmp_path / unit)
        asked = {name for name in op.manifest["requires"]["instructions"] if name.startswith("amx")}
        assert asked == ({"amx_tile", "amx_int8"} if unit == "amxint8" else set())


def test_earlier_manifests_say_it_by_their_processors_family(copy: Path) -> None:
    """They have neither ``requires`` nor ``digest``."""
    old = {name: value for name, value in manifest(copy).items() if name not in ("requires", "digest")}
    (copy / "manifest.json").write_text(json.dumps(old))
    op, w = load(copy), np.ones((64, 32), np.float32)
    np.testing.assert_array_equal(op(np.ones((3, 32), np.float32), w), np.full((3, 64), 32, np.float32))
    other = "generic" if HERE.limits.llvm_cpu != "generic" else "haswell"
    for llvm_cpu, told in ((other, "a processor of"), ("bdver1", "a library for bdver1 that does not say")):
        hardware = {**old["hardware"], "limits": {**old["hardware"]["limits"], "llvm_cpu": llvm_cpu}}
        (copy / "manifest.json").write_text(json.dumps({**old, "hardware": hardware}))
        with pytest.raises(DispatchError, match=told):
            load(copy)


GPUS = {name: Hardware.preset(name) for name in ("t4", "a100", "rtx3090", "h100")}


RUNS = {
    "sm_75": {"t4"},
    "sm_80": {"a100", "rtx3090"},
    "sm_86": {"rtx3090"},
    "sm_90": {"h100"},
    "sm_90a": {"h100"},
    "sm_100a": set(),
    "sm_120": set(),
}


def test_gpus_run_code_of_their_major_capability() -> None:
    assert {arch: {n for n, gpu in GPUS.items() if gpu.limits.runs(arch)} for arch in RUNS} == RUNS


def test_library_for_another_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    hopper = Requirements(instruction_sets.platform.machine(), frozenset(), "sm_90a")
    lacking: Callable[..., str] = lower_target("cuda").lacking
    old = GPUS["h100"].to_json()
    for present, told in (
        (("t4", "a100"), f"no GPU that runs code for sm_90a, but {GPUS['t4'].name} with sm_75"),
        (("t4", "h100"), ""),
        ((), ""),  # loading says what is missing
    ):
        monkeypatch.setattr(cuda_lower, "detect_gpus", lambda present=present: [GPUS[p] for p in present])
        found = lacking(hopper, old, ())
        assert found.startswith(told) and bool(found) == bool(told)
    monkeypatch.setattr(cuda_lower, "detect_gpus", lambda: [GPUS["t4"]])
    if instruction_sets.platform.machine() == "x86_64":
        assert "sm_90a" in lacking(None, old, ())
    assert detect_gpu.detect_gpus() == [] or shutil.which("nvidia-smi")


# Several processes


def _build(folder: str, barrier: Any, number: int) -> None:
    barrier.wait()
    op = build(dispatcher(), folder)
    x, w = np.full((3, 32), number, np.float32), np.ones((64, 32), np.float32)
    np.testing.assert_array_equal(op(x, w), np.full((3, 64), 32 * number, np.float32))


def test_processes_that_build_into_one_folder_take_turns(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    children = [context.Process(target=_build, args=(str(tmp_path), barrier, n)) for n in (1, 2, 3)]
    for child in children:
        child.start()
    for child in children:
        child.join(300)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert sorted(os.listdir(tmp_path / "library")) == ["library.so", "manifest.json"]
    load(tmp_path)


def test_who_waited_takes_the_library_that_it_would_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["dietlab.tuning.build"]
    first, compiled, compile_plans = build(dispatcher(), tmp_path), [], program.compile_plans
    counted = lambda *a, **k: compiled.append(1) or compile_plans(*a, **k)  # noqa: E731
    monkeypatch.setattr(program, "compile_plans", counted)

    monkeypatch.setattr(module, "turn", lambda *_: nullcontext(True))
    assert build(dispatcher(), tmp_path).manifest == first.manifest and not compiled
    for changed, every in ((dispatcher(), True), (replace(dispatcher(), expected_slowdown=1.5), False)):
        assert build(changed, tmp_path, every_plan=every).manifest != first.manifest
    assert len(compiled) == 2


def test_load_waits_for_who_is_replacing_the_library(copy: Path) -> None:
    """A file that fits its manifest only once the other has finished."""
    whole = (copy / "library.so").read_bytes()
    (copy / "library.so").write_bytes(whole[:-1])
    script = (
        "import sys; from pathlib import Path; from dietlab.base.files import turn\n"
        "lock, library = Path(sys.argv[1]), Path(sys.argv[2])\n"
        "with turn(lock, 'one at a time'):\n"
        "    print('held', flush=True); sys.stdin.buffer.readline()\n"
        "    library.write_bytes(sys.stdin.buffer.read())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock_of(copy)), str(copy / "library.so")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        assert child.stdin and child.stdout and child.stdout.readline() == b"held\n"
        child.stdin.write(b"go on\n" + whole)
        child.stdin.close()
        assert load(copy).facts["file_bytes"] == len(whole)
    (copy / "library.so").unlink()  # this process has it open: it keeps the old file
    (copy / "library.so").write_bytes(whole[:-1])
    with pytest.raises(DispatchError, match="file_bytes"):
        load(copy)  # nobody is at it


# What cannot be written


REMEDIES = {
    "Free some space": (errno.ENOSPC, errno.EDQUOT),
    "Make the folder writable": (errno.EROFS, errno.EACCES),
    "Choose another path": (errno.ENOTDIR,),
    "The system says why": (errno.EIO,),
}


@pytest.mark.parametrize(("number", "remedy"), [(n, r) for r, numbers in REMEDIES.items() for n in numbers])
def test_the_remedy_of_what_cannot_be_written_is_that_of_the_reason(
    number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(number, os.strerror(number), "x")
    assert remedy_of(error).startswith(remedy)

    def refused(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(BuildError, match=rf"the library must be writable; .*{os.strerror(number)}.*{remedy}"):
        build(dispatcher(), tmp_path / "study")


NO_SPACE = "ld: final link failed: No space left on device"
ENDED = "\ncollect2: error: ld returned 1 exit status"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (NO_SPACE + ENDED, r"the library must be writable; got .*: ld: final link .*Free some space"),
        ("ld: cannot open output file a.so: Read-only file system", "must be writable.*Make the folder"),
        ("/usr/bin/ld: cannot find -lm" + ENDED, "must link; got /usr/bin/ld: cannot find"),
    ],
)
def test_what_a_linker_says_of_the_disk_is_told(said: str, told: str, tmp_path: Path) -> None:
    class Module:
        def export_library(self, *_: object, **__: object) -> None:
            raise RuntimeError(f"Compilation error:\n{said}\n\nCommand line: g++ -shared -o a.so")

    with pytest.raises(BuildError, match=told) as raised:
        compiler.export(Module(), tmp_path / "a.so", "g++")
    assert "Command line" not in str(raised.value)

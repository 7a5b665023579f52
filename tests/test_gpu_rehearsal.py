"""What goes to a machine with a GPU and what runs there, rehearsed on this one."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import pytest
from conftest import ROOT, python
from cuda_samples import emulated, has_driver
from gpu_machine import (
    MIB,
    Call,
    Clone,
    Machine,
    base_of,
    calls_of,
    clone_into,
    image_or_skip,
    lines_in,
    rehearsal_log,
)

from dietlab.machine import Hardware
from dietlab.measure.builders import Built
from dietlab.targets.cuda.unit import GROUPED, Unit

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIMIT_MIB = 64

TINY = "dense-tiny-*/records.jsonl"
"""The records of the bench's first task."""
"""What such a machine takes a call, in MiB: the working tree and the folders that are brought along."""
MOST_CHARACTERS = 2000
"""The longest command that such a machine takes, in characters."""
THERE = {"numpy", "pandas"}
"""What dietlab requires and every machine with PyTorch has (scipy, which xgboost requires, besides)."""


def write_wheel(folder: Path, name: str, filling: bytes) -> None:
    """Writes a wheel of one module."""
    folder.mkdir(parents=True, exist_ok=True)
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", f"SIZE = {len(filling)}\n")
        wheel.writestr(f"{name}.data/data/filling", filling)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


# Packing, with small wheels that nobody downloaded


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    made = clone_into(tmp_path_factory.mktemp("clone"))
    for name in ("first", "second"):
        write_wheel(made.folder / ".gpu-wheels", name, os.urandom(100_000))
    return made


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the other machine keeps parts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "dietlab-gpu"


def unpack(clone: Clone, part: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "scripts/gpu_unpack.sh", part]
    return subprocess.run(command, cwd=clone.folder, capture_output=True, text=True, timeout=120)


def test_printed_commands_are_what_a_shell_and_a_call_take(clone: Clone) -> None:
    done = clone.pack("--no-download", "--suite", "paper-gpu", "--", "--effort", "quick")
    assert done.returncode == 0, done.stderr
    first, last = calls_of(done.stdout)
    assert (first.brought, last.brought) == ((".gpu1",), (".gpu2", ".gpustate"))
    for call in (first, last):
        assert len(call.command) <= MOST_CHARACTERS
        subprocess.run(["sh", "-n", "-c", call.command], check=True)
        scripts = re.findall(r"scripts/\S+\.(?:sh|py)", call.command)
        assert scripts and all((clone.folder / name).is_file() for name in scripts)
    assert last.command.endswith("--dietlab 'python3 -m dietlab' -- --effort quick")
    assert "--suite paper-gpu" in last.command
    usual = calls_of(clone.pack("--no-download").stdout)
    assert "--suite first-gpu" in usual[-1].command and usual[-1].command.endswith("-m dietlab'")


def test_ready_libraries_travel_in_two_calls_beside_a_small_part(clone: Clone) -> None:
    write_wheel(clone.folder / ".gpu-wheels-ready", "runtime", os.urandom(100_000))
    libraries = clone.folder / ".gpukit" / "library.so"
    libraries.parent.mkdir()
    libraries.write_bytes(os.urandom(3 * MIB))
    done = clone.pack("--no-download", "--ready", "--", "--effort", "quick")
    assert done.returncode == 0, done.stderr
    first, second = calls_of(done.stdout)
    assert first.brought == (".gpu1", ".gpukit", ".gpulight", ".gpustate") and len(clone.parts()) == 1
    assert second.brought == (".gpu1", ".gpulib", ".gpustate")
    for call in (first, second):
        assert len(call.command) <= MOST_CHARACTERS
        subprocess.run(["sh", "-n", "-c", call.command], check=True)
    assert "kit measure .gpukit" in first.command and "--suite first-gpu" in second.command
    assert "gpu_first_light.py --ready .gpulight" in first.command
    assert second.command.endswith("--out .gpulib -- --effort quick")
    tree = sum((clone.folder / name).stat().st_size for name in clone.files()) + 3 * MIB
    assert f"libraries ({int(10 * tree / MIB) / 10} MiB)" in done.stdout
    libraries.write_bytes(b"")
    libraries.parent.rename(clone.folder / ".gpu-wheels-ready" / "kit")


def test_each_call_takes_the_working_tree_and_one_part(clone: Clone) -> None:
    """With a limit that leaves room for few bytes beside the tree, there are more parts."""
    tree = sum((clone.folder / name).stat().st_size for name in clone.files())
    assert tree > MIB and not [name for name in clone.files() if name.startswith(".gpu")]
    write_wheel(clone.folder / ".gpu-wheels", "third", os.urandom(20 * MIB))
    limit = tree // MIB + 12
    done = clone.pack("--no-download", "--limit", str(limit))
    sizes = [part.stat().st_size for part in clone.parts()]
    assert len(sizes) == len(calls_of(done.stdout)) == 3 and sum(sizes) > 20 * MIB
    assert all(tree + size <= limit * MIB for size in sizes)
    refused = clone.pack("--no-download", "--limit", str(tree // MIB + 5))
    assert refused.returncode == 2 and f"takes {tree // MIB} of {tree // MIB + 5} MiB" in refused.stderr
    (clone.folder / ".gpu-wheels" / "third-1.0-py3-none-any.whl").unlink()


def test_parts_become_packages_once_all_are_there(clone: Clone, elsewhere: Path) -> None:
    assert clone.pack("--no-download").returncode == 0
    early = unpack(clone, ".gpu2")
    assert early.returncode == 2 and "has no part 1 of 2: bring .gpu1 first" in early.stderr
    kept = unpack(clone, ".gpu1")
    assert (kept.returncode, kept.stdout) == (0, "") and "kept packages-" in kept.stderr
    done = unpack(clone, ".gpu2")
    site = Path(done.stdout.strip())
    assert done.returncode == 0 and site.parent == elsewhere, done.stderr
    assert {path.name for path in site.glob("*.py")} == {"first.py", "second.py"}
    (elsewhere / "wheels").rename(elsewhere / "other")
    assert unpack(clone, ".gpu2").stdout == done.stdout, "what is installed stays"


def test_damaged_parts_are_refused(clone: Clone, elsewhere: Path) -> None:
    assert clone.pack("--no-download").returncode == 0
    unpack(clone, ".gpu1")
    (part,) = elsewhere.glob("packages-*")
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    damaged = unpack(clone, ".gpu2")
    assert damaged.returncode == 2 and "are damaged: bring them all again" in damaged.stderr
    nothing = unpack(clone, ".gpustate")
    assert nothing.returncode == 2
    assert "no part of scripts/pack_for_gpu.sh lies in .gpustate" in nothing.stderr


def test_packing_keeps_what_was_measured(clone: Clone) -> None:
    state = clone.folder / ".gpustate" / "state.tar.gz"
    state.parent.mkdir(exist_ok=True)
    state.write_bytes(b"measured")
    assert clone.pack("--no-download").returncode == 0
    assert state.read_bytes() == b"measured"
    assert "ten minutes a command" in clone.pack("--help").stdout
    wrong = clone.pack("--sute", "llm-gpu")
    assert wrong.returncode == 2 and "there is no option --sute" in wrong.stderr


def test_all_that_dietlab_requires_is_packed_or_comes_with_pytorch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}  # type: ignore[index]
    script = (ROOT / "scripts" / "pack_for_gpu.sh").read_text()
    packed = re.search(r'^packages="(.*)"$', script, re.MULTILINE)
    assert packed and required - set(packed[1].split()) == THERE


# First light

FIRST_LIGHT = ROOT / "scripts" / "gpu_first_light.py"
SANITIZER = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
echo "========= Invalid __global__ write of size 4 bytes"
echo "========= ERROR SUMMARY: {errors} errors"
[ {errors} = 0 ] || exit 86
echo '{{"wrong": [], "error over tolerance": 0.25}}'
"""


def load_first_light() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_first_light", FIRST_LIGHT)
    assert spec and spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def first_light() -> ModuleType:
    return load_first_light()


def test_kernels_of_all_units_are_tried(first_light: ModuleType) -> None:
    assert len(first_light.CASES) == len({case.name for case in first_light.CASES})
    assert {case.unit for case in first_light.CASES} == set(get_args(Unit))
    assert {case.workload.dtype for case in first_light.CASES} == {"float32", "float16", "bfloat16"}
    h200, a100 = Hardware.preset("h200"), Hardware.preset("a100")
    for case in first_light.CASES:
        kernel = case.scheme(h200)
        assert kernel.kernel.unit == case.unit and case.fits(kernel)
        if case.unit in GROUPED:
            with pytest.raises(LookupError, match="no such micro-kernel fits sm_80"):
                case.scheme(a100)


@pytest.mark.parametrize(("errors", "status"), [(0, "ok"), (3, "failed")])
def test_what_a_checker_finds_is_a_row(
    first_light: ModuleType, errors: int, status: str, tmp_path: Path
) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(SANITIZER.format(errors=errors))
    program.chmod(0o755)
    case = first_light.CASES[0]
    built = Built(case.scheme(Hardware.preset("h200")), tmp_path / "library.so", {}, None, 1.0)
    found, details = first_light.judged(case, built, (str(program),), 60.0)
    assert found == status and details["summary"] == f"ERROR SUMMARY: {errors} errors"
    assert errors == 0 or "Invalid __global__ write of size 4 bytes" in details["reason"]
    late = first_light.judged(case, built, (str(program),), 0.0)
    assert late == ("skipped", {"reason": "the time is up"})
    program.write_text("#!/bin/sh\nsleep 60 & wait\n")
    late, why = first_light.judged(case, built, (str(program),), 0.2)
    assert late == "failed" and why["reason"].startswith("no answer in")
    missing, said = first_light.judged(case, built, (), 60.0)
    assert missing == "failed" and said["reason"].startswith("status 1")


def test_calls_that_warm_up_do_not_count(first_light: ModuleType) -> None:
    """On a clock of which every call takes a tick, and the first ones a hundred."""
    calls: list[int] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            self.at = 0

        def record(self) -> None:
            self.at = sum(calls)

        def synchronize(self) -> None: ...

        def elapsed_time(self, last: Event) -> float:
            return 1e3 * (last.at - self.at)

    torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event))
    slow = first_light.REPEATS
    assert first_light.seconds_of(torch, lambda: calls.append(100 if len(calls) < slow else 1)) == 1.0


@pytest.mark.skipif(has_driver(), reason="the rows are those of a machine without a driver")
def test_first_light_without_a_gpu_is_rows_that_say_so(tmp_path: Path) -> None:
    python(FIRST_LIGHT, "--out", tmp_path)
    rows = json.loads((tmp_path / "first_light.json").read_text())
    failed = {(row["what"], row["name"]): row["reason"] for row in rows if row["status"] == "failed"}
    assert "no driver" in failed["machine", "device"] and "no driver" in failed["kernels", "all"]
    assert ("PyTorch", "copy of 1 GiB") in failed
    assert len((tmp_path / "first_light.log").read_text().splitlines()) >= len(rows)


# The rehearsal, whose log scripts/gpu_rehearsal.sh keeps


@pytest.mark.thorough
@pytest.mark.cuda_compile
@emulated
def test_a_bench_on_lent_machines_goes_on_after_a_kill(tmp_path: Path) -> None:
    """The commands that pack_for_gpu.sh prints, literally: on a machine that is taken away in the middle of a
    search, then on another one in slices until nothing is left."""
    image, log = image_or_skip(tmp_path), rehearsal_log("bench.log", tmp_path)
    clone = clone_into(tmp_path / "clone")
    tree, state = clone.files(), clone.folder / ".gpustate"
    size = sum((clone.folder / name).stat().st_size for name in tree)

    def calls(*options: str) -> tuple[Call, ...]:
        done = clone.pack("--suite", "smoke-gpu", *options, "--", "--effort", "smoke")
        assert done.returncode == 0, done.stderr
        with log.open("a") as file:
            file.write(done.stdout)
        return calls_of(done.stdout)

    (*parts, long_slice), (*_, short_slice) = calls(), calls("--no-download", "--seconds", "15")
    assert parts and len(clone.parts()) == len(parts) + 1
    assert all(size + part.stat().st_size < LIMIT_MIB * MIB for part in clone.parts())
    first, second = (Machine(image, tmp_path / name, log) for name in ("first", "second"))

    def run(machine: Machine, call: Call, **more: Any) -> int:
        return machine.call(clone.folder, tree, call.brought, call.command, state, **more)

    assert [run(first, part) for part in parts] == [0] * len(parts)
    enough = lambda out: len(lines_in(out / "state.tar.gz", TINY)) > 5  # noqa: E731
    killed = run(first, long_slice, until=enough)
    assert killed == -9
    rows = json.loads((state / "first_light.json").read_text())
    cases = {case.name for case in load_first_light().CASES}
    assert {row["name"] for row in rows if row["what"] == "compile"} == cases
    judged = [row["status"] for row in rows if row["what"] in ("correct", "time")]
    assert "ok" in judged and "wrong" not in judged
    known = lines_in(state / "state.tar.gz", TINY)
    assert len(known) > 5 and not lines_in(state / "state.tar.gz", "rows.jsonl")[1:]

    assert run(second, short_slice) == 2, "another machine needs all parts"
    assert [run(second, part) for part in parts] == [0] * len(parts)
    statuses, seconds = [run(second, short_slice)], 15
    while statuses[-1] == 75 and len(statuses) < 12:
        seconds *= 2  # a busy machine finishes no round of a search in few seconds
        longer = short_slice.command.replace("--seconds 15 ", f"--seconds {seconds} ")
        statuses.append(run(second, Call(short_slice.brought, longer)))
    assert statuses == [75] * (len(statuses) - 1) + [0] and len(statuses) > 1
    assert lines_in(state / "state.tar.gz", TINY)[: len(known)] == known
    measured = gzip.decompress((state / "smoke-gpu.csv.gz").read_bytes()).decode().splitlines()
    shapes = 5 + 3 * 2  # lengths of one layer, and two of each of three
    assert len(measured) - 1 == 2 * shapes * 3, "two cache states, three contenders"
    with log.open() as file:
        assert "dense-tiny" in file.read()

    for machine in (first, second):
        imported = machine.imports()
        site = machine.folder / "tmp" / "dietlab-gpu"
        there = {
            "tvm": site, "xgboost": site, "click": site, "torch": image.folder / "venv",
            "numpy": image.folder / "venv", "dietlab": machine.folder / "tree",
        }  # fmt: skip
        for name, folder in there.items():
            assert imported[name].is_relative_to(folder), (name, imported[name])
        allowed = (*there.values(), machine.folder / "tmp", base_of(image))
        strange = [path for path in imported.values() if not any(path.is_relative_to(f) for f in allowed)]
        assert not strange

"""What runs a bench on a machine that is lent for ten minutes at a time: each part without a GPU."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import ROOT, cli, python
from cuda_emulation.fake_driver import StubDevice, build_driver
from cuda_samples import DENSE, emulated

from dietlab.base.errors import MissingDependencyError, StudyError
from dietlab.base.events import Event, StageAdvanced, StageFinished, TrialMeasured
from dietlab.compare.suites.run import JOURNAL
from dietlab.compare.suites.state import SECONDS_BETWEEN, StateArchive, restore
from dietlab.machine import Hardware
from dietlab.measure.local import candidates_seat
from dietlab.measure.timing.process import WorkerProcess
from dietlab.measure.timing.target import timing_target
from dietlab.targets.cuda.lowering.driver import NO_GPU
from dietlab.targets.cuda.lowering.nvcc import Compiler
from dietlab.targets.cuda.nvidia_packages import require_libraries

# NVIDIA's libraries

LOADED = """
import sys
from dietlab.targets.cuda.nvidia_packages import load_cuda_runtime
load_cuda_runtime()
import tvm
assert tvm.cuda(0).exist
print(tvm.cuda(0).device_name)
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The stub driver and the stub runtime, in a folder each."""
    folder = tmp_path_factory.mktemp("stub")
    driver, runtime = build_driver(folder, StubDevice(name="NVIDIA H200"))
    packaged = folder / "site" / "nvidia" / "cu13" / "lib" / runtime.name
    packaged.parent.mkdir(parents=True)
    return driver, runtime.rename(packaged)


@emulated
def test_the_cuda_runtime_is_found_in_nvidia_s_package(stub: tuple[Path, Path]) -> None:
    """In a process whose loader finds the stub driver alone."""
    driver, runtime = stub
    done = python("-c", LOADED, path=(ROOT, runtime.parents[3]), LD_LIBRARY_PATH=str(driver.parent))
    assert done.stdout == "NVIDIA H200\n", done.stderr


@pytest.fixture
def needy(tmp_path: Path) -> Path:
    """A library that needs a CUDA runtime that nobody has."""
    (tmp_path / "needy.so").write_bytes(b"\0libcudart.so.99\0")
    return tmp_path / "needy.so"


def test_no_cuda_runtime_is_an_error_that_says_what_to_do(needy: Path) -> None:
    with pytest.raises(MissingDependencyError) as caught:
        require_libraries(needy)
    message = str(caught.value)
    assert message.startswith("needy.so must find libcudart.so.99; got libcudart.so.99: cannot open")
    assert "pip install 'nvidia-cuda-runtime==99.*', or add the folder of libcudart.so.99 to" in message
    needy.write_bytes(b"\0libcuda.so.99\0")
    with pytest.raises(MissingDependencyError, match=r"needy.so must find libcuda.so.99; .* NVIDIA's driver"):
        require_libraries(needy)


@pytest.mark.parametrize("places", [("nvidia/cu99/lib",), ("chosen", "nvidia/cu99/lib")], ids=len)
def test_the_runtime_that_a_user_chose_comes_before_a_package_s(
    places: tuple[str, ...], needy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are damaged, so that the error names them in the order in which they were tried."""
    tried = [tmp_path / place / "libcudart.so.99" for place in places]
    for path in tried:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"no library")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "chosen"))
    told = ".*; ".join(map(str, tried))
    with pytest.raises(MissingDependencyError, match=rf"needy.so must find libcudart.so.99; got .*{told}"):
        require_libraries(needy)


WITHOUT = """
from dietlab.lower import runtime
from dietlab.targets.cuda.lowering import driver
driver.open_library = lambda name: "neither the driver nor the runtime is on this machine"
import tvm, tvm_ffi
table = tvm_ffi.get_global_func("runtime.LoadMetaDataFromJSON")('{"tvm_version": "0", "func_info": {}}')
for _ in range(2):
    module = driver.module_maker()(b"a cubin", "cubin", table, {})
    del module
print(tvm.cuda(0).exist)
try:
    tvm.runtime.empty((1,), device=tvm.cuda(0))
except Exception as error:
    print(error)
"""


def test_a_process_that_builds_without_a_driver_lives_on_and_has_no_gpu() -> None:
    """TVM asks for the device where a module is let go, and wherever a GPU is asked for."""
    exists, said = python("-c", WITHOUT).stdout.split("\n", 1)
    assert exists == "False" and NO_GPU in said


def test_nvcc_compiles_for_one_architecture_alone() -> None:
    """With -arch a later release also runs a plain pass, which lacks what an "a" has."""
    flags = Compiler("nvcc", ("nvcc",)).flags("sm_90a")
    assert "-gencode=arch=compute_90a,code=sm_90a" in flags and not any(f.startswith("-arch") for f in flags)
    assert "-arch=sm_90a" in Compiler("nvrtc", ("nvrtc",)).flags("sm_90a")


@pytest.mark.parametrize(("preset", "first"), [("h200", 180.0), ("haswell-1core", 90.0)])
def test_the_first_answer_of_a_timing_process_may_take_longer(
    preset: str, first: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It imports its libraries; a GPU's driver starts, too."""
    waited = []

    def ask(worker: WorkerProcess, request: Mapping[str, object], seconds: float) -> dict[str, object]:
        waited.append(seconds)
        return {}

    monkeypatch.setattr(WorkerProcess, "ask", ask)
    hardware = Hardware.preset(preset)
    with candidates_seat(DENSE.to_json(), hardware, seconds=60.0) as seat:
        for _ in range(2):
            seat.ask({"op": "check"})
    assert waited == [first, 60.0, 60.0] and first == 60.0 + timing_target(hardware.kind).START_SECONDS


# The state of a bench


class Hour:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """The folder of a bench in the middle of its first study."""
    folder = tmp_path / "out"
    (folder / "study" / "library").mkdir(parents=True)
    for name in (JOURNAL, "study/records.jsonl", "study/library/manifest.json", "study/model.json"):
        (folder / name).write_text("{}\n")
    for name in ("study/library/library.so", "bench.html", "lock", "study/lock", "study/model.json.new"):
        (folder / name).write_text("of this machine")
    return folder


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_state_holds_what_was_measured_and_is_unpacked_into_a_new_folder_only(
    bench: Path, tmp_path: Path
) -> None:
    path, later = tmp_path / "kept" / "state.tar.gz", tmp_path / "later"
    StateArchive(bench, path).write()
    assert restore(path, later)
    kept = ("study/records.jsonl", "study/library/manifest.json", "study/model.json")
    assert files_in(later) == {JOURNAL, *kept}
    (later / JOURNAL).write_text("further\n")
    assert not restore(path, later) and (later / JOURNAL).read_text() == "further\n"
    assert not restore(tmp_path / "none.tar.gz", tmp_path / "new") and not (tmp_path / "new").exists()
    assert files_in(path.parent) == {path.name}


def test_a_state_is_written_after_every_turn_and_stage_and_every_few_seconds_of_a_search(
    bench: Path, tmp_path: Path
) -> None:
    path, hour = tmp_path / "state.tar.gz", Hour()
    archive = StateArchive(bench, path, hour)
    trial = TrialMeasured("32x32x16.t8x8.s2", "T=1", 1.0, "ok", 1)

    def written(event: Event) -> bool:
        path.unlink(missing_ok=True)
        archive.on_event(event)
        return path.is_file()

    assert not written(trial) and not written(StageAdvanced("tune", 1))
    assert written(StageAdvanced("bench", 1)) and written(StageFinished("tune", 1.0))
    hour.now += SECONDS_BETWEEN + 1
    assert written(trial) and not written(trial)


def test_a_state_that_is_cut_off_while_it_is_written_leaves_the_one_before(
    bench: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.tar.gz"
    StateArchive(bench, path).write()
    before = path.read_bytes()
    (bench / JOURNAL).write_text("more\n" * 1000)

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "addfile", full)
        with pytest.raises(StudyError, match=r"state of a bench must be writable; got .*No space left"):
            StateArchive(bench, path).write()
    assert path.read_bytes() == before


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.tar.gz"
    path.write_bytes(b"no archive")
    with pytest.raises(StudyError, match=r"must be a file that --state wrote; got .*state.tar.gz"):
        restore(path, tmp_path / "out")
    wrong = cli("bench", "--suite", "smoke", "--out", tmp_path / "out", "--state", "state.zip", exits=2)
    assert "a state must be a .tar.gz; got 'state.zip'" in wrong.output


# Slices

SLICES = ROOT / "scripts" / "gpu_slices.sh"
PRETENDED_DIETLAB = """#!/bin/sh
echo "$*" >> {log}
case "$*" in *--pack*) exit 0 ;; esac
if [ $(wc -l < {log}) -ge {calls} ]; then exit {status}; fi
mkdir -p {out}
[ {measures} = no ] || echo row >> {out}/rows.jsonl
exit 75
"""


class Slices:
    """The script with a pretended ``dietlab``.

    Args:
        calls: the call that ends with ``status``; all before it end with status 75.
        measures: ``no`` for calls that leave no row.
    """

    def __init__(self, folder: Path, calls: int, status: int = 0, measures: str = "yes") -> None:
        self._folder, self.tool = folder, folder / "dietlab"
        self.out = folder / "out"
        facts = {
            "log": folder / "log",
            "calls": calls,
            "status": status,
            "measures": measures,
            "out": self.out,
        }
        self.tool.write_text(PRETENDED_DIETLAB.format(**facts))
        self.tool.chmod(0o755)

    def run(self, *arguments: str, command: str = "") -> subprocess.CompletedProcess[str]:
        called = ["sh", str(SLICES), "--dietlab", command or str(self.tool), "--out", str(self.out)]
        return subprocess.run([*called, *arguments], capture_output=True, text=True, timeout=60)

    @property
    def calls(self) -> list[str]:
        return (self._folder / "log").read_text().splitlines()


def test_slices_go_on_until_nothing_is_left(tmp_path: Path) -> None:
    slices = Slices(tmp_path, calls=3)
    done = slices.run("--suite", "llm-gpu", "--", "--effort", "full", "--only", "two words")
    assert done.returncode == 0, done.stderr
    call = f"bench --suite llm-gpu --out {slices.out} --seconds 330 --effort full --only two words"
    assert slices.calls == [call] * 3


def test_one_slice_says_that_something_is_left(tmp_path: Path) -> None:
    slices, state, table = Slices(tmp_path, calls=99), tmp_path / "state.tar.gz", tmp_path / "t.csv.gz"
    done = slices.run("--once", "--seconds", "9", "--state", str(state), "--pack", str(table))
    assert done.returncode == 75
    assert slices.calls == [
        f"bench --suite first-gpu --out {slices.out} --seconds 9 --state {state}",
        f"bench --out {slices.out} --pack {table}",
    ]


def test_a_command_of_several_words_runs_the_slices(tmp_path: Path) -> None:
    slices = Slices(tmp_path, calls=1)
    done = slices.run("--once", command=f"env IN_WORDS=1 sh {slices.tool}")
    assert done.returncode == 0, done.stderr
    assert slices.calls == [f"bench --suite first-gpu --out {slices.out} --seconds 330"]


def test_slices_end_with_an_error_or_when_they_lead_nowhere(tmp_path: Path) -> None:
    failed = Slices(tmp_path, calls=1, status=1)
    assert failed.run().returncode == 1 and len(failed.calls) == 1
    (tmp_path / "log").unlink()
    stuck = Slices(tmp_path, calls=99, measures="no")
    done = stuck.run()
    assert done.returncode == 75 and len(stuck.calls) == 2 and "longer --seconds" in done.stderr
    wrong = stuck.run("--sute", "paper-gpu")
    assert wrong.returncode == 2 and "there is no option --sute" in wrong.stderr
    assert "Exit status" in stuck.run("--help").stdout

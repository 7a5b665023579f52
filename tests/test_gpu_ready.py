"""Libraries that are built here and measured on a machine without a compiler: each part, and both visits."""

from __future__ import annotations

import gzip
import importlib.util
import json
import lzma
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, cli, python
from cuda_emulation.fake_driver import StubDevice, build_driver
from cuda_emulation.nvcc import write_wrapper
from cuda_samples import emulated
from gpu_machine import Call, Machine, calls_of, clone_into, image_or_skip, lines_in, mib_in, rehearsal_log
from test_gpu_rehearsal import load_first_light

from dietlab.base.errors import MeasureError, MissingDependencyError, SpaceError, StudyError
from dietlab.base.events import Event, StageAdvanced, audience
from dietlab.cli import kit as cli_kit
from dietlab.compare.study import Study
from dietlab.compare.suites import kit, suite_named
from dietlab.compare.suites.deadline import Deadline
from dietlab.compare.suites.kit import build_measured, first_round, measure, pack
from dietlab.compare.suites.studies import study_of
from dietlab.lower.target import lower_target
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner, Record, Timing, Trial, read_records
from dietlab.measure import ready as ready_module
from dietlab.measure.builders import Builders
from dietlab.measure.ready import LISTING, ReadyLibraries, pack_libraries
from dietlab.measure.record import SEARCH
from dietlab.problem import Dense, Shape
from dietlab.targets.cuda import contenders as cuda_evaluation
from dietlab.targets.cuda import driver as cuda_driver
from dietlab.targets.cuda import machine as cuda_hardware
from dietlab.targets.cuda.lowering import nvcc
from dietlab.targets.cuda.lowering.nvcc import Compiler

H200 = Hardware.preset("h200")
SUITE = suite_named("smoke-gpu").only("dense-tiny")
(TASK,) = SUITE.tasks
STUDY = "dense-tiny-132t"
FAST = Timing(blocks=2, block_seconds=0.0005)
MANY = 12
"""Candidates, more than take turns at once."""


pytestmark = pytest.mark.usefixtures("workers_are_importable")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kit of libraries that nobody can load."""
    folder = tmp_path_factory.mktemp("packed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "tests"), str(ROOT))))
        patch.setattr(ready_module, "Builders", partial(Builders, module="workers.quick_builder"))
        patch.setattr(nvcc, "FINDERS", (lambda: iter([Compiler("nvcc", ("nvcc",))]),))
        pack(SUITE, H200, folder, candidates=MANY, effort="smoke", workers=1)
    return folder


@pytest.fixture
def libraries(packed: Path, tmp_path: Path) -> ReadyLibraries:
    """A copy of the kit's libraries."""
    shutil.copytree(packed, tmp_path / "copied")
    return ReadyLibraries.open(tmp_path / "copied" / STUDY / "ready")


def good(libraries: ReadyLibraries) -> list[ready_module.Entry]:
    return [entry for entry in libraries.entries if not entry.failure]


def packed_text(libraries: ReadyLibraries, entry: ready_module.Entry) -> str:
    return lzma.decompress((libraries.folder / f"{entry.file}.xz").read_bytes()).decode()


# The folder of libraries


def test_libraries_are_read_as_they_were_packed(libraries: ReadyLibraries) -> None:
    assert (libraries.workload, libraries.hardware) == (TASK.workload, H200)
    assert len({entry.scheme for entry in libraries.entries}) == len(libraries.entries) == MANY
    for entry in good(libraries):
        assert packed_text(libraries, entry) == entry.scheme.key == entry.answer["code_hash"]
        assert entry.shapes == TASK.shapes.train.shapes and entry.seconds > 0
    refused = [entry for entry in libraries.entries if entry.failure]
    assert refused and all(e.failure[0] == "refused" and "spilled" in e.failure[1] for e in refused)  # type: ignore[index]
    files = {path.name for path in libraries.folder.iterdir()}
    assert files == {LISTING, *(f"{entry.file}.xz" for entry in good(libraries))}
    assert libraries.bytes == sum((libraries.folder / name).stat().st_size for name in files - {LISTING})


def test_each_library_is_charged_the_time_that_building_it_took(libraries: ReadyLibraries) -> None:
    entry, both = good(libraries)[0], TASK.shapes.train.shapes
    one, all_shapes = (
        libraries.built(TASK.workload, [Trial(entry.scheme, shapes)])[0] for shapes in (both[:1], both)
    )
    assert all_shapes.seconds == entry.seconds and one.seconds == entry.seconds / len(both)
    assert one.answer == entry.answer and one.failure is None


def test_a_library_that_is_damaged_or_missing_is_a_failure(libraries: ReadyLibraries) -> None:
    entries = first, second, third, fourth = good(libraries)[:4]
    files = [libraries.folder / f"{entry.file}.xz" for entry in entries]
    files[0].write_bytes(lzma.compress(b"another program"))
    files[1].unlink()
    files[3].write_bytes(files[3].read_bytes()[:-9])
    trials = [Trial(entry.scheme, entry.shapes[:1]) for entry in entries]
    with LocalRunner(H200, FAST, timer_module="workers.turns_timer", ready=libraries) as runner:
        found = {record.scheme: record for record in runner.measure(TASK.workload, trials)}
    damaged, missing, whole, cut = (found[entry.scheme] for entry in entries)
    assert [found[e.scheme].status for e in entries] == ["refused", "refused", "ok", "refused"]
    assert f"{first.file} is not the file that was packed: its SHA-256 begins with" in damaged.reason
    assert all(f"{e.file} cannot be read: " in found[e.scheme].reason for e in (second, fourth))
    assert all("bring the folder again" in record.reason for record in (damaged, missing, cut))
    assert whole.ok and (libraries.folder / third.file).read_text() == third.scheme.key, "libraries stay"


def test_only_what_was_packed_can_be_measured(libraries: ReadyLibraries) -> None:
    entry = good(libraries)[0]
    with pytest.raises(
        MeasureError, match=r"must include the scheme and the shapes; got .* on T=3\. Measure"
    ):
        libraries.built(TASK.workload, [Trial(entry.scheme, (Shape.of(T=3),))])
    other = Dense(T=4, N=8, K=8)
    with pytest.raises(MeasureError, match=r"must be of the operator to measure; got dense T=4"):
        libraries.built(other, [])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: "", "it is empty"),
        (lambda text: text.replace('"schema_version":1', '"schema_version":9'), "schema 9"),
        (lambda text: text.replace('"file":"', '"file":"../', 1), "is no name of a file in the folder"),
        (lambda text: text.replace('"digest"', '"digits"', 1), "'digest'"),
        (lambda text: "nothing\n" + text, "Expecting value"),
    ],
)
def test_a_damaged_listing_is_one_error(
    change: Callable[[str], str], told: str, libraries: ReadyLibraries
) -> None:
    listing = libraries.folder / LISTING
    listing.write_text(change(listing.read_text()))
    with pytest.raises(MeasureError) as caught:
        ReadyLibraries.open(libraries.folder)
    message = str(caught.value)
    assert message.startswith(
        "a folder of ready libraries must have a whole libraries.jsonl of schema 1; got"
    )
    assert told in message and message.endswith("`dietlab kit pack` makes one; bring it whole.")


def test_packing_without_a_compiler_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvcc, "FINDERS", ())
    with pytest.raises(MissingDependencyError, match="a CUDA compiler must be installed"):
        pack(SUITE, H200, tmp_path / "kit")
    assert not (tmp_path / "kit").exists()


def test_packing_goes_on_after_a_kill(libraries: ReadyLibraries, monkeypatch: pytest.MonkeyPatch) -> None:
    listing, before = libraries.folder / LISTING, libraries.entries
    listing.write_bytes(listing.read_bytes()[:-20])
    asked: list[Trial] = []

    class Counted(Builders):
        def built(self, workload: Any, trials: Any) -> Any:
            asked.extend(trials)
            return super().built(workload, trials)

    monkeypatch.setattr(ready_module, "Builders", partial(Counted, module="workers.quick_builder"))
    trials = [Trial(entry.scheme, entry.shapes) for entry in before]
    with audience(()).stage("pack", MANY) as progress:
        again = pack_libraries(libraries.folder, TASK.workload, H200, trials, progress, workers=1)
        assert progress.done == MANY
    assert [trial.scheme for trial in asked] == [before[-1].scheme]
    assert [entry.scheme for entry in again.entries] == [entry.scheme for entry in before]
    told = pytest.raises(MeasureError, match=r"those of dense .* for NVIDIA H200 SXM\. Pack into another")
    with audience(()).stage("pack", 0) as progress, told:
        pack_libraries(libraries.folder, TASK.workload, Hardware.preset("a100"), (), progress)


def test_schemes_that_a_user_names_are_packed_too(tmp_path: Path) -> None:
    """In addition to the search's own, where they are in the space; a name that is in none is refused."""
    study = study_of(TASK, tmp_path, H200, "smoke")
    own = [trial.scheme for trial in first_round(study, 3)]
    other = next(scheme for scheme in reversed(study.space().schemes) if scheme not in own)
    both = first_round(study, 3, [other.key, own[0].key])
    assert [trial.scheme for trial in both] == [*own, other]
    with pytest.raises(SpaceError, match=r"in the space of one of the tasks; got 128x64x16\.t16x16\.s3\. "):
        pack(SUITE, H200, tmp_path / "kit", candidates=3, schemes=["128x64x16.t16x16.s3"], effort="smoke")


# A kit on the machine with the GPU


FOUND = replace(H200, name="NVIDIA H200", source="detected")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Callable[[Hardware], None]:
    """Makes this machine's GPU another one; candidates take longer from question to question."""

    def become(found: Hardware) -> None:
        for module in (cuda_hardware, cuda_driver):
            monkeypatch.setattr(module, "detect_gpu", lambda *_: found)

    runner = partial(LocalRunner, timer_module="workers.turns_timer")
    monkeypatch.setattr(kit, "LocalRunner", runner)
    monkeypatch.setattr(cuda_evaluation, "facts", lambda: {"NVIDIA driver": "580.1"})
    become(FOUND)
    return become


def recorded(out: Path) -> tuple[Record, ...]:
    return read_records(out / STUDY / "records.jsonl").records


@pytest.mark.usefixtures("there")
def test_a_kit_becomes_a_study_of_the_gpu_that_measured_it(packed: Path, tmp_path: Path) -> None:
    out, entries = tmp_path / "out", ReadyLibraries.open(packed / STUDY / "ready").entries
    told: list[Event] = []
    listener = type("Listener", (), {"on_event": staticmethod(told.append)})()
    assert measure(packed, out, observers=[listener]) == 0
    file, shapes = read_records(out / STUDY / "records.jsonl"), TASK.shapes.train.shapes
    assert (file.hardware, file.workload, file.header["cache"]) == (FOUND, TASK.workload, "rotating")
    assert file.header["versions"]["NVIDIA driver"] == "580.1"
    measured = {(r.scheme, r.shape) for r in file.records if r.ok}
    assert measured == {(e.scheme, s) for e in entries if not e.failure for s in shapes}
    failed = [r for r in file.records if not r.ok]
    assert [r.scheme for r in failed] == [e.scheme for e in entries if e.failure]
    assert Study.open(out / STUDY).hardware == FOUND

    rounds = {str(r.asked_by): [x for x in file.records if x.asked_by == r.asked_by] for r in file.records}
    assert all(name.startswith(SEARCH) and len({r.shape for r in some}) == 1 for name, some in rounds.items())
    assert len(rounds) == 4, "two rounds a shape"
    for first, second in zip(list(rounds.values())[::2], list(rounds.values())[1::2], strict=True):
        best = min((r for r in first if r.ok), key=lambda r: r.seconds or 0.0)
        assert best.scheme in {r.scheme for r in second}, "the fastest links the rounds"
    advanced = [event.done for event in told if isinstance(event, StageAdvanced)]
    assert len(advanced) == 4 and advanced[-1] == len(measured) + len(failed)

    assert measure(packed, out) == 0 and recorded(out) == file.records, "nothing is measured twice"


@pytest.mark.usefixtures("there")
def test_a_visit_that_ends_early_is_finished_by_the_next(packed: Path, tmp_path: Path) -> None:
    now = 0.0

    class Hour:
        def on_event(self, event: Event) -> None:
            nonlocal now
            now += 10.0 * isinstance(event, StageAdvanced)

    left = measure(packed, tmp_path, observers=[Hour()], deadline=Deadline(5.0, lambda: now))
    first = recorded(tmp_path)
    assert 0 < len(first) < len({*first}) + left
    path = tmp_path / STUDY / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-30])  # a kill in the middle of a line
    assert measure(packed, tmp_path) == 0
    whole = recorded(tmp_path)
    assert whole[: len(first) - 1] == first[:-1]
    assert len({(r.scheme, r.shape) for r in whole}) == len({(r.scheme, r.shape) for r in first}) + left


def test_records_of_two_gpus_are_not_mixed(
    packed: Path, tmp_path: Path, there: Callable[[Hardware], None]
) -> None:
    assert measure(packed, tmp_path, deadline=Deadline(1e6)) == 0
    there(replace(FOUND, name="NVIDIA H100 80GB HBM3"))
    with pytest.raises(
        StudyError, match=r"must be continued on its own processor; got NVIDIA H100 80GB HBM3, .* NVIDIA H200"
    ):
        measure(packed, tmp_path)


def test_a_gpu_that_is_older_than_the_code_is_one_error(
    packed: Path, tmp_path: Path, there: Callable[[Hardware], None]
) -> None:
    there(Hardware.preset("a100"))
    told = r"the GPU must run code for sm_90a; got .*A100.* with sm_80\. Tune or"
    with pytest.raises(MeasureError, match=told):
        measure(packed, tmp_path / "out")
    assert not list(tmp_path.glob("out/*/records.jsonl"))


def test_schemes_that_a_smaller_gpu_has_no_room_for_are_left_out(
    packed: Path, tmp_path: Path, there: Callable[[Hardware], None]
) -> None:
    entries = good(ReadyLibraries.open(packed / STUDY / "ready"))
    needs = sorted(entry.scheme.kernel.threads for entry in entries)
    small = replace(FOUND, limits=replace(FOUND.limits, threads_per_block=needs[0]))
    there(small)
    assert measure(packed, tmp_path) == 0
    assert {r.scheme.kernel.threads for r in recorded(tmp_path)} == {needs[0]} and needs[-1] > needs[0]


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize(
    ("state", "told"),
    [("absent", "finds libcudart.so.13"), ("failed", "RuntimeError: the driver is too old")],
)
def test_what_timing_lacks_is_one_error(
    state: str, told: str, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where there is a driver without the CUDA runtime; every library would be refused for it."""
    monkeypatch.setenv("NEEDY_TIMER", state)
    monkeypatch.setattr(kit, "LocalRunner", partial(LocalRunner, timer_module="workers.needy_timer"))
    with pytest.raises(
        MeasureError, match=f"it must be possible to time candidates on this machine; got .*{told}"
    ):
        measure(packed, tmp_path)
    assert not recorded(tmp_path)


def test_what_is_no_kit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"a kit must have a readable kit.json; got .*kit pack` makes one"):
        measure(tmp_path, tmp_path / "out")
    (tmp_path / "kit.json").write_text('{"tasks": ["dense"]}')
    with pytest.raises(StudyError, match=r"a kit must have a readable kit\.json"):
        measure(tmp_path, tmp_path / "out")
    with pytest.raises(StudyError, match="the folder must hold studies that were measured"):
        build_measured(tmp_path)


def test_a_kit_of_which_nothing_could_be_measured_says_so(packed: Path, tmp_path: Path) -> None:
    study = Study.open(packed / STUDY)
    made = Study.create(tmp_path / STUDY, study.workload, H200, study.shapes, "smoke")
    made.folder.joinpath("records.jsonl").write_text(json.dumps({"schema_version": 1, **made.header}) + "\n")
    assert build_measured(tmp_path) == {STUDY: "no library was measured"}


@pytest.mark.usefixtures("there")
def test_the_commands_keep_the_state_and_say_what_is_left(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, early, out = (tmp_path / name for name in ("kit.tar.gz", "early.tar.gz", "out"))
    measuring = partial(cli, "kit", "measure", packed, "--state", state, "--quiet", "--out")
    late = measuring(out, "--seconds", "1e-9", exits=75)
    assert "measurements are left. The same command goes on." in late.output
    early.write_bytes(state.read_bytes())
    measuring(out)
    assert len(lines_in(state, "records.jsonl")) == 1 + len(recorded(out))
    assert "going on from" in measuring(tmp_path / "elsewhere").output
    assert recorded(tmp_path / "elsewhere") == recorded(out)

    taken: list[int] = []

    def built(folder: Path, _: Any) -> dict[str, str]:
        taken.append(len(read_records(folder / STUDY / "records.jsonl").records))
        return {STUDY: "built"}

    monkeypatch.setattr(cli_kit, "build_measured", built)
    for path in (early, state):
        assert cli("kit", "build", path, "--out", tmp_path / "lib", "--quiet").output == f"{STUDY}: built\n"
    assert taken == [0, len(recorded(out))], "a later state replaces an earlier one"

    empty = tmp_path / "empty"
    empty.mkdir()
    refused = cli("kit", "measure", empty, "--out", empty, exits=2)
    assert "a kit must have a readable kit.json" in refused.output


# The same with programs that run, on the stub driver


@dataclass(frozen=True)
class Emulated:
    """A compiler whose cubins run on a stub driver, that driver, and a kit that it compiled."""

    folder: Path
    kit: Path

    def dietlab(self, *arguments: object) -> None:
        """Runs the command where there is the driver, of TVM the runtime alone, and nothing on the PATH."""
        libraries, nothing = str(self.folder / "driver"), str(self.folder / "nothing")
        python(
            *("-m", "dietlab", *arguments), PATH=nothing, LD_LIBRARY_PATH=libraries, TVM_USE_RUNTIME_LIB="1"
        )


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, compiler: Compiler) -> Emulated:
    folder = tmp_path_factory.mktemp("machine")
    for name in ("bin", "driver"):
        (folder / name).mkdir()
    write_wrapper(folder / "bin" / "nvcc", compiler.command, [f"-I{path}" for path in compiler.includes])
    build_driver(folder / "driver", StubDevice(name="NVIDIA H200"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join((str(folder / "bin"), os.environ["PATH"])))
        pack(SUITE, H200, folder / "kit", candidates=1, effort="smoke")
    return Emulated(folder, folder / "kit")


@emulated
@pytest.mark.cuda_compile
def test_a_kit_is_measured_without_any_compiler(machine: Emulated, tmp_path: Path) -> None:
    machine.dietlab("kit", "measure", machine.kit, "--out", tmp_path)
    records = recorded(tmp_path)
    assert {record.shape["T"] for record in records} == {1, 16}
    assert all(record.ok and record.seconds and record.resources["registers"] for record in records)


def test_building_with_tvm_s_runtime_alone_is_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtvm_runtime.so").touch()
    spec = type("Spec", (), {"submodule_search_locations": [str(tmp_path)]})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    for target in ("cpu", "cuda"):
        with pytest.raises(MissingDependencyError, match=r"libtvm_compiler\.so; got its runtime alone\. pip"):
            lower_target(target).require_tools()


# Both visits, by the commands that are printed; scripts/gpu_rehearsal.sh keeps the log


@pytest.mark.thorough
@pytest.mark.cuda_compile
@emulated
def test_two_visits_need_no_compiler(tmp_path: Path) -> None:
    """The first one is taken away while it measures, and goes on elsewhere."""
    image, log = image_or_skip(tmp_path), rehearsal_log("kit.log", tmp_path)
    clone = clone_into(tmp_path / "clone")
    tree, state = clone.files(), clone.folder / ".gpustate"
    done = clone.pack("--ready", "--suite", "smoke-gpu", "--", "--effort", "smoke", "--against", "cublas")
    assert done.returncode == 0, done.stderr
    with log.open("a") as file:
        file.write(done.stdout)
    first_call, second_call = calls_of(done.stdout)
    assert mib_in(clone.folder / ".gpu1") < 14
    first, second = (Machine(image, tmp_path / name, log, compiler=False) for name in ("first", "second"))

    def here(begin: str, *more: str) -> str:
        """Runs a printed command on this machine, whose compiler is the emulator's."""
        (line,) = (line.strip() for line in done.stdout.splitlines() if line.strip().startswith(begin))
        program, *words = line.split()
        command = [sys.executable, *(["-m", program] if program == "dietlab" else []), *words, *more]
        path = os.pathsep.join((str(image.folder / "bin"), os.environ["PATH"]))
        # The store may have what the real compiler made of the same source.
        env = {**os.environ, "PYTHONPATH": str(clone.folder), "PATH": path, "HOME": str(tmp_path)}
        said = subprocess.run(command, cwd=clone.folder, env=env, capture_output=True, text=True, timeout=600)
        with log.open("a") as file:
            file.write(f"\n[here]\n$ {line} {' '.join(more)}\n{said.stdout}{said.stderr}")
        assert said.returncode == 0, said.stderr
        return said.stdout

    def run(machine: Machine, call: Call, **more: Any) -> int:
        return machine.call(clone.folder, tree, call.brought, call.command, state, **more)

    packed = here("dietlab kit pack", "--candidates", "5", "--effort", "smoke")
    assert "dense-tiny: " in packed and "for NVIDIA H200 SXM" in packed
    assert "tma float16 splits: " in here("python3 scripts/gpu_first_light.py")
    killed = run(
        first, first_call, until=lambda out: len(lines_in(out / "kit.tar.gz", f"{STUDY}/records.jsonl")) > 1
    )
    known = lines_in(state / "kit.tar.gz", f"{STUDY}/records.jsonl")
    assert killed == -9 and len(known) > 1
    assert run(second, first_call) == 0
    records = lines_in(state / "kit.tar.gz", f"{STUDY}/records.jsonl")
    assert records[: len(known)] == known and len(records) > len(known)
    rows = json.loads((state / "first_light.json").read_text())
    cases = load_first_light().CASES
    assert [row["status"] for row in rows if row["what"] == "compile"] == ["ok"] * len(cases)
    judged = [row["status"] for row in rows if row["what"] in ("correct", "time")]
    assert "ok" in judged and "wrong" not in judged

    assert f"{STUDY}: Operator(dense T=1..16 N=64 K=32" in here("dietlab kit build")
    assert run(second, second_call) == 0
    measured = gzip.decompress((state / "smoke-gpu.csv.gz").read_bytes()).decode().splitlines()
    ours = [line for line in measured if ",dietlab," in line]
    shapes = 5 + 3 * 2  # lengths of one layer, and two of each of three
    assert len(ours) == 2 * shapes and all(",True," in line for line in ours), "two cache states"
    facts = json.loads((state / "smoke-gpu.json").read_text())
    assert facts["studies"][0]["library"]
    for machine in (first, second):
        assert machine.imports()["tvm"].is_relative_to(machine.folder / "tmp" / "dietlab-gpu")
        assert not list((machine.folder / "tmp").rglob("libtvm_compiler*"))

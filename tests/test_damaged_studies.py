"""Damaged files of a study: each error names the file, and its remedy works."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dietlab.base.errors import DispatchError, RecordError, StudyError
from dietlab.cli import main
from dietlab.compare.study import Study, read_facts
from dietlab.cost import Prior
from dietlab.machine import Hardware
from dietlab.measure import Record, RecordFile, SyntheticRunner, read_records, write_compressed
from dietlab.measure.record import LEAST_SECONDS, MOST_SECONDS
from dietlab.measure.record_files import check_records
from dietlab.problem import Dense, Dim, Shape, ShapeSet
from dietlab.scheme import Scheme
from dietlab.targets.cpu.limits import CpuLimits
from dietlab.tuning import load

WORK = Dense(T=Dim(1, 8), N=32, K=16)
SHAPES = ShapeSet.uniform(WORK, 4)
LINE = 4
"""The line of the records that the tests damage, from 1."""


def dietlab(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, here: Hardware) -> Path:
    """A study with synthetic times."""
    study = Study.create(tmp_path_factory.mktemp("tuned") / "s", WORK, here, SHAPES, "smoke")
    study.tune(SyntheticRunner(here))
    study.dispatch()
    return study.folder


@pytest.fixture
def study(tuned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tuned, tmp_path / "study"))


def refused(command: str, study: Path, *said: str) -> None:
    """Checks that a command ends with one line that says this."""
    done = dietlab(command, study, "--quiet")
    assert done.exit_code == 2 and isinstance(done.exception, SystemExit), done.exception
    (line,) = done.stderr.splitlines()
    assert all(part in line for part in said), line


def changed_record(study: Path, **fields: Any) -> None:
    path = study / "records.jsonl"
    lines = path.read_text().splitlines()
    lines[LINE - 1] = json.dumps({**json.loads(lines[LINE - 1]), **fields})
    path.write_text("\n".join(lines) + "\n")


RECORD_FAULTS: list[dict[str, Any]] = [
    *({name: value} for name in ("seconds", "cached_seconds") for value in (-1, 0, 1e-30, 1e9, True, "1e-7")),
    *({"seconds": value} for value in (float("nan"), float("inf"), [1.0])),
    {"spread": float("nan")},
    {"spread": "0.1"},
    {"spread": -5},
    *({"code_bytes": value} for value in (-3, 1.5, "7", True)),
    *({"at": value} for value in ("yesterday", "2026-13-01T00:00:00+00:00")),
    {"status": "okay"},
    {"phases": {"compile": "x"}},
    {"phases": {"lunch": 1.0}},
    {"phases": 5},
    {"resources": {"registers": "x"}},
    {"reason": 3},
    {"at": None},
    {"scheme": "foo"},
    {"scheme": 5},
    {"scheme": "128x64x16.t16x16.s3.even"},
    *({"scheme": f"{rows}x32.u1.ws.p0.even"} for rows in (999, 10**30)),
    {"asked_by": "Search"},
    *(
        {"shape": shape}
        for shape in ({"T": 99}, {"T": 1.5}, {"T": 0}, {"T": -3}, {"T": "3"}, {"T": True}, {"N": 3}, {}, [1])
    ),
]


@pytest.mark.parametrize("fields", RECORD_FAULTS, ids=str)
def test_a_record_that_cannot_be_is_named_by_file_and_line(fields: dict[str, Any], study: Path) -> None:
    changed_record(study, **fields)
    refused("dispatch", study, f"{study / 'records.jsonl'}, line {LINE}: ", "Remove the line")
    assert dietlab("records", "check", study).exit_code == 2


def test_a_scheme_that_no_processor_holds_is_refused_with_its_registers(study: Path, here: Hardware) -> None:
    """Plans of a thousand heights were searched for minutes. What exceeds the registers a little is read."""
    records, limits = study / "records.jsonl", here.limits_as(CpuLimits, "")
    vectors, most = 32 // limits.lanes, limits.vector_registers
    for rows, fits in ((999, False), (2 * most // vectors + 1, False), (most // vectors, True)):
        changed_record(study, scheme=f"{rows}x32.u1.ws.p0.even")
        if fits:
            assert read_records(records).records
            continue
        needed = (rows + 1) * vectors + 1
        with pytest.raises(
            RecordError, match=rf"fit the vector registers; got .* {needed} of {most} registers"
        ):
            read_records(records)


def test_a_line_that_is_removed_is_measured_again(study: Path, here: Hardware) -> None:
    path, before = study / "records.jsonl", read_records(study / "records.jsonl").records
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: LINE - 1] + lines[LINE:]))
    assert dietlab("dispatch", study).exit_code == 0
    Study.open(study).tune(SyntheticRunner(here))
    pairs = {(record.scheme, record.shape) for record in read_records(path).records}
    assert pairs >= {(record.scheme, record.shape) for record in before}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
RECORD = Record(Scheme.from_key("8x32.u1.ws.p0.even"), Shape.of(T=1), "ok", seconds=1e-6).to_json()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(field=st.sampled_from([*RECORD, "cached_seconds", "asked_by", "device", "resources"]), value=JSON)
def test_any_value_of_a_field_is_a_record_or_a_record_error(field: str, value: Any) -> None:
    try:
        found = Record.from_json({**RECORD, field: value})
    except RecordError:
        return
    assert found.seconds is None or LEAST_SECONDS <= found.seconds <= MOST_SECONDS
    assert Record.from_json(found.to_json()) == found or field == "spread"


@pytest.mark.parametrize(
    "fields",
    [
        {"workload": {**WORK.to_json(), "N": 64}},
        {"workload": None},
        {"hardware": {}},
        {"workload": {"operator": "dense"}},
    ],
    ids=str,
)
def test_records_of_another_origin_make_no_study(fields: dict[str, Any], study: Path) -> None:
    path = study / "records.jsonl"
    header, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(header), **fields}) + "\n" + rest)
    refused("dispatch", study, str(path))


HEADER_FAULTS: list[dict[str, Any]] = [
    *({name: value} for name in ("workload", "hardware", "versions", "lowering") for value in (7, "x", [])),
    *({"cache": value} for value in ("cold", 3, [])),
    *({"lowering": {"short_rows": value}} for value in (-1, 1.5, True, "32")),
    {"lowering": {"prefetch_all_from": float("nan")}},
    {"lowering": {"long_rows": 1}},
]


@pytest.mark.parametrize("fields", HEADER_FAULTS, ids=str)
def test_a_wrong_header_is_refused_when_the_file_is_read(fields: dict[str, Any], study: Path) -> None:
    path = study / "records.jsonl"
    header, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(header), **fields}) + "\n" + rest)
    refused("dispatch", study, f"{path}, line 1: ")
    for command in ("summary", "check"):
        done = dietlab("records", command, study)
        assert done.exit_code == 2 and f"{path}, line 1: " in done.stderr


@pytest.mark.parametrize("at", ["", "2026-11-28", "2026-11-28T09:30:00Z", "2026-11-28T09:30:00+01:00"])
def test_a_record_may_have_any_time_of_iso_8601(at: str) -> None:
    assert Record.from_json({**RECORD, "at": at}).at == at


TREE_FAULTS: list[Any] = [
    *({"dim": value} for value in ("Q", "N", 5)),
    *({"at_most": value} for value in ("4", 4.0, True, 0, 1 << 63)),
    *({"low": value} for value in (True, "0", -1, 99, None, [], {}, {"dim": "T"})),
    *(True, "0", 1.0, 99, -1, None, []),
]


@pytest.mark.parametrize("fault", TREE_FAULTS, ids=str)
def test_a_wrong_tree_is_trained_again(fault: Any, study: Path) -> None:
    path = study / "dispatcher.json"
    value = json.loads(path.read_text())
    assert isinstance(value["tree"], dict)
    tree = {**value["tree"], **fault} if isinstance(fault, dict) else fault
    path.write_text(json.dumps({**value, "tree": tree}))
    refused("build", study, str(path), "`dietlab dispatch STUDY` trains it again")
    trained(study)
    assert Study.open(study).dispatcher()


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("nonsense", "a scheme's key reads like 8x32"),
        ("200x64.u4.ws.p0.even", "fit the vector registers; got 200x64"),
        ("128x64x16.t16x16.s3.even", "must have schemes for "),
    ],
)
def test_a_scheme_that_does_not_fit_is_trained_again(key: str, complaint: str, study: Path) -> None:
    path = study / "dispatcher.json"
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "schemes": [key, *value["schemes"][1:]]}))
    refused("build", study, str(path), complaint, "dietlab dispatch")
    trained(study)
    assert Study.open(study).dispatcher()


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("workload", Dense(T=Dim(1, 8), N=64, K=16).to_json()),
        ("workload", Dense(T=Dim(1, 16), N=32, K=16).to_json()),
        ("hardware", {"cores": 2}),
        ("hardware", {"limits": {"llvm_cpu": "generic"}}),
    ],
    ids=str,
)
def test_a_dispatcher_of_another_study_is_not_built(part: str, changed: dict[str, Any], study: Path) -> None:
    path = study / "manifest.json"
    own = path.read_text()
    value = json.loads(own)
    limits = {**value["hardware"]["limits"], **changed.get("limits", {})}
    value[part] |= {**changed, "limits": limits} if part == "hardware" else changed
    path.write_text(json.dumps(value))
    refused("build", study, str(study / "dispatcher.json"), part, f"`dietlab dispatch {study}`")
    path.write_text(own)
    assert Study.open(study).dispatcher()


NESTED = "[" * 40 + "]" * 40
"""A text that stands for one that is nested deeper than Python reads."""


@pytest.mark.parametrize("name", ["manifest.json", "dispatcher.json", "tuning.json", "model.json"])
def test_json_that_is_nested_too_deeply_is_refused(
    name: str, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse_nested(monkeypatch)
    (study / name).write_text(f'{{"schema_version": {NESTED}}}')
    refused("build" if name == "dispatcher.json" else "dispatch", study, str(study / name), "too deeply")


@pytest.mark.parametrize("line", [1, LINE])
def test_a_record_that_is_nested_too_deeply_is_refused(
    line: int, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse_nested(monkeypatch)
    path = study / "records.jsonl"
    lines = path.read_text().splitlines()
    lines[line - 1] = f'{{"schema_version": {NESTED}}}'
    path.write_text("\n".join(lines) + "\n")
    refused("dispatch", study, str(path))


def _refuse_nested(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the JSON reader refuse :data:`NESTED` as it refuses a text of a thousand levels."""
    loads = json.loads

    def refusing(text: str | bytes) -> Any:
        if NESTED in (text if isinstance(text, str) else text.decode()):
            raise RecursionError("maximum recursion depth exceeded while decoding a JSON array")
        return loads(text)

    monkeypatch.setattr(json, "loads", refusing)


MANIFEST_FAULTS: list[dict[str, Any]] = [
    *({name: value} for name in ("workload", "hardware") for value in ("x", {}, None, {"operator": "conv"})),
    *({"shapes": value} for value in ([], 3, {"a": 1}, [{"T": 9}])),
    {"shapes": [{"shape": {"T": 99}, "weight": 1.0, "held_out": False}]},
    {"effort": 3},
    {"effort": "x"},
    {"strategy": None},
    {"cover": "x"},
    {"cost_model": 4},
    *({"max_kernels": value} for value in ("3", -1, None)),
    *({"seed": value} for value in ("a", None)),
    {"schema_version": 99},
]


@pytest.mark.parametrize("fields", MANIFEST_FAULTS, ids=str)
def test_a_damaged_manifest_sends_to_a_new_folder(fields: dict[str, Any], study: Path) -> None:
    path = study / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    refused("dispatch", study, str(path), "in a new folder", f"--transfer-from {study / 'records.jsonl'}")


@pytest.mark.parametrize("text", [None, "", "{", "[]"])
def test_the_records_of_a_study_without_its_manifest_start_another(
    text: str | None, study: Path, tmp_path: Path, here: Hardware
) -> None:
    (study / "manifest.json").unlink() if text is None else (study / "manifest.json").write_text(text)
    refused("dispatch", study, str(study / "manifest.json"), f"--transfer-from {study / 'records.jsonl'}")
    prior = Prior.fit([read_records(study / "records.jsonl")])
    again = Study.create(tmp_path / "again", WORK, here, SHAPES, "smoke", prior=prior)
    again.tune(SyntheticRunner(here))
    assert dietlab("dispatch", again.folder).exit_code == 0


def test_settings_that_no_file_can_hold_make_no_study(tmp_path: Path, here: Hardware) -> None:
    for wrong in ({"seed": "3"}, {"max_kernels": -1}, {"cover": "every"}):
        with pytest.raises(StudyError):
            Study.create(tmp_path / "s", WORK, here, SHAPES, **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()


def removed(name: str) -> Callable[[Path], None]:
    return lambda study: (study / name).unlink()


def trained(study: Path) -> None:
    assert dietlab("dispatch", study).exit_code == 0


REMEDIES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "model.json": ("once its file is removed", removed("model.json")),
    "tuning.json": ("Remove the file: `dietlab tune` writes it again", removed("tuning.json")),
    "prior.json": ("remove a study's", removed("prior.json")),
    "dispatcher.json": ("`dietlab dispatch STUDY` trains it again", trained),
    "records.jsonl": ("move it away: `dietlab tune` then measures again", removed("records.jsonl")),
}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3"])
@pytest.mark.parametrize("name", REMEDIES)
def test_the_remedy_for_a_damaged_file_works(name: str, text: str, study: Path, here: Hardware) -> None:
    (study / name).write_text(text)
    remedy, mend = REMEDIES[name]
    if (name, text) != ("tuning.json", "{}"):  # no fact is needed
        refused("build" if name == "dispatcher.json" else "dispatch", study, str(study / name), remedy)
    mend(study)
    Study.open(study).tune(SyntheticRunner(here))
    assert dietlab("dispatch", study).exit_code == 0 and read_facts(study)["seconds"]


@pytest.mark.parametrize(
    "facts",
    [
        {"seconds": 3},
        {"seconds": {"x": 1}},
        {"seconds": {"model": "a"}},
        {"held_out_metrics": 3},
        {"choosing_seconds": "a"},
    ],
    ids=str,
)
def test_damaged_facts_are_refused(facts: dict[str, Any], study: Path) -> None:
    (study / "tuning.json").write_text(json.dumps(facts))
    refused("dispatch", study, str(study / "tuning.json"), "Remove the file")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "{}, which is not there"),
        (("other.txt",), "{} without library.so and manifest.json"),
        (("library.so",), "{} without manifest.json"),
        (("manifest.json",), "{} without library.so"),
        (("library/library.so",), "{}/library without manifest.json"),
        (("library/manifest.json",), "{}/library without library.so"),
        (("manifest.json", "library/library.so"), "{}/library without manifest.json"),
    ],
)
def test_half_a_library_is_told_by_the_half_that_lacks(
    files: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    folder = tmp_path / "x"
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    for path in (folder, folder / "other.so"):
        with pytest.raises(DispatchError, match="`dietlab build STUDY`") as raised:
            load(path)
        assert f"got {said.format(folder)}." in str(raised.value) or path.suffix


@pytest.mark.parametrize("share", [0.0, 0.2, 0.34, 1.0])
def test_a_file_with_many_failures_is_doubted(share: float, tuned: Path, tmp_path: Path) -> None:
    file = read_records(tuned / "records.jsonl")
    many = round(share * len(file.records))
    reasons = ["no space left"] * (many // 3) + ["no compiler"] * (many - many // 3)
    failed = tuple(
        replace(record, status="build_failed", seconds=None, cached_seconds=None, reason=reason)
        for record, reason in zip(file.records, reasons, strict=False)
    )
    mixed = replace(file, records=failed + file.records[many:])
    write_compressed(tmp_path / "r.jsonl.gz", file.header, mixed.records)
    done = dietlab("records", "check", tmp_path / "r.jsonl.gz")
    if share < 0.25:
        assert done.exit_code == 0 and "0 doubts" in done.stdout
        return
    assert done.exit_code == 1 and "1 doubts" in done.stdout
    assert f"  all: {many} of {len(file.records)} records failed, {many - many // 3} of them" in done.stdout
    assert "build_failed, no compiler. Mend the cause" in done.stdout
    assert not check_records(RecordFile(file.header, failed[:4]))


def test_failures_of_a_study_are_not_measured_again(tmp_path: Path, here: Hardware) -> None:
    class Broken(SyntheticRunner):
        def measure(self, workload: Any, trials: Any) -> Any:
            for number, record in enumerate(super().measure(workload, trials)):
                yield (
                    record if number % 2 else Record(record.scheme, record.shape, "build_failed", reason="x")
                )

    study = Study.create(tmp_path / "s", WORK, here, SHAPES, "smoke")
    study.tune(Broken(here))
    failed = {(r.scheme, r.shape) for r in study.run().records if not r.ok}
    study.tune(SyntheticRunner(here))
    assert failed and failed == {(r.scheme, r.shape) for r in study.run().records if not r.ok}


@pytest.mark.parametrize("group", [(), ("records",), ("kit",)])
def test_a_group_without_a_command_shows_its_help(group: tuple[str, ...]) -> None:
    done, asked = dietlab(*group), dietlab(*group, "--help")
    assert done.exit_code == 0 and done.stdout == asked.stdout and not done.stderr

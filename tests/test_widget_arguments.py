"""What widgets are given: a value, a study, a folder or a preset's name is taken; all else is refused at the
door, and a control takes what it can show."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dietlab as dl
from dietlab.base.errors import DietlabError, HardwareError, RecordError, StudyError, WorkloadError
from dietlab.compare.study import Study
from dietlab.cost import Known
from dietlab.measure import SyntheticRunner
from dietlab.view.widgets.panel import TuningPanel

DENSE = dl.Dense(T=dl.Dim(1, 64), N=64, K=32)
ZEN = dl.Hardware.preset("zen4-1core")
FEW = 2
"""The most micro-kernels of the study's library: fewer than a library has by default."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("arguments") / "study"
    made = Study.create(folder, DENSE, ZEN, dl.ShapeSet.uniform(DENSE, 4), "smoke")
    made.tune(SyntheticRunner(ZEN))
    made.dispatch(max_kernels=FEW)
    return made


# --- what is refused ------------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[], object], type[DietlabError], str]] = {
    "padding, operator": (lambda: dl.padding_explorer("dense", ZEN), WorkloadError, "got 'dense'"),
    "padding, class": (lambda: dl.padding_explorer(dl.Dense, ZEN), WorkloadError, "operator must be a value"),
    "padding, swapped": (lambda: dl.padding_explorer(ZEN, DENSE), WorkloadError, "got Hardware"),
    "padding, processor": (lambda: dl.padding_explorer(DENSE, "zen9"), HardwareError, "a preset is one of"),
    "roofline": (lambda: dl.roofline_explorer("dense", "h200"), WorkloadError, "got 'dense'"),
    "roofline, processor": (lambda: dl.roofline_explorer(DENSE, 3), HardwareError, "got 3"),
    "roofline, reports": (lambda: dl.roofline_explorer(DENSE, "h200", 3), RecordError, "got 3"),
    "tile reads": (lambda: dl.tile_reads_explorer("conv2d"), WorkloadError, "got 'conv2d'"),
    "space": (lambda: dl.space_explorer(None, ZEN), WorkloadError, "got NoneType"),
    "space, processor": (lambda: dl.space_explorer(DENSE, None), HardwareError, "got NoneType"),
    "waves": (lambda: dl.waves_explorer("dense", "h200"), WorkloadError, "got 'dense'"),
    "waves, records": (lambda: dl.waves_explorer(DENSE, "h200", 3), RecordError, "records of thread blocks"),
    "inspector": (lambda: dl.inspect_kernel("dense", ZEN, "6x16.u4.ws.p0.even"), WorkloadError, "'dense'"),
    "inspector, shape": (
        lambda: dl.inspect_kernel(DENSE, ZEN, "6x16.u4.ws.p0.even", "T=3"),
        DietlabError,
        "must be of class Shape; got 'T=3'",
    ),
    "speedups": (lambda: dl.speedup_explorer(3), RecordError, "got 3"),
    "speedups, several": (
        lambda: dl.speedup_explorer([None, None]).restore(3),
        DietlabError,
        "a state must be",
    ),
    "speedups, runs": (
        lambda: dl.speedup_explorer([], "runs/dense"),
        DietlabError,
        "must be of class Mapping",
    ),
    "panel, start": (lambda: TuningPanel(start=3), DietlabError, "a function of observers; got int"),
    "panel, interval": (lambda: TuningPanel("soon"), DietlabError, "TuningPanel.follow(study)"),
    "panel, endless": (lambda: TuningPanel(float("inf")), DietlabError, "a number from 0 on; got inf"),
    "panel, not a number": (lambda: TuningPanel(float("nan")), DietlabError, "a number from 0 on; got nan"),
    "panel, negative": (lambda: TuningPanel(-1), DietlabError, "a number from 0 on; got -1"),
    "panel, clock": (lambda: TuningPanel(0.1, 3), DietlabError, "clock of a panel must be a function; got 3"),
    "panel, title": (lambda: TuningPanel(title=3), DietlabError, "is a text; got 3"),
    "panel, followed": (lambda: TuningPanel.follow(3), StudyError, "got int"),
    **{
        f"{name}, {word}": (lambda show=show, run=run: show(run), kind, said)  # type: ignore[misc]
        for name, show in {
            "dispatch": dl.dispatch_explorer,
            "coordinates": dl.coordinates_explorer,
            "cost lab": dl.cost_lab,
            "trials": dl.trials_table,
        }.items()
        for word, run, kind, said in (
            ("number", 3, RecordError, "must be a TuningRun; got 3"),
            ("folder", "no/such/folder", StudyError, "no/such/folder"),
        )
    },
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_widget_cannot_show_is_refused_at_its_door(case: str) -> None:
    show, kind, said = WRONG[case]
    with pytest.raises(kind, match=re.escape(said)):
        show()


def test_a_study_in_place_of_an_interval_is_told_what_to_write(study: Study) -> None:
    with pytest.raises(DietlabError, match=r"TuningPanel\.follow\(study\) shows a study"):
        TuningPanel(study)  # type: ignore[arg-type]


@pytest.mark.parametrize("show", [dl.dispatch_explorer, dl.coordinates_explorer, dl.trials_table])
def test_only_a_choice_is_shared(show: Callable[..., object], study: Study) -> None:
    with pytest.raises(DietlabError, match="widgets share a Choice; got 'it'"):
        show(study, choice="it")
    if show is dl.dispatch_explorer:
        with pytest.raises(DietlabError, match="a Portfolio; got Choice"):
            show(study, dl.Choice())


# --- what is taken --------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [lambda study: study, lambda s: s.folder, lambda s: str(s.folder)])
def test_a_study_or_its_folder_stands_for_its_run(by: Callable[[Study], Any], study: Study) -> None:
    assert set(dl.trials_table(by(study)).frame["scheme"]) == {s.key for s in study.run().schemes}
    assert len(dl.coordinates_explorer(by(study)).frame) == len(study.run().schemes)
    panel = TuningPanel.follow(by(study))
    panel.close()
    assert panel.state.trials == len(study.run().measurements)


def test_the_dispatch_explorer_shows_the_tree_of_a_study(study: Study) -> None:
    tree = study.dispatcher()
    for given in (study, study.folder):
        shown = dl.dispatch_explorer(given).frame
        assert len({*tree.micro_kernels}) <= FEW
        served = {(row.T, row.scheme) for row in shown.itertuples()}
        assert served == {(T, tree.scheme(dl.Shape.of(T=T)).key) for T in shown["T"]}
    # The run alone does not know how many micro-kernels were asked for.
    whole = dl.dispatch_explorer(study.run())
    assert len(whole.controls["without"].options) > 1 + FEW


def test_a_study_and_a_preset_stand_for_operator_and_processor(study: Study) -> None:
    explorer = dl.padding_explorer(study, study)
    assert explorer.controls["T"].max == 64 and explorer.controls["cores"].value == 1
    assert dl.padding_explorer(DENSE, "zen4-1core").controls["cores"].value == 1
    assert dl.roofline_explorer(DENSE, "h200").values["study"].startswith("NVIDIA H200 SXM, one GPU")
    assert "H100" in dl.waves_explorer(DENSE, "h100").values["chip"]
    assert dl.space_explorer(study, study).frame["left"].iloc[-1] == len(study.space())


# --- controls -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"foo": 1}, "a control of the explorer must be one of T, rows, cols, edge, cores; got foo"),
        ({"row": 1}, "Did you mean 'rows'?"),
        ({"T": "a"}, "T is a whole number from 1 to 64; got 'a'"),
        ({"T": 1000}, "T is a whole number from 1 to 64; got 1000"),
        ({"T": 0}, "got 0"),
        ({"T": 2.5}, "got 2.5"),
        ({"T": None}, "got None"),
        ({"T": float("nan")}, "got nan"),
        ({"T": 7, "edge": "none"}, "edge is one of 'even', 'rest'"),
        ({"T": 7, "cores": 10**9}, "cores is a whole number from 1"),
    ],
)
def test_a_value_that_a_control_does_not_take_changes_nothing(values: dict[str, Any], said: str) -> None:
    explorer = dl.padding_explorer(DENSE, ZEN)
    before = explorer.state()
    with pytest.raises(DietlabError, match=re.escape(said)):
        explorer.set(**values)
    assert explorer.state() == before


def test_numbers_of_other_libraries_are_taken() -> None:
    explorer = dl.padding_explorer(DENSE, ZEN)
    explorer.set(T=np.int64(7), cores=np.float64(2.0))
    assert (explorer.values["T"], explorer.values["cores"]) == (7, 2)


def test_a_click_beyond_what_a_control_takes_leaves_it(tmp_path: Path) -> None:
    explorer = dl.padding_explorer(DENSE, ZEN)
    before = explorer.values
    explorer.live.clicked = {"trace": 1, "x": 10**6, "y": 3}
    assert explorer.values == before


def test_what_is_known_without_a_tuning_has_a_tree_too(study: Study) -> None:
    run = study.run()
    known = Known(run.space, run.shapes, run.records, run.predictor)
    assert dl.dispatch_explorer(known).frame.equals(dl.dispatch_explorer(run).frame)

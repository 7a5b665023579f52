"""The tuning panel: what it knows, what it draws, how it follows a study on disk, and how it drives a run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from threading import Semaphore
from threading import enumerate as enumerate_threads
from time import monotonic, sleep
from typing import Any

import nbformat
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from observed import Clock, Recorder, tuning_events
from plotly.io import from_json
from schemes import cpu_scheme

from dietlab.base.background import run_in_background
from dietlab.base.errors import DietlabError, RecordError, StudyError
from dietlab.base.events import (
    Event,
    ModelFitted,
    Observer,
    PhaseSeconds,
    RoundFinished,
    StageAdvanced,
    StageFinished,
    StageStarted,
    TrialMeasured,
    audience,
)
from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import Record, SyntheticRunner, Trial
from dietlab.problem import Dense, Dim, ShapeSet, Workload
from dietlab.view.static.saving import save
from dietlab.view.theme import PALETTE
from dietlab.view.widgets import panel_plots
from dietlab.view.widgets.panel import EMPTY, SHARE, TuningPanel
from dietlab.view.widgets.panel_follow import StudyTail
from dietlab.view.widgets.panel_plots import VIEWS
from dietlab.view.widgets.panel_state import MAX_POINTS, MAX_STAGES, TuningState

HOSTILE = "<script>alert('x')</script>"
WIDGET = "application/vnd.jupyter.widget-view+json"
WORK = Dense(T=Dim(1, 16), N=64, K=32)
SHAPES = ShapeSet.uniform(WORK, 4)
HARDWARE = Hardware.preset("haswell-1core")
SECONDS = 60
"""How long to wait for what must happen."""


def after(events: Sequence[Event], state: TuningState | None = None) -> TuningState:
    state = state or TuningState()
    for now, event in enumerate(events):
        state = state.after(event, float(now))
    return state


def trials(gflops: Sequence[float], **more: Any) -> list[Event]:
    return [
        TrialMeasured("8x48.u4.ws.p0", "T=8", value, "ok" if value else "timeout", number, **more)
        for number, value in enumerate(gflops, 1)
    ]


def wait_for(condition: Callable[[], object]) -> None:
    until = monotonic() + SECONDS
    while not condition():
        assert monotonic() < until
        sleep(0.005)


# --- the state --------------------------------------------------------------------------------


@settings(max_examples=40)
@given(count=st.integers(0, 5 * MAX_POINTS), seed=st.integers(0, 99), rare=st.booleans())
def test_a_curve_is_short_and_every_point_of_it_is_true(count: int, seed: int, rare: bool) -> None:
    random = Random(seed)
    gflops = [
        0.0 if random.random() < (0.99 if rare else 0.3) else random.uniform(1, 9) for _ in range(count)
    ]
    state = after(trials(gflops))
    points, best = state.curve.points, list(accumulate(gflops, max))
    assert min(count, MAX_POINTS // 2) <= len(points) <= MAX_POINTS
    assert all(p.gflops == gflops[p.trial - 1] and p.best_gflops == best[p.trial - 1] for p in points)
    assert all(a.trial < b.trial and a.seconds <= b.seconds for a, b in pairwise(points))
    assert max((p.gflops for p in points), default=0.0) == max(gflops, default=0.0) == state.best_gflops
    assert state.trials == count and state.failures == gflops.count(0.0)
    assert sum(o.count for o in state.outcomes.values()) == count
    assert list(panel_plots.frame_progress(state)["trial"]) == [p.trial for p in points]


def test_the_time_axis_is_what_the_trials_cost_or_the_clock() -> None:
    def seconds(events: Sequence[Event]) -> list[float]:
        return [p.seconds for p in after(events).curve.points]

    assert seconds(trials([1, 2, 3])) == [0, 1, 2]
    cost = PhaseSeconds(compile=2.0, measure=1.0)
    timed = trials([1, 2, 3], phases=cost)
    assert seconds(timed) == [3, 6, 9]
    # A round tells what the model cost; what earlier sittings measured is not this curve's.
    told = RoundFinished(1, 2, 0, 2.0, PhaseSeconds(compile=100, measure=50, model=4, search=1))
    assert seconds([*timed[:2], told, timed[2]]) == [3, 6, 14]
    state = after([*timed[:2], told, timed[2]])
    assert state.seconds == PhaseSeconds(compile=102, measure=51, model=4, search=1)


def test_each_shape_keeps_its_best_and_unchanged_parts_are_the_same_objects() -> None:
    first = after([TrialMeasured("a", "T=8", 5.0, "ok", 1), TrialMeasured("b", "T=24", 7.0, "ok", 2)])
    assert {shape: best.scheme for shape, best in first.shapes.items()} == {"T=8": "a", "T=24": "b"}
    worse = first.after(TrialMeasured("c", "T=8", 4.0, "ok", 3), 3.0)
    assert worse.shapes is first.shapes and worse.fits is first.fits
    better = worse.after(TrialMeasured("c", "T=8", 6.0, "ok", 4), 4.0)
    assert better.shapes["T=8"].scheme == "c" and better.shapes["T=8"].gflops == 6.0
    assert list(panel_plots.frame_best(better)["shape"]) == ["T=8", "T=24"]


def test_tables_of_trials_have_the_parameters_of_each_micro_kernel() -> None:
    kernels = cpu_scheme(8, 32, 4), cpu_scheme(6, 64, 2, edge="even")
    state = after([TrialMeasured(k.key, f"T={k.rows}", 5.0, "ok", n) for n, k in enumerate(kernels, 1)])
    for frame in (panel_plots.frame_progress(state), panel_plots.frame_best(state).iloc[::-1]):
        assert frame[list(kernels[0].columns)].to_dict("records") == [k.columns for k in kernels]


def test_failures_are_told_by_reason() -> None:
    state = after(
        [
            TrialMeasured("a", "T=8", 5.0, "ok", 1),
            TrialMeasured("b", "T=8", 0.0, "build_failed", 2, "no register left"),
            TrialMeasured("c", "T=8", 0.0, "build_failed", 3, "no stack left"),
            TrialMeasured("d", "T=8", 0.0, "crashed", 4, "signal 11"),
        ]
    )
    frame = panel_plots.frame_outcomes(state)
    assert frame["outcome"].tolist() == ["measured", "did not build", "crashed"]
    assert frame["count"].tolist() == [1, 2, 1] and frame["share"].tolist() == [0.25, 0.5, 0.25]
    assert frame["reason"].tolist() == ["", "no stack left", "signal 11"]
    assert state.failures == 3


def test_another_run_begins_afresh_and_a_resumed_one_counts_what_was_there() -> None:
    state = after([*trials([1, 9, 3]), *trials([4, 5])])
    assert (state.trials, state.best_gflops, len(state.curve.points)) == (2, 5, 2)
    resumed = after([StageStarted("tune", 64), TrialMeasured("a", "T=8", 5.0, "ok", 31)])
    assert resumed.trials == 31 and resumed.failures == 0
    told = resumed.after(RoundFinished(1, 31, 4, 90.0, PhaseSeconds()), 2.0)
    assert (told.failures, told.best_gflops) == (4, 90.0)


def test_ansor_counts_the_trials_of_each_shape() -> None:
    events: list[Event] = []
    for shape, counts in (("T=8", (16, 32)), ("T=24", (16, 32, 48))):
        events.append(StageStarted(f"ansor {shape}", 64, "trial"))
        for count in counts:
            status = "failed" if (shape, count) == ("T=24", 16) else "ok"
            gflops = 0.0 if status == "failed" else float(count)
            events.append(StageAdvanced(f"ansor {shape}", count, ""))
            events.append(TrialMeasured("ansor", shape, gflops, status, count))
        events.append(StageFinished(f"ansor {shape}", 3.0))
    state = after(events)
    assert state.trials == 32 + 48 and state.failures == 16 and state.best_gflops == 48
    assert {shape: best.gflops for shape, best in state.shapes.items()} == {"T=8": 32, "T=24": 48}
    assert panel_plots.frame_outcomes(state)["count"].tolist() == [64, 16]


def test_stages_and_fits_stay_few() -> None:
    state = after(
        [e for i in range(50) for e in (StageStarted(f"ansor T={i}", 4), StageAdvanced(f"ansor T={i}", 4))]
    )
    assert list(state.stages) == [f"ansor T={i}" for i in range(50 - MAX_STAGES, 50)]
    state = after([ModelFitted(i, 64 * i, {"pairwise": 0.9}) for i in range(1, 4 * MAX_POINTS)])
    rounds = [fit.round for fit in state.fits]
    assert len(rounds) <= MAX_POINTS and rounds == sorted(set(rounds))
    assert rounds[0] == 1 and rounds[-1] == 4 * MAX_POINTS - 1


# --- figures ----------------------------------------------------------------------------------


FIGURES = ("progress", "best", "outcomes", "quality", "seconds")


def test_figures_have_axes_with_units_and_say_when_there_is_nothing() -> None:
    titles = {name: VIEWS[name].plot(TuningState()) for name in FIGURES}
    axes = {name: (f.layout.xaxis.title.text, f.layout.yaxis.title.text) for name, f in titles.items()}
    assert axes == {
        "progress": ("time spent tuning (s)", "throughput (GFLOP/s)"),
        "best": ("shape (extents)", "throughput (GFLOP/s)"),
        "outcomes": ("trials (count)", "outcome"),
        "quality": ("records it was fitted on (count)", "ranking (share, 1 is perfect)"),
        "seconds": ("wall-clock time (s)", "phase"),
    }
    for name in FIGURES[:4]:
        assert titles[name].layout.annotations[0].text == "nothing was measured"


def traces(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def shown(panel: TuningPanel, name: str) -> Any:
    """A figure as the browser has it."""
    return from_json(panel._live[name].figure_json)


def test_what_is_live_is_what_is_plotted() -> None:
    panel = TuningPanel()
    for event in [*tuning_events(), ModelFitted(1, 8, {"pairwise": 0.9}), StageFinished("measure", 1.0)]:
        panel.on_event(event)
    for name in FIGURES:
        assert shown(panel, name) == VIEWS[name].plot(panel.state)


def test_progress_has_dots_crosses_and_the_best_so_far() -> None:
    figure = VIEWS["progress"].plot(after(trials([10, 0, 30, 20])))
    found = traces(figure)
    assert list(found["trial"].y) == [10, 30, 20] and list(found["failed"].x) == [1]
    assert list(found["best so far"].y) == [10, 10, 30, 30]
    assert tuple(found["failed"].customdata[0]) == (2, "8x48.u4.ws.p0", "T=8", "timeout")
    assert figure.layout.title.text == "Best micro-kernel so far: 30.0 GFLOP/s in 4 trials"
    assert "the fastest of" not in found["trial"].hovertemplate
    many = VIEWS["progress"].plot(after(trials([1.0] * (MAX_POINTS + 1))))
    assert "the fastest of 2" in traces(many)["trial"].hovertemplate


def test_shapes_stand_at_their_extents() -> None:
    state = after([TrialMeasured("a", f"T={t}", float(t), "ok", n) for n, t in enumerate((24, 8, 128), 1)])
    figure = VIEWS["best"].plot(state)
    assert list(figure.data[0].x) == [8, 24, 128] and figure.layout.xaxis.title.text == "T (extent)"
    assert figure.data[0].hovertext[0] == "T=8: 8.0 GFLOP/s<br>with a"
    two = VIEWS["best"].plot(after([TrialMeasured("a", "B=2,T=8", 5.0, "ok", 1)]))
    assert list(two.data[0].x) == ["B=2,T=8"] and two.layout.xaxis.title.text == "shape (extents)"


def test_quality_is_drawn_fit_by_fit() -> None:
    fits = [ModelFitted(n, 16 * n, {"pairwise": 0.6 + n / 10, "peak@1": 0.9, "rmse": 0.3}) for n in (1, 2)]
    state = after([*fits, ModelFitted(3, 48, {})])
    assert set(panel_plots.frame_quality(state)["metric"]) == {"pairwise", "peak@1", "rmse"}
    found = traces(VIEWS["quality"].plot(state))
    assert set(found) == {"pairwise", "peak@1"}
    few = after([ModelFitted(1, 16, {"pairs": 2.0, "peak@1": 0.9})])
    names = [trace.name for trace in VIEWS["quality"].plot(few).data]
    assert names == ["pairwise: too few pairs differ by more than the noise", "peak@1"]
    assert list(found["pairwise"].x) == [16, 32] and list(found["pairwise"].y) == pytest.approx([0.7, 0.8])


def test_a_long_run_has_small_figures() -> None:
    random, clock = Random(1), Clock()
    panel = TuningPanel(clock=clock)
    for number in range(1, 10_001):
        clock.now += 1e-4
        gflops = random.choice([0.0, random.uniform(1, 100)])
        shape, status = f"T={random.randint(1, 5000)}", "ok" if gflops else "crashed"
        panel.on_event(TrialMeasured("8x48.u4.ws.p16a.even", shape, gflops, status, number, "signal 11"))
    panel.on_event(StageFinished("tune", 1.0))
    assert panel.state.trials == 10_000 and panel.updates <= 6
    for live in panel._live.values():
        assert len(live.figure_json) < 60_000


# --- a study on disk --------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuned:
    study: Study
    live: tuple[Event, ...]

    @property
    def lines(self) -> bytes:
        return (self.study.folder / "records.jsonl").read_bytes()

    def copy(self, folder: Path, lines: bytes | None, names: Sequence[str] = ("manifest.json",)) -> Path:
        """A study of the same kind with these records, and nothing or more of the rest."""
        folder.mkdir(exist_ok=True)
        for name in names:
            shutil.copy(self.study.folder / name, folder / name)
        if lines is not None:
            (folder / "records.jsonl").write_bytes(lines)
        return folder


class Halting:
    """Synthetic times, each fifth measurement a failure, and what a measurement costs."""

    def measure(self, workload: Workload, trials: Sequence[Trial]) -> Iterator[Record]:
        phases = PhaseSeconds(compile=1.0, measure=0.25)
        for number, record in enumerate(SyntheticRunner(HARDWARE).measure(workload, trials), 1):
            if number % 5 == 0:
                record = Record(record.scheme, record.shape, "timeout", reason="too slow")
            yield replace(record, phases=phases)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    log = Recorder()
    study = Study.create(tmp_path_factory.mktemp("panel") / "s", WORK, HARDWARE, SHAPES, "smoke")
    study.tune(Halting(), [log])
    # A search of one round is judged by nothing; a longer one leaves such metrics.
    study._keep_facts(held_out_metrics={"pairs": 12, "pairwise": 0.75, "rmse": 0.1})
    return Tuned(study, tuple(log.events))


def test_a_finished_study_looks_as_its_events_did(tuned: Tuned) -> None:
    live, tail = after(tuned.live), StudyTail(tuned.study.folder)
    disk = after(tail.news())
    assert disk.shapes == live.shapes and disk.outcomes == live.outcomes and disk.counts == live.counts
    assert [p.gflops for p in disk.curve.points] == [p.gflops for p in live.curve.points]
    assert disk.failures == live.failures > 0 and disk.best_gflops == live.best_gflops > 0
    assert (disk.seconds.compile, disk.seconds.measure) == (live.seconds.compile, live.seconds.measure)
    assert disk.seconds.model >= live.seconds.model > 0 and disk.fits[-1].metrics
    assert tail.finished and tail.sentence() == "The run has finished."
    assert not disk.running and tail.news() == []


def test_a_followed_study_has_the_bars_and_one_best(tuned: Tuned) -> None:
    """The last scheme's best shape is not its first, and the stage that decides has a bar of its own."""
    live = after(tuned.live)
    panel = TuningPanel.follow(tuned.study.folder)
    best = f"best {panel.state.best_gflops:.1f} GFLOP/s"
    ours, theirs = (
        [(clock.stage, clock.done, clock.total, clock.unit) for clock in state.stages.values()]
        for state in (panel.state, live)
    )
    assert ours == theirs and list(panel.state.stages) == ["search", "decide"]
    # The card tells the best of the run, and no bar tells another one.
    assert panel.state.stages["decide"].note == best
    panel.close()
    assert f"best {cards_of(panel._headline.value)['best so far']}" == best
    bars = {"search: 8/8 schemes": (8, 8), f"decide: 24/24 measurements, {best}": (24, 24)}
    assert bars_of(panel) == bars


def test_the_models_figure_tells_why_it_is_empty_though_trials_were_measured() -> None:
    state = after([TrialMeasured("8x48", "T=1", 1.0, "ok", 1)])
    figure = VIEWS["quality"].plot(state)
    (note,) = figure.layout.annotations
    assert note.text == "no round was predicted before it was measured"


def trials_in(events: Sequence[Event]) -> list[TrialMeasured]:
    return [event for event in events if isinstance(event, TrialMeasured)]


def stages_of(events: Sequence[Event]) -> dict[str, tuple[int, str]]:
    """How far each stage is in the end, and what it noted."""
    return {name: (clock.done, clock.note) for name, clock in after(events).stages.items()}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.floats(0, 1), max_size=8))
def test_records_that_come_in_pieces_are_the_same_records(
    cuts: list[float], tuned: Tuned, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lines = tuned.lines
    folder = tuned.copy(tmp_path_factory.mktemp("pieces"), None)
    tail = StudyTail(folder)
    found = tail.news()
    assert [type(e) for e in found] == [StageStarted] and "empty" in tail.sentence()
    for end in [*sorted(int(cut * len(lines)) for cut in cuts), len(lines)]:
        (folder / "records.jsonl").write_bytes(lines[:end])
        found += tail.news()
    whole = StudyTail(tuned.copy(tmp_path_factory.mktemp("whole"), lines)).news()
    assert trials_in(found) == trials_in(whole)
    assert stages_of(found) == stages_of(whole)


def test_only_what_was_appended_is_read(tuned: Tuned, tmp_path: Path) -> None:
    lines = tuned.lines.splitlines(keepends=True)
    folder = tuned.copy(tmp_path / "s", b"".join(lines[:4]))
    tail = StudyTail(folder)
    tail.news()
    # What was read once may be lost: nobody looks at it again.
    (folder / "records.jsonl").write_bytes(b"\0" * len(b"".join(lines[:4])) + lines[4] + lines[5][:9])
    (measured,) = trials_in(tail.news())
    assert measured.trials == 4


def measured(records: Iterable[Mapping[str, Any]]) -> int:
    """The number of measurements: a synthetic one that is asked for again is the same."""
    return len({json.dumps({**record, "asked_by": ""}) for record in records})


@pytest.mark.parametrize("header", [False, True])
def test_an_empty_study_is_shown(header: bool, tuned: Tuned, tmp_path: Path) -> None:
    lines = tuned.lines.splitlines(keepends=True)[0] if header else None
    panel = TuningPanel.follow(tuned.copy(tmp_path / "s", lines))
    assert "Nothing was measured yet: the study is empty." in panel._sentence.value
    assert panel.state.trials == 0 and str(WORK) in panel._headline.value
    panel.close()


def test_a_study_of_failures_only_is_shown(tuned: Tuned, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in tuned.lines.splitlines()]
    failed = [{**line, "status": "crashed", "seconds": None, "reason": HOSTILE} for line in lines[1:]]
    text = "\n".join(json.dumps(line) for line in (lines[0], *failed)) + "\n"
    panel = TuningPanel.follow(tuned.copy(tmp_path / "s", text.encode()))
    assert "Every trial failed so far" in panel._sentence.value
    assert panel.state.failures == panel.state.trials == measured(failed)
    hover = shown(panel, "outcomes").data[0].hovertext[0]
    assert "(100.0 %): crashed<br>the last one: &lt;script&gt;" in hover
    panel.close()


def test_a_study_that_grows_is_followed_until_the_panel_is_closed(tuned: Tuned, tmp_path: Path) -> None:
    lines = tuned.lines.splitlines(keepends=True)
    folder = tuned.copy(tmp_path / "s", b"".join(lines[:4]) + lines[4][:20])
    panel = TuningPanel.follow(folder, 0.01)
    assert panel.state.trials == 3 and "Another process is tuning" in panel._sentence.value
    with (folder / "records.jsonl").open("ab") as file:
        file.write(lines[4][20:] + b"".join(lines[5:]))
    wanted = measured(json.loads(line) for line in lines[1:])
    wait_for(lambda: panel.state.trials == wanted)
    tuned.copy(folder, None, ("model.json", "tuning.json"))
    wait_for(lambda: "The run has finished." in panel._sentence.value and panel.state.fits)
    panel.close()
    wait_for(lambda: not any(thread.name == "dietlab-follow" for thread in enumerate_threads()))


def test_a_study_that_is_made_anew_is_read_anew(tuned: Tuned, tmp_path: Path) -> None:
    lines = tuned.lines.splitlines(keepends=True)
    folder = tuned.copy(tmp_path / "s", tuned.lines)
    tail = StudyTail(folder)
    state = after(tail.news())
    tuned.copy(folder, b"".join(lines[:3]))
    state = after(tail.news(), state)
    assert state.trials == len(state.curve.points) == 2


def test_long_silence_is_told(tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dietlab.view.widgets import panel_follow

    tail = StudyTail(tuned.copy(tmp_path / "s", tuned.lines))
    tail.news()
    assert tail.sentence() == "Another process is tuning this study."
    later = panel_follow.time() + 185
    monkeypatch.setattr(panel_follow, "time", lambda: later)
    assert tail.sentence().startswith("No record for 3 min 05 s: the run is paused, busy,")


@pytest.mark.parametrize("line", [b"no record\n", b"[3]\n", b'{"scheme": "8x48"}\n'])
def test_a_damaged_line_is_told_and_ends_the_following(line: bytes, tuned: Tuned, tmp_path: Path) -> None:
    lines = tuned.lines.splitlines(keepends=True)
    folder = tuned.copy(tmp_path / "s", b"".join([*lines[:3], line, *lines[3:]]))
    with pytest.raises(RecordError):
        StudyTail(folder).news()
    panel = TuningPanel.follow(folder)
    assert "This study cannot be followed" in panel._sentence.value
    panel.close()
    with pytest.raises(RecordError, match="header of schema"):
        StudyTail(tuned.copy(tmp_path / "t", b"{}\n")).news()


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"manifest\.json"):
        TuningPanel.follow(tmp_path)


# --- the pace ---------------------------------------------------------------------------------


def cards_of(html: str) -> dict[str, str]:
    """The values on cards by their labels."""
    return dict(re.findall(r"<div style='[^']*'>([^<]+)</div><div style='[^']*'><b>(.*?)</b></div>", html))


def bars_of(panel: TuningPanel) -> dict[str, tuple[int, int]]:
    """What stands beside the bar of each stage, with the value and the end of the bar."""
    found = re.findall(r"<progress max='(\d+)' value='(\d+)'.*?<span>(.*?)</span>", panel._bars.value)
    return {line: (int(value), int(most)) for most, value, line in found}


def test_panel_counts_the_trials_of_each_server() -> None:
    panel = TuningPanel()
    for number, device in enumerate(("two", "one", "two", ""), start=1):
        panel.on_event(TrialMeasured("8x48", "T=8", 1.0, "ok", number, device=device))
    panel.on_event(StageFinished("search", 1.0))
    cards = cards_of(panel._headline.value)
    run = {"best so far": "1.0 GFLOP/s", "measured": "4 trials", "of them failed": "0 trials"}
    assert cards == {**run, "on one": "1 trials", "on two": "2 trials"}


def test_panel_throttles_and_ends_on_the_final_state() -> None:
    clock = Clock()
    panel = TuningPanel(clock=clock)
    updates = []
    for event in tuning_events(100):
        clock.now += 1 / 128
        before = panel.updates
        panel.on_event(event)
        updates += [clock.now] * (panel.updates - before)
    # At once, then every 0.25 s of the 202 / 128 s, and the final state.
    assert [later - earlier for earlier, later in pairwise(updates)] == [0.25] * 6 + [9 / 128]
    cards = cards_of(panel._headline.value)
    assert list(cards.values()) == ["1000.0 GFLOP/s", "100 trials", "1 trials"]
    assert bars_of(panel) == {"measure: 100/100 trials, best 1000 GFLOP/s": (100, 100)}
    assert PALETTE["good"] in panel._bars.value
    assert panel._recent.value.count("<tr>") == 8
    assert "measure: finished in 1 min 40 s" in panel._recent.value
    assert traces(shown(panel, "progress"))["best so far"].y[-1] == 1000


@settings(max_examples=25)
@given(costs=st.lists(st.floats(0, 0.5), min_size=1, max_size=60), step=st.floats(1e-3, 1.0))
def test_drawing_keeps_its_interval_and_its_share(costs: list[float], step: float) -> None:
    clock, moments, spent = Clock(), [], 0.0
    panel = TuningPanel(0.25, clock)

    def show() -> None:
        nonlocal spent
        # All that was spent so far is at most a share of the time so far.
        assert spent <= SHARE * clock.now + 1e-9
        moments.append(clock.now)
        cost = costs[len(moments) % len(costs)]
        spent += cost
        clock.now += cost

    panel._show = show  # type: ignore[method-assign]
    for _ in range(200):
        clock.now += step
        panel._refresh()
    assert panel._closed is False and moments
    assert all(later - earlier >= 0.25 - 1e-9 for earlier, later in pairwise(moments))


def test_slow_drawing_is_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    spent = []

    def slow(_: TuningPanel) -> None:
        spent.append(0.1)
        clock.now += 0.1

    panel = TuningPanel(clock=clock)
    monkeypatch.setattr(TuningPanel, "_show", slow)
    for event in trials([1.0] * 4000):
        clock.now += 0.05
        panel.on_event(event)
    assert len(spent) > 10 and sum(spent) <= 0.02 * clock.now


def test_only_what_changed_is_drawn() -> None:
    panel = TuningPanel(interval=0.0)

    def drawn(event: Event | None) -> set[str]:
        before = {name: live.figure_json for name, live in panel._live.items()}
        if event:
            panel.on_event(event)
        panel._refresh(at_once=True)
        return {name for name, live in panel._live.items() if live.figure_json is not before[name]}

    measured = TrialMeasured("a", "T=8", 5.0, "ok", 1, phases=PhaseSeconds(measure=1.0))
    assert drawn(measured) == {"progress", "best", "outcomes", "seconds"}
    assert drawn(None) == set()
    assert drawn(replace(measured, trials=2)) == {"progress", "outcomes", "seconds"}
    assert drawn(ModelFitted(1, 1, {"pairwise": 1.0})) == {"quality"}


def test_panel_shows_time_left_and_one_bar_a_stage() -> None:
    clock = Clock()
    panel = TuningPanel(clock=clock)
    for _ in range(3):
        panel.on_event(StageStarted("build", 4, "kernel"))
        clock.now += 1.0
        panel.on_event(StageAdvanced("build", 1))
        assert bars_of(panel) == {"build: 1/4 kernels, 3.0 s left": (1, 4)}
        panel.on_event(StageFinished("build", 1.0))


def test_panel_escapes_what_it_is_told() -> None:
    panel = TuningPanel(title=HOSTILE, interval=0.0)
    panel.on_event(TrialMeasured(HOSTILE, HOSTILE, 1.0, HOSTILE, 1, HOSTILE))
    panel.on_event(StageFinished("none", 1.0))
    texts = [panel._headline.value, panel._recent.value]
    texts += [str(shown(panel, name).to_plotly_json()) for name in FIGURES]
    assert all(HOSTILE not in text and "<script" not in text for text in texts)
    assert "&lt;script&gt;" in texts[0] and "&lt;script&gt;" in texts[1]


# --- driving a run ----------------------------------------------------------------------------


class Gate:
    """Work of some trials, each of which waits to be let through."""

    def __init__(self, steps: int, error: Exception | None = None) -> None:
        self._steps, self._error = steps, error
        self._open, self._passed, self.done = Semaphore(0), Semaphore(0), 0

    def let(self, count: int = 1) -> None:
        self._open.release(count)

    def passed(self, count: int = 1) -> None:
        for _ in range(count):
            assert self._passed.acquire(timeout=SECONDS)

    def __call__(self, observers: Sequence[Observer]) -> int:
        listeners = audience(observers)
        with listeners.stage("steps", self._steps) as stage:
            for number in range(1, self._steps + 1):
                assert self._open.acquire(timeout=SECONDS)
                listeners.send(TrialMeasured("8x48", "T=8", float(number), "ok", number))
                stage.advance()
                self.done = number
                self._passed.release()
        if self._error:
            raise self._error
        return self.done


def pressable(panel: TuningPanel) -> set[str]:
    if panel._driving.layout.display == "none":
        return set()
    shown = [b for b in panel._driving.children if b.layout.display != "none"]
    return {button.description for button in shown if not button.disabled}


def test_buttons_drive_the_run() -> None:
    gate = Gate(9)
    panel = TuningPanel(start=gate, interval=0.0)
    buttons = panel._buttons
    assert pressable(panel) == {"Start"} and panel.run is None
    buttons["Start"].click()
    assert pressable(panel) == {"Pause", "Stop"} and "Running" in panel._sentence.value
    run = panel.run
    panel.start()
    assert panel.run is run, "one run at a time"
    gate.let(2)
    gate.passed(2)
    buttons["Pause"].click()
    assert pressable(panel) == {"Resume", "Stop"} and "Pausing" in panel._sentence.value
    gate.let()
    wait_for(lambda: "Paused before the next record" in panel._sentence.value)
    assert panel.state.trials == 3 and gate.done == 2
    wait_for(lambda: traces(shown(panel, "progress"))["best so far"].y[-1] == 3)
    buttons["Resume"].click()
    gate.passed()
    assert panel.state.trials == 3 and pressable(panel) == {"Pause", "Stop"}
    buttons["Stop"].click()
    assert "Stopping" in panel._sentence.value and pressable(panel) == set()
    gate.let()
    assert run is not None and run.wait(SECONDS) and run.state == "stopped"
    assert pressable(panel) == {"Start"} and "Start goes on from there" in panel._sentence.value
    # The fourth trial was told, and the run ended before the next.
    assert gate.done == 3 and panel.state.trials == 4
    assert traces(shown(panel, "progress"))["best so far"].y[-1] == 4
    buttons["Start"].click()
    gate.let(9)
    assert panel.run is not run and panel.run.wait(SECONDS) and panel.run.result == 9
    assert "Finished." in panel._sentence.value and panel.state.trials == 9


def test_a_run_started_elsewhere_is_driven_too() -> None:
    panel, gate = TuningPanel(), Gate(2)
    assert pressable(panel) == set()
    run = run_in_background(gate, [panel])
    assert panel.run is run and pressable(panel) == {"Pause", "Stop"}
    gate.let(2)
    assert run.wait(SECONDS) and panel.state.trials == 2 and pressable(panel) == set()
    other = TuningPanel()
    other.run = run
    assert other.run is run and "Finished." in other._sentence.value


def test_pauses_and_the_time_between_runs_do_not_count() -> None:
    clock, gate = Clock(), Gate(2)
    panel = TuningPanel(clock=clock, start=gate)
    clock.now = 100.0
    panel.start()
    gate.let()
    gate.passed()
    assert panel._now() == 0.0
    clock.now = 130.0
    gate.let()
    assert panel.run is not None and panel.run.wait(SECONDS)
    assert panel._now() == 30.0 and panel.state.curve.points[-1].seconds == 30.0
    clock.now = 500.0
    panel.start()
    assert panel._now() == pytest.approx(30.0)
    panel.run.stop()
    gate.let()
    assert panel.run.wait(SECONDS)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (DietlabError("the floor holds", HOSTILE, "Build one."), "got &lt;script&gt;"),
        (KeyError("T"), "KeyError"),
    ],
)
def test_a_failed_run_says_why(error: Exception, said: str) -> None:
    panel = TuningPanel(start=(gate := Gate(1, error)))
    panel.start()
    gate.let()
    assert panel.run is not None and panel.run.wait(SECONDS) and panel.run.error is error
    assert "The run failed: " in panel._sentence.value and said in panel._sentence.value
    assert pressable(panel) == {"Start"} and panel.state.trials == 1


def test_a_panel_without_work_cannot_start() -> None:
    with pytest.raises(DietlabError, match=r"TuningPanel\(start=\.\.\.\)"):
        TuningPanel().start()


def test_closing_the_panel_leaves_the_run_alone() -> None:
    panel, gate = TuningPanel(interval=0.0), Gate(3)
    run = run_in_background(gate, [panel])
    gate.let()
    gate.passed()
    panel.close()
    gate.let(2)
    assert run.wait(SECONDS) and run.result == 3 and run.state == "finished"


def test_an_error_in_drawing_leaves_the_run_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no figure today")

    panel, gate = TuningPanel(interval=0.0), Gate(3)
    monkeypatch.setattr(TuningPanel, "_show", broken)
    run = run_in_background(gate, [panel])
    gate.let(3)
    assert run.wait(SECONDS) and run.result == 3
    assert [r.levelname for r in caplog.records] == ["WARNING"] and "no figure today" in caplog.text


def test_two_panels_tell_their_runs_apart() -> None:
    panels, gates = [TuningPanel(title=name, interval=0.0) for name in ("ours", "theirs")], [Gate(2), Gate(2)]
    runs = [run_in_background(gate, [panel]) for gate, panel in zip(gates, panels, strict=True)]
    for count, gate in enumerate(gates, 1):
        gate.let(count)
        gate.passed(count)
    assert [p.state.trials for p in panels] == [1, 2]
    assert ["<b>ours</b>" in p._headline.value for p in panels] == [True, False]
    assert ["<b>theirs</b>" in p._headline.value for p in panels] == [False, True]
    gates[0].let()
    assert all(run.wait(SECONDS) for run in runs)


# --- in a notebook ----------------------------------------------------------------------------


@pytest.mark.parametrize("already", [False, True])
def test_panel_displays_itself_once(monkeypatch: pytest.MonkeyPatch, already: bool) -> None:
    shown: list[bool] = []
    monkeypatch.setattr(TuningPanel, "_display", lambda panel, update: shown.append(update))
    panel = TuningPanel()
    if already:
        assert WIDGET in panel._repr_mimebundle_()[0]
    for event in tuning_events():
        panel.on_event(event)
    assert len(shown) == (0 if already else 1)


def test_in_the_background_only_a_cell_displays(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[bool] = []
    monkeypatch.setattr(TuningPanel, "_display", lambda panel, update: shown.append(update))
    panel, gate = TuningPanel(), Gate(1)
    run = run_in_background(gate, [panel])
    gate.let()
    assert run.wait(SECONDS) and shown == []
    panel = TuningPanel(start=(gate := Gate(1)))
    panel._ipython_display_()
    panel.start()
    gate.let()
    assert panel.run is not None and panel.run.wait(SECONDS)
    assert shown == [False, True], "the picture is renewed at the end"


def test_the_picture_is_of_the_run() -> None:
    panel = TuningPanel(interval=0.0)
    data, _ = panel._repr_mimebundle_()
    assert data["text/plain"] == EMPTY and "image/png" not in data
    for event in tuning_events():
        panel.on_event(event)
    data, _ = panel._repr_mimebundle_()
    assert data["image/png"] and data[WIDGET]["model_id"] == panel.model_id


CELLS = (
    """
import dietlab as dl
from dietlab.measure import SyntheticRunner

work = dl.Dense(T=dl.Dim(1, 16), N=64, K=32)
hardware = dl.Hardware.preset("haswell-1core")
shapes = dl.ShapeSet.uniform(work, 4)
space = dl.build_space(work, hardware)
def tune(observers):
    return dl.tune(space, shapes, SyntheticRunner(hardware), "smoke", observers=observers)
""",
    "tune([dl.TuningPanel()]).trials",
    "panel = dl.TuningPanel(start=tune)\npanel",
    "panel.start()\npanel.run.wait(60)",
    """
class Interrupts:
    def on_event(self, event):
        if getattr(event, "trials", 0) == 5:
            raise KeyboardInterrupt
tune([broken := dl.TuningPanel(), Interrupts()])
""",
    "broken.state.trials, tune([dl.TuningPanel()]).trials >= 8",
)


def test_a_kernel_shows_the_panel_and_keeps_its_picture() -> None:
    """Displayed by itself, by a cell, from another thread, and after an interruption."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    _, in_cell, shown, started, interrupted, again = (cell.outputs for cell in notebook.cells)
    for outputs in (in_cell, shown, interrupted, again):
        panels = [o for o in outputs if WIDGET in o.get("data", {})]
        assert [o.output_type for o in panels] == ["display_data"]
        assert "image/png" in panels[0].data and panels[0].data["text/plain"].startswith("A picture")
    assert [o.data["text/plain"] for o in started] == ["True"]
    assert [o.ename for o in interrupted if o.output_type == "error"] == ["KeyboardInterrupt"]
    assert again[-1].data["text/plain"] == "(5, True)"
    assert not [o for cell in notebook.cells for o in cell.outputs if o.output_type == "stream"]
    nbformat.validate(notebook)


# --- saving -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VIEWS)
def test_the_chosen_figure_of_a_panel_is_saved(name: str, tmp_path: Path) -> None:
    panel = TuningPanel()
    for event in tuning_events(5):
        panel.on_event(event)
    panel.shown.value = name
    table = pd.read_csv(save(panel, tmp_path / "x.csv"))
    figure = json.loads(save(panel, tmp_path / "x.json").read_text(encoding="utf-8"))
    assert len(table) == len(panel.frame) and list(table) == list(panel.frame)
    assert figure["layout"]["title"]["text"] == panel.figure.layout.title.text


def test_a_figure_of_bars_is_as_high_as_it_has_bars() -> None:
    panel = TuningPanel()
    heights = [VIEWS["outcomes"].plot(panel.state).layout.height]
    for number, status in enumerate(("ok", "wrong", "timeout"), start=1):
        panel.on_event(TrialMeasured("8x48", "T=8", 1.0, status, number))
        heights.append(VIEWS["outcomes"].plot(panel.state).layout.height)
    assert 100 < heights[0] == heights[1] < heights[2] < heights[3]
    grid, low = panel.children[4:6]
    assert low is panel._live["outcomes"] and len(grid.children) == 4

"""Texts of the tuning panel, as HTML: its headline, how far a run is, bars of stages, the last events."""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from dietlab.base.background import BackgroundRun
from dietlab.view.progress import describe
from dietlab.view.theme import PALETTE
from dietlab.view.widgets.cards import cards_html
from dietlab.view.widgets.panel_state import TuningState

SENTENCES = {
    "running": "Running in the background.",
    "paused": "Paused before the next record: Resume goes on.",
    "finished": "Finished.",
}
"""The sentence about a run, by the run's state."""

BAR, OVER = "flex:0 1 300px;min-width:100px;height:20px", f";accent-color:{PALETTE['good']}"
"""The style of a stage's bar, and the addition for a finished stage."""


def headline(title: str, state: TuningState) -> str:
    """Returns the title and cards: the best throughput, the numbers of trials and failures, and the number of
    trials of each server if servers measure."""
    name = f"<div><b>{escape(title)}</b></div>" if title else ""
    numbers = {
        "best so far": f"{state.best_gflops:.1f} GFLOP/s",
        "measured": f"{state.trials} trials",
        "of them failed": f"{state.failures} trials",
    }
    servers = {f"on {device}": f"{count} trials" for device, count in sorted(state.devices.items())}
    return name + cards_html({**numbers, **servers})


def sentence(run: BackgroundRun[Any] | None, state: TuningState, can_start: bool, *more: str) -> str:
    """Returns a sentence on how far a run is, followed by ``more``."""
    failed = state.trials and not state.best_gflops
    every = "Every trial failed so far; the reasons are in the figure of outcomes." if failed else ""
    said = " ".join(filter(None, (_of_run(run, can_start) if run else "", every, *more)))
    return f"<div>{escape(said)}</div>" if said else ""


def _of_run(run: BackgroundRun[Any], can_start: bool) -> str:
    state = run.state  # once: another thread changes it
    if run.stopping or run.pausing:
        return f"{'Stopping' if run.stopping else 'Pausing'}: the measurement that is under way ends first."
    if state == "stopped":
        return f"Stopped. What was measured is kept{': Start goes on from there' if can_start else ''}."
    if state == "failed":
        return f"The run failed: {type(run.error).__name__}: {run.error}"
    return SENTENCES[state]


def bars(state: TuningState, now: float) -> str:
    """Returns a bar for each stage, with the time left."""
    rows = []
    for name, clock in state.stages.items():
        running = name in state.running
        # What a stage noted is overtaken when the next one has begun: the best so far, for one.
        overtaken = not running and name != list(state.stages)[-1]
        line = escape((replace(clock, note="") if overtaken else clock).line(now))
        style = BAR if running else BAR + OVER
        bar = f"<progress max='{max(1, clock.total)}' value='{clock.done}' style='{style}'></progress>"
        rows.append(f"<div style='display:flex;flex-wrap:wrap;gap:0 8px'>{bar}<span>{line}</span></div>")
    return "".join(rows)


def recent(state: TuningState) -> str:
    """Returns the last events as a table."""
    rows = "".join(f"<tr><td>{escape(describe(event))}</td></tr>" for event in state.recent)
    return f"<table>{rows}</table>"

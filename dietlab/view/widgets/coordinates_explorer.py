"""The space in parallel coordinates at a chosen shape, with a chosen scheme that other widgets may share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dietlab.tuning import TuningRun
from dietlab.view.figures.coordinates import draw_space, frame_space, shapes_measured
from dietlab.view.widgets.arguments import RunSource, choice_of, run_of
from dietlab.view.widgets.controls import OneOf
from dietlab.view.widgets.cost_lab import nothing_measured

if TYPE_CHECKING:
    from dietlab.view.widgets.choice import Choice
    from dietlab.view.widgets.explorer import Drawn, Explorer

ALL = "all"
SHAPE = "The shape whose times are shown, and the schemes that were measured there"
SCHEME = "The one scheme whose line is shown; all of them to begin with"


def coordinates_explorer(run: RunSource, choice: Choice | None = None) -> Explorer:
    """Shows every scheme of a run as a line through its parameters to its speed at a shape; drag along an
    axis to brush it.

    Controls: ``shape`` and ``scheme`` (a scheme to show alone). ``explorer.frame`` is the table of
    :func:`frame_space`.

    Args:
        run: a tuning run, or a study that has one; without a successful record the explorer says why there is
            nothing.
        choice: a choice shared with other widgets; a scheme chosen in one of them is shown in all.

    Raises:
        RecordError: if ``run`` is neither a tuning run nor a study.
    """
    return _explorer(run_of(run), choice_of(choice))


def _explorer(run: TuningRun, choice: Choice | None) -> Explorer:
    from dietlab.view.widgets.explorer import Drawn, Explorer

    if not run.schemes:
        return nothing_measured(run)
    shapes = {str(shape): shape for shape in shapes_measured(run)}
    frames = {name: frame_space(run, shape) for name, shape in shapes.items()}

    def draw(shape: str, scheme: str) -> Drawn:
        frame = frames[shape]
        figure = draw_space(
            frame, f"Schemes of {run.space.workload} at {shape}", None if scheme == ALL else scheme
        )
        best = frame.loc[frame["gflops"].idxmax()]
        numbers = {
            "schemes": f"{len(frame)}, {int(frame['measured'].sum())} of them measured here",
            "fastest": f"{best['scheme']}, {best['gflops']:.1f} GFLOP/s",
        }
        if scheme != ALL:
            row = frame[frame["scheme"] == scheme].iloc[0]
            place = 1 + int((frame["gflops"] > row["gflops"]).sum())
            how = "measured" if row["measured"] else "predicted"
            numbers[scheme] = f"{row['gflops']:.1f} GFLOP/s {how}, place {place}"
        return Drawn(figure, frame, numbers, "Drag along an axis to keep only the lines through it.")

    keys = sorted(scheme.key for scheme in run.schemes)
    controls = {
        "shape": OneOf(next(iter(shapes)), tuple(shapes), label="shape", tooltip=SHAPE),
        "scheme": OneOf(ALL, (ALL, *keys), label="scheme", tooltip=SCHEME),
    }
    groups = {"Shape": ["shape"], "View": ["scheme"]}
    explorer = Explorer(draw, controls, groups=groups, opener="dl.coordinates_explorer(run)")
    return explorer if choice is None else choice.link(explorer)

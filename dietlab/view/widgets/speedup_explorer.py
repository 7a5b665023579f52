"""An explorer of a bench: every contender on every shape, and the predicted parts of a plan's time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dietlab.base.errors import DietlabError, require_type
from dietlab.compare.results import Report, ResultTable
from dietlab.compare.results.speedups import JUDGES
from dietlab.compare.study import MODEL, Study
from dietlab.cost import CostModel
from dietlab.problem import Shape, workload_from_json
from dietlab.scheme import Scheme, plan_on
from dietlab.view.figures.base import MICRO, add_ring, new_figure
from dietlab.view.figures.results import frame_speedup
from dietlab.view.figures.shape_map import plot_map
from dietlab.view.figures.speedup import both_times, frame_against, frame_parts, plot_against
from dietlab.view.widgets.arguments import Source
from dietlab.view.widgets.controls import Control, OneOf, labelled
from dietlab.view.widgets.speedup_sources import Chosen, Setting, loaded_tables, overlay, settings_beside

if TYPE_CHECKING:
    import pandas as pd

    from dietlab.view.widgets.explorer import Drawn, Explorer

Runs = Mapping[tuple[str, int], str | Path]
"""The folders of studies by the workload's name and the number of threads."""

BARS = "Bars span every ratio that the 95 % intervals of both times allow."
NOBODY = "nobody"
NO_LAYER = "the only one"
ALONG, MAP = "along the length", "map of all layers"

GROUPS = {
    "Setting": ["hardware", "workload", "threads"],
    "Comparison": ["contender", "cache"],
    "Shape": ["layer", "shape", "show"],
    "Other settings": ["beside"],
}
TOOLTIPS = {
    "hardware": "The processor that the calls were measured on",
    "workload": "The operator that was measured",
    "threads": "Threads that a call may use (a count); a GPU is used as a whole",
    "layer": "Extents of all dynamic dimensions but the length",
    "show": "Speedups along the length for one layer, or a map over lengths and layers",
    "cache": "Where the operands are before a call: hot ones in the cache, cold ones in memory",
    "contender": "The program that the time of those shown is compared with",
    "shape": "The shape whose plan is described; a click on the figure chooses it, too",
}


def speedup_explorer(table: Source | Sequence[Source], runs: Runs | None = None) -> Explorer:
    """Explores the speedup of a report's maker (usually dietlab) for each shape. The contender, the cache
    state and the number of cores can be chosen.

    Each dropdown offers what was measured with the values of the other dropdowns. Held-out shapes have open
    marks, and a click on a shape shows its plan. ``explorer.frame`` has, shape by shape, the speedup, both
    times and their 95 % intervals (us).

    ``beside`` takes other settings (a processor, a workload and a number of threads). Their speedups over the
    same contender in the same cache state are drawn over those of the chosen setting. Of several sources, a
    damaged or unfinished one is left out, and a sentence says so.

    Where several dimensions are dynamic, ``layer`` chooses the extents of all but the length, and ``show``
    the picture along the length or a map over lengths and layers
    (:func:`~dietlab.view.figures.shape_map.plot_map`; ``explorer.frame`` is its table).

    Args:
        table: a bench or the path of its CSV, an evaluation's report or its path, a study or its folder, or
            several of these.
        runs: the folders of studies, as in ``{("dense-k768-n2304", 1): "runs/dense"}`` (1 thread). Their cost
            models give the predicted parts of a shape's time.

    Raises:
        RecordError: if a source is none of these, or if the only source cannot be read.
        DietlabError: if ``runs`` is no such dictionary.
        WorkloadError: if this version does not know an operator with several dynamic dimensions.
    """
    from dietlab.view.widgets.explorer import Explorer

    if runs is not None:
        remedy = 'For example {("dense-k768-n2304", 1): "runs/dense"}.'
        require_type("the studies of a speedup explorer, runs,", runs, Mapping, remedy=remedy)
    loaded, left_out = loaded_tables(table)
    reports = by_setting(loaded)
    if not reports:
        return Explorer(functools.partial(_nothing, loaded, left_out), {})

    @functools.cache
    def model(workload: str, threads: int) -> CostModel | None:
        folder = (runs or {}).get((workload, threads))
        return None if folder is None else model_of(folder)

    def draw(beside: Sequence[Setting] = (), **values: Any) -> Drawn:
        choice = chosen(reports, values)
        drawn = _drawn(choice, functools.partial(model, choice.setting.workload, choice.setting.threads))
        more = [] if choice.show == MAP else overlay(drawn.figure, choice, reports, beside)
        said = [*left_out, *more]
        return replace(drawn, note=" ".join([drawn.note, *said]))

    def clicked(values: Mapping[str, Any], point: Mapping[str, Any]) -> Mapping[str, Any]:
        choice, number = chosen(reports, values), point.get("point")
        on_map = choice.show == MAP
        shown = choice.map if on_map else choice.frame
        # The first trace has the shapes; in the others a point is something else.
        if point.get("trace") != 0 or number is None or number >= len(shown):
            return {}
        row, length = shown.iloc[number], choice.whole.length
        if on_map:
            return {"layer": row["layer"], "shape": f"{length}={row[length]}"}
        return {"shape": row["shape"]}

    options = chosen(reports, {}).options.items()
    controls: dict[str, Control] = {
        name: OneOf(next(iter(labelled(found).values())), found, label=name, tooltip=TOOLTIPS[name])
        for name, found in options
    }
    controls |= settings_beside(reports)
    opener = f"dl.speedup_explorer({'table' if runs is None else 'table, runs'})"
    return Explorer(draw, controls, clicked, groups=GROUPS, opener=opener, wide=("beside",))


# --- what there is to choose from -------------------------------------------------------------


def by_setting(sources: Sequence[ResultTable | Report]) -> dict[Setting, Report]:
    """Returns every report that has rows, by setting. If a source has a setting of an earlier source, all of
    its processor names get the source's number, so that two runs are never mixed."""
    found: dict[Setting, Report] = {}
    for number, source in enumerate(sources, 1):
        part = dict(_reports(source))
        if set(part) & set(found):
            part = {replace(one, hardware=f"{one.hardware} ({number})"): part[one] for one in part}
        found |= part
    return found


def _reports(source: ResultTable | Report) -> Iterator[tuple[Setting, Report]]:
    for report in source.reports if isinstance(source, ResultTable) else [source]:
        if report.rows:
            name = str(report.hardware.get("name", "?"))
            yield Setting(name, report.name or report.title, report.threads, report.used), report


def chosen(reports: Mapping[Setting, Report], values: Mapping[str, Any]) -> Chosen:
    """Returns a valid choice from the values of the dropdowns. A missing value or one that is no option
    becomes the first option."""
    options: dict[str, Sequence[Any]] = {}

    def pick(name: str, found: Sequence[Any]) -> Any:
        options[name] = found
        return values[name] if values.get(name) in found else found[0]

    left, several = list(reports), any(len(report.dims) > 1 for report in reports.values())
    for name in ("hardware", "workload", "threads"):
        value = pick(name, list(dict.fromkeys(getattr(setting, name) for setting in left)))
        left = [setting for setting in left if getattr(setting, name) == value]
    whole = report = reports[left[0]]
    if not whole.limits.on_host:
        options["threads"] = [(left[0].used, left[0].threads)]
    layer: Mapping[str, int] = {}
    show = ALONG
    if several:
        layers = {str(found): found for found in whole.layers} if len(whole.dims) > 1 else {}
        layer_name = pick("layer", list(layers) or [NO_LAYER])
        show = pick("show", [ALONG, MAP] if layers else [ALONG])
        layer = layers[layer_name].to_json() if layers else {}
        report = whole.of_layer(layer)
    cache = pick("cache", report.caches)
    contender = pick("contender", contenders(report, cache) or [NOBODY])
    frame = frame_against(report, contender, cache)
    shape = pick("shape", list(frame["shape"]) or [NOBODY])
    return Chosen(left[0], whole, report, layer, show, cache, contender, shape, frame, options)


def contenders(report: Report, cache: str) -> list[str]:
    """Returns the contenders of a report in one cache state, the best vendors first."""
    names = list(dict.fromkeys(frame_speedup(report, cache)["contender"]))
    return sorted(names, key=lambda name: JUDGES.index(name) if name in JUDGES else len(JUDGES))


def model_of(folder: str | Path) -> CostModel:
    """Returns the cost model of a study; if it was not kept, it is fitted on the records."""
    study = Study.open(folder)
    kept = study.folder / MODEL
    return CostModel.load(kept) if kept.exists() else study.run().model


# --- what is shown ----------------------------------------------------------------------------


def _drawn(choice: Chosen, model: Any) -> Drawn:
    from dietlab.view.widgets.explorer import Drawn

    row, parts = choice.row, None
    said = [BARS] if choice.frame["speedup_low"].notna().any() else []
    if row is None:
        said = [f"{choice.report.maker} was compared with nobody in the {choice.cache} state."]
    else:
        shape = next(r.shape for r in choice.report.rows if str(r.shape) == choice.shape)
        plan = row.scheme if isinstance(row.scheme, str) else row.reason
        said.append(plan_words(choice.report, shape, plan))
        parts, words = _parts(choice, shape, row, model)
        said += [words] if words else []
    frame = choice.frame
    figure = plot_against(choice.report, choice.contender, choice.cache, choice.shape, parts)
    if choice.show == MAP and row is not None:
        frame = choice.map
        figure = plot_map(choice.whole, contender=choice.contender, cache=choice.cache)
        length, place = choice.whole.length, str(Shape.of(**choice.layer))
        add_ring(figure, [shape[length]], [place], f"{place},{choice.shape}", 26)
    return Drawn(figure, frame, _numbers(choice), " ".join(said), choice.options)


def plan_words(report: Report, shape: Shape, plan: object) -> str:
    """Returns a sentence on how the maker covers a shape; a plan that is no scheme's key is quoted."""
    if not isinstance(plan, str):
        return f"{shape}: the plan is unknown."
    try:
        covers = plan_on(Scheme.from_key(plan), workload_from_json(report.workload), shape)
        return f"{shape}: {report.maker} covers it by {covers}."
    except DietlabError:
        return f"{shape}: {plan}."


def _parts(choice: Chosen, shape: Shape, row: Any, model: Any) -> tuple[pd.DataFrame | None, str]:
    """Returns the predicted parts of the chosen shape's time, and a sentence on them."""
    try:
        known: CostModel | None = model()
        if known is None:
            return None, ""
        if known.cost.hardware.name != choice.report.hardware.get("name"):
            return None, f"The cost model is of {known.cost.hardware.name}: it predicts nothing here."
        whole = Shape.of(**shape.to_json(), **choice.layer)
        parts = frame_parts(known, str(row.scheme), whole, choice.cache)
    except DietlabError as error:
        return None, f"Its parts cannot be predicted: {error}"
    largest = parts.loc[parts["predicted_seconds"].idxmax()]
    total = f"{MICRO * parts['predicted_seconds'].sum():.1f} us"
    return parts, f"Predicted: {total}, of which {100 * largest['share']:.0f} % for {largest['part']}."


def _numbers(choice: Chosen) -> dict[str, str]:
    frame, row = choice.frame, choice.row
    if row is None:
        return {}
    worst = frame.loc[frame["speedup"].idxmin()]
    numbers = {
        "geometric mean": f"{_mean(frame)} over {len(frame)} shapes",
        "worst shape": f"{worst['speedup']:.2f} times at {worst['shape']}",
    }
    held_out = frame[frame["held_out"].astype(bool)]
    if len(held_out):
        numbers["held out from tuning"] = f"{_mean(held_out)} over {len(held_out)} shapes"
    reach = f" ({row.speedup_low:.2f} to {row.speedup_high:.2f})" if row.speedup_low > 0 else ""
    return {
        **numbers,
        f"{row.shape}, {choice.setting.used}": f"{row.speedup:.2f} times{reach}",
        **both_times(row, choice.report.maker, row.fastest),
    }


def _mean(frame: pd.DataFrame) -> str:
    return f"{math.exp(np.log(frame['speedup']).mean()):.2f} times"


def _nothing(sources: Sequence[ResultTable | Report], left_out: Sequence[str]) -> Drawn:
    """Returns an empty figure for tables without a row, and lists their failures."""
    import pandas as pd

    from dietlab.view.widgets.explorer import Drawn

    failures = [report for source in sources if isinstance(source, ResultTable) for report in source.failures]
    rows = [(report.name, report.threads, report.failure) for report in failures]
    frame = pd.DataFrame(rows, columns=["workload", "threads", "failure"])
    why = [f"{report.name}, {report.used}: {report.failure}" for report in failures]
    note = " ".join(["There is no row to compare.", *why, *left_out])
    return Drawn(new_figure(pd.DataFrame(), "Speedups", None), frame, note=note)

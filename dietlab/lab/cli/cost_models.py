"""``dietlab cost-models``: which there are, and how well each predicts held-out measurements."""

from __future__ import annotations

from typing import Any

import click

from dietlab.base.errors import DietlabError
from dietlab.cli.names import named_words, words
from dietlab.cli.options import json_option, show
from dietlab.cli.recorded import recorded_file
from dietlab.cost import COST_MODELS, SPLITS, Survey, frame_judgements, judge
from dietlab.cost.judging import judge_operator
from dietlab.lab.heuristics.drafts import FITTED_ON, RANDOM, drawn_beside, frame_measured
from dietlab.view.pages.bench_text import markdown

LEARNED = 400
"""Measurements that a model learns from by default."""

SHOWN = {
    "pairwise": "{:.3f}",
    "peak@1": "{:.3f}",
    "peak@5": "{:.3f}",
    "rmse": "{:.3f}",
    "r2": "{:.2f}",
    "mape": "{:.1%}",
    "inside 1": "{:.2f}",
    "inside 2": "{:.2f}",
    "fit_seconds": "{:.2f}",
}
"""The metrics of the table, and how they are written."""

LISTED = "\n".join(f"  {name:9} {COST_MODELS[name].told}" for name in COST_MODELS.own)


@click.command(
    "cost-models",
    help=f"""Judge cost models on recorded measurements that they never saw.

FILES are records of a survey (`dietlab survey`), or names of such that come with dietlab: cost/dense,
cost/batch-nt, cost/batch-nn, quickstart, h200/bf16. Without any, the models are listed.

\b
{LISTED}

\b
dietlab cost-models cost/dense cost/batch-nt
dietlab cost-models cost/dense --split pairs --told 64,128,256,500 --model learned,ensemble
dietlab cost-models cost/batch-nt --operator-from cost/dense
dietlab cost-models h200/fp32 h200/bf16 --drafts
""",
)
@click.argument("files", nargs=-1)
@click.option("--model", "models", help="Which, with commas, also MODULE:NAME of your own (default: all).")
@click.option(
    "--split",
    "splits",
    default=",".join(SPLITS),
    help="; ".join(f"{name}: {what}" for name, what in SPLITS.items()) + " (default: all).",
)
@click.option(
    "--told",
    help=f"Measurements that a model learns from, with commas (default: {LEARNED}; with --drafts one number, "
    f"{FITTED_ON}).",
)
@click.option(
    "--seeds", default=5, show_default=True, type=click.IntRange(1), help="Draws of what is held out."
)
@click.option(
    "--drafts",
    is_flag=True,
    help="Of a GPU's records: judge what is expected before anything is measured, the paper's waves and the "
    f"bound, beside the learned model; on all schemes, on those listed in {RANDOM} beside the records, and "
    "on held-out ones.",
)
@click.option("--operator-from", "source", help="Learn from these records of another operator alone.")
@json_option
def cost_models_command(
    files: tuple[str, ...],
    models: str | None,
    splits: str,
    told: str | None,
    seeds: int,
    drafts: bool,
    source: str | None,
    as_json: bool,
) -> None:
    paths = [recorded_file(name) for name in files]
    surveys = [Survey.load(path) for path in paths]
    counts = [int(count) for count in words(told or str(FITTED_ON if drafts else LEARNED))]
    if not surveys:
        listed = {name: model.told for name, model in COST_MODELS.items()}
        show(listed, as_json, "\n".join(f"  {name:9} {what}" for name, what in listed.items()))
        return
    if drafts:
        if source or len(counts) > 1:
            raise DietlabError("--drafts are told one number, and of no other operator", source or told)
        rows = [
            row
            for survey, path in zip(surveys, paths, strict=True)
            for row in frame_measured(survey, drawn_beside(path), counts[0], seeds).to_dict("records")
        ]
        cells = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
        show(rows, as_json, markdown(list(rows[0]), cells))
        return
    names = named_words(COST_MODELS, models) if models else list(COST_MODELS)
    if source:
        known = Survey.load(recorded_file(source))
        found = [one for survey in surveys for one in judge_operator(known, survey, names, counts, seeds)]
    else:
        found = judge(surveys, names, words(splits), counts, seeds)
    frame = frame_judgements(found)
    show(frame.to_dict("records"), as_json, _table(frame))


def _table(frame: Any) -> str:
    """Returns the table as text: of each metric the mean and, of some, the 95 % interval."""
    keys = ["survey", "split", "told", "model"]
    rows = []
    for row in frame.to_dict("records"):
        cells = [str(row[key]) for key in keys]
        for name, form in SHOWN.items():
            missing = name not in row or row[name] != row[name]
            ends = f" ({form} to {form})" if name in ("pairwise", "peak@1", "mape") else ""
            values = [row.get(f"{name}{end}") for end in ("", " low", " high")]
            cells.append("" if missing else (form + ends).format(*values))
        rows.append(cells)
    return markdown([*keys, *SHOWN], rows)

"""``dietlab cost-models``: which there are, and how well each predicts what it was not told."""

from __future__ import annotations

from typing import Any

import click

from dietlab.cli.options import json_option, show, words
from dietlab.cli.recorded import recorded_file
from dietlab.cost import COST_MODELS, SPLITS, Survey, frame_judgements, judge
from dietlab.cost.judging import judge_operator
from dietlab.view.bench_text import markdown

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

LISTED = "\n".join(f"  {name:9} {model.told}" for name, model in COST_MODELS.items())


@click.command(
    "cost-models",
    help=f"""Judge cost models on recorded measurements that they never saw.

FILES are records of a survey (`dietlab survey`), or names of such that come with dietlab: cost/dense,
cost/batch-nt, cost/batch-nn, quickstart. Without any, the models are listed.

\b
{LISTED}

\b
dietlab cost-models cost/dense cost/batch-nt
dietlab cost-models cost/dense --split pairs --told 64,128,256,500 --model learned,ensemble
dietlab cost-models cost/batch-nt --operator-from cost/dense
""",
)
@click.argument("files", nargs=-1)
@click.option("--model", "models", default=",".join(COST_MODELS), help="Which, with commas (default: all).")
@click.option(
    "--split",
    "splits",
    default=",".join(SPLITS),
    help="; ".join(f"{name}: {what}" for name, what in SPLITS.items()) + " (default: all).",
)
@click.option(
    "--told", default="400", show_default=True, help="Measurements that a model learns from, with commas."
)
@click.option(
    "--seeds", default=5, show_default=True, type=click.IntRange(1), help="Draws of what is held out."
)
@click.option("--operator-from", "source", help="Learn from these records of another operator alone.")
@json_option
def cost_models_command(
    files: tuple[str, ...],
    models: str,
    splits: str,
    told: str,
    seeds: int,
    source: str | None,
    as_json: bool,
) -> None:
    surveys = [Survey.load(recorded_file(name)) for name in files]
    counts = [int(count) for count in words(told)]
    if not surveys:
        show({name: model.told for name, model in COST_MODELS.items()}, as_json, LISTED)
        return
    if source:
        known = Survey.load(recorded_file(source))
        found = [
            one for survey in surveys for one in judge_operator(known, survey, words(models), counts, seeds)
        ]
    else:
        found = judge(surveys, words(models), words(splits), counts, seeds)
    frame = frame_judgements(found)
    show(frame.to_dict("records"), as_json, _table(frame))


def _table(frame: Any) -> str:
    """Returns the table as text: of each metric the mean and, of the first three, the 95 % interval."""
    keys = ["survey", "split", "told", "model"]
    rows = [
        [*(str(row[key]) for key in keys), *(_cell(row, name, form) for name, form in SHOWN.items())]
        for row in frame.to_dict("records")
    ]
    return markdown([*keys, *SHOWN], rows)


def _cell(row: dict[str, Any], name: str, form: str) -> str:
    if name not in row or row[name] != row[name]:
        return ""
    text = form.format(row[name])
    if name in ("pairwise", "peak@1", "mape"):
        text += f" ({form.format(row[f'{name} low'])} to {form.format(row[f'{name} high'])})"
    return text

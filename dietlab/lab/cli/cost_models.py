"""``dietlab cost-models``: the list of cost models, and how well each predicts held-out measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from click.core import ParameterSource

from dietlab.base.errors import DietlabError
from dietlab.cli.names import named_words, words
from dietlab.cli.options import json_option, show
from dietlab.cli.recorded import recorded_file
from dietlab.cost import COST_MODELS, SPLITS, Survey, frame_judgements, judge
from dietlab.cost.judging import judge_operator
from dietlab.lab.heuristics.agreement import FITTED_ON, RANDOM, drawn_beside, frame_measured
from dietlab.view.pages.bench_text import markdown

LEARNED = 400
"""The number of measurements that a model learns from by default."""

SHOWN = dict.fromkeys(("pairwise", "peak@1", "peak@5", "rmse"), "{:.3f}") | {"r2": "{:.2f}", "mape": "{:.1%}"}
SHOWN |= dict.fromkeys(("inside 1", "inside 2", "fit_seconds"), "{:.2f}")
"""The metrics of the table, and how they are written."""

LISTED = "\n".join(f"  {name:9} {COST_MODELS[name].summary}" for name in COST_MODELS.own)


@click.command(
    "cost-models",
    help=f"""Judge cost models on recorded measurements that they never saw.

FILES are records of a survey (`dietlab survey`), or names of such that come with dietlab: cost/dense,
cost/batch-nt, cost/batch-nn, quickstart, h200/bf16. Without any, the models are listed.

\b
{LISTED}

Models are fitted on a part of each file and judged on the rest (--split). With --operator-from they are
fitted on those records and judged on all of FILES. With --drafts, what a GPU's search expects before it
measures anything is judged.

\b
dietlab cost-models
dietlab cost-models cost/dense cost/batch-nt
dietlab cost-models cost/dense --split pairs --told 64,128,256,500 --model learned,ensemble
dietlab cost-models cost/batch-nt --operator-from cost/dense
dietlab cost-models h200/fp32 h200/bf16 --drafts
""",
)
@click.argument("files", nargs=-1)
@click.option(
    "--model",
    "models",
    help="Which, with commas, also MODULE:NAME of your own (default: all). Not with --drafts.",
)
@click.option(
    "--split",
    "splits",
    default=",".join(SPLITS),
    help="What is held out. "
    + "; ".join(f"{name}: {what}" for name, what in SPLITS.items())
    + " (default: all). Not with --operator-from or --drafts.",
)
@click.option(
    "--told",
    help=f"Measurements to fit a model on, with commas (default: {LEARNED}; with --drafts one number, "
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
@click.option(
    "--operator-from", "source", help="Fit on these records of another operator alone. Not with --drafts."
)
@json_option
@click.pass_context
def cost_models_command(
    context: click.Context,
    files: tuple[str, ...],
    models: str | None,
    splits: str,
    told: str | None,
    seeds: int,
    drafts: bool,
    source: str | None,
    as_json: bool,
) -> None:
    value: Any
    if not files:
        _require_options(context, "without FILES the models are listed; the list", "")
        value, text = list_models()
    elif drafts:
        _require_options(context, "--drafts", "drafts told seeds")
        value, text = judge_drafts(files, _counts(told, FITTED_ON), seeds)
    elif source:
        _require_options(context, "--operator-from", "source models told seeds")
        value, text = judge_models(files, models, (), _counts(told, LEARNED), seeds, source)
    else:
        value, text = judge_models(files, models, words(splits), _counts(told, LEARNED), seeds)
    show(value, as_json, text)


def list_models() -> tuple[dict[str, str], str]:
    """Returns a sentence on each cost model, by the model's name, and the same as text."""
    listed = {name: model.summary for name, model in COST_MODELS.items()}
    return listed, "\n".join(f"  {name:9} {what}" for name, what in listed.items())


def judge_models(
    files: Iterable[str],
    models: str | None,
    splits: Sequence[str],
    counts: Sequence[int],
    seeds: int,
    source: str | None = None,
) -> tuple[list[dict[str, Any]], str]:
    """Returns the rows of :func:`~dietlab.cost.frame_judgements`, and the same as text.

    Args:
        splits: the kinds of records that are held out of the files; of no effect with a ``source``.
        counts: the numbers of measurements to fit on.
        source: the records of another operator or processor, on which models are fitted instead of on the
            files' records.
    """
    surveys = [Survey.load(recorded_file(name)) for name in files]
    names = named_words(COST_MODELS, models) if models else list(COST_MODELS)
    if source:
        known = Survey.load(recorded_file(source))
        found = [one for survey in surveys for one in judge_operator(known, survey, names, counts, seeds)]
    else:
        found = judge(surveys, names, splits, counts, seeds)
    rows = frame_judgements(found).to_dict("records")
    return rows, _table(rows)


def judge_drafts(files: Iterable[str], counts: Sequence[int], seeds: int) -> tuple[list[dict[str, Any]], str]:
    """Returns the rows of :func:`~dietlab.lab.heuristics.agreement.frame_measured`, and the same as text."""
    if len(counts) != 1:
        numbers = ", ".join(map(str, counts))
        raise DietlabError("--drafts needs one number in --told", numbers, f"For example --told {FITTED_ON}.")
    rows = []
    for path in map(recorded_file, files):
        frame = frame_measured(Survey.load(path), drawn_beside(path), counts[0], seeds)
        rows += frame.to_dict("records")
    cells = [[f"{v:.3f}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    return rows, markdown(list(rows[0]), cells)


def _counts(told: str | None, usual: int) -> list[int]:
    """Returns the numbers of measurements to fit on."""
    counts = words(told or str(usual))
    if wrong := [count for count in counts if not count.isdecimal()]:
        raise DietlabError("--told must have numbers, as in 64,400", ", ".join(wrong), "Commas divide them.")
    return [int(count) for count in counts]


def _require_options(context: click.Context, mode: str, names: str) -> None:
    """Checks that the command line has no options but those of the parameters ``names``, and ``--json``.

    Raises:
        DietlabError: if it has others; the message names the ``mode`` and the options that go with it.
    """
    options = {str(one.name): one.opts[0] for one in context.command.params if isinstance(one, click.Option)}
    typed = [name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    wrong = [options[name] for name in typed if name not in (*names.split(), "as_json")]
    if wrong:
        allowed = [options[name] for name in (*names.split(), "as_json") if options[name] != mode]
        remedy = f"Leave {', '.join(wrong)} out" + (
            "." if names else ", or name FILES to judge the models on."
        )
        raise DietlabError(f"{mode} can only be combined with {', '.join(allowed)}", ", ".join(wrong), remedy)


def _table(judged: Iterable[Mapping[str, Any]]) -> str:
    """Returns the table as text: the mean of each metric and, for some, its 95 % interval."""
    keys = ["survey", "split", "told", "model"]
    rows = []
    for row in judged:
        cells = [str(row[key]) for key in keys]
        for name, form in SHOWN.items():
            missing = name not in row or row[name] != row[name]
            ends = f" ({form} to {form})" if name in ("pairwise", "peak@1", "mape") else ""
            values = [row.get(f"{name}{end}") for end in ("", " low", " high")]
            cells.append("" if missing else (form + ends).format(*values))
        rows.append(cells)
    return markdown([*keys, *SHOWN], rows)

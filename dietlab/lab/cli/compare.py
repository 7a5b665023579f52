"""``dietlab compare``: search strategies on recorded measurements, on equal axes."""

from __future__ import annotations

import click

from dietlab.cli.names import named_words
from dietlab.cli.options import effort_option, json_option, parse_shapes, show
from dietlab.cli.parameters import OUT_FILE
from dietlab.cli.recorded import recorded_file
from dietlab.cli.telling import Telling, quiet_option
from dietlab.cost import Survey
from dietlab.lab.strategies.comparison import TARGET, compare_strategies, rivals, save_comparison, surveyed
from dietlab.lab.strategies.figures import comparison_table
from dietlab.measure import read_records
from dietlab.tuning import STRATEGIES
from dietlab.view.pages.bench_text import markdown

NOTES = (
    f"Trials until the best schemes tried reach {100 * TARGET:.0f} % of the exhaustive optimum, the "
    "geometric mean over the shapes: median over the seeds and its 95 % interval.\n"
    "Times random's: that over random search's, so that less than 1 is fewer."
)


@click.command("compare")
@click.argument("records", default="quickstart")
@click.option(
    "--strategies",
    metavar="NAME[,NAME]",
    help=f"Out of {'; '.join(rivals())}, or MODULE:NAME of your own (default: all; tpe needs the extra "
    "optuna).",
)
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="Runs of each.")
@click.option("--shapes", help="Shapes to tune for and to judge by (default: all of the records).")
@effort_option("quick")
@click.option("--out", type=OUT_FILE, metavar="FILE.json", help="Keep every run's course.")
@json_option
@quiet_option
def compare_command(
    records: str,
    strategies: str | None,
    seeds: int,
    shapes: str | None,
    effort: str,
    out: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Compare search strategies on a survey, without the hardware.

    RECORDS is a file of records in which every scheme was measured on every shape, as `dietlab survey` makes
    it, or the name of such a file that comes with dietlab: quickstart.

    \b
    dietlab compare
    dietlab compare quickstart --strategies draft,paper,random --seeds 20
    dietlab compare quickstart --strategies climbing:HillClimb,draft
    dietlab compare runs/survey.jsonl --effort full --out strategies.json
    """
    known = Survey.of(read_records(recorded_file(records)), records)
    survey = surveyed(known, parse_shapes(shapes, known.space.workload).shapes if shapes else ())
    names = named_words(STRATEGIES, strategies) if strategies else None
    with Telling("compare", ("compare",), quiet or as_json) as telling:
        found = compare_strategies(survey, names, range(seeds), effort, telling.observers)
    if out:
        save_comparison(found, out)
    rows = found.summary().to_dict("records")
    text = f"""{markdown(*comparison_table(found))}

The analytic draft alone, without a measurement: {100 * found.analytic:.1f} % of the optimum.
{NOTES}"""
    show({"survey": found.survey, "analytic": found.analytic, "strategies": rows}, as_json, text)

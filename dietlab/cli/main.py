"""``dietlab``: every stage from the command line. Each module of this folder has one family of commands."""

from __future__ import annotations

import click

from dietlab import __version__
from dietlab.cli.bench import ablate, bench
from dietlab.cli.commands import CommandGroup
from dietlab.cli.compare import compare_command
from dietlab.cli.compile import compile_command
from dietlab.cli.cost_models import cost_models_command
from dietlab.cli.doctor import doctor
from dietlab.cli.evaluation import evaluate_command, report_command
from dietlab.cli.fetch_records import fetch_records_command
from dietlab.cli.heuristics import heuristics_command
from dietlab.cli.kit import kit_group
from dietlab.cli.lab import lab
from dietlab.cli.model import model_command
from dietlab.cli.names import import_modules
from dietlab.cli.quickstart import quickstart
from dietlab.cli.recorded import replay, survey_command
from dietlab.cli.records import records_group
from dietlab.cli.reproduce import reproduce_command
from dietlab.cli.serve import serve_command
from dietlab.cli.stages import build_command, dispatch, space, tune_command


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="Import an operator, strategy, cost model or contender of your own, or a module that enters some: "
    "files may name them then. May be given again.",
)
def main(modules: tuple[str, ...]) -> None:
    """Tune a tensor operator for all shapes at once, and ship it as one library.

    \b
    The stages, each on its own:
      dietlab tune dense --dim T=1:128 --dim N=2304 --dim K=768 --out runs/x
      dietlab build runs/x --max-kernels 8
      dietlab evaluate runs/x --shapes every --against mkl-packed,openblas,oracle
    Or all of it, on an example: dietlab quickstart
    """
    import_modules(modules)


for command in (
    quickstart,
    space,
    tune_command,
    dispatch,
    build_command,
    evaluate_command,
    report_command,
    model_command,
    bench,
    ablate,
    reproduce_command,
    survey_command,
    replay,
    compare_command,
    cost_models_command,
    records_group,
    fetch_records_command,
    compile_command,
    heuristics_command,
    kit_group,
    doctor,
    lab,
    serve_command,
):
    main.add_command(command)

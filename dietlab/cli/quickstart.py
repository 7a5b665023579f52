"""``dietlab quickstart``: every stage in turn, on one dense layer of BERT-base."""

from __future__ import annotations

import click

from dietlab.cli.evaluation import save_report
from dietlab.cli.options import effort_option, parse_shapes, shape_set_option, threads_option
from dietlab.cli.recorded import tuning_text
from dietlab.cli.stages import study_hardware, tuned
from dietlab.cli.telling import BUILDING, TUNING, Telling, evaluating, quiet_option, tuned_for
from dietlab.compare.lineup import own_vendors
from dietlab.compare.study import Study
from dietlab.compare.target import BOUNDS
from dietlab.problem import Dim, ShapeSet, make_workload
from dietlab.view.pages.report import render_text

QUICKSTART = {"T": "1:128", "N": "2304", "K": "768"}
"""The operator of the quickstart: BERT-base's query, key and value projection."""

QUICKSTART_AGAINST = (*(name for name in own_vendors("cpu", "dense") if name != "zendnn"), *BOUNDS)
"""All contenders but the plain ZenDNN; the prepacked one is among them."""

HELD_OUT = 8
"""The number of evaluated shapes that tuning did not measure, about as many as it measured."""


@click.command()
@click.option("--out", default="runs/quickstart", show_default=True, type=click.Path(file_okay=False))
@threads_option
@effort_option("brief")
@shape_set_option()
@quiet_option
def quickstart(out: str, threads: int | None, effort: str, shapes: str | None, quiet: bool) -> None:
    """Tune, build and evaluate one layer of BERT, in two or three minutes.

    The layer is the query, key and value projection of BERT-base, tuned for this machine. --out is the
    study's folder; an interrupted command goes on in it.
    """
    workload = make_workload("dense", {name: Dim.parse(text) for name, text in QUICKSTART.items()})
    wanted, hardware = parse_shapes(shapes, workload), study_hardware(out, None, threads)
    study = Study.create(out, workload, hardware, wanted, effort, measure=True)
    with Telling("quickstart", (*TUNING, *BUILDING, *evaluating(QUICKSTART_AGAINST)), quiet) as telling:
        space = study.space()
        fits = f"{len(space)} schemes of {len(space.micro_kernels)} micro-kernels fit"
        telling.say(f"{tuned_for(workload, study.hardware)}: {fits}")
        telling.say(tuning_text(tuned(study, telling)))
        dispatcher = study.dispatch()
        op = study.build(telling.observers)
        telling.say(f"dispatcher: {dispatcher.card.summary}")
        telling.say(f"{op.path}: {op.manifest['file_bytes'] / 1024:.0f} KiB\n")
        report = study.evaluate(
            _quickstart_shapes(study), QUICKSTART_AGAINST, observers=telling.observers, skip_absent=True
        )
    click.echo(render_text(report))
    click.echo(save_report(report, study.folder))
    telling.suggest(out)


def _quickstart_shapes(study: Study) -> ShapeSet:
    """Returns the tuned shapes and some that tuning did not measure."""
    seen = {record.shape for record in study.run().records}
    every = ShapeSet.every(study.workload)
    unseen = [shape for shape in every if shape not in seen]
    sample = unseen[:: max(1, len(unseen) // HELD_OUT)]
    return ShapeSet.of(dict.fromkeys({*study.shapes, *sample}, 1.0))

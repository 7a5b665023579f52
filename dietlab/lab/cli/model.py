"""``dietlab model``: a whole model from end to end, with tuned layers and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dietlab.base.errors import DietlabError
from dietlab.base.files import locked
from dietlab.cli.evaluation import save_report
from dietlab.cli.names import words
from dietlab.cli.options import parse_shapes, shapes_option, shown
from dietlab.cli.telling import Telling, evaluating, quiet_option
from dietlab.compare.results.journal import resumed
from dietlab.compare.study import EVALUATION, Study
from dietlab.lab.models import (
    CONFIGURATIONS,
    DEFAULT_MODEL_CONTENDERS,
    MODEL_CONTENDERS,
    Model,
    evaluate_model,
    padded_lengths,
)
from dietlab.lab.models.given import IMAGES, SPEECH, WORDS
from dietlab.problem.dims import Dim
from dietlab.tuning import EFFORTS, effort_named
from dietlab.view.pages.report import render_text

EVERY = (WORDS, IMAGES, SPEECH)
LARGEST = ", ".join(f"{given.sizes.high} {given.unit}" for given in EVERY)
SMALLEST = ", ".join(f"{given.sizes.low}" for given in EVERY)

FOLDER = click.Path(exists=True, file_okay=False)


@click.command("model")
@click.argument("studies", nargs=-1, required=True, type=FOLDER)
@shown("--name", type=click.Choice(list(CONFIGURATIONS)), default="bert-base", help="The model.")
@shown("--batch", type=click.IntRange(1), default=1, help="Sentences, images or utterances in a call.")
@click.option("--longest", type=click.IntRange(1), help=f"The largest input (default: {LARGEST}).")
@click.option("--shortest", type=click.IntRange(1), help=f"The smallest input (default: {SMALLEST}).")
@click.option("--weights", type=FOLDER, help="A folder with its weights (default: random ones).")
@shapes_option()
@click.option(
    "--padded", is_flag=True, help="Also time the lengths to which padding policies of servers pad these."
)
@click.option(
    "--against",
    help=f"Contenders, out of {', '.join(MODEL_CONTENDERS)}; each must be installed (default: those that "
    f"are, of {', '.join(DEFAULT_MODEL_CONTENDERS)}).",
)
@shown("--effort", type=click.Choice(list(EFFORTS)), default="quick")
@click.option("--ansor-trials", type=click.IntRange(1), help="Trials a shape (default: the effort's).")
@click.option(
    "--ansor-lengths", help="Those of --shapes that ansor is tuned for, as in 5,62,128 (default: all)."
)
@click.option("--shares", is_flag=True, help="Also profile where the time goes.")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="The report's folder.")
@quiet_option
def model_command(
    studies: tuple[str, ...],
    name: str,
    batch: int,
    longest: int | None,
    shortest: int | None,
    weights: str | None,
    shapes: str | None,
    padded: bool,
    against: str,
    effort: str,
    ansor_trials: int | None,
    ansor_lengths: str | None,
    shares: bool,
    out: str,
    quiet: bool,
) -> None:
    """Time a whole model, its layers from a library, against PyTorch and others.

    STUDIES are folders of tuned studies that serve the layers of the model, for as many cores as the model is
    to run on: of dense layers, of convolutions and, for attention's products by libraries, of batch-matmul-nt
    and -nn. The same command goes on where it was stopped. AGAINST also takes ansor: programs that are tuned
    first, for each layer at each length.

    \b
    Models, with random weights unless --weights names a folder:
      bert-base  12 encoder layers, hidden 768 (the paper's figure 8)
      decoder    6 decoder layers, hidden 1280: one step of a server on T tokens
      experts    2 decoder layers, hidden 1024, 2 of 8 experts for each token
      resnet50   ResNet-50 on square images; sizes are sides in pixels
      whisper-base  Whisper's encoder, hidden 512; sizes are frames of 10 ms
      whisper-front  only the two convolutions in front of its layers
    Models whose names end in -tiny show that everything runs.

    \b
    dietlab model runs/every-layer --shapes paper --out runs/bert
    dietlab model runs/every-layer --name decoder --longest 2048 --shapes serving:16 --padded --out runs/llm
    dietlab model runs/resnet50/* --name resnet50 --shapes 128,200,224 --out runs/images
    """
    model = Model(name, batch, weights=weights or "")
    if longest or shortest:
        model = replace(model, sizes=Dim(shortest or model.range.low, longest or model.range.high))
    opened = [Study.open(folder) for folder in studies]
    lengths = parse_shapes(shapes or model.given.lengths, model)
    if padded and model.given is not WORDS:
        raise DietlabError("--padded is for models of words", name, "Leave it out.")
    folder, named = Path(out), None if against is None else words(against)
    names = list(DEFAULT_MODEL_CONTENDERS) if named is None else named
    chosen = effort_named(effort)
    chosen = replace(chosen, ansor_trials=ansor_trials or chosen.ansor_trials)
    few = parse_shapes(ansor_lengths, model) if ansor_lengths else None
    about: dict[str, Any] = {"model": model.to_json(), "lengths": lengths.to_json(), "effort": effort}
    about |= {"studies": [str(s.folder) for s in opened], "padded": padded, "against": names}
    about |= {"shares": True} if shares else {}
    if "ansor" in names:
        about["ansor"] = {"trials": chosen.ansor_trials, "lengths": (few or lengths).to_json()}
    stages = evaluating(names)[1:]  # nothing is built
    alone = locked(folder, "one comparison at a time works in a folder")
    with alone, Telling("model", stages, quiet) as telling:
        report = evaluate_model(
            model,
            opened,
            lengths,
            named,
            also=padded_lengths(model, lengths) if padded else (),
            effort=chosen,
            ansor_lengths=few,
            shares=shares,
            folder=folder,
            observers=telling.observers,
            journal=resumed(folder / EVALUATION, **about),
        )
        click.echo(render_text(report))
        click.echo(save_report(report, folder))

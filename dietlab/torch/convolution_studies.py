"""Finds and tunes the studies of a model's convolutions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from time import monotonic

from dietlab.base.cards import counted
from dietlab.base.errors import SpaceError, WorkloadError
from dietlab.base.events import Observer, audience
from dietlab.compare.results.report import study_folder
from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner
from dietlab.torch.choices import Choice, unfit_layer
from dietlab.torch.convolution_groups import Group, groups_of, serves, work_of
from dietlab.torch.convolution_operator import layer_text
from dietlab.torch.found import ModelLayer
from dietlab.torch.image_sizes import Sizes
from dietlab.view import ProgressBar
from dietlab.view.progress import duration

WORTH_TUNING = 0.01
"""The least share of the convolutions' multiply-adds in the examples for which a study is tuned."""

UNKNOWN = (
    "the sizes of its images are unknown: give optimize(model, examples=[smallest input, largest input])"
)
NOT_CALLED = "no example calls it"
LITTLE = f"too little work, less than {WORTH_TUNING:.0%} of the convolutions' multiply-adds"


def choices_for(
    convolutions: Sequence[ModelLayer],
    met: Mapping[int, Sequence[Sizes]],
    studies: Sequence[Study],
    home: Path,
    hardware: Hardware,
    effort: str,
) -> list[tuple[ModelLayer, Choice]]:
    """Returns each convolution with a study, perhaps one that is not tuned yet, or the reason why it stays
    PyTorch's.

    Args:
        met: the sizes that each convolution met, by ``id`` of the module; empty without examples.
        studies: the studies of this processor and its cores that are there.
        home: the folder of new studies.
        effort: the effort of new studies.
    """
    choices, left, work = list[tuple[ModelLayer, Choice]](), list[ModelLayer](), 0
    for layer in convolutions:
        sizes = met.get(id(layer.module), ())
        serving = (study for study in studies if serves(study, layer.module, sizes))
        reason = unfit_layer(layer)
        choice: Choice | None = reason or next(serving, None)
        if not reason:
            work += work_of(layer.module, sizes)
        if choice is None and sizes:
            left.append(layer)
        else:
            choices.append((layer, choice or (NOT_CALLED if met else UNKNOWN)))
    for group in groups_of(left, met):
        little = group.flops < WORTH_TUNING * work
        choice = LITTLE if little else _created(group, home, hardware, effort)
        choices += [(layer, choice) for layer in group.layers]
    return choices


def _created(group: Group, home: Path, hardware: Hardware, effort: str) -> Choice:
    """Returns a new study of an operator, or an equal one that is there; or why there can be none."""
    try:
        work, shapes = group.operator, group.shapes
        about = json.dumps([work.to_json(), shapes.to_json()], sort_keys=True)
        name = f"{work.operator}-{work.IC}-{work.OC}-{sha256(about.encode()).hexdigest()[:8]}"
        place = home / study_folder(name, hardware.cores)
        return Study.create(place, work, hardware, shapes, effort, measure=True)
    except (SpaceError, WorkloadError) as error:
        return f"no library computes {layer_text(group.layers[0].module)} ({error})"


def tune_all(studies: Sequence[Study], home: Path, observers: Iterable[Observer] | None) -> None:
    """Tunes studies one after the other, and prints how long that took and takes.

    Args:
        home: the folder of the studies.
        observers: the observers of tuning; None: a progress bar.
    """
    began, many = monotonic(), len(studies)
    print(
        f"dietlab tunes {counted(many, 'convolution')} for this machine, one after the other, each once. "
        f"Studies are kept in {home}; tuning that is stopped goes on at the next call.",
        file=sys.stderr,
    )
    for number, study in enumerate(studies, 1):
        with watching(observers, f"convolution {number} of {many}", "search", "decide") as listeners:
            with LocalRunner(study.hardware, study.timing) as runner:
                study.tune(runner, listeners)
            study.dispatch()
        taken = monotonic() - began
        left = f", about {duration(taken / number * (many - number))} left" if number < many else ""
        done = f"{number} of {counted(many, 'convolution')}"
        print(f"dietlab tuned {done} in {duration(taken)}{left}.", file=sys.stderr)


@contextmanager
def watching(observers: Iterable[Observer] | None, name: str, *stages: str) -> Iterator[Iterable[Observer]]:
    """Returns the observers of some stages: those given, or a progress bar with this name."""
    if observers is not None:
        yield audience(observers).observers
        return
    with ProgressBar(name, stages) as bar:
        yield (bar,)

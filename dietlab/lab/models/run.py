"""Times a whole model at many lengths: PyTorch with dietlab against all others, in turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dietlab.base.errors import DietlabError, MissingDependencyError, require_names
from dietlab.base.events import Audience, Observer, audience
from dietlab.compare.ansor.contender import AnsorResult, cost_of, detail_of, require_packages
from dietlab.compare.evaluate import standing
from dietlab.compare.presence import require_all
from dietlab.compare.results.journal import Journal, Turn
from dietlab.compare.results.report import Report
from dietlab.compare.results.row import ANSOR, OURS, ContenderInfo, Row, TimeShares
from dietlab.compare.session import Entrant, TimingSession, timed_row, with_speedup
from dietlab.compare.study import Study
from dietlab.compare.target import WorkerModule
from dietlab.compare.vendor import IN_FLOAT32
from dietlab.lab.models.forms import tune_layers, write_onnx
from dietlab.lab.models.runtimes import ALSO_OURS, KINDS, by_use
from dietlab.lab.models.zoo import Model
from dietlab.machine import Hardware
from dietlab.problem import Dense, Shape, ShapeSet
from dietlab.tuning import Effort, effort_named, versions

MODEL_CONTENDERS = tuple(name for name in KINDS if name != OURS)
"""The names of contenders that can take part, in addition to the model compiled ahead of time with dietlab's
layers."""

DEFAULT_MODEL_CONTENDERS = tuple(name for name in MODEL_CONTENDERS if name != ANSOR)
"""The contenders of an evaluation that names none: all contenders that need no tuning for each length."""

CACHE = "model"
"""The cache state: each layer's weights were last read one call ago, and all together exceed any cache."""

WORKER = WorkerModule("dietlab.lab.models.worker", 600.0)
"""The worker of all contenders, and the longest that a request may take, in seconds: the first call of a
compiled model takes minutes."""


def evaluate_model(
    model: Model,
    studies: Sequence[Study],
    lengths: ShapeSet,
    against: Sequence[str] | None = None,
    *,
    skip_absent: bool | None = None,
    also: Iterable[Shape] = (),
    effort: str | Effort = "quick",
    ansor_lengths: ShapeSet | None = None,
    shares: bool = False,
    folder: str | Path | None = None,
    observers: Iterable[Observer] = (),
    journal: Journal | None = None,
) -> Report:
    """Times a model whose layers run through tuned libraries, after checking its results.

    Args:
        model: the model, with its batch.
        studies: the studies of its layers (dense layers and convolutions) and, if attention runs through
            libraries, of its scores and context. All studies are of this processor with the same number of
            cores.
        lengths: the sizes of the inputs. A size is held out if some layer was not tuned for what it makes of
            it: rows of a dense layer (batch x T), or images of a convolution.
        against: the names of contenders among :data:`MODEL_CONTENDERS` (default:
            :data:`DEFAULT_MODEL_CONTENDERS`).
        skip_absent: whether contenders that are not installed are only reported (default: only those that
            ``against`` does not name).
        also: the lengths that are timed in addition, and count in no mean.
        effort: the time for which each contender is timed, and the number of trials for each shape that
            ``ansor`` is tuned for.
        ansor_lengths: the ones of ``lengths`` that ``ansor`` is tuned for (default: all). At others,
            ``ansor`` has no row.
        shares: whether rows have the shares of a call's time.
        folder: the folder that keeps the model's file for ONNX Runtime and the tuned programs of ``ansor``
            between evaluations (default: none).
        observers: the observers, which get each event as it happens.
        journal: the journal, which keeps the rows of each length at once. Rows in the journal are not
            measured again.

    Returns:
        The report; its ``seconds`` are the seconds of one call.

    Raises:
        DietlabError: for an unknown contender, no study, studies of several processors, studies that serve no
            layer, a study of attention's products with another batch, a size that the model does not take,
            too many lengths for ``ansor``, or lengths for it that are not timed.
        MissingDependencyError: without PyTorch or ``transformers``, or without a contender that was named.
    """
    skip_absent = against is None if skip_absent is None else skip_absent
    against = DEFAULT_MODEL_CONTENDERS if against is None else against
    require_names("contenders", MODEL_CONTENDERS, against, DietlabError)
    if ANSOR in against and not skip_absent:
        require_packages()
    hardware, also = _processor(model, studies), tuple(also)
    for shape in (*lengths, *also):
        model.size_of(shape)
    chosen = ansor_lengths or lengths
    if outside := set(chosen) - set(lengths):
        names = ", ".join(map(str, sorted(outside)))
        raise DietlabError("the lengths of ansor must be timed, too", names, "Add them to the lengths.")
    every = sorted({*lengths, *also})
    seen = {shape for shape in every if tuned_for(model, by_use(studies)[0], shape)}
    lengths = lengths.hold_out_all_but(shape for shape in lengths if shape in seen)
    effort, listeners, journal = effort_named(effort), audience(observers), journal or Journal(None, {})
    with ExitStack() as stack:
        home = Path(folder) if folder else Path(stack.enter_context(TemporaryDirectory()))
        trials = effort.ansor_trials
        entries, absent, results = _entries(model, studies, against, home, chosen, trials, listeners)
        with listeners.stage("open", len(entries), "contender") as progress:
            match = stack.enter_context(TimingSession(model, hardware, entries, WORKER))
            progress.advance(by=len(entries))
        if not skip_absent:
            require_all((*match.contenders, *absent))
        rows = list[Row]()
        with listeners.stage("evaluate", len(every), "length") as progress:
            for shape in every:
                turn = Turn("", hardware.cores, CACHE, shape)
                measured = partial(_rows, match, model, effort, shape, shape not in seen, shares)
                rows += journal.measured(turn, measured)
                progress.advance(standing(rows, ALSO_OURS))
        return Report(
            workload=model.to_json(),
            hardware=hardware.to_json(),
            versions=versions(),
            tuning={**_tuning(studies), **(cost_of(results) if results else {})},
            rows=tuple(rows),
            contenders=(*match.contenders, *absent),
            notes=(match.note, IN_FLOAT32),
            shape_set=lengths,
        )


def _processor(model: Model, studies: Sequence[Study]) -> Hardware:
    layers, attention = by_use(studies)
    if not layers or len(attention) not in (0, 2):
        rule = "a model needs studies of its layers, and either two of its attention or none"
        raise DietlabError(rule, f"{len(layers)} and {len(attention)}")
    first, *others = (study.hardware for study in studies)
    if not first.limits.on_host:
        remedy = "scripts/gpu_bert.py times BERT on a GPU."
        raise DietlabError("a model is timed on a CPU, by studies of one", first.name, remedy)
    for other in others:
        if not other.is_same_as(first) or other.cores != first.cores:
            raise DietlabError("a model's studies must be of one processor and number of cores", other)
    if attention:
        from dietlab.torch.attention import require_products

        for study in attention:
            require_products(study.workload, model.configuration.num_attention_heads, model.batch)
    return first


def _entries(
    model: Model,
    studies: Sequence[Study],
    against: Sequence[str],
    home: Path,
    ansor_lengths: ShapeSet,
    trials: int,
    listeners: Audience,
) -> tuple[list[Entrant], list[ContenderInfo], tuple[AnsorResult, ...]]:
    """Returns three values: the contenders that take part, dietlab first; the contenders that cannot; and the
    results of per-shape tuning.
    """
    ours = {"studies": [str(study.folder.resolve()) for study in studies]}
    options: dict[str, dict[str, Any]] = dict.fromkeys((OURS, *ALSO_OURS), ours)
    absent, results = list[ContenderInfo](), tuple[AnsorResult, ...]()
    for name in (known for known in (ANSOR, "onnxruntime") if known in against):
        try:
            if name == ANSOR:
                programs, hardware = home / "ansor", studies[0].hardware
                results = tune_layers(model, hardware, ansor_lengths, programs, trials, listeners)
                lengths = [model.size_of(shape) for shape in ansor_lengths]
                options[ANSOR] = {"ansor": str(programs), "lengths": lengths}
            else:
                options[name] = {"onnx": str(write_onnx(model, home))}
        except MissingDependencyError as error:
            absent.append(ContenderInfo(name, KINDS[name], absent=str(error)))
    details = {ANSOR: detail_of(results)} if results else {}
    missing = {info.name for info in absent}
    names = [OURS, *(name for name in against if name not in missing)]
    entries = [Entrant(name, name, options=options.get(name), detail=details.get(name, "")) for name in names]
    return entries, absent, results


def _rows(
    match: TimingSession, model: Model, effort: Effort, shape: Shape, held_out: bool, shares: bool
) -> list[Row]:
    played = match.play(shape, CACHE, effort.evaluation_blocks, effort.evaluation_block_seconds, {})
    turns = {name: several[0] for name, several in played.items()}
    flops, ours = model.flops(shape), turns[OURS].samples if OURS in turns else ()
    rows = [
        with_speedup(timed_row(shape, name, CACHE, turn, flops=flops, held_out=held_out), turn, ours)
        for name, turn in turns.items()
    ]
    for place, row in enumerate(rows):
        if shares and row.correct and (found := match.ask(row.contender, "shares", row.shape)):
            rows[place] = replace(row, shares=TimeShares(**found))
    return rows


def _tuning(studies: Sequence[Study]) -> dict[str, Any]:
    """Returns the total numbers of seconds, trials and measurements of tuning all libraries of the model."""
    runs = [study.run() for study in studies]
    return {
        "total_seconds": round(sum(run.seconds.total for run in runs), 2),
        "trials": sum(run.trials for run in runs),
        "measurements": sum(len(run.measurements) for run in runs),
    }


def tuned_for(model: Model, studies: Sequence[Study], shape: Shape) -> bool:
    """Returns whether every layer that a study serves meets, at this input, a shape that it was tuned for."""
    dense = [study for study in studies if isinstance(study.workload, Dense)]
    rows = model.rows(shape)
    if not all(any(tuned["T"] == rows for tuned in study.shapes) for study in dense):
        return False
    others = [study for study in studies if study not in dense]
    return not others or all(met in study.shapes.shapes for study, met in _met(model, others, shape))


def _met(model: Model, studies: Sequence[Study], shape: Shape) -> Iterator[tuple[Study, Shape]]:
    """Yields the shape that each convolution of a study meets. The model is called without computing it."""
    import torch

    from dietlab.torch.convolution_operator import is_of
    from dietlab.torch.found import convolutions_in
    from dietlab.torch.image_sizes import sizes_met

    with torch.device("meta"):
        built = model.build()
        modules = [layer.module for layer in convolutions_in(built)]
        found = sizes_met(built, modules, [torch.empty(model.input(shape).shape)])
    for module in modules:
        for study in studies:
            work: Any = study.workload
            if is_of(work, module):
                extents = dict(zip(("N", *work.image), found[id(module)][0], strict=True))
                channels = {"IC": module.in_channels, "OC": module.out_channels}
                yield study, Shape.of(**{name: {**extents, **channels}[name] for name in work.dims})

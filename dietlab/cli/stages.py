"""``dietlab space``, ``tune``, ``dispatch`` and ``build``: the stages from an operator to its library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dietlab.base.errors import DietlabError
from dietlab.cli.operators import workload_options
from dietlab.cli.options import (
    ahead_option,
    cost_model_option,
    cover_option,
    effort_option,
    hardware_option,
    json_option,
    key_option,
    max_kernels_option,
    parse_shapes,
    processor,
    require_cores,
    rpc_option,
    shapes_option,
    show,
    strategy_option,
    target_option,
    threads_option,
    transfer_option,
)
from dietlab.cli.recorded import recorded_file, tuning_facts, tuning_text
from dietlab.cli.telling import BUILDING, TUNING, Telling, quiet_option, tuned_for
from dietlab.compare.study import DISPATCHER, Study
from dietlab.compare.study_manifest import MANIFEST
from dietlab.cost import Prior
from dietlab.machine import Hardware
from dietlab.measure import Budget, LocalRunner, RemoteRunner, read_records
from dietlab.measure.local import require_tools
from dietlab.measure.rpc.client import Servers, remote_hardware
from dietlab.measure.timing.rotation import exceeded_bytes, shortage
from dietlab.problem import Workload
from dietlab.scheme import Cover, build_space, edges_of
from dietlab.tuning import TuningRun
from dietlab.tuning.measured import beyond_measured, reach_of


@click.command()
@workload_options
@cover_option
@threads_option
@hardware_option
@json_option
def space(workload: Workload, cover: Cover, threads: int | None, hardware: str | None, as_json: bool) -> None:
    """Show which schemes fit, and why the others do not."""
    chosen = processor(hardware, threads)
    found = build_space(workload, chosen, edges_of(cover, workload, chosen))
    rejections = found.rejections
    value = {"schemes": [scheme.key for scheme in found], "rejections": rejections.to_dict("records")}
    table = rejections.to_string(index=False)
    fits = f"{len(found)} schemes of {len(found.micro_kernels)} micro-kernels fit"
    text = f"{workload} on {found.hardware.name}: {fits}\n\n{table}"
    show(value, as_json, text)


@click.command("tune")
@workload_options
@cover_option
@threads_option
@target_option
@hardware_option
@effort_option("quick")
@strategy_option
@cost_model_option
@transfer_option
@shapes_option()
@max_kernels_option
@rpc_option
@key_option
@ahead_option
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="Begin nothing more after this many seconds, measuring the machine included; the same command goes "
    "on. Default: until the effort is spent.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    help="The study folder; an interrupted run in it goes on.",
)
@json_option
@quiet_option
def tune_command(
    workload: Workload,
    threads: int | None,
    target: str,
    hardware: str | None,
    sources: tuple[str, ...],
    shapes: str | None,
    rpc: tuple[str, int] | None,
    key: str | None,
    ahead: bool | None,
    seed: int,
    seconds: float | None,
    out: str,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Search schemes for all shapes, then measure those that the library depends on."""
    budget = Budget(seconds) if seconds else Budget()
    if (rpc is None) != (key is None):
        raise DietlabError("--rpc and --key need each other", f"only {'--key' if rpc is None else '--rpc'}")
    wanted = parse_shapes(shapes, workload)
    prior = Prior.fit([read_records(recorded_file(source)) for source in sources], seed) if sources else None
    servers = (rpc, key) if rpc and key else None
    chosen = study_hardware(out, hardware, threads, target, servers)
    study = Study.create(
        out,
        workload,
        chosen,
        wanted,
        seed=seed,
        prior=prior,
        **settings,
        measure=hardware is None and rpc is None and chosen.limits.on_host,
    )
    measures_here = rpc is None and study.hardware.limits.on_host
    short = shortage(study.hardware, exceeded_bytes(study.hardware)) if measures_here else ""
    with Telling("tune", TUNING, quiet) as telling:
        if not as_json:
            telling.say(tuned_for(workload, study.hardware))
        if prior and not as_json:
            telling.say(prior.describe(study.hardware))
        run = tuned(study, telling, servers, ahead, budget)
    show(tuning_facts(run), as_json, tuning_text(run))
    if not as_json:
        warn(short)
        if budget.stopped:
            warn(f"the time was up after {budget.spent:.0f} s; the same command goes on")
        warn(beyond_measured(run.space.workload.dims, reach_of(run)))
        telling.suggest(out)


def warn(caution: str) -> None:
    """Prints a caution, if there is one, after the result."""
    if caution:
        click.echo(f"note: {caution}")


Tracked = tuple[tuple[str, int], str]
"""A tracker's host and port, and a key."""


def study_hardware(
    out: str,
    hardware: str | None,
    threads: int | None,
    target: str = "cpu",
    servers: Tracked | None = None,
) -> Hardware:
    """Returns the requested processor; the processor of the study in ``out`` if the options agree with it. A
    processor of ``servers`` was measured there. This machine's processor is not measured here: a new study
    measures it after all checks.

    Raises:
        DietlabError: if a new study could not be tuned: no tracker answers, or this machine lacks the
            processor, its cores, or a tool.
    """
    if not (Path(out) / MANIFEST).exists():
        if servers and hardware is None:
            return remote_hardware(*servers, cores=threads or 1, target=target)
        chosen = processor(hardware, threads, target=target)
        if servers:
            with Servers(*servers) as tracked:
                tracked.queue()
        else:
            require_cores(chosen.threads)
            require_tools(chosen)
        return chosen
    known = Study.open(out).hardware
    if hardware is None and known.kind == target and threads in (None, known.cores):
        return known
    cores = threads or (known.cores if known.limits.on_host else None)
    return processor(hardware, cores, target=target)


def tuned(
    study: Study,
    telling: Telling,
    servers: Tracked | None = None,
    ahead: bool | None = None,
    budget: Budget | None = None,
) -> TuningRun:
    """Tunes a study here or on ``servers``; for other arguments see :meth:`Study.tune`."""
    chip, timing = study.hardware, study.timing
    with RemoteRunner(chip, *servers, timing=timing) if servers else LocalRunner(chip, timing) as runner:
        return study.tune(runner, telling.observers, ahead, budget)


@click.command()
@click.argument("study", type=click.Path(exists=True))
@max_kernels_option
@quiet_option
def dispatch(study: str, max_kernels: int | None, quiet: bool) -> None:
    """Choose the portfolio, train the decision tree and print it."""
    dispatcher = Study.open(study).dispatch(max_kernels)
    click.echo(f"{dispatcher.card.summary}\n\n{dispatcher.to_source()}")
    Telling("dispatch", (), quiet).suggest(study)


@click.command("build")
@click.argument("study", type=click.Path(exists=True))
@max_kernels_option
@quiet_option
def build_command(study: str, max_kernels: int | None, quiet: bool) -> None:
    """Compile the dispatcher into one shared library."""
    opened = Study.open(study)
    with Telling("build", BUILDING, quiet) as telling:
        if max_kernels is not None or not (opened.folder / DISPATCHER).exists():
            opened.dispatch(max_kernels)
        op = opened.build(telling.observers)
    click.echo(
        f"{op}\n{op.path}: {op.manifest['file_bytes'] / 1024:.0f} KiB, of which "
        f"{op.manifest['code_bytes'] / 1024:.0f} KiB machine code"
    )
    if op.refusal:
        click.echo(f"It does not run on this machine: {op.refusal.value}")
    warn(opened.dispatcher().caution)
    telling.suggest(study)

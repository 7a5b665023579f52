"""``dietlab replay`` and ``dietlab survey``: search recorded measurements again, and record them all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dietlab.base.errors import RecordError
from dietlab.base.shipped import data_names, data_path
from dietlab.cli.operators import workload_options
from dietlab.cli.options import (
    effort_option,
    json_option,
    parse_shapes,
    processor,
    shapes_option,
    show,
    strategy_option,
    threads_option,
)
from dietlab.cli.parameters import OUT_FILE
from dietlab.cli.telling import Telling, quiet_option, tuned_for
from dietlab.compare.study_manifest import RECORDS
from dietlab.machine import Hardware
from dietlab.measure import LocalRunner, RecordStore, ReplayRunner, read_records, write_compressed
from dietlab.measure.record import DECIDE
from dietlab.problem import ShapeSet, Workload, workload_from_json
from dietlab.scheme import build_space
from dietlab.tuning import TuningRun, effort_named, survey, tune
from dietlab.tuning.survey import records_header

BROUGHT = f"{RECORDS}.gz"
"""The name of a file of records, in its folder in ``data``."""


def tuning_facts(run: TuningRun) -> dict[str, Any]:
    return {
        "trials": run.trials,
        "failures": run.failures,
        "measurements": len(run.measurements),
        "space": len(run.space),
        "seconds": run.seconds.to_json(),
        "best_gflops": max(r.gflops(run.space.workload) for r in run.records),
    }


def tuning_text(run: TuningRun) -> str:
    facts = tuning_facts(run)
    phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in facts["seconds"].items())
    return (
        f"{facts['trials']} schemes of {facts['space']} measured ({facts['failures']} failed), best "
        f"{facts['best_gflops']:.1f} GFLOP/s, {run.seconds.total:.1f} s: {phases}"
    )


@click.command()
@click.argument("records")
@effort_option("quick")
@strategy_option
@click.option("--seed", default=0, show_default=True)
@json_option
def replay(records: str, effort: str, strategy: str, seed: int, as_json: bool) -> None:
    """Search recorded measurements again, without the hardware.

    RECORDS is a file of records, or the name of one that dietlab brings: quickstart.
    """
    run = replay_run(recorded_file(records), effort, strategy, seed)
    show(tuning_facts(run), as_json, tuning_text(run))


def recorded_file(name: str) -> Path:
    """Returns a file of records by its path, by its study's folder, or by its folder in dietlab's ``data``.

    Raises:
        RecordError: if there is none.
    """
    path = Path(name)
    if path.is_file():
        return path
    if (path / RECORDS).is_file():
        return path / RECORDS
    if f"{name}/{BROUGHT}" in data_names():
        return data_path(f"{name}/{BROUGHT}")
    brought = sorted(known.rpartition("/")[0] for known in data_names() if known.endswith(f"/{BROUGHT}"))
    raise RecordError(
        f"records must be a file, a study's folder with {RECORDS}, or the name of one that dietlab brings",
        f"a folder without it, {name}" if path.is_dir() else repr(name),
        f"Such a name is {' or '.join(brought)}.",
    )


def replay_run(records: str | Path, effort: str, strategy: str, seed: int = 0) -> TuningRun:
    """Runs a search in the space and on the shapes of the records."""
    file = read_records(records)
    runner = ReplayRunner(file.records)
    workload = workload_from_json(file.header["workload"])
    if not file.records:
        raise RecordError("replaying a search needs measurements", f"none in {records}", "Tune first.")
    # Deciding also measures tiles that are not in the space, if several tiles cover the rows.
    found = [r for r in file.records if r.asked_by is None or r.asked_by.stage != DECIDE]
    edges = {record.scheme.edge for record in found}
    whole = build_space(workload, Hardware.from_json(file.header["hardware"]), sorted(edges))
    preset = effort_named(effort)
    timing = replace(preset.timing, cache=file.header.get("cache", "hot"))
    chosen = replace(preset, timing=timing)
    recorded = whole.restricted_to(record.scheme for record in found)
    shapes = ShapeSet.of(dict.fromkeys(runner.shapes, 1.0))
    return tune(recorded, shapes, runner, chosen, strategy, seed=seed)


@click.command("survey")
@workload_options
@threads_option
@shapes_option()
@click.option("--records", required=True, type=OUT_FILE, help="The .jsonl file, new or begun.")
@click.option("--pack", type=OUT_FILE, help="Also write it compressed (.jsonl.gz).")
@quiet_option
def survey_command(
    workload: Workload, threads: int | None, shapes: str | None, records: str, pack: str | None, quiet: bool
) -> None:
    """Measure every micro-kernel on every shape, to replay.

    It takes minutes. An interrupted command goes on in the same file.
    """
    path, wanted = Path(records), parse_shapes(shapes, workload).shapes
    if pack and not pack.endswith(".jsonl.gz"):
        raise RecordError("--pack needs the name of a .jsonl.gz file", pack)
    known = read_records(path).hardware if path.exists() else None
    hardware = known or processor(None, threads)
    space, timing = build_space(workload, hardware), effort_named("quick").timing
    if known is None:
        hardware = hardware.measured()
        space = build_space(workload, hardware)
    header = records_header(workload, hardware, timing.cache)
    store = RecordStore(path, header)
    with LocalRunner(hardware, timing) as runner, Telling("survey", ("survey",), quiet) as telling:
        telling.say(tuned_for(workload, hardware))
        found = survey(space, wanted, runner, store, telling.observers)
    if pack:
        write_compressed(pack, header, found)
    click.echo(f"{len(found)} records, {sum(not record.ok for record in found)} failures: {pack or records}")
    telling.suggest(pack or records)

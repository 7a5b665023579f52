"""``dietlab``: every stage from the command line. Thin: what it does stands in the stages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click

from dietlab import __version__
from dietlab.cli.bench import ablate, bench
from dietlab.cli.compile import compile_command
from dietlab.cli.doctor import examine
from dietlab.cli.heuristics import heuristics_command
from dietlab.cli.lab import lab
from dietlab.cli.options import (
    QUICKSTART,
    SHAPES_HELP,
    cover_option,
    effort_option,
    hardware_option,
    json_option,
    page_or_reason,
    parse_shapes,
    processor,
    shapes_option,
    show,
    strategy_option,
    target_option,
    threads_option,
    workload_options,
)
from dietlab.cli.recorded import replay, survey_command, tuning_facts, tuning_text
from dietlab.dispatch import Dispatcher
from dietlab.errors import DietlabError
from dietlab.evaluation import CONTENDERS, DEFAULT_CONTENDERS, Report
from dietlab.hardware import Hardware
from dietlab.measure import (
    CACHE_STATES,
    LocalRunner,
)
from dietlab.search import EFFORTS, TuningRun, effort_named
from dietlab.shapes import Dim, ShapeSet
from dietlab.space import Cover, build_space, edges_of
from dietlab.study import DISPATCHER, MANIFEST, REPORT, Study
from dietlab.view.html_report import render_text, write_html
from dietlab.view.progress import ProgressBar
from dietlab.workloads import Workload, make_workload

QUICKSTART_AGAINST = (
    "openblas",
    "mkl",
    "mkl-packed",
    "torch",
    "onednn-packed",
    "zendnn-packed",
    "onnxruntime",
    "ansor",
    "largest-shape",
    "oracle",
)


class _Group(click.Group):
    """Errors of dietlab's own become one line and exit status 2; Ctrl-C says that nothing is lost."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except DietlabError as error:
            click.echo(f"dietlab: {error}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("\ndietlab: stopped; what was measured stays, the same command goes on.", err=True)
            ctx.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def main() -> None:
    """Tune a tensor operator for all shapes at once, and ship it as one library.

    \b
    The stages, each on its own:
      dietlab tune dense --dim T=1:128 --dim N=2304 --dim K=768 --out runs/x
      dietlab build runs/x --max-kernels 8
      dietlab evaluate runs/x --shapes every --against mkl-packed,openblas,oracle
    Or all of it, on an example: dietlab quickstart
    """


@main.command()
@json_option
def doctor(as_json: bool) -> None:
    """Check that this machine has what dietlab needs, and what is missing."""
    findings = examine()
    text = "\n".join(
        f"{'ok  ' if f.ok else 'MISS' if f.needed else '-   '} {f.what}: {f.found}" for f in findings
    )
    show([vars(f) for f in findings], as_json, text)
    if any(f.needed and not f.ok for f in findings):
        raise SystemExit(1)


@main.command()
@workload_options
@cover_option
@threads_option
@hardware_option
@json_option
def space(workload: Workload, cover: Cover, threads: int | None, hardware: str | None, as_json: bool) -> None:
    """Show which micro-kernels fit the hardware, and why the others do not."""
    chosen = processor(hardware, threads, measure=False)
    found = build_space(workload, chosen, edges_of(cover, workload, chosen))
    rejections = found.rejections
    value = {"micro_kernels": [k.key for k in found], "rejections": rejections.to_dict("records")}
    table = rejections.to_string(index=False)
    text = f"{workload} on {found.hardware.name}: {len(found)} micro-kernels fit\n\n{table}"
    show(value, as_json, text)


@main.command("tune")
@workload_options
@cover_option
@threads_option
@target_option
@hardware_option
@effort_option
@strategy_option
@shapes_option
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    help="The study folder; an interrupted run in it goes on.",
)
@json_option
def tune_command(
    workload: Workload,
    cover: Cover,
    threads: int | None,
    target: Literal["cpu", "cuda"],
    hardware: str | None,
    effort: str,
    strategy: str,
    shapes: str,
    seed: int,
    out: str,
    as_json: bool,
) -> None:
    """Measure micro-kernels for all shapes at once and fit the cost model."""
    chosen = _study_hardware(out, hardware, threads, target)
    wanted = parse_shapes(shapes, workload)
    study = Study.create(out, workload, chosen, wanted, effort, strategy, seed, cover)
    run = _tune(study)
    show(tuning_facts(run), as_json, tuning_text(run))


def _study_hardware(
    out: str, hardware: str | None, threads: int | None, target: Literal["cpu", "cuda"] = "cpu"
) -> Hardware:
    """The processor asked for, measured; that of the study in ``out`` if it is the same, because a
    resumed run is not measured again."""
    if not (Path(out) / MANIFEST).exists():
        return processor(hardware, threads, measure=True, target=target)
    known = Study.open(out).hardware
    if hardware is None and known.kind == target and threads in (None, known.cores):
        return known
    cores = threads or (known.cores if known.kind == "cpu" else None)
    return processor(hardware, cores, measure=False, target=target)


def _tune(study: Study) -> TuningRun:
    with LocalRunner(study.hardware, effort_named(study.effort).timing) as runner:
        return study.tune(runner, [ProgressBar()])


@main.command()
@click.argument("study", type=click.Path(exists=True))
@click.option("--max-kernels", default=8, show_default=True, type=click.IntRange(1))
@click.option(
    "--measure/--no-measure",
    default=None,
    help="Measure what the tree chooses, up to 128 rows, where it was only predicted (default: if the "
    "study is of this machine).",
)
def dispatch(study: str, max_kernels: int, measure: bool | None) -> None:
    """Choose the portfolio and train the decision tree; print its rules."""
    dispatcher = _dispatch(Study.open(study), max_kernels, measure)
    click.echo(f"{dispatcher.card.summary}\n\n{dispatcher.to_source()}")


def _dispatch(study: Study, max_kernels: int = 8, measure: bool | None = None) -> Dispatcher:
    here = Hardware.detect(measure=False)
    is_here = (here.name, here.limits) == (study.hardware.name, study.hardware.limits)
    if not (is_here if measure is None else measure):
        return study.dispatch(max_kernels)
    with LocalRunner(study.hardware, effort_named(study.effort).timing) as runner:
        return study.dispatch(max_kernels, runner, [ProgressBar()])


@main.command("build")
@click.argument("study", type=click.Path(exists=True))
@click.option("--max-kernels", type=click.IntRange(1), help="Choose a new portfolio of at most so many.")
def build_command(study: str, max_kernels: int | None) -> None:
    """Compile the dispatcher into one shared library."""
    opened = Study.open(study)
    if max_kernels is not None or not (opened.folder / DISPATCHER).exists():
        _dispatch(opened, max_kernels or 8)
    op = opened.build()
    click.echo(
        f"{op}\n{op.path}: {op.manifest['file_bytes'] / 1024:.0f} KiB, of which "
        f"{op.manifest['code_bytes'] / 1024:.0f} KiB machine code"
    )


@main.command("evaluate")
@click.argument("study", type=click.Path(exists=True))
@click.option("--shapes", default="every", show_default=True, help=SHAPES_HELP)
@click.option(
    "--against",
    default=",".join(DEFAULT_CONTENDERS),
    show_default=True,
    help=f"Contenders, out of {', '.join(CONTENDERS)}.",
)
@click.option(
    "--cache",
    "caches",
    default="rotating",
    show_default=True,
    help=f"One or more of {', '.join(CACHE_STATES)}.",
)
@click.option("--effort", type=click.Choice(list(EFFORTS)), help="How long to time (default: the study's).")
@click.option("--ansor-trials", type=click.IntRange(1), help="Trials a shape (default: the effort's).")
@click.option("--ansor-seconds", type=float, help="Begin no further shape after this; 0 means all shapes.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Also write the report here.")
def evaluate_command(
    study: str,
    shapes: str,
    against: str,
    caches: str,
    effort: str | None,
    ansor_trials: int | None,
    ansor_seconds: float | None,
    json_path: str | None,
) -> None:
    """Time the library against vendors, per-shape tuning and the oracle, in turns."""
    opened = Study.open(study)
    chosen = effort_named(effort or opened.effort)
    if ansor_trials is not None:
        chosen = replace(chosen, ansor_trials=ansor_trials)
    if ansor_seconds is not None:
        chosen = replace(chosen, ansor_seconds=ansor_seconds or None)
    report = opened.evaluate(
        parse_shapes(shapes, opened.workload),
        [name for name in against.split(",") if name],
        caches.split(","),
        chosen,
        [ProgressBar()],
    )
    page = _save(report, opened.folder, json_path)
    click.echo(f"{render_text(report)}\n{page}")


def _save(report: Report, folder: Path, json_path: str | None = None) -> str:
    """Writes the report and its page; returns the page's path, or a sentence on why there is none."""
    report.save(folder / REPORT)
    if json_path and Path(json_path).resolve() != (folder / REPORT).resolve():
        report.save(json_path)
    return page_or_reason(partial(write_html, report, folder / "report.html"))


@main.command("report")
@click.argument("study", type=click.Path(exists=True))
@click.option("--html", type=click.Path(dir_okay=False), help="Write the page here (default: in the study).")
def report_command(study: str, html: str | None) -> None:
    """Print the last evaluation's table and write its page."""
    opened = Study.open(study)
    report = opened.report()
    click.echo(render_text(report))
    page = partial(write_html, report, html or opened.folder / "report.html")
    click.echo(page() if html else page_or_reason(page))


@main.command()
@click.option("--out", default="runs/quickstart", show_default=True, type=click.Path(file_okay=False))
@threads_option
@effort_option
@click.option("--shapes", default="uniform:8", show_default=True, help=f"What to tune for. {SHAPES_HELP}")
def quickstart(out: str, threads: int | None, effort: str, shapes: str) -> None:
    """Tune BERT-base's QKV projection for this machine, build it, evaluate it: at most 5 minutes."""
    workload = make_workload("dense", {name: Dim.parse(text) for name, text in QUICKSTART.items()})
    hardware = _study_hardware(out, None, threads)
    study = Study.create(out, workload, hardware, parse_shapes(shapes, workload), effort)
    click.echo(
        f"{workload} on {hardware.name}, {hardware.cores} core(s): {len(study.space())} micro-kernels fit"
    )
    click.echo(tuning_text(_tune(study)))
    dispatcher = _dispatch(study)
    op = study.build()
    click.echo(f"{dispatcher}\n{op.path}: {op.manifest['file_bytes'] / 1024:.0f} KiB")
    report = study.evaluate(_quickstart_shapes(study), QUICKSTART_AGAINST, observers=[ProgressBar()])
    page = _save(report, study.folder)
    click.echo(f"\n{render_text(report)}\n{page}")


def _quickstart_shapes(study: Study) -> ShapeSet:
    """The tuned shapes and as many that tuning never saw."""
    seen = {record.shape for record in study.run().records}
    every = ShapeSet.every(study.workload)
    unseen = [shape for shape in every if shape not in seen]
    sample = unseen[:: max(1, len(unseen) // 16)]
    return ShapeSet.of(dict.fromkeys({*study.shapes, *sample}, 1.0))


main.add_command(bench)
main.add_command(ablate)
main.add_command(compile_command)
main.add_command(heuristics_command)
main.add_command(replay)
main.add_command(survey_command)
main.add_command(lab)

"""``dietlab bench`` and ``dietlab ablate``: the whole table, and one micro-kernel taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dietlab.bench.ablation import FOLDER, run_ablation
from dietlab.bench.journal import read_journal
from dietlab.bench.run import JOURNAL, TABLE, run_bench
from dietlab.bench.suite import LENGTHS, SUITES, suite_named
from dietlab.bench.table import BenchTable
from dietlab.evaluation import CONTENDERS
from dietlab.measure import CACHE_STATES
from dietlab.search import EFFORTS
from dietlab.view.bench_page import plans_in, write_bench
from dietlab.view.bench_text import render_bench
from dietlab.view.progress import ProgressBar


@click.command()
@click.option(
    "--suite", default="bert-cpu", show_default=True, type=click.Choice(list(SUITES)), help="What to run."
)
@click.option("--out", default="runs/bench", show_default=True, type=click.Path(file_okay=False))
@click.option("--threads", default="1", show_default=True, metavar="N[,N]", help="As in 1,2.")
@click.option(
    "--caches", default=",".join(CACHE_STATES), show_default=True, help="Cache states, out of these."
)
@click.option("--against", metavar="NAME[,NAME]", help=f"Out of {', '.join(CONTENDERS)}.")
@click.option(
    "--effort", default="quick", show_default=True, type=click.Choice(list(LENGTHS)),
    help="Which lengths, and how long each is timed.",
)  # fmt: skip
@click.option("--tuning-effort", type=click.Choice(list(EFFORTS)), help="Default: quick; smoke for smoke.")
@click.option("--ansor-trials", type=click.IntRange(1), help="Trials for each of the paper's eight lengths.")
@click.option(
    "--only", default="", metavar="PATTERN", help="Tasks whose name holds this, as in k768 or batch*."
)
@click.option("--summary", "summary_only", is_flag=True, help="Measure nothing: show what --out has so far.")
def bench(
    suite: str, out: str, threads: str, caches: str, against: str | None, effort: str,
    tuning_effort: str | None, ansor_trials: int | None, only: str, summary_only: bool,
) -> None:  # fmt: skip
    """Measure a whole suite: workloads x contenders x cache states x threads.

    Each workload is tuned, built and evaluated one length at a time. An interrupted run, even a
    killed one, goes on at the next length with the same command; --threads, --caches and --only may
    differ from call to call and add to the same table.

    \b
    Suites:
      bert-cpu  four dense layers of BERT-base, T=1..2048, and both batched products
                of its attention, 192 x T x T x 64, T=1..128
      llm-cpu   a dense layer 4096 x 4096, T=1..512
      smoke     one tiny dense layer, for a first look: under a minute
    Efforts:
      smoke     a few lengths: does everything run?
      quick     about 30 lengths a workload: ends, multiples, primes, held-out ones
      full      every T of 1..128 and 24 beyond
    In --out:
      bench.csv   one row a workload, threads, cache, length and contender: median and 95 %
                  interval in microseconds, GFLOP/s, speedup (theirs / ours, in turns), regret,
                  share of the roofline, plan
      bench.json  hardware, versions, tuning and library of each study
      bench.html, bench.md  the summary with intervals and targets; the page has figures
      NAME-Nt/    the studies; `dietlab report` and the others work in them

    \b
    dietlab bench --suite smoke --effort smoke --out runs/smoke
    dietlab bench --threads 1,2 --effort full
    dietlab bench --only n2304 --against mkl-packed,onednn-packed,oracle,ansor --ansor-trials 256
    """
    folder = Path(out)
    if summary_only:
        table = read_journal(folder / JOURNAL).table
        table.save(folder / TABLE)
    else:
        chosen = suite_named(suite)
        if against:
            chosen = chosen.against(tuple(words(against)))
        table = run_bench(
            chosen, folder, threads=[number(word) for word in words(threads)], caches=words(caches),
            effort=effort, tuning_effort=tuning_effort, ansor_trials=ansor_trials, only=only,
            observers=[ProgressBar()],
        )  # fmt: skip
    show_bench(table, folder, plans_in(folder, table))


@click.command()
@click.argument("study", type=click.Path(exists=True))
@click.option(
    "--caches",
    default="hot,rotating",
    show_default=True,
    help=f"Cache states, out of {', '.join(CACHE_STATES)}.",
)
@click.option("--effort", default="quick", show_default=True, type=click.Choice(list(LENGTHS)))
@click.option("--kernel", metavar="KEY", help="Default: the one that serves most lengths up to 128.")
def ablate(study: str, caches: str, effort: str, kernel: str | None) -> None:
    """Take one micro-kernel of a built study apart: what is each idea worth?

    Times the composition of one micro-kernel against the same without an idea: bound checks, loop
    partitioning or local padding at the edge instead of composition, no prefetch, no packing. A
    speedup above 1 is what the idea saves. The results go to STUDY/ablation; an interrupted run
    goes on with the same command.

    \b
    dietlab ablate runs/bench/dense-k768-n2304-1t --effort full
    """
    table = run_ablation(study, caches=words(caches), effort=effort, kernel=kernel, observers=[ProgressBar()])
    show_bench(table, Path(study) / FOLDER)


def show_bench(table: BenchTable, folder: Path, plans: Mapping[str, Any] | None = None) -> None:
    """Writes the text and the page, prints the text; exit status 1 if a study failed or a result of ours is
    wrong."""
    text = render_bench(table)
    (folder / "bench.md").write_text(text, encoding="utf-8")
    page = write_bench(table, folder / "bench.html", plans)
    click.echo(f"{text}\n{folder / TABLE}\n{page}")
    if table.failures or table.wrong:
        raise SystemExit(1)


def words(text: str) -> list[str]:
    """``"a,b"`` as a list without empty and repeated words."""
    return list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def number(word: str) -> int:
    """A number of threads.

    Raises:
        click.BadParameter: if it is none.
    """
    if not word.isdigit() or int(word) < 1:
        raise click.BadParameter(f"threads are numbers, as in 1,2; got {word!r}")
    return int(word)

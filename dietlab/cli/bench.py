"""``dietlab bench``: measures a whole suite."""

from __future__ import annotations

from pathlib import Path

import click

from dietlab.base.errors import DietlabError
from dietlab.base.files import write_whole
from dietlab.cli.names import Named, import_here, words
from dietlab.cli.options import page_or_reason
from dietlab.cli.parameters import OUT_FILE
from dietlab.cli.telling import Telling, quiet_option
from dietlab.compare.lineup import contenders_for
from dietlab.compare.results.journal import read_journal
from dietlab.compare.results.table import ResultTable, facts_path
from dietlab.compare.suites.deadline import Deadline
from dietlab.compare.suites.every_layer import OWN
from dietlab.compare.suites.lengths import LENGTHS
from dietlab.compare.suites.run import JOURNAL, TABLE, run_bench
from dietlab.compare.suites.state import StateArchive, restore
from dietlab.compare.suites.suite import SUITES, Suite, suite_named
from dietlab.machine.target import TARGETS
from dietlab.measure import CACHE_STATES
from dietlab.tuning import EFFORTS
from dietlab.view.pages.bench import plans_in, write_bench
from dietlab.view.pages.bench_text import render_bench

CONTENDERS_HELP = "; ".join(f"On {name} {', '.join(contenders_for(name))}" for name in TARGETS.own)

LEFT_OVER = 75
"""Exit status of a bench that ran out of time (``EX_TEMPFAIL`` of sysexits.h: try again)."""

seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Stop before this many seconds are over; if something is left, the exit status is {LEFT_OVER}.",
)
state_option = click.option(
    "--state",
    type=OUT_FILE,
    metavar="FILE.tar.gz",
    help="Also keep what was measured in this one file, which is always whole; a new --out begins with it.",
)


@click.command()
@click.option(
    "--suite", default="bert-cpu", show_default=True, type=click.Choice(list(SUITES)), help="What to run."
)
@click.option("--out", default="runs/bench", show_default=True, type=click.Path(file_okay=False))
@click.option("--threads", default="1", show_default=True, metavar="N[,N]", help="As in 1,2; of a CPU.")
@click.option(
    "--target",
    type=Named(TARGETS),
    help="Default: the suite's, which it must agree with.",
)
@click.option(
    "--caches",
    help=f"Cache states, out of {','.join(CACHE_STATES)}, of which a GPU lacks some (default: all of them).",
)
@click.option(
    "--against",
    metavar="[+]NAME[,NAME]",
    help=f"{CONTENDERS_HELP}, and {OWN} where layers share a library; each must be installed. A + before "
    "them adds them to the suite's own, of which those that are not installed are left out.",
)
@click.option(
    "--effort",
    default="quick",
    show_default=True,
    type=click.Choice(list(LENGTHS)),
    help="Which lengths, and how long each is timed.",
)
@click.option("--tuning-effort", type=click.Choice(list(EFFORTS)), help="Default: quick; smoke for smoke.")
@click.option("--ansor-trials", type=click.IntRange(1), help="Trials for each of the paper's eight lengths.")
@click.option(
    "--only", default="", metavar="PATTERN", help="Tasks whose name holds this, as in k768 or batch*."
)
@seconds_option
@state_option
@click.option("--summary", "summary_only", is_flag=True, help="Measure nothing: show what --out has so far.")
@click.option(
    "--pack",
    type=OUT_FILE,
    metavar="FILE.csv.gz",
    help="Measure nothing: write the table of --out here, compressed, with its facts beside it as JSON.",
)
@quiet_option
def bench(
    suite: str,
    out: str,
    threads: str,
    target: str | None,
    caches: str | None,
    against: str | None,
    effort: str,
    tuning_effort: str | None,
    ansor_trials: int | None,
    only: str,
    seconds: float | None,
    state: str | None,
    summary_only: bool,
    pack: str | None,
    quiet: bool,
) -> None:
    """Measure a suite: workloads x contenders x caches x threads.

    Each workload is tuned, built and evaluated one length at a time. An interrupted run, even a
    killed one, goes on at the next length with the same command; --threads, --caches and --only may
    differ from call to call and add to the same table.

    \b
    Suites:
      bert-cpu   four dense layers of BERT-base, T=1..2048, and both batched products
                 of its attention, 192 x T x T x 64, T=1..128
      layers     one dense operator for all layers, T=1..2048, N, K=64..4096, on BERT-base's
                 four layers and 12 others, also against each layer's own library; and both
                 batched products
      paper-cpu  the paper's dense layer and both batched products at its eight lengths, also
                 against one schedule for all and, the layer, per-shape tuning
      low-precision  two dense layers, T=1..128, in float32, int8 and bfloat16, against vendors
                 with packed weights
      llm-cpu    a dense layer 4096 x 4096, T=1..512
      resnet50   ResNet-50's 1x1 and 3x3 convolutions, inputs of 128 to 320 pixels, batch 1 and 8:
                 tuned at six sizes, evaluated at others; --only conv3x3 for some of them
      resnet50-layers  one operator for all its 3x3 convolutions without stride and one for all 1x1,
                 at the same inputs
      speech     the 1-D convolutions of Whisper's and wav2vec 2.0's fronts, at the lengths of
                 recorded utterances
      depthwise  depthwise 3x3 and 7x7 convolutions of once-for-all's networks
      smoke-conv  tiny convolutions
      smoke      one tiny dense layer, for a first look: under a minute
      smoke-layers  four tiny layers with one library
      smoke-gpu  the same layer, and several by one library, on a GPU
      paper-gpu  on a GPU: the paper's dense layer of 16 T rows and both batched products,
                 float32; eight T, or every T of 1..128 with --effort full
      bert-gpu   on a GPU: one operator for all dense layers of BERT-base, T=16..2048, float32 and
                 bfloat16; also at layers of BERT-large, which tuning never sees
      llm-gpu    on a GPU: 4096 x 4096, 4096 x 14336 and 14336 x 4096, bfloat16, T=1..4096
      decoder-gpu  on a GPU: one operator for all dense layers of a decoder with 7e9 parameters,
                 bfloat16, T=1..4096; also at layers of others
      first-gpu  paper-gpu and llm-gpu against NVIDIA's libraries, the most informative operator
                 first: for a GPU that is available for minutes; needs no compiler (dietlab kit)
      resnet50-gpu  on a GPU: ResNet-50's 3x3 convolutions without stride against cuDNN, float32
                 and bfloat16, at the inputs of resnet50
    Efforts:
      smoke     a few lengths: does everything run?
      quick     about 30 lengths a workload: ends, multiples, primes, held-out ones
      full      every T of 1..128 and 24 beyond
    In --out:
      bench.csv   one row a workload, threads, cache, length and contender: median and 95 %
                  interval in seconds, GFLOP/s, speedup (theirs / ours, in turns), regret,
                  share of the roofline, plan
      bench.json  hardware, versions, tuning and library of each study
      bench.html, bench.md  the summary with intervals and targets; the page has figures
      NAME-Nt/    the studies; `dietlab report` and the others work in them

    \b
    dietlab bench --suite smoke --effort smoke --out runs/smoke
    dietlab bench --threads 1,2 --effort full
    dietlab bench --only n2304 --against mkl-packed,onednn-packed,oracle --effort full
    dietlab bench --suite paper-gpu --against +ansor --ansor-trials 64
    dietlab bench --suite paper-gpu --out runs/gpu --seconds 330 --state gpu.tar.gz
    dietlab bench --out runs/gpu --pack gpu.csv.gz
    """
    telling = Telling("bench", ("bench",), quiet)
    folder, deadline = Path(out), Deadline(seconds)
    archives = kept_state(folder, state)
    if pack:
        packed(read_journal(folder / JOURNAL).table, pack)
        return
    if summary_only:
        table = read_journal(folder / JOURNAL).table
        table.save(folder / TABLE)
    else:
        with telling:
            table = run_bench(
                chosen_suite(suite, target, against),
                folder,
                threads=[number(word) for word in words(threads)],
                caches=None if caches is None else words(caches),
                effort=effort,
                tuning_effort=tuning_effort,
                ansor_trials=ansor_trials,
                only=only,
                observers=[*telling.observers, *archives],
                deadline=deadline,
                required=words((against or "").removeprefix("+")),
            )
        for archive in archives:
            archive.write()
    show_bench(table, folder, left=deadline.left or 0)
    telling.suggest(folder)


def kept_state(folder: Path, state: str | None, begun: str = JOURNAL) -> list[StateArchive]:
    """Returns the archive of a bench; none without ``state``. An earlier state is unpacked first, unless the
    folder has files of the pattern ``begun``."""
    if state is None:
        return []
    if not state.endswith(".tar.gz"):
        raise click.BadParameter(f"a state must be a .tar.gz; got {state!r}")
    if restore(Path(state), folder, begun):
        click.echo(f"going on from {state}")
    return [StateArchive(folder, Path(state))]


def chosen_suite(name: str, target: str | None, against: str | None) -> Suite:
    """Returns the suite against the contenders of ``--against``, or raises :class:`DietlabError` if it is for
    another ``target``."""
    suite = suite_named(name)
    if target not in (None, suite.target):
        raise DietlabError(f"the suite {name} must run on {suite.target}", target, "Leave --target out.")
    if not against:
        return suite
    names = words(against.removeprefix("+"))
    import_here(names)
    contenders_for(suite.target, names)
    return suite.against(tuple(names), added=against.startswith("+"))


def packed(table: ResultTable, path: str) -> None:
    """Writes a compressed table, as data/results has them."""
    if not path.endswith(".csv.gz"):
        raise click.BadParameter(f"a packed table must be a .csv.gz; got {path!r}")
    table.save(path)
    click.echo(f"{len(table.entries)} rows: {path}, {facts_path(Path(path))}")


def show_bench(table: ResultTable, folder: Path, left: int = 0) -> None:
    """Writes the text and the page, and prints the text. The exit status is :data:`LEFT_OVER` if shapes are
    ``left`` to measure, else 1 if a study failed or a result of ours is wrong."""
    text = render_bench(table)
    write_whole(folder / "bench.md", text)
    click.echo(f"{text}\n{folder / TABLE}")
    click.echo(page_or_reason(lambda: write_bench(table, folder / "bench.html", plans_in(folder, table))))
    if left:
        click.echo(f"The time is up; {left} shapes are left. The same command goes on.")
        raise SystemExit(LEFT_OVER)
    if table.failures or table.wrong:
        raise SystemExit(1)


def number(word: str, what: str = "threads") -> int:
    """Returns a number of 1 or more, or raises :class:`click.BadParameter`, whose message says that ``what``
    are numbers."""
    if not word.isdigit() or int(word) < 1:
        raise click.BadParameter(f"{what} must be numbers, as in 1,2; got {word!r}")
    return int(word)

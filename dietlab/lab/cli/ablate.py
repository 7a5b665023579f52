"""``dietlab ablate``: one scheme taken apart, or the method on records."""

from __future__ import annotations

from pathlib import Path

import click

from dietlab.cli.bench import number, show_bench
from dietlab.cli.names import words
from dietlab.cli.options import shown
from dietlab.cli.parameters import OUT_FILE
from dietlab.cli.recorded import recorded_file
from dietlab.cli.telling import Telling, quiet_option
from dietlab.compare.suites.lengths import LENGTHS
from dietlab.cost import Survey
from dietlab.lab.ablation import FOLDER, run_ablation
from dietlab.lab.strategies.comparison import surveyed
from dietlab.lab.strategies.figures import ablation_table, fleet_table
from dietlab.lab.strategies.fleet import DEVICES, Fleet, scaling
from dietlab.lab.strategies.method_ablation import ablate_method
from dietlab.measure import CACHE_STATES, read_records
from dietlab.view.pages.bench_text import markdown


@click.command()
@click.argument("study")
@shown(
    "--caches", default="hot,rotating", help=f"Cache states, out of {', '.join(CACHE_STATES)}; of a study."
)
@shown("--effort", default="quick", type=click.Choice(list(LENGTHS)))
@click.option("--scheme", metavar="KEY", help="Default: the one that serves most lengths up to 128.")
@shown("--seeds", type=click.IntRange(1), default=5, help="Tunings of records.")
@shown(
    "--devices",
    default=",".join(map(str, DEVICES)),
    help="Numbers of devices that measure, of a simulated fleet, for tunings of records.",
)
@shown(
    "--builders", type=click.IntRange(1), default=16, help="Programs that the fleet builds at the same time."
)
@shown(
    "--latency",
    type=click.FloatRange(0),
    default=0.02,
    help="Seconds until a device of the fleet has a program, and back.",
)
@shown(
    "--failure",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="The probability that a device of the fleet dies during a measurement.",
)
@click.option("--out", type=OUT_FILE, metavar="FILE.json", help="Keep those of records.")
@quiet_option
def ablate(
    study: str,
    caches: str,
    effort: str,
    scheme: str | None,
    seeds: int,
    devices: str,
    builders: int,
    latency: float,
    failure: float,
    out: str | None,
    quiet: bool,
) -> None:
    """Take the method or one scheme apart: what is each idea worth?

    STUDY is a folder: the composition of one scheme is timed against the same without an idea: bound
    checks, loop partitioning or local padding at the edge instead of composition, no prefetch, no packing. A
    speedup above 1 is what the idea saves. A dense layer without an epilogue is also timed with
    each: above 1 is what it costs. The same scheme, and tiles of several heights, are also timed
    with columns and depth that the call alone knows. The results go to STUDY/ablation; an
    interrupted run goes on with the same command.

    Or STUDY is a file of records in which every scheme was measured on every shape, or the name of such a
    file that comes with dietlab: quickstart. Nothing is measured: tuning is replayed, and judged without the
    shape-generic space, the adaptation cost, the learned model, joint measurement, the tree, waiting for each
    round, and with smaller libraries. A second table has how many times faster the same tunings are on a
    simulated fleet of devices, by recorded times.

    \b
    dietlab ablate runs/bench/dense-k768-n2304-1t --effort full
    dietlab ablate quickstart
    dietlab ablate quickstart --devices 1,16,64 --latency 0.1 --failure 0.01
    """
    telling = Telling("ablate", ("bench",) if Path(study).is_dir() else ("ablate",), quiet)
    if not Path(study).is_dir():
        survey = surveyed(Survey.of(read_records(recorded_file(study)), study))
        counts = [number(word, "devices") for word in words(devices)]
        with telling:
            found = ablate_method(survey, range(seeds), effort, telling.observers)
        if out:
            found.save(out)
        fleet = Fleet(1, builders, latency, failure)
        click.echo(markdown(*ablation_table(found)))
        click.echo(f"\n{markdown(*fleet_table(scaling(found.tunings, fleet, counts)))}")
        return
    with telling:
        states, heard = words(caches), telling.observers
        table = run_ablation(study, caches=states, effort=effort, scheme=scheme, observers=heard)
    show_bench(table, Path(study) / FOLDER)

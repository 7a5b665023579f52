"""``dietlab sizes``: the costs of new sizes for a library and other contenders."""

from __future__ import annotations

import click

from dietlab.cli.names import import_here, words
from dietlab.cli.options import json_option, show
from dietlab.cli.telling import Telling, quiet_option
from dietlab.compare.sizes import CAPTION, SIZES, operator_of, size_costs, size_listing
from dietlab.compare.study import Study
from dietlab.view.pages.report import aligned


@click.command("sizes")
@click.argument("study", type=click.Path(exists=True))
@click.option(
    "--count", type=click.IntRange(1), default=SIZES, show_default=True, help="The number of different sizes."
)
@click.option("--against", help="Vendors (default: those of an evaluation that are installed).")
@click.option("--seed", default=0, show_default=True, help="Another seed draws other sizes.")
@json_option
@quiet_option
def sizes_command(study: str, count: int, against: str | None, seed: int, as_json: bool, quiet: bool) -> None:
    """Call the library and vendors at many sizes.

    Prints how much longer the first call at a size takes than the second, and how much memory is left behind
    after all sizes. Each contender has a process; `dietlab evaluate` checks results. The library is that of
    `dietlab build` or, without one, a library that dietlab.optimize built for a model's layers.
    """
    names = None if against is None else words(against)
    import_here(names or ())
    with Telling("sizes", ("sizes",), quiet) as telling:
        costs = size_costs(
            operator_of(Study.open(study)), count, names, seed=seed, observers=telling.observers
        )
    absent = [f"  {cost.contender}: {cost.absent}" for cost in costs if cost.absent]
    lines = [CAPTION, *aligned(size_listing(costs), 1), *(["", "absent", *absent] if absent else [])]
    show([cost.to_json() for cost in costs], as_json, "\n".join(lines))

"""``dietlab``: every stage from the command line. Each module of this folder has one family of commands."""

from __future__ import annotations

import click

from dietlab import __version__
from dietlab.cli.commands import CommandGroup, homes
from dietlab.cli.names import import_modules


@click.group(cls=CommandGroup, homes=homes(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE[:NAME]",
    help="Import an operator, strategy, cost model or contender of your own, or a module that enters some: "
    "files may name them then. May be given again.",
)
def main(modules: tuple[str, ...]) -> None:
    """Tune a tensor operator for all shapes at once, and ship it as one library.

    \b
    The stages, each on its own:
      dietlab tune dense --dim T=1:128 --dim N=2304 --dim K=768 --out runs/x
      dietlab build runs/x --max-kernels 8
      dietlab evaluate runs/x --shapes every --against mkl-packed,openblas,oracle
    Or all of it, on an example: dietlab quickstart
    """
    import_modules(modules)

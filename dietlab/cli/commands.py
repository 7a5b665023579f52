"""The command's group: which commands belong together in ``dietlab --help``, and how errors are told."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import click

from dietlab.errors import DietlabError, DietlabWarning

HEADINGS = {
    "From an operator to a library": (
        "quickstart",
        "space",
        "tune",
        "dispatch",
        "build",
        "evaluate",
        "report",
    ),
    "Compare": (
        "bench",
        "model",
        "ablate",
        "reproduce",
        "survey",
        "replay",
        "compare",
        "cost-models",
        "records",
        "fetch-records",
    ),
    "A GPU that is not here": ("compile", "heuristics", "kit"),
    "This machine": ("doctor", "lab", "serve"),
}
"""The commands under each heading of the help, in the order in which a study uses them."""

OTHERS = "More"
"""The heading of commands that :data:`HEADINGS` does not name."""


class CommandGroup(click.Group):
    """A group that tells dietlab's errors in one line with exit status 2, its warnings in one line, and on
    Ctrl-C that nothing is lost. Its help has the commands under headings."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _showing(warnings.showwarning)
                return super().invoke(ctx)
        except DietlabError as error:
            click.echo(f"dietlab: {error}", err=True)
            ctx.exit(2)
        except EOFError as error:  # click takes it for Ctrl-D and says "Aborted!" and nothing else
            click.echo(f"dietlab: what is read is whole; got {error or 'an end too early'}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("\ndietlab: stopped; what was measured stays, the same command goes on.", err=True)
            ctx.exit(130)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes each heading with its commands. Click cuts a sentence that is too long for the line; here it
        is wrapped."""
        width = max(map(len, self.commands), default=0)
        for heading, names in self._headed():
            rows = [(n.ljust(width), self.commands[n].get_short_help_str(formatter.width)) for n in names]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def _headed(self) -> Iterator[tuple[str, list[str]]]:
        known = {name for names in HEADINGS.values() for name in names}
        others = sorted(set(self.commands) - known)
        for heading, names in (*HEADINGS.items(), (OTHERS, others)):
            shown = [name for name in names if name in self.commands]
            if shown:
                yield heading, shown


def _showing(others: Callable[..., None]) -> Callable[..., None]:
    """Returns what prints a warning of dietlab's in one line; ``others`` prints any other."""

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if issubclass(category, DietlabWarning):
            click.echo(f"dietlab: {message}", err=True)
        else:
            others(message, category, *where)

    return show

"""The group of all commands: their headings in ``dietlab --help``, how errors are printed, and how signals
end a command."""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import current_thread, main_thread
from time import monotonic
from types import FrameType
from typing import Any

import click

from dietlab import LABORATORY
from dietlab.base.errors import DietlabError, DietlabWarning
from dietlab.base.files import FULL, remedy_of

HEADINGS: dict[str, dict[str, str]] = {
    "From an operator to a library": {
        "quickstart": "dietlab.cli.quickstart:quickstart",
        "layers": "dietlab.cli.layers:layers_command",
        "space": "dietlab.cli.stages:space",
        "tune": "dietlab.cli.stages:tune_command",
        "dispatch": "dietlab.cli.stages:dispatch",
        "build": "dietlab.cli.stages:build_command",
        "evaluate": "dietlab.cli.evaluation:evaluate_command",
        "report": "dietlab.cli.evaluation:report_command",
    },
    "Compare": {
        "bench": "dietlab.cli.bench:bench",
        "model": "dietlab.lab.cli.model:model_command",
        "sizes": "dietlab.cli.sizes:sizes_command",
        "ablate": "dietlab.lab.cli.ablate:ablate",
        "reproduce": "dietlab.lab.cli.reproduce:reproduce_command",
        "survey": "dietlab.cli.recorded:survey_command",
        "replay": "dietlab.cli.recorded:replay",
        "compare": "dietlab.lab.cli.compare:compare_command",
        "cost-models": "dietlab.lab.cli.cost_models:cost_models_command",
        "records": "dietlab.cli.records:records_group",
        "fetch-records": "dietlab.lab.cli.fetch_records:fetch_records_command",
    },
    "A GPU that is not here": {
        "compile": "dietlab.cli.compile:compile_command",
        "heuristics": "dietlab.lab.cli.heuristics:heuristics_command",
        "kit": "dietlab.cli.kit:kit_group",
    },
    "This machine": {
        "doctor": "dietlab.cli.doctor:doctor",
        "lab": "dietlab.cli.lab:lab",
        "serve": "dietlab.cli.serve:serve_command",
    },
}
"""``module:attribute`` of each command, under the headings of the help and in the order of their use."""

OTHERS = "More"
"""The heading of commands that :data:`HEADINGS` does not name."""

ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command as Ctrl-C does: from ``kill``, and from a terminal that is closed."""

UNWRITTEN = (*FULL, errno.EIO)
"""Error numbers of an output that cannot be written: its disk is full, or its terminal was closed. Files that
cannot be written have other errors."""

REPEATED_SECONDS = 5.0
"""The time after a signal within which further signals are ignored, in seconds: a terminal that is closed
sends several, and none may interrupt the removal of temporary folders."""


class HelpfulGroup(click.Group):
    """A group that prints its help, with exit status 0, if no command is given. Some versions of click take
    this for an error."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)


class CommandGroup(HelpfulGroup):
    """A group that prints dietlab's errors and warnings in one line. An error ends with exit status 2, output
    that cannot be written with 1. Ctrl-C and the signals of :data:`ENDING` print that measurements are kept,
    and end with 128 plus the signal's number. Before a fault in compiled code ends the process, Python prints
    its stack. The help lists the commands under headings.

    Args:
        homes: ``module:attribute`` of commands by name; a module is imported when its command is used.
    """

    def __init__(self, *arguments: Any, homes: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._homes = dict(homes or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*self._homes, *self.commands})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self._homes and cmd_name not in self.commands:
            module, _, attribute = self._homes[cmd_name].partition(":")
            self.commands[cmd_name] = getattr(import_module(module), attribute)
        return super().get_command(ctx, cmd_name)

    def main(self, *arguments: Any, **options: Any) -> Any:
        _show_crashes()
        with _signals_raised() as received:
            try:
                return super().main(*arguments, **options)
            except OSError as error:  # click ends silently at a closed pipe
                if error.errno not in UNWRITTEN:
                    raise
                with suppress(OSError):
                    fault = DietlabError("the output must be writable", error, "Print to a place with room.")
                    click.echo(f"dietlab: {fault}", err=True)
                _drop_unwritten()
                sys.exit(128 + received[0] if received else 1)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _showing(warnings.showwarning)
                return super().invoke(ctx)
        except DietlabError as error:
            click.echo(f"dietlab: {error}", err=True)
            ctx.exit(2)
        except EOFError as error:  # click takes it for Ctrl-D and prints "Aborted!" only
            click.echo(f"dietlab: a file that is read is whole; got {error or 'an early end'}", err=True)
            ctx.exit(2)
        except OSError as error:
            if error.filename is None:  # the output, or what nobody foresaw
                raise
            click.echo(f"dietlab: files must be accessible; got {error}. {remedy_of(error)}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt as error:
            click.echo("\ndietlab: stopped; what was measured stays, the same command goes on.", err=True)
            ctx.exit(128 + (error.number if isinstance(error, _Signal) else signal.SIGINT))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes each heading with its commands. Long sentences are wrapped; click would cut them."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        known = {name for names in HEADINGS.values() for name in names}
        width = max(map(len, commands), default=0)
        for heading, names in (*HEADINGS.items(), (OTHERS, sorted(set(commands) - known))):
            shown = [(name, command) for name in names if (command := commands.get(name))]
            rows = [(name.ljust(width), one.get_short_help_str(formatter.width)) for name, one in shown]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def _show_crashes() -> None:
    """Lets Python print where it was if a signal such as SIGSEGV or SIGFPE kills the process: a fault in a
    compiled library would end it without a word. Above the stack stands the progress: on a terminal the stage
    that ran, in a file the stages that ended before."""
    if sys.__stderr__ is None or faulthandler.is_enabled():
        return
    with suppress(OSError, ValueError):  # no stream that a handler can write to
        faulthandler.enable(sys.__stderr__)


class _Signal(KeyboardInterrupt):
    """A signal of :data:`ENDING`: all that cleans up after Ctrl-C does so after it, too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_raised() -> Iterator[list[int]]:
    """Raises :class:`_Signal` inside the block at a signal of :data:`ENDING`, unless that is ignored
    (``nohup``) or has another handler. Yields the numbers of the received signals."""
    received, process, ignored_until = list[int](), os.getpid(), float("-inf")

    def raise_it(number: int, frame: FrameType | None) -> None:
        nonlocal ignored_until
        if os.getpid() != process:  # a forked child has nothing to clean up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if monotonic() >= ignored_until:
            received.append(number)
            ignored_until = monotonic() + REPEATED_SECONDS
            raise _Signal(number)

    here = current_thread() is main_thread()  # no other thread can set handlers
    ours = [number for number in ENDING if here and signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, raise_it)
    try:
        yield received
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _drop_unwritten() -> None:
    """Sends an output that cannot be written to the null device, so that Python's last flush succeeds."""
    for stream in filter(None, (sys.stdout, sys.stderr)):  # None: closed by who started this process
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def homes() -> dict[str, str]:
    """Returns ``module:attribute`` of the commands in this installation, by name."""
    whole = {name: home for names in HEADINGS.values() for name, home in names.items()}
    return {n: home for n, home in whole.items() if LABORATORY or not home.startswith("dietlab.lab.")}


def _showing(others: Callable[..., None]) -> Callable[..., None]:
    """Returns a function that prints a warning of dietlab in one line; ``others`` prints any other."""

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if issubclass(category, DietlabWarning):
            click.echo(f"dietlab: {message}", err=True)
        else:
            others(message, category, *where)

    return show

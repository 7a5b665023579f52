"""``dietlab serve``: lets others measure on this machine while they tune elsewhere."""

from __future__ import annotations

import os
from time import sleep

import click

from dietlab.base.errors import DietlabError
from dietlab.cli.parameters import ADDRESS
from dietlab.measure.rpc.server import LOOPBACK, TRACKER_PORT, serving
from dietlab.measure.rpc.tracker import address_text

LOOK_SECONDS = 5.0
"""The time between two checks that the tracker lists this machine, in seconds. TVM tries to join as often."""


@click.command("serve")
@click.option("--key", required=True, help="Name of this kind of machine, for `dietlab tune --key`.")
@click.option(
    "--tracker",
    type=ADDRESS,
    metavar="HOST:PORT",
    help="The tracker to join (default: one is started here, and its address printed).",
)
@click.option(
    "--host",
    default=LOOPBACK,
    show_default=True,
    help="The address to listen on, by which others reach this machine.",
)
@click.option(
    "--tracker-port",
    default=TRACKER_PORT,
    show_default=True,
    help="The first port to try for a tracker that is started here.",
)
@click.option(
    "--processors",
    default="",
    metavar="N,N",
    help="Numbers of the processors to measure on (default: all). Two servers on one machine need some each.",
)
@click.option("--name", default="", help="This machine in records (default: its host name and a number).")
def serve_command(
    key: str, tracker: tuple[str, int] | None, host: str, tracker_port: int, processors: str, name: str
) -> None:
    """Lend this machine for measurements, through TVM's RPC, until Ctrl-C.

    \b
    Here, and on every machine that joins:
      dietlab serve --key lab
      dietlab serve --key lab --tracker 127.0.0.1:9190 --processors 1
    Where the tuning runs, with a C compiler:
      dietlab tune --rpc 127.0.0.1:9190 --key lab --out runs/x

    TVM's RPC has NO AUTHENTICATION: anyone who reaches the port can run any code as you. It listens on the
    loopback address unless --host names another; name only an address in a network that you trust. If the
    tracker stops, this machine joins it again when it is back.
    """
    chosen = processors_named(processors)
    with serving(
        key,
        tracker=tracker,
        host=host,
        tracker_port=tracker_port,
        processors=chosen,
        name=name,
    ) as served:
        address = address_text(served.tracker)
        click.echo(f"{served.name} serves the key {key} on port {served.server.port}; tracker at {address}")
        click.echo(f"Tune with: dietlab tune --rpc {address} --key {key} --out runs/x")
        while True:
            sleep(LOOK_SECONDS)
            if news := served.look():
                click.echo(news)


def processors_named(text: str) -> list[int]:
    """Returns the numbers of a text like ``0,2``, or raises :class:`DietlabError` if this process may not use
    one of these processors."""
    here = sorted(os.sched_getaffinity(0))
    named = [word.strip() for word in text.split(",") if word.strip()]
    if wrong := [word for word in named if not (word.isdecimal() and int(word) in here)]:
        raise DietlabError(
            f"processors must be among {', '.join(map(str, here))}", ", ".join(wrong), "`nproc` counts them."
        )
    return [int(word) for word in named]

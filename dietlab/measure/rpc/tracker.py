"""Trackers of TVM's RPC: the servers that a tracker lists, the next free server, and the addresses that other
machines reach."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from socket import AF_INET, SOCK_DGRAM, create_connection, getaddrinfo, socket
from typing import Any

from dietlab.base.errors import MeasureError

Address = tuple[str, int]
"""A host, by name or number, and a port."""

CONNECT_SECONDS = 5.0
"""The longest time to wait for a tracker's connection or answer, in seconds."""

ELSEWHERE = ("192.0.2.1", 9)
"""An address that no machine has (RFC 5737). The route to this address begins at this machine's own address
in its network."""


@dataclass(frozen=True)
class Listed:
    """The servers that a tracker lists, as pairs of key and address, and, by key, the numbers of ``free``
    servers and of waiting clients (``pending``)."""

    servers: tuple[tuple[str, Address], ...]
    queues: Mapping[str, Mapping[str, int]]


def listed(tracker: Address) -> Listed:
    """Returns the servers and queues of a tracker.

    Raises:
        OSError, MeasureError: if no tracker answers there.
    """
    from tvm.rpc.base import TrackerCode

    with _connected(tracker) as connection:
        found = _answer(connection, [TrackerCode.SUMMARY])
    servers = [(info["key"].removeprefix("server:"), info["addr"]) for info in found["server_info"]]
    return Listed(tuple((key, (str(host), int(port))) for key, (host, port) in servers), found["queue_info"])


def free_server(tracker: Address, key: str) -> tuple[Address, str]:
    """Waits for a free server of a key. Returns the server's address and the password for one session.

    Raises:
        OSError, MeasureError: if no tracker answers there.
    """
    from tvm.rpc.base import TrackerCode

    with _connected(tracker) as connection:
        connection.settimeout(None)
        host, port, word = _answer(connection, [TrackerCode.REQUEST, key, "", 1])
    return (str(host), int(port)), str(word)


@contextmanager
def _connected(tracker: Address) -> Iterator[socket]:
    """Connects to a tracker. (TVM's own function tries for a minute, and then waits for ever.)"""
    from tvm.rpc import base

    with create_connection(tracker, CONNECT_SECONDS) as connection:
        connection.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
        (magic,) = struct.unpack("<i", base.recvall(connection, 4))
        if magic != base.RPC_TRACKER_MAGIC:
            raise MeasureError("a tracker of TVM's RPC must answer with its magic number", f"{magic:#x}")
        yield connection


def _answer(connection: socket, question: list[Any]) -> Any:
    from tvm.rpc import base

    base.sendjson(connection, question)
    status, value = base.recvjson(connection)
    if status != base.TrackerCode.SUCCESS:
        raise MeasureError("a tracker of TVM's RPC must answer requests", repr(value))
    return value


def address_text(address: Address) -> str:
    """Returns ``HOST:PORT``, as ``127.0.0.1:9190`` or ``[::1]:9190``."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def number_of(host: str) -> str:
    """Returns the numeric address of a host.

    Raises:
        MeasureError: if there is no such host.
    """
    try:
        return str(getaddrinfo(host, None)[0][4][0])
    except OSError as error:
        raise MeasureError("a host must have an address", f"{host!r}: {error.strerror}") from None


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches a host."""
    return ip_address(number_of(host)).is_loopback


def is_here(host: str) -> bool:
    """Returns whether a host is this machine."""
    number = number_of(host)
    try:
        with socket(getaddrinfo(number, None)[0][0]) as tried:
            tried.bind((number, 0))
    except OSError:
        return False
    return True


def public_address(host: str, tracker: str | None = None) -> str:
    """Returns the address at which other machines reach a server that listens on ``host`` and joins the
    tracker on the host ``tracker``.

    Raises:
        MeasureError: if others cannot reach ``host``: it means all addresses of this machine, belongs to
            another machine, or is the loopback while the tracker is on another machine.
    """
    number = number_of(host)
    if ip_address(number).is_unspecified:
        raise MeasureError(
            "a server needs one address at which other machines reach it",
            f"{host}, which means every address of this machine",
            f"Name the address in a network that you trust: --host {own_address() or 'ADDRESS'}.",
        )
    if tracker and ip_address(number).is_loopback and not is_loopback(tracker):
        raise MeasureError(
            f"other machines must be able to reach a server that joins the tracker of {tracker}",
            f"{host}, which only this machine reaches",
            f"Name its address in a network that you trust: --host {own_address() or 'ADDRESS'}.",
        )
    if not is_here(number):
        raise MeasureError("a server must listen on an address of the machine that it runs on", host)
    return number


def own_address() -> str:
    """Returns the address at which other machines reach this one; empty if it is in no network."""
    with socket(AF_INET, SOCK_DGRAM) as unsent:
        try:
            unsent.connect(ELSEWHERE)  # sends nothing
        except OSError:
            return ""
        return str(unsent.getsockname()[0])

"""Types of arguments of the ``dietlab`` command, which are checked before anything is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dietlab.base.files import refusal_of


class OutFile(click.Path):
    """A file to write, in a folder that exists and can be written to."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        folder = Path(str(path)).parent
        if not folder.is_dir():
            self.fail(f"a file is written to a folder that exists; got {folder}", param, ctx)
        if refusal := refusal_of(folder):
            self.fail(
                f"a file is written to a folder that can be written to; got {folder}: {refusal}", param, ctx
            )
        return path


OUT_FILE = OutFile()


class Address(click.ParamType):
    """HOST:PORT, with an IPv6 address in brackets, as in a URL."""

    name = "HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        host, _, port = str(value).rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        host = host[1:-1] if bracketed else host
        if not host or (":" in host) != bracketed or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            rule = "an address reads HOST:PORT, as in 127.0.0.1:9190 or [::1]:9190"
            self.fail(f"{rule}; got {value!r}", param, ctx)
        return host, int(port)


ADDRESS = Address()

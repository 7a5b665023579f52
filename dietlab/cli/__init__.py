"""The ``dietlab`` command: parse, call, print."""

from dietlab.cli.main import main

__all__ = ["main"]

"""``python -m dietlab``: the ``dietlab`` command where no script was installed."""

from __future__ import annotations

from dietlab.cli import main

if __name__ == "__main__":
    main(prog_name="python -m dietlab")

"""The replay of raw blocks: its tables in words, what follows from them, and that it tells what is so."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parent.parent / "data" / "blocks"
FILES = sorted(FOLDER.glob("*.csv.gz"))


@pytest.fixture(scope="module")
def blocks() -> ModuleType:
    spec = spec_from_file_location("make_blocks", FOLDER / "make_blocks.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.partition(".")[0])
def test_the_readme_shows_what_a_replay_says_and_concludes_what_it_shows(
    blocks: ModuleType, file: Path
) -> None:
    found = blocks.replay(pd.read_csv(file))
    assert blocks.shown(found) in (FOLDER / "README.md").read_text(encoding="utf-8")
    for turns in blocks.WINDOWS:
        again, two = (found.loc[turns, way] for way in ("taken again, least", "two quickest"))
        assert 1.6 < again.blocks / turns < 2.55
        assert two.missed < 1.1 * again.missed and two.regret < again.regret + 0.01


def test_a_replay_finds_the_times_that_blocks_were_made_of(blocks: ModuleType) -> None:
    """Five programs, turns of which some are slow for all, and blocks of one that are a third when they are
    taken again: a program and a moment are found without error."""
    random, rows = np.random.default_rng(0), []
    for turn in range(blocks.TURNS):
        slow = 1 + random.integers(0, 2)
        for number in range(5):
            about = {"turn": turn, "at": 0, "N": 1, "K": 1, "T": 1, "scheme": str(number)}
            tries = [3.0 * slow, slow] if number == 4 else [slow]
            rows += [
                {**about, "again": again, "seconds": factor * (1 + number)}
                for again, factor in enumerate(tries)
            ]
    found = blocks.replay(pd.DataFrame(rows))
    assert found.loc[(10, "taken again, least"), "blocks"] == 12
    assert found.loc[(10, "program + moment"), "missed"] < 1e-9
    assert found.loc[(10, "taken again, least"), "missed"] > 0.4
    assert found.loc[(10, "least"), "regret"] == 0

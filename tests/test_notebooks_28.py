"""What the notebook on convolution says: its counts, its addresses, and its sentences."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from notebook_runs import NOTEBOOKS, probed

import dietlab as dl

STEM = "28_convolution"


@pytest.fixture(scope="module")
def convolution() -> dict[str, Any]:
    return probed(STEM)[0]


@pytest.fixture(scope="module")
def text() -> str:
    cells = nbformat.read(NOTEBOOKS / f"{STEM}.ipynb", as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def test_the_matrix_is_nine_times_the_image(convolution: dict[str, Any]) -> None:
    sizes = convolution["bytes"]
    assert sizes["matrix"] == pytest.approx(9 * sizes["image"]) == pytest.approx(7.225344)
    assert sizes["image"] + sizes["weights"] + sizes["output"] < 2 * 1.048576 < sizes["matrix"]
    assert convolution["off"] < 1e-3 and convolution["outputs"] == [56, 28, 5]
    assert [axis[1] for axis in convolution["axes"]] == ["rows"] * 3 + ["cols"] + ["depth"] * 3


def test_addresses_give_the_same_matrix(convolution: dict[str, Any]) -> None:
    assert convolution["same"] is True
    assert convolution["pointers"] == 56 * 56 * 9 * 8


def test_shares_of_taps_are_those_of_the_text(convolution: dict[str, Any], text: str) -> None:
    inside = convolution["inside"]
    assert convolution["counted"] == pytest.approx(inside["7"]) == pytest.approx(0.8186, abs=1e-4)
    saved = [round(100 * (1 - inside[width])) for width in ("7", "56")]
    assert re.findall(r"saves (\d+) % at 7 x 7 and (\d+) % at 56 x 56", text) == [tuple(map(str, saved))]


def test_tiles_share_their_pixels(convolution: dict[str, Any]) -> None:
    assert convolution["counts"] == {"across lines": [66, 30], "within a line": [60, 24]}
    assert "Neighbouring rows are 64 elements apart." in convolution["note"]


def test_only_several_heights_compute_nothing_in_vain(convolution: dict[str, Any], text: str) -> None:
    ways = convolution["ways"]
    assert set(ways["tiles of several heights"].values()) == {1.0}
    each = ways["padded on each line"]
    more = [round(100 * (each[width] - 1)) for width in ("7", "13")]
    assert re.findall(r"costs (\d+) % more work at 7 pixels and (\d+) % at 13", text) == [
        tuple(map(str, more))
    ]
    assert all(each[width] >= ratio for width, ratio in ways["padded across lines"].items())


def test_a_network_has_fewer_layers_than_pairs_with_sizes(convolution: dict[str, Any]) -> None:
    assert (convolution["libraries"], convolution["programs"]) == (23, 281)
    assert convolution["met"]["conv3x3-64-64"] == [13, 3]
    family = convolution["family"]
    assert {*family} == {"conv1x1", "conv3x3s2", "depthwise"}
    assert all(kind["programs"] > 10 * kind["layers"] for kind in family.values())


def test_answers_are_true() -> None:
    first = dl.Conv2d(N=1, H=224, W=224, IC=3, OC=64, kernel=7, stride=2, padding=3)
    rows = 112 * 112
    assert first.output_shape(dl.Shape.of())[1:3] == (112, 112) and rows * 147 / (224 * 224 * 3) == 12.25
    pixels = {}
    for dilation in (1, 2):
        conv = dl.Conv2d(N=1, H=28, W=28, IC=64, OC=64, kernel=3, dilation=dilation, padding=dilation)
        read = dl.frame_tile_reads(conv, dl.Shape.of(), 14 * 28 + 10, 7, mode="line")
        pixels[dilation] = read["offset"].nunique()
    assert pixels == {1: 27, 2: 33}
    wide = dl.Conv2d(N=1, H=7, W=7, IC=64, OC=64, kernel=7, padding=3)
    reads = dl.frame_tile_reads(wide, dl.Shape.of(), 0, 49)["reads"]
    assert (reads == "pixel").sum() == 37**2 and len(reads) == 49**2

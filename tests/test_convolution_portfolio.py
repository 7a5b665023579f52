"""The number of micro-kernels in a convolution's library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Conv1d, Conv2d, Dim, Shape, ShapeSet
from dietlab.scheme import Leaf, Scheme, build_space, leaves, split_dims
from dietlab.tuning import Dispatcher, Portfolio, build, choose_portfolio, train_dispatcher, tune
from dietlab.tuning.kept_heights import with_kept_heights

HARDWARE = Hardware.preset("haswell-1core")
FEW_ROWS = Conv2d(N=Dim(1, 4), H=7, W=7, IC=16, OC=32, kernel=7)
RANGES = ((1, 4), (3, 9), (9, 9), (3, 60), (7, 224))


def portfolio_of(
    work: Conv1d | Conv2d, max_kernels: int, seed: int = 0, kinds: tuple[bool, ...] = (False, True)
) -> Portfolio:
    """Returns a portfolio of tiles over copied rows, on lines, or (default) both."""
    shapes = ShapeSet.log_uniform(work, 32, seed) if work.dims else ShapeSet.of({Shape(()): 1.0})
    space = build_space(work, HARDWARE)
    space = space.restricted_to({scheme for scheme in space if scheme.kernel.lines in kinds})
    run = tune(space, shapes, SyntheticRunner(HARDWARE, seed=seed), effort="smoke")
    return choose_portfolio(run, max_kernels=max_kernels)


def extent(low: int, high: int) -> Dim | int:
    return Dim(low, high) if low < high else low


@settings(max_examples=12)
@given(
    st.sampled_from((1, 2, (1, 4))),
    st.sampled_from(RANGES[1:]),
    st.sampled_from(RANGES[1:]),
    st.sampled_from(({}, {"padding": 1}, {"stride": 2}, {"kernel": 1}, {"groups": 4})),
    st.integers(1, 9),
    st.integers(0, 9),
)
def test_a_library_has_no_more_micro_kernels_than_asked(
    images: Any, height: Any, width: Any, options: dict[str, Any], most: int, seed: int
) -> None:
    sizes = {"N": Dim(*images) if isinstance(images, tuple) else images, "H": extent(*height)}
    work = Conv2d(**sizes, W=extent(*width), IC=8, OC=32, **options)
    portfolio = portfolio_of(work, most, seed)
    dispatcher = train_dispatcher(portfolio)
    others = set(dispatcher.micro_kernels) - set(portfolio.micro_kernels)
    if "W" not in work.dims:  # images of other widths need other heights on their lines
        others = {kernel for kernel in others if not kernel.lines}
    assert not others
    assert len(dispatcher.micro_kernels) <= most or "W" not in work.dims


@settings(max_examples=6)
@given(st.sampled_from((1, 3)), st.sampled_from(RANGES), st.sampled_from((1, 2)), st.integers(1, 8))
@example(1, (1, 4), 1, 8)
def test_neither_has_that_of_a_sequence(images: int, length: Any, stride: int, most: int) -> None:
    work = Conv1d(N=images, L=extent(*length), IC=8, OC=32, kernel=3, padding=1, stride=stride)
    assert len(train_dispatcher(portfolio_of(work, most)).micro_kernels) <= most


def test_a_leaf_that_other_numbers_of_rows_reach_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a loss on any shape that the portfolio was chosen for."""
    portfolio = portfolio_of(FEW_ROWS, 8, kinds=(False,))
    kept = train_dispatcher(portfolio)
    monkeypatch.setattr("dietlab.tuning.dispatcher.with_kept_heights", lambda tree, *_: tree)
    whole = train_dispatcher(portfolio)
    assert len(whole.micro_kernels) > len(portfolio) >= len(kept.micro_kernels)
    assert kept.expected_slowdown <= whole.expected_slowdown + 1e-9
    assert len(leaves(whole.tree)) < len(leaves(kept.tree)) <= 2 * len(leaves(whole.tree))
    assert [kept.scheme(shape) for shape in portfolio.shapes] == [
        whole.scheme(shape) for shape in portfolio.shapes
    ]


def test_tiles_on_lines_need_the_widths_of_their_leaf() -> None:
    """A leaf that serves all widths is split by the width, where a tile of that height is missing."""
    work = Conv2d(N=1, H=Dim(7, 40), W=Dim(7, 40), IC=16, OC=32, padding=1)
    portfolio = portfolio_of(work, 5, kinds=(True,))
    number = max(range(len(portfolio.schemes)), key=lambda n: portfolio.schemes[n].rows)
    losses = np.array(portfolio.seconds).T
    finite = np.where(np.isfinite(losses), losses, 1e9)
    kept = with_kept_heights(Leaf(number), portfolio, finite, 0.0)
    schemes = (*portfolio.schemes, portfolio.safe_scheme)
    dispatcher = Dispatcher(work, HARDWARE, schemes, kept)
    assert not set(Dispatcher(work, HARDWARE, schemes, Leaf(number)).micro_kernels) <= set(
        portfolio.micro_kernels
    )
    assert split_dims(kept) == ("W",)
    assert set(dispatcher.micro_kernels) <= set(portfolio.micro_kernels)


def test_images_of_another_size_than_a_static_one_are_served(tmp_path: Path) -> None:
    """By micro-kernels of the portfolio, whatever the number of rows is."""
    dispatcher, layer = train_dispatcher(portfolio_of(FEW_ROWS, 8)), None
    for images, height, width in ((1, 7, 7), (2, 9, 11), (1, 12, 7), (7, 8, 8)):
        work = Conv2d(N=images, H=height, W=width, IC=16, OC=32, kernel=7)
        inputs = work.inputs(Shape(()))
        layer = layer or build(dispatcher, tmp_path / "library").pack(inputs["w"])
        np.testing.assert_allclose(layer(inputs["x"]), work.reference(inputs), atol=2e-3)


def test_only_convolutions_have_such_leaves() -> None:
    """A depthwise tile covers a part of a line, whatever the number of rows."""
    work = Conv2d(N=1, H=Dim(3, 9), W=Dim(3, 9), IC=32, OC=32, groups=32)
    portfolio = portfolio_of(work, 4)
    tree = train_dispatcher(portfolio).tree
    assert with_kept_heights(tree, portfolio, np.zeros((len(portfolio.shapes), 1)), 0.0) is tree


@pytest.mark.parametrize("groups", [1, 2])
def test_an_empty_image_with_zeros_around_it_has_tiles(groups: int, tmp_path: Path) -> None:
    """Two rows, where an image of one element has three: tiles of three rows wrote beyond the output."""
    work = Conv1d(N=1, L=Dim(20, 48), IC=6, OC=48, kernel=3, padding=3, dilation=2, groups=groups)
    op = build(Dispatcher(work, HARDWARE, (Scheme.from_key("7x16.u8.ws.p0.even"),), Leaf(0)), tmp_path / "l")
    inputs = work.inputs(Shape.of(L=0))
    memory = np.full((2, 2, 48), 7.0, np.float32)
    op.pack(inputs["w"])(inputs["x"], out=memory[:1])
    assert (memory[0] == 0).all() and (memory[1] == 7).all()
    for length in (0, 1, 2, 30):
        inputs = work.inputs(Shape.of(L=length))
        found = op.pack(inputs["w"])(inputs["x"])
        np.testing.assert_allclose(found, work.reference(inputs), atol=2e-3)

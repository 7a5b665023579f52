"""What property tests draw of convolutions: their options, the images that they meet, and their epilogue."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

sides = st.tuples(st.integers(1, 4), st.integers(1, 4))
strides = st.tuples(st.integers(1, 3), st.integers(1, 3))
pads = st.tuples(*[st.tuples(st.integers(0, 3), st.integers(0, 3))] * 2)


def windows(kernels: st.SearchStrategy[Any] = sides) -> st.SearchStrategy[dict[str, Any]]:
    """Draws kernel, stride, padding and dilation."""
    return st.fixed_dictionaries({"kernel": kernels, "stride": strides, "padding": pads, "dilation": strides})


images = st.lists(
    st.tuples(st.integers(0, 2), st.integers(10, 24), st.integers(10, 24)), min_size=2, max_size=4
)
"""Extents of N, H and W."""

epilogues = st.booleans().map(
    lambda rich: {"bias": rich, "residual": rich, "activation": "relu" if rich else "none"}
)


def channels(groups: int, inner: int, outer: int) -> dict[str, int]:
    """Returns the numbers of channels, given those of one group."""
    return {"IC": groups * inner, "OC": groups * outer, "groups": groups}

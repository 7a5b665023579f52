"""Arrays of NumPy as operands: what is only read is taken from wherever it lies; outputs are checked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from schemes import cpu_scheme

from dietlab.base.errors import DispatchError
from dietlab.lower.runtime import compacted
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, Workload, tolerance
from dietlab.scheme import Leaf, Scheme
from dietlab.tuning import Dispatcher, Operator, build

HERE = Hardware.detect(measure=False).with_cores(1)
T = Dim(1, 40)
WORKS: dict[str, Workload] = {
    "dense": Dense(T, 24, 16),
    "epilogue": Dense(T, 24, 16, bias=True, activation="relu", residual=True),
    "variable": Dense(T, 24, 16, bias=True, residual=True, constant=False),
    "every layer": Dense(T, Dim(8, 64), Dim(8, 64)),
    "nn": BatchMatmul(T, 2, 16, "nn"),
}


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Operator]:
    scheme = cpu_scheme(4, HERE.limits.lanes, edge="even")
    return {
        name: build(Dispatcher(work, HERE, (scheme,), Leaf(0)), tmp_path_factory.mktemp("op"))
        for name, work in WORKS.items()
    }


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Operator]:
    """Operators of narrow types, where this processor has their units."""
    keys = {"int8": "4x32.u1.ws.p0.maddwd.even", "bfloat16": "4x32.u1.ws.p0.bf16fma.even"}
    found = {}
    for dtype, key in keys.items():
        if Scheme.from_key(key).kernel.unit in HERE.limits.units(dtype):
            work = Dense(T, 32, 16, bias=True, dtype=dtype)
            dispatcher = Dispatcher(work, HERE, (Scheme.from_key(key),), Leaf(0))
            found[dtype] = build(dispatcher, tmp_path_factory.mktemp(dtype))
    return found


def read_only(array: Any) -> Any:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def mapped(mode: Any) -> Callable[[Any, Path], Any]:
    def on_disk(array: Any, folder: Path) -> Any:
        np.save(folder / "x.npy", array)
        return np.load(folder / "x.npy", mmap_mode=mode)

    return on_disk


class Marked(np.ndarray[Any, Any]):
    """A class that others derive from NumPy's."""


KINDS: dict[str, Callable[[Any, Path], Any]] = {
    "read-only": lambda a, _: read_only(a),
    "of bytes": lambda a, _: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "mapped for reading": mapped("r"),
    "mapped": mapped("r+"),
    "mapped, copied on write": mapped("c"),
    "as an array of a mapped one": lambda a, p: np.asarray(mapped("r")(a, p)),
    "another class": lambda a, _: a.view(Marked),
    "another class, read-only": lambda a, _: read_only(a).view(Marked),
    "records": lambda a, _: a.view(np.recarray),
    "masked, without a mask": lambda a, _: np.ma.array(a),
    "masked, nothing of it": lambda a, _: np.ma.array(a, mask=np.zeros(a.shape, bool)),
    "read-only, by columns": lambda a, _: read_only(np.asfortranarray(a)),
}


def inputs_of(work: Workload, rows: int) -> dict[str, Any]:
    extents = {name: rows if name == "T" else 16 for name in work.dims}
    return dict(work.inputs(Shape.of(**extents)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", WORKS)
def test_operands_are_read_wherever_they_lie(
    ops: dict[str, Operator], name: str, kind: str, tmp_path: Path
) -> None:
    for rows in (1, 9) if "map" in kind else (0, 1, 9):  # no empty file is mapped
        (tmp_path / str(rows)).mkdir()
        read_anywhere(ops[name], WORKS[name], KINDS[kind], rows, tmp_path / str(rows))


def read_anywhere(
    op: Operator, work: Workload, kind: Callable[[Any, Path], Any], rows: int, folder: Path
) -> None:
    """Compares every way to call an operator with its call on plain arrays."""
    plain = inputs_of(work, rows)
    expected = op(*plain.values())
    assert np.abs(expected - work.reference(plain)).max(initial=0) <= tolerance(work, plain)
    for one in plain:
        (folder / one).mkdir()
    given = {one: kind(array, folder / one) for one, array in plain.items()}
    for result in (op(*given.values()), op(*given.values(), out=np.full_like(expected, np.nan))):
        assert type(result) is np.ndarray and result.flags.writeable
        np.testing.assert_array_equal(result, expected)
    constants = {one: given.pop(one) for one in work.constants}
    out = np.full_like(expected, np.nan)
    if constants:
        layer = op.pack(**constants)
        np.testing.assert_array_equal(layer(*given.values()), expected)
        layer.bind(given["x"], out, residual=given.get("residual"))()
    else:
        op.bind(given, out)()
    np.testing.assert_array_equal(out, expected)
    assert all(np.array_equal(array, plain[one]) for one, array in given.items())


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_operands_of_narrow_types_are_read_wherever_they_lie(
    narrow: dict[str, Operator], dtype: str, tmp_path: Path
) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    if dtype not in narrow:
        pytest.skip(f"this processor has no such unit of {dtype}")
    op = narrow[dtype]
    plain = inputs_of(op.workload, 5)
    constants = {name: plain.pop(name) for name in op.workload.constants}
    expected = op.pack(**constants)(plain["x"])
    for kind in ("read-only", "another class, read-only", "of bytes", "read-only, by columns"):
        held = {name: KINDS[kind](array, tmp_path) for name, array in constants.items()}
        np.testing.assert_array_equal(op.pack(**held)(KINDS[kind](plain["x"], tmp_path)), expected)
    empty = KINDS["read-only"](plain["x"][:0], tmp_path)
    assert op.pack(**constants)(empty).shape == (0, 32)


def test_matrices_and_frames_are_operands(ops: dict[str, Operator]) -> None:
    op, plain = ops["dense"], inputs_of(WORKS["dense"], 6)
    x, w = plain.values()
    expected = op(x, w)
    for given in (x.view(np.matrix), read_only(x).view(np.matrix)):
        result = op(given, w.view(np.matrix))
        assert type(result) is np.ndarray
        np.testing.assert_array_equal(result, expected)
    # The default of pandas 3: what a frame gives out is read-only, and by columns.
    always = int(pd.__version__.partition(".")[0]) >= 3
    with nullcontext() if always else pd.option_context("mode.copy_on_write", True):
        for frame in (pd.DataFrame(x), pd.DataFrame({f"c{n}": x[:, n] for n in range(16)})):
            np.testing.assert_array_equal(op(frame.to_numpy(), w), expected)
    one = np.broadcast_to(x[0], (1, 16))
    np.testing.assert_array_equal(op(one, w), expected[:1])
    np.testing.assert_array_equal(op(np.broadcast_to(x[0], (6, 16)), w), np.repeat(expected[:1], 6, 0))


def test_masked_entries_are_refused_at_every_door(ops: dict[str, Operator]) -> None:
    """NumPy's own functions disagree on them: matmul fails, ma.dot takes 0 for them."""
    plain = inputs_of(WORKS["epilogue"], 4)
    op = ops["epilogue"]
    x, w, bias, residual = plain.values()
    masks = {name: np.zeros(array.shape, bool) for name, array in plain.items()}
    for mask in masks.values():
        mask.flat[1] = True
    mx, mw, mb, mr = (np.ma.array(array, mask=masks[name]) for name, array in plain.items())
    layer, out = op.pack(w, bias), np.zeros_like(residual)
    variable, given = ops["variable"], {"x": mx, "w": w, "bias": bias, "residual": residual}
    doors: list[Callable[[], object]] = [
        lambda: layer(mx, residual),
        lambda: layer(x, mr),
        lambda: layer.bind(mx, out, residual=residual),
        lambda: layer.bind(x, out, residual=mr),
        lambda: layer(x, residual, out=np.ma.array(out, mask=masks["residual"])),
        lambda: op.pack(mw, bias),
        lambda: op.pack(w, mb),
        lambda: op(mx, w, bias, residual),
        lambda: op(x, mw, bias, residual),
        lambda: variable(x, w, mb, residual),
        lambda: variable.bind(given, out),
    ]
    for door in doors:
        with pytest.raises(DispatchError, match=r"no entry of an array may be masked; got 1 of \d+ masked"):
            door()
    assert not out.any()


@pytest.mark.parametrize("rows", [0, 4])
def test_outputs_must_be_writable(ops: dict[str, Operator], rows: int) -> None:
    op, plain = ops["dense"], inputs_of(WORKS["dense"], rows)
    x, w = plain.values()
    layer, out = op.pack(w), read_only(np.zeros((rows, 24), np.float32))
    for door in (lambda: layer(x, out=out), lambda: op(x, w, out=out), lambda: layer.bind(x, out)):
        with pytest.raises(DispatchError, match="out is read-only"):
            door()
    assert not out.any()
    with pytest.raises(DispatchError, match=r"out (float32|must have the shape)"):
        layer(x, out=read_only(np.asfortranarray(np.zeros((4, 24), np.float32))))
    # One of another class is written where it lies.
    marked = np.full((rows, 24), np.nan, np.float32).view(Marked)
    assert layer(x, out=marked) is marked
    np.testing.assert_array_equal(np.asarray(marked), layer(x))


def test_negative_views_of_pytorch_keep_their_sign(ops: dict[str, Operator]) -> None:
    """DLPack passes their memory only (PyTorch 2.13, apache-tvm-ffi 0.1.14.post1)."""
    torch = pytest.importorskip("torch")
    op, plain = ops["dense"], inputs_of(WORKS["dense"], 4)
    x, w = (torch.from_numpy(array) for array in plain.values())
    views = [torch._neg_view(-tensor) for tensor in (x, w)]
    assert all(view.is_neg() for view in views)
    expected, out = op(x, w), torch._neg_view(torch.zeros(4, 24))
    for result in (op(*views), op.pack(views[1])(views[0])):
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
    with pytest.raises(DispatchError, match="out is a negative view"):
        op.pack(w)(x, out=out)


@pytest.mark.parametrize("shape", [(0, 24), (16, 0), (2, 0, 3), (0,), (0, 0)])
def test_strides_of_empty_arrays_are_those_of_their_shape(shape: tuple[int, ...]) -> None:
    array = compacted(np.empty(shape, np.float32))
    products = [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]
    assert array.shape == shape and array.strides == tuple(4 * product for product in products)
    full = np.ones((2, 3), np.float32)
    assert compacted(full) is full


def test_empty_calls_of_every_layer_check_their_sizes(ops: dict[str, Operator]) -> None:
    op = ops["every layer"]
    for cols, depth in ((8, 16), (64, 9)):
        layer = op.pack(np.ones((cols, depth), np.float32))
        result = layer(np.empty((0, depth), np.float32))
        assert result.shape == (0, cols) and result.dtype == np.float32
        out = np.empty((0, cols), np.float32)
        assert layer(np.empty((0, depth), np.float32), out=out) is out
        layer.bind(np.empty((0, depth), np.float32), out)()
        for bad in (np.empty((0, depth), np.float64), np.empty((0,), np.float32)):
            with pytest.raises(DispatchError, match=r"x \[T, K\]"):
                layer(bad)
        with pytest.raises(DispatchError, match="out"):
            layer(np.empty((0, depth), np.float32), out=np.empty((1, cols), np.float32))

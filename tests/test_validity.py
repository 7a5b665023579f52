"""Every length is called and compared: nothing wrong is overlooked, and what is checked is the real tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import in_turn

from dietlab.base.events import audience
from dietlab.compare.suites import validity
from dietlab.compare.suites.validity import EACH_UP_TO, HIGHEST, all_lengths, check_lengths, shrunk
from dietlab.machine import Hardware
from dietlab.problem import BatchMatmul, Dense, Dim, Workload
from dietlab.scheme import Leaf, MicroKernel, Scheme, Split
from dietlab.targets.cpu.kernel import CpuMicroKernel
from dietlab.tuning import Dispatcher, build

NOBODY = audience(())
TREE = Split("T", 128, Split("T", 9, Leaf(1), Leaf(0)), Leaf(2))
AWKWARD = (*range(0, 40), 97, 127, 128, 129, 131, 1000)
PACKED = tuple(
    Scheme.from_key(k) for k in ("5x32.u4.ws.p8a.k256.even", "2x96.u2.is.p0.even", "8x16.u4.ws.p8a.k128.rest")
)
DOTS = tuple(
    Scheme.from_key(k) for k in ("9x16.u1.ws.p0a.even", "2x3.u2.ws.p0a.depth.rest", "4x32.u1.ws.p0.even")
)
DIRECT = tuple(
    Scheme.from_key(k) for k in ("8x16.u4.is.p0a.even", "1x48.u2.is.p0.even", "5x64.u4.ws.p0a.rest")
)
OPERATORS: tuple[tuple[Workload, tuple[MicroKernel, ...]], ...] = (
    (Dense(T=Dim(1, 128), N=2304, K=768), PACKED),
    (Dense(T=Dim(1, 128), N=768, K=3072, bias=True, activation="gelu_erf", residual=True), PACKED),
    (BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nt"), DOTS),
    (BatchMatmul(T=Dim(1, 128), B=192, D=64, form="nn"), DIRECT),
)


@pytest.mark.parametrize(
    ("operator", "cores"),
    in_turn(OPERATORS, (1, 2)),
    ids=lambda value: value[0].operator if isinstance(value, tuple) else str(value),
)
def test_a_sample_of_lengths_is_right(
    operator: tuple[Workload, tuple[MicroKernel, ...]], cores: int, here: Hardware
) -> None:
    work, plans = operator
    found = check_lengths(Dispatcher(work, here.with_cores(cores), plans, TREE), NOBODY, AWKWARD)
    assert found.checked == len(AWKWARD) and found.wrong == ()


@pytest.mark.parametrize(("work", "plans"), OPERATORS[1:3], ids=["constant", "variable"])
def test_a_wrong_value_is_found(
    work: Workload, plans: tuple[MicroKernel, ...], here: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spoilt:
        """An operator with one wrong value at T = 7, and one that is never written at T = 11."""

        def __init__(self, op: Any) -> None:
            self.op = op

        def pack(self, *constants: Any) -> Any:
            return Spoilt(self.op.pack(*constants))

        def __call__(self, *operands: Any, out: Any) -> None:
            self.op(*operands, out=out)
            if out.shape[-2] == 7:
                out[..., 3, 2] += 0.01
            if out.shape[-2] == 11:
                out[..., 10, 1] = validity.POISON

    def spoilt(dispatcher: Dispatcher, path: Path) -> Any:
        op: Any = Spoilt(build(dispatcher, path))
        op.workload = dispatcher.workload
        return op

    monkeypatch.setattr(validity, "build", spoilt)
    found = check_lengths(Dispatcher(work, here, plans, TREE), NOBODY, range(16))
    assert found.wrong == (7, 11)
    assert found.to_json() == {"lengths_checked": 16, "lengths_wrong": [7, 11]}


def test_the_small_operator_has_whole_tiles_and_a_rest() -> None:
    for work, plans in OPERATORS:
        small = shrunk(Dispatcher(work, Hardware.preset("zen4-1core"), plans, TREE)).workload
        assert type(small) is type(work) and small.dims == work.dims and small.epilogue == work.epilogue
    small = shrunk(Dispatcher(OPERATORS[0][0], Hardware.preset("zen4-1core"), PACKED, TREE))
    assert isinstance(small.workload, Dense) and (small.workload.N, small.workload.K) == (101, 42)
    # 768 steps in three parts and in six, as 42 are in three and in six
    assert [k.kernel.block for k in small.schemes if isinstance(k.kernel, CpuMicroKernel)] == [14, 0, 7]


def test_every_length_of_a_dense_layer_is_checked_by_default() -> None:
    assert all_lengths(OPERATORS[0][0]) == tuple(range(HIGHEST + 1))
    batched = all_lengths(OPERATORS[2][0])
    assert batched[: EACH_UP_TO + 1] == tuple(range(EACH_UP_TO + 1)) and batched[-1] == HIGHEST
    assert list(batched) == sorted(set(batched))

"""Shape sets of several dimensions: grids, draws, layers of networks, and what is held out of them."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dietlab.base.errors import DietlabError, WorkloadError
from dietlab.cli.options import parse_shapes, shapes_option
from dietlab.problem import BatchMatmul, Conv2d, Dense, Dim, Shape, ShapeSet
from dietlab.problem.dims import HasDims
from dietlab.problem.layers import MODELS, Layer, block, family, layers_of, merged
from dietlab.problem.shapes import only_dim

DENSE = Dense(T=Dim(1, 2048), N=Dim(64, 4096), K=Dim(64, 4096))
SMALL = Dense(T=Dim(1, 9), N=Dim(3, 12), K=Dim(5, 7))
BERT = [(2304, 768), (768, 768), (3072, 768), (768, 3072)]
some = st.lists(st.integers(1, 30), min_size=1, max_size=5)
pairs = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=1, max_size=8)


@dataclass(frozen=True)
class Linear:
    """What a linear layer of PyTorch shows of itself."""

    in_features: int
    out_features: int


class Network:
    """What a network of PyTorch shows of itself."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def modules(self) -> list[object]:
        return [self, *self.parts]


def sizes(shapes: ShapeSet) -> set[tuple[int, int]]:
    return {(shape["N"], shape["K"]) for shape in shapes}


# --- grids ------------------------------------------------------------------------------------------


@given(some, some, some)
def test_grid_has_every_combination_once_with_equal_weights(t: list[int], n: list[int], k: list[int]) -> None:
    shapes = ShapeSet.grid(Dense(Dim(1, 30), Dim(1, 30), Dim(1, 30)), T=t, N=n, K=k)
    assert {(s["T"], s["N"], s["K"]) for s in shapes} == {(a, b, c) for a in t for b in n for c in k}
    assert len(shapes) == len(set(t)) * len(set(n)) * len(set(k)) and len(set(shapes.weights)) == 1


def test_grid_takes_numbers_ranges_and_numpy_integers() -> None:
    shapes = ShapeSet.grid(SMALL, T=Dim(1, 2), N=np.array([3, 12]), K=6)
    assert [str(s) for s in shapes] == ["K=6,N=3,T=1", "K=6,N=3,T=2", "K=6,N=12,T=1", "K=6,N=12,T=2"]
    assert {type(extent) for shape in shapes for _, extent in shape.bindings} == {int}
    assert shapes.ranges == "K=6, N=3..12, T=1..2"
    assert list(ShapeSet.grid(Dense(8, 4, 4))) == [Shape(())]
    assert ShapeSet.grid(Dense(Dim(1, 8), 4, 4), T=[3, 1]) == ShapeSet.extents(Dense(Dim(1, 8), 4, 4), [1, 3])


@pytest.mark.parametrize(
    ("extents", "complaint"),
    [
        (
            {"T": [1], "M": [3]},
            r"^a grid needs extents of the dynamic dimensions \(T, N, K\); got unknown M; missing K, N\. ",
        ),
        (
            {"T": [1], "N": [13], "K": [5]},
            r"^the extents of N must lie in its range 3\.\.12, at least one; got N=13\. The operator takes "
            r"a wider range, as in N=Dim\(3, 13\) \(--dim N=3:13\)\.$",
        ),
        (
            {"T": [1], "N": [], "K": [5]},
            r"^the extents of N must lie in its range 3\.\.12, at least one; got N=\[\]$",
        ),
        ({"T": [0], "N": [3], "K": [5]}, r"^an extent must be at least 1; got 0\. Leave it out\.$"),
        ({"T": [1.0], "N": [3], "K": [5]}, r"^an extent must be an int; got 1\.0\. For example 128\.$"),
    ],
)
def test_impossible_grids_are_refused(extents: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        ShapeSet.grid(SMALL, **extents)


def test_grid_that_fits_no_memory_is_refused() -> None:
    with pytest.raises(
        WorkloadError,
        match=r"^a grid must have at most 1,000,000 shapes; got 33,310,902,272\. Give fewer extents, or draw "
        r"some with ShapeSet\.log_uniform\(\) \(--shapes log-uniform:16\)\.$",
    ):
        ShapeSet.grid(DENSE, T=DENSE.T, N=DENSE.N, K=DENSE.K)


TOO_MANY = r"^an operand must have at most 2,147,483,647 elements \(2\*\*31 - 1\); got "


def test_shapes_whose_operands_no_index_reaches_are_refused() -> None:
    huge = Dense(Dim(1, 2**16), Dim(1, 2**16), 8)
    assert len(ShapeSet.grid(huge, T=[1, 2**16], N=[8])) == 2
    told = r"out\[65536, 65536\] with 4,294,967,296\. Make an ex"
    with pytest.raises(WorkloadError, match=TOO_MANY + told):
        ShapeSet.grid(huge, T=[1, 2**16], N=[8, 2**16])
    with pytest.raises(WorkloadError, match=TOO_MANY + r"w\[32768, 65536\] with 2,147,483,648"):
        ShapeSet.layers([(2**15, 2**16)], [1])
    told = r"x\[2147483648, 2\]|" + TOO_MANY + r"x\[1073741824, 2\]"
    with pytest.raises(WorkloadError, match=TOO_MANY + told):
        ShapeSet.extents(Dense(Dim(1, 2**30), 1, 2), [2**30])


def test_largest_extents_of_different_shapes_do_not_add_up() -> None:
    """A layer with many features and one with many rows are each small."""
    huge = Dense(Dim(1, 2**16), Dim(1, 2**16), 8)
    assert len(ShapeSet.layers([(2**16, 8), (1, 8)], [1], huge)) == 2
    weighted = {Shape.of(T=2**16, N=1): 1.0, Shape.of(T=1, N=2**16): 1.0}
    assert len(ShapeSet._of(huge, weighted)) == 2


# --- draws ------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(0, 1000))
def test_log_uniform_draws_distinct_shapes_in_range_and_the_same_again(n: int, seed: int) -> None:
    shapes = ShapeSet.log_uniform(DENSE, n, seed)
    assert len(shapes) == n and shapes == ShapeSet.log_uniform(DENSE, n, seed)
    assert all(s[name] in dim for s in shapes for name, dim in DENSE.dims.items())
    few = ShapeSet.log_uniform(SMALL, 5 * n, seed)
    assert len(few) == min(5 * n, 9 * 10 * 3) and set(few) <= set(all_of(SMALL))


def all_of(work: Dense) -> ShapeSet:
    return ShapeSet.grid(work, **{name: list(dim) for name, dim in work.dims.items()})


def test_log_uniform_takes_all_of_short_ranges_and_serves_one_dimension_and_none() -> None:
    assert ShapeSet.log_uniform(SMALL, 1000) == all_of(SMALL)
    assert len(ShapeSet.log_uniform(Dense(Dim(1, 128), 4, 4), 20)) == 20
    assert list(ShapeSet.log_uniform(Dense(1, 4, 4), 20)) == [Shape(())]


def test_log_uniform_draws_odd_extents_of_every_magnitude() -> None:
    shapes = ShapeSet.log_uniform(DENSE, 400, 1)
    for name in DENSE.dims:
        odd = sum(shape[name] % 2 for shape in shapes)
        assert 140 < odd < 260
    lengths = Counter(shape["T"].bit_length() for shape in shapes)
    usual = [lengths[bits] for bits in range(2, 12)]
    assert set(lengths) >= set(range(1, 12)) and max(lengths.values()) < 4 * min(usual)


def test_draws_follow_the_logarithm_also_where_all_are_listed() -> None:
    """The first draw has the probabilities that ``chance`` gives, both ways of drawing."""
    dim = Dim(1, 8)
    assert math.fsum(map(dim.chance, dim)) == pytest.approx(1)
    listed = Counter(ShapeSet.log_uniform(Dense(dim, 4, 4), 2, seed).shapes[0]["T"] for seed in range(100))
    assert listed[1] > listed[4]
    source = random.Random(0)
    drawn = Counter(dim.log_uniform(source) for _ in range(20000))
    assert set(drawn) == set(dim)
    for extent in dim:
        assert drawn[extent] / 20000 == pytest.approx(dim.chance(extent), abs=0.015)


def test_log_uniform_holds_out_a_share() -> None:
    shapes = ShapeSet.log_uniform(DENSE, 40, 3, held_out=0.25)
    assert len(shapes.held_out) == 10 and shapes == ShapeSet.log_uniform(DENSE, 40, 3).split(0.25, 3)
    assert set(shapes.train) == set(shapes) - shapes.held_out
    with pytest.raises(
        WorkloadError, match=r"^a log-uniform shape set needs at least one shape; got 0\. For"
    ):
        ShapeSet.log_uniform(DENSE, 0)
    with pytest.raises(WorkloadError, match=r"^the held-out fraction must lie in \[0, 1\); got 1$"):
        ShapeSet.log_uniform(DENSE, 4, held_out=1)


@pytest.mark.parametrize(
    "choose",
    [
        ShapeSet.uniform,
        ShapeSet.every,
        lambda work: ShapeSet.random(work, 4),
        lambda work: ShapeSet.extents(work, [1]),
        lambda work: ShapeSet.weighted(work, {1: 1.0}),
        lambda work: ShapeSet.traffic(work, "bert"),
        only_dim,
    ],
)
def test_choices_of_one_dimension_name_those_of_several(choose: Any) -> None:
    with pytest.raises(
        WorkloadError,
        match=r"^the workload must have exactly one dynamic dimension; got 3 \(T, N, K\)\. ShapeSet\.grid\(\)"
        r", ShapeSet\.log_uniform\(\) and ShapeSet\.layers\(\) choose shapes of several\.$",
    ):
        choose(DENSE)


# --- layers -----------------------------------------------------------------------------------------


def test_tables_of_models_are_those_of_the_papers() -> None:
    assert [(layer.N, layer.K) for layer in MODELS["bert-base"].layers] == BERT
    large = [(3072, 1024), (1024, 1024), (4096, 1024), (1024, 4096)]
    assert [(layer.N, layer.K) for layer in MODELS["bert-large"].layers] == large
    for name, changed in {"gpt2": {(50257, 768): 1}, "vit-base": {(768, 768): 13}}.items():
        found = {(layer.N, layer.K): layer.weight for layer in layers_of(name)}
        assert found == dict.fromkeys(BERT, 12) | changed


@pytest.mark.parametrize(("name", "millions"), [("bert-base", 85), ("bert-large", 302), ("vit-base", 86)])
def test_weights_of_the_tables_are_the_parameters_that_the_papers_count(name: str, millions: int) -> None:
    """Without embeddings and biases: BERT-base has 110 million with 24 in embeddings, ViT-base 86."""
    assert sum(x.N * x.K * x.weight for x in MODELS[name].layers) / 1e6 == pytest.approx(millions, abs=1)


def test_layers_times_lengths_weigh_as_their_product() -> None:
    layers = [Layer(64, 96, 3.0), Layer(96, 64), (96, 64)]
    shapes = ShapeSet.layers(layers, {1: 1.0, 7: 4.0}, DENSE)
    expected = {(1, 64, 96): 3, (7, 64, 96): 12, (1, 96, 64): 2, (7, 96, 64): 8}
    assert {(s["T"], s["N"], s["K"]): shapes.weight(s) * 25 for s in shapes} == pytest.approx(expected)
    assert (shapes.source, shapes.dropped) == ("", 0.0)


def test_layers_of_a_model_at_the_lengths_of_recorded_traffic() -> None:
    shapes = ShapeSet.layers("bert-base", "serving", replace(DENSE, T=Dim(1, 512)), n=8)
    assert sizes(shapes) == set(BERT) and len(shapes) == 32
    assert shapes.source == "bert-base@serving:8" and 0.2 < shapes.dropped < 0.3
    one = ShapeSet.traffic(Dense(Dim(1, 512), 768, 768), "serving", 8)
    assert shapes.dropped == pytest.approx(one.dropped)
    for shape, weight in zip(one.shapes, one.weights, strict=True):
        assert shapes.weight(Shape.of(T=shape["T"], N=768, K=3072)) == pytest.approx(weight / 4)
    assert ShapeSet.layers("bert-base", "bert", DENSE).source == "bert-base@bert"


def test_layers_need_no_operator() -> None:
    shapes = ShapeSet.layers("bert-base", [1, 1, 100_000])
    assert len(shapes) == 8 and shapes.ranges == "K=768..3072, N=768..3072, T=1..100000"
    ones = [w for s, w in zip(shapes, shapes.weights, strict=True) if s["T"] == 1]
    assert math.fsum(ones) == pytest.approx(2 / 3)


def test_static_dimensions_choose_among_the_layers() -> None:
    shapes = ShapeSet.layers("bert-base", [4, 8], Dense(T=Dim(1, 8), N=768, K=Dim(64, 4096)))
    assert [str(s) for s in shapes] == ["K=768,T=4", "K=768,T=8", "K=3072,T=4", "K=3072,T=8"]
    assert shapes.dropped == 0.5
    assert list(ShapeSet.layers("bert-base", [4, 8], Dense(8, 768, 768))) == [Shape(())]


def test_what_lies_outside_the_ranges_is_dropped_and_counted() -> None:
    shapes = ShapeSet.layers("gpt2", [1, 4096], DENSE)
    assert sizes(shapes) == set(BERT) and {s["T"] for s in shapes} == {1}
    assert shapes.dropped == pytest.approx(1 - 48 / 49 / 2)
    assert "50.0" not in repr(shapes) and "51.0 % of the traffic outside the range" in repr(shapes)


@given(pairs, st.dictionaries(st.integers(1, 300), st.floats(0.1, 10), min_size=1, max_size=6))
def test_layers_hold_every_size_at_every_length(
    layers: list[tuple[int, int]], lengths: dict[int, float]
) -> None:
    shapes = ShapeSet.layers(layers, lengths)
    assert sizes(shapes) == set(layers) and len(shapes) == len(set(layers)) * len(lengths)
    total = math.fsum(lengths.values()) * len(layers)
    for shape, weight in zip(shapes, shapes.weights, strict=True):
        often = layers.count((shape["N"], shape["K"]))
        assert weight == pytest.approx(often * lengths[shape["T"]] / total)


def test_family_has_the_layers_of_every_width_and_expansion() -> None:
    layers = {(x.N, x.K): x.weight for x in family([4, 8], [2.0, 3.5])}
    once = [(16, 8), (28, 8), (8, 28), (8, 4), (4, 8), (14, 4), (4, 14), (8, 16)]
    twice = [(12, 4), (4, 4), (24, 8), (8, 8)]
    assert layers == dict.fromkeys(once, 1) | dict.fromkeys(twice, 2)
    assert family([768], [4.0]) == family([768]) == block(768, 3072)
    assert sizes(ShapeSet.layers(family([96, 100]), [3], DENSE)) >= {(96, 96), (400, 100)}


widths = st.lists(st.integers(1, 64), min_size=1, max_size=4)


@given(widths, st.lists(st.floats(0.01, 8), min_size=1, max_size=3))
def test_family_counts_four_layers_a_network(widths: list[int], expansions: list[float]) -> None:
    layers = family(widths, expansions)
    assert sum(layer.weight for layer in layers) == 4 * len(widths) * len(expansions)
    assert merged(layers) == layers


def test_layers_of_a_network_are_counted() -> None:
    network = Network(Linear(8, 16), Linear(16, 8), object(), Network(), Linear(8, 16))
    assert layers_of(network) == (Layer(16, 8, 2.0), Layer(8, 16, 1.0))
    shapes = ShapeSet.layers(network, [1, 2])
    assert shapes.source == "Network@lengths"
    assert shapes.weight(Shape.of(T=1, N=16, K=8)) == pytest.approx(1 / 3)


def test_layers_of_a_network_in_pytorch() -> None:
    torch = pytest.importorskip("torch")
    encoder = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)
    network = torch.nn.Sequential(encoder, torch.nn.Linear(32, 7), torch.nn.LayerNorm(7))
    found = {(layer.N, layer.K): layer.weight for layer in layers_of(network)}
    assert found == {(32, 32): 1, (64, 32): 1, (32, 64): 1, (7, 32): 1}


def test_no_library_is_loaded_for_layers() -> None:
    script = "import dietlab.problem.shapes, sys; assert not {'torch', 'pandas', 'tvm'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


NO_LAYER = (
    r"^layers are pairs \(N, K\), Layer values, a network or the name of a model, at least one; got {}\. As "
    r"in \[\(3072, 768\), \(768, 3072\)\], or one of bert-base, bert-large, gpt2, vit-base\.$"
)


@pytest.mark.parametrize(
    ("layers", "complaint"),
    [
        (
            "bert",
            r"^a model is one of bert-base, bert-large, gpt2, vit-base; got 'bert'\. Did you mean "
            r"'bert-base'\?$",
        ),
        ("llama", r"^a model is one of bert-base, bert-large, gpt2, vit-base; got 'llama'$"),
        ([], NO_LAYER.format("none")),
        (5, NO_LAYER.format("5")),
        ((3072, 768), NO_LAYER.format("3072")),
        ([(1, 2, 3)], NO_LAYER.format(r"\(1, 2, 3\)")),
        (["ab"], NO_LAYER.format("'ab'")),
        ([(0, 768)], r"^an extent must be at least 1; got 0\. Leave it out\.$"),
        ([(1.5, 768)], r"^an extent must be an int; got 1\.5\. For example 128\.$"),
        (
            Network(object()),
            r"^a network must have a linear layer; got Network without one\. Its sizes can be listed as \(N, "
            r"K\): \[\(3072, 768\), \(768, 3072\)\]\.$",
        ),
        (
            [(32, 64), *((5000 + n, 64) for n in range(5))],
            r"^at least one layer must lie in the ranges N=64\.\.4096, K=64\.\.4096; got \(N, K\) = \(32, "
            r"64\), \(5000, 64\), \(5001, 64\), \(5002, 64\) and 2 more\. All of them lie in N=Dim\(32, 5004"
            r"\) \(--dim N=32:5004\) and K=Dim\(64, 64\) \(--dim K=64:64\)\.$",
        ),
    ],
)
def test_impossible_layers_are_refused(layers: Any, complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        ShapeSet.layers(layers, [1], DENSE)


@pytest.mark.parametrize(
    ("lengths", "complaint"),
    [
        (
            [],
            r"^traffic needs at least one length; got none\. For example \[1, 16, 128\], or a table: "
            r"uniform, paper, bert, serving, speech\.$",
        ),
        ([0], r"^an extent must be at least 1; got 0\. Leave it out\.$"),
        ([2.0], r"^an extent must be an int; got 2\.0\. For example 128\.$"),
        ({3: 0.0}, r"^every length must have a positive, finite weight; got 0\.0 for 3$"),
        ({3: math.inf}, r"^every length must have a positive, finite weight; got inf for 3$"),
        ("mail", r"^a table of traffic is one of uniform, paper, bert, serving, speech; got 'mail'$"),
        (
            [3000, 4000],
            r"^at least one length must lie in the range T=1\.\.2048; got 3000\.\.4000\. All of them lie in "
            r"T=Dim\(3000, 4000\) \(--dim T=3000:4000\)\.$",
        ),
    ],
)
def test_impossible_lengths_are_refused(lengths: Any, complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        ShapeSet.layers(BERT, lengths, DENSE)


def test_impossible_merges_families_and_sizes_are_refused() -> None:
    with pytest.raises(WorkloadError, match=r"^traffic must be aggregated to one shape or more; got 0\. For"):
        ShapeSet.layers(BERT, "bert", DENSE, n=0)
    with pytest.raises(
        WorkloadError,
        match=r"^a family needs a width and an expansion; got 0 widths, 1 expansions\. As in family\(\[512, "
        r"768\], \[3\.0, 4\.0\]\)\.$",
    ):
        family([])
    with pytest.raises(
        WorkloadError, match=r"^an expansion must be positive and finite; got -1\. For example 4\.0\.$"
    ):
        family([8], [2, -1])
    with pytest.raises(
        WorkloadError,
        match=r"^the features of a layer must be ints of 1 or more; got N=0, K=4\. As in Layer\(N=3072, "
        r"K=768\)\.$",
    ):
        Layer(0, 4)
    with pytest.raises(WorkloadError, match=r"^a layer must have a positive, finite weight; got 0$"):
        Layer(4, 4, 0)


@pytest.mark.parametrize("work", [BatchMatmul(Dim(1, 8), 2, 4), BatchMatmul(1, Dim(1, 8), Dim(1, 9))])
def test_other_operators_have_no_layers(work: HasDims) -> None:
    with pytest.raises(
        WorkloadError,
        match=r"^layers need an operator with the dimensions T, N, K; got batch-matmul-nt .*\. For "
        r"example Dense\(T=Dim\(1, 512\), N=Dim\(64, 4096\), K=Dim\(64, 4096\)\) \(dense --dim T=1:512 "
        r"--dim N=64:4096 --dim K=64:4096\)\.$",
    ):
        ShapeSet.layers(BERT, [1], work)


# --- on the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("log-uniform:5:2", ShapeSet.log_uniform(DENSE, 5, 2)),
        ("log-uniform", ShapeSet.log_uniform(DENSE, 16)),
        ("T=1,16; N=768;K=64,65", ShapeSet.grid(DENSE, T=[1, 16], N=768, K=[64, 65])),
        ("bert-base@serving:9", ShapeSet.layers("bert-base", "serving", DENSE, 9)),
        ("gpt2@bert", ShapeSet.layers("gpt2", "bert", DENSE)),
        ("2304:768,768:768@1,16", ShapeSet.layers([(2304, 768), (768, 768)], [1, 16], DENSE)),
    ],
)
def test_command_line_names_shape_sets_of_several_dimensions(text: str, shapes: ShapeSet) -> None:
    found = parse_shapes(text, DENSE)
    assert found == shapes and found.source == text and found.dropped == shapes.dropped


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2304:768,768:768@1,16", ""),
        ("bert-base@1", ""),
        (
            "9000:768,768:768,768:32@1,16",
            "2 of 3 layers, (N, K) = (9000, 768), (768, 32); 66.7 % of the calls are left out",
        ),
        (
            "768:768,9:768,10:768,11:768,12:768,13:768@1",
            "5 of 6 layers, (N, K) = (9, 768), (10, 768), (11, 768), (12, 768) and 1 more; 83.3 % of the "
            "calls are left out",
        ),
        ("768:768@1,4096", "50.0 % of the calls are left out"),
        ("9000:768,768:768@1,4096", "1 of 2 layers, (N, K) = (9000, 768); 75.0 % of the calls are left out"),
    ],
)
def test_layers_and_lengths_that_are_left_out_are_told(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, told = parse_shapes(text, DENSE), capsys.readouterr()
    assert told.err == (f"note: outside the ranges of {DENSE}: {said}\n" if said else "") and not told.out
    assert bool(found.dropped) == bool(said)


def test_sizes_that_a_convolution_leaves_out_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    work = Conv2d(N=1, H=Dim(20, 60), W=Dim(20, 60), IC=64, OC=64, kernel=3, padding=1)
    found = parse_shapes("resnet50@224,320", work)
    told = capsys.readouterr().err
    assert told == f"note: outside the ranges of {work}: 50.0 % of the calls are left out\n"
    assert found.dropped == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("work", "text"),
    [
        (Dense(T=Dim(1, 512), N=768, K=768), "uniform:8"),
        (Dense(T=Dim(1, 512), N=Dim(64, 4096), K=768), "log-uniform:32"),
        (Dense(T=Dim(1, 512), N=Dim(64, 4096), K=Dim(64, 4096)), "log-uniform:48"),
    ],
)
def test_shapes_that_nobody_names_fit_the_number_of_dimensions(work: Dense, text: str) -> None:
    assert parse_shapes(None, work) == parse_shapes(text, work)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("bert-base@", r"^a table of traffic is one of uniform, paper, bert, serving, speech; got ''$"),
        ("bert-base@1,x", r"^layers are bert-base, .*; lengths are .*; got 'bert-base', '1,x'\. For"),
        ("1:2:3@1", r"^layers are .*; got '1:2:3', '1'\. For"),
        ("64:@1", r"^layers are .*; got '64:', '1'\. For"),
        ("bert-base@bert:", r"^layers are .*; got 'bert-base', 'bert:'\. For"),
        ("bert-base@bert:x", r"^layers are .*; got 'bert-base', 'bert:x'\. For"),
        ("@1", r"^a model is one of bert-base, bert-large, gpt2, vit-base; got ''$"),
        (
            "bert-base@mail",
            r"^a table of traffic is one of uniform, paper, bert, serving, speech; got 'mail'$",
        ),
        ("T=1;N=x;K=64", r"^shapes are uniform.*; got 'T=1;N=x;K=64'\. For"),
        ("T=1;N", r"^shapes are uniform.*; got 'T=1;N'\. For"),
        ("log-uniform:x", r"^shapes are uniform.*; got 'log-uniform:x'\. For"),
        (
            "uniform:8",
            r"^shapes of several dimensions are log-uniform:N.*; got 'uniform:8'\. For example --layers "
            r"bert-base --lengths serving:8\.$",
        ),
    ],
)
def test_command_line_refuses_other_shapes(text: str, complaint: str) -> None:
    with pytest.raises(DietlabError, match=complaint):
        parse_shapes(text, DENSE)


@click.command()
@shapes_option("uniform:8")
def shown(shapes: str) -> None:
    click.echo(shapes)


def run_shown(*arguments: str) -> Any:
    return CliRunner().invoke(shown, arguments)


def test_layers_and_lengths_take_the_place_of_shapes() -> None:
    assert run_shown().output == "uniform:8\n"
    assert run_shown("--shapes", "every").output == "every\n"
    assert run_shown("--layers", "bert-base").output == "bert-base@paper\n"
    assert run_shown("--layers", "64:65,65:64", "--lengths", "1,2").output == "64:65,65:64@1,2\n"
    both = run_shown("--layers", "bert-base", "--shapes", "every").exception
    told = "shapes must come from either --shapes or --layers; got both, every and bert-base. Leave one out."
    assert str(both) == told
    alone = str(run_shown("--lengths", "serving").exception)
    told = "--lengths needs --layers; got serving. Name them: bert-base, bert-large, "
    assert alone.startswith(told)


# --- held-out shapes and layers ---------------------------------------------------------------------


@given(pairs, st.floats(0, 0.99), st.integers(0, 50))
def test_split_by_layers_holds_them_out_whole(
    layers: list[tuple[int, int]], fraction: float, seed: int
) -> None:
    shapes = ShapeSet.layers(layers, [1, 5, 9]).split(fraction, seed, by=("N", "K"))
    held_out = {(s["N"], s["K"]) for s in shapes.held_out}
    assert not held_out & sizes(shapes.train) and len(shapes.held_out) == 3 * len(held_out)
    assert abs(len(held_out) - fraction * len(set(layers))) <= 1
    assert shapes == ShapeSet.layers(layers, [1, 5, 9]).split(fraction, seed, by=("N", "K"))
    assert math.fsum(shapes.train.weights) == pytest.approx(1)


def test_layers_and_lengths_are_held_out_together() -> None:
    shapes = ShapeSet.layers(BERT, [1, 2, 3], DENSE).hold_out({"N": 3072, "K": 768}, {"T": [2]})
    assert sizes(shapes.train) == set(BERT) - {(3072, 768)} and {s["T"] for s in shapes.train} == {1, 3}
    assert len(shapes.held_out) == 3 + 3
    again = shapes.hold_out({"N": {2304}})
    assert again.held_out == shapes.held_out | {s for s in shapes if s["N"] == 2304}
    assert shapes.hold_out() == shapes


UNBOUND = r"^a shape must have the requested dimension; got M in K=768,N=768,T=1$"


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        (
            {"N": 5},
            r"^a shape of the set must have the extents to hold out; got \{'N': 5\}\. It has K=768\.\.3072, "
            r"N=768\.\.3072, T=1\.\.2\.$",
        ),
        ({"M": 5}, UNBOUND),
        ({"T": range(1, 3)}, r"^a shape must be left to tune for; got all 8 shapes held out$"),
    ],
)
def test_impossible_hold_outs_are_refused(where: Any, complaint: str) -> None:
    shapes = ShapeSet.layers(BERT, [1, 2], DENSE)
    with pytest.raises(WorkloadError, match=complaint):
        shapes.hold_out(where)
    with pytest.raises(WorkloadError, match=UNBOUND):
        shapes.split(by=("M",))


def test_hold_out_all_but_serves_several_dimensions() -> None:
    shapes = ShapeSet.layers(BERT, [1, 2], DENSE)
    seen = Shape.of(T=1, N=768, K=768)
    assert list(shapes.hold_out_all_but([seen]).train) == [seen]


@given(st.integers(1, 40), st.integers(0, 100))
def test_sets_of_several_dimensions_survive_json(n: int, seed: int) -> None:
    shapes = ShapeSet.log_uniform(DENSE, n, seed).split(0.3)
    assert ShapeSet.from_json(json.loads(json.dumps(shapes.to_json()))) == shapes


def test_table_and_card_have_every_dimension() -> None:
    shapes = ShapeSet.layers(BERT, "bert", DENSE, n=2).hold_out({"N": 3072})
    frame = shapes.to_frame()
    assert list(frame) == ["K", "N", "T", "weight", "held_out"] and frame["weight"].sum() == pytest.approx(1)
    assert set(zip(frame["N"], frame["K"], strict=True)) == set(BERT) and frame["held_out"].sum() == 2
    assert repr(shapes).startswith("<ShapeSet K=768..3072, N=768..3072, T=")
    assert repr(shapes).endswith(": 8 shapes, 2 held out, layers@bert:2 traffic>")

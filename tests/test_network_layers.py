"""Convolutions of published networks: which they are, what they meet, and how often they are called."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from typing import Any

import pytest
from conftest import cli
from hypothesis import given
from hypothesis import strategies as st

import dietlab as dl
from dietlab.base.errors import DietlabError, WorkloadError
from dietlab.cli.options import usual_sizes
from dietlab.problem.network_layers import NetworkLayer, convolutions
from dietlab.problem.networks import NETWORKS, network_named
from dietlab.problem.networks.met import sizes_of
from dietlab.problem.networks.walk import Kernel
from dietlab.problem.traffic import read_table

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

RESNET50 = {
    # IC, OC, kernel, stride, padding, groups: calls, pixels on a side at 224
    (3, 64, 7, 2, 3, 1): (1, 224),
    (64, 64, 1, 1, 0, 1): (1, 56),
    (64, 64, 3, 1, 1, 1): (3, 56),
    (64, 256, 1, 1, 0, 1): (4, 56),
    (256, 64, 1, 1, 0, 1): (2, 56),
    (256, 128, 1, 1, 0, 1): (1, 56),
    (128, 128, 3, 2, 1, 1): (1, 56),
    (256, 512, 1, 2, 0, 1): (1, 56),
    (128, 512, 1, 1, 0, 1): (4, 28),
    (512, 128, 1, 1, 0, 1): (3, 28),
    (128, 128, 3, 1, 1, 1): (3, 28),
    (512, 256, 1, 1, 0, 1): (1, 28),
    (256, 256, 3, 2, 1, 1): (1, 28),
    (512, 1024, 1, 2, 0, 1): (1, 28),
    (256, 1024, 1, 1, 0, 1): (6, 14),
    (1024, 256, 1, 1, 0, 1): (5, 14),
    (256, 256, 3, 1, 1, 1): (5, 14),
    (1024, 512, 1, 1, 0, 1): (1, 14),
    (512, 512, 3, 2, 1, 1): (1, 14),
    (1024, 2048, 1, 2, 0, 1): (1, 14),
    (512, 2048, 1, 1, 0, 1): (3, 7),
    (2048, 512, 1, 1, 0, 1): (2, 7),
    (512, 512, 3, 1, 1, 1): (2, 7),
}
"""He et al. 2016, table 1, by hand, with the stride at the 3x3 layers."""


def called(module: Any, x: Any) -> Counter[Any]:
    """Returns how often PyTorch calls each convolution for each size; nothing is computed."""
    found: Counter[Any] = Counter()

    def note(conv: Any, inputs: Any) -> None:
        sides = zip(conv.kernel_size, conv.stride, conv.padding, conv.dilation, strict=True)
        ((kernel, stride, padding, dilation),) = set(sides)
        assert dilation == 1
        fixed = Kernel(conv.in_channels, conv.out_channels, kernel, stride, padding, conv.groups)
        found[fixed, tuple(inputs[0].shape[2:])] += 1

    for conv in module.modules():
        if isinstance(conv, (torch.nn.Conv1d, torch.nn.Conv2d)):
            conv.register_forward_pre_hook(note)
    module(x)
    return found


def test_resnet_50_has_the_layers_of_its_table() -> None:
    found = {
        (w.IC, w.OC, w.kernel[0], w.stride[0], w.padding[0][0], w.groups): (layer.calls, w.H)
        for layer in convolutions("resnet50", 224, [1])
        for w in [layer.workload]
        if isinstance(w, dl.Conv2d) and w.H == w.W
    }
    assert found == RESNET50


@pytest.mark.parametrize("size", [(128, 320), (224, 224), (149, 213)])
def test_resnet_50_calls_what_the_modules_of_transformers_call(size: tuple[int, int]) -> None:
    with torch.device("meta"):
        module = transformers.ResNetModel(transformers.ResNetConfig())
        assert called(module, torch.empty(1, 3, *size)) == network_named("resnet50").calls(size)


@pytest.mark.parametrize("length", [3000, 731])
def test_whisper_s_front_calls_what_the_modules_of_transformers_call(length: int) -> None:
    for name, width in {"tiny": 384, "large": 1280}.items():
        config = transformers.WhisperConfig(d_model=width, encoder_layers=1, encoder_attention_heads=4)
        with torch.device("meta"):
            encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder(config)
            front = torch.nn.Sequential(encoder.conv1, encoder.conv2)
            expected = called(front, torch.empty(1, 80, length))
        assert network_named(f"whisper-{name}").calls((length,)) == expected


def test_wav2vec2_calls_what_the_modules_of_transformers_call() -> None:
    with torch.device("meta"):
        module = transformers.models.wav2vec2.modeling_wav2vec2.Wav2Vec2FeatureEncoder(
            transformers.Wav2Vec2Config()
        )
        assert network_named("wav2vec2").calls((16003,)) == called(module, torch.empty(1, 16003))


def test_resnet_50_takes_4_1_billion_multiply_adds() -> None:
    """4.1 billion are published for the stride at the 3x3 layers, with two digits: within 0.05 of them."""
    layers = convolutions("resnet50", 224, batches=[1])
    last = 2048 * 1000
    assert sum(layer.flops for layer in layers) / 2 + last == pytest.approx(4.1e9, abs=0.05e9)
    eight = convolutions("resnet50", 224, batches=[8])
    assert sum(layer.flops for layer in eight) == 8 * sum(layer.flops for layer in layers)


def test_once_for_all_is_the_mean_of_its_networks() -> None:
    layers = convolutions("once-for-all", 224)
    depthwise = [layer for layer in layers if layer.workload.groups > 1]
    assert all(layer.workload.groups == layer.workload.IC == layer.workload.OC for layer in depthwise)
    assert {layer.workload.kernel[0] for layer in depthwise} == {3, 5, 7}
    # Three layers a block, 3 blocks in 5 stages on average, the stem, the first block, and the last layer.
    assert sum(layer.calls for layer in layers) == pytest.approx(3 * 3 * 5 + 1 + 2 + 1)
    calls = network_named("once-for-all").calls((224, 224))
    # The last stage's first block, of every network, and its others, of 1 + 2/3 + 1/3 on average.
    halving = Kernel(448, 448, kernel=5, stride=2, padding=2, groups=448)
    assert calls[halving, (14, 14)] == pytest.approx(1 / 9)
    assert calls[Kernel(448, 160, kernel=1), (7, 7)] == pytest.approx(1 / 3)
    assert calls[Kernel(640, 160, kernel=1), (7, 7)] == pytest.approx(2 / 3)
    assert calls[Kernel(960, 960, kernel=7, padding=3, groups=960), (7, 7)] == pytest.approx(2 / 9)


def test_a_detector_s_pyramid_doubles_its_levels() -> None:
    shared = Kernel(256, 256, kernel=3, padding=1)
    calls = network_named("mask-rcnn").calls((800, 1333))
    # Padded to 800 x 1344: the pyramid's and the proposal head's layers, and the backbone's five.
    levels = {(200, 336): 2, (100, 168): 2, (50, 84): 2 + 5, (25, 42): 2, (13, 21): 1}
    assert {size: count for (kernel, size), count in calls.items() if kernel == shared} == levels
    backbone = network_named("resnet50").calls((800, 1344))
    assert all(calls[call] >= count for call, count in backbone.items())


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_are_distinct_and_their_shapes_are_in_the_ranges(name: str) -> None:
    layers = convolutions(name, n=8)
    assert len({layer.name for layer in layers}) == len(layers)
    for layer in layers:
        assert layer.shapes.source == name and layer.calls > 0
        assert all(shape[d] in dim for shape in layer.shapes for d, dim in layer.workload.dims.items())
        assert min(layer.workload.output_shape(shape) for shape in layer.shapes) > (0, 0, 0)


def test_usual_sizes_are_as_the_paper_s_and_half_between_them() -> None:
    sides = [side for side, _ in sizes_of(network_named("resnet50"))]
    assert (min(sides), max(sides)) == (128, 320)
    assert sum(side % 32 == 0 for side in sides) == len(sides) / 2
    lengths = sizes_of(network_named("wav2vec2"))
    assert {(160 * t,): count for t, count in read_table("speech").counts.items()} == lengths


@given(
    st.dictionaries(
        st.tuples(st.integers(33, 400), st.integers(33, 400)), st.integers(1, 9), min_size=1, max_size=4
    ),
    st.sets(st.integers(1, 9), min_size=1, max_size=2),
)
def test_flops_are_the_mean_over_sizes_and_batches(sizes: dict[Any, int], batches: set[int]) -> None:
    found = sum(layer.flops for layer in convolutions("resnet50", sizes, batches))
    alone = {size: sum(x.flops for x in convolutions("resnet50", [size], [1])) for size in sizes}
    mean = sum(alone[size] * weight for size, weight in sizes.items()) / sum(sizes.values())
    assert found == pytest.approx(mean * sum(batches) / len(batches))


def layer_named(network: str, name: str, **given: Any) -> NetworkLayer:
    return next(layer for layer in dl.convolutions(network, **given) if layer.name == name)


def test_a_layer_s_shapes_are_found_by_its_operator() -> None:
    layer = layer_named("mask-rcnn", "conv3x3-256-256", sizes=[(800, 1333), 640])
    rich = dl.workload_from_json({**layer.workload.to_json(), "bias": True, "activation": "relu"})
    found = dl.ShapeSet.layers("mask-rcnn", [(800, 1333), 640], rich)
    assert found == layer.shapes and found.source.startswith("mask-rcnn") and found.dropped == 0
    narrow = dl.workload_from_json({**layer.workload.to_json(), "H": [100, 400]})
    part = dl.ShapeSet.layers("mask-rcnn", [(800, 1333), 640], narrow)
    assert set(part) < set(found)
    assert part.dropped == pytest.approx(1 - sum(found.weight(shape) for shape in part))


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: convolutions("resnet5"), r"one of resnet50, .*got 'resnet5'\. Did you mean 'resnet50'"),
        (lambda: convolutions("resnet50", []), "a network needs a size"),
        (lambda: convolutions("resnet50", {224: 0.0}), "positive weights"),
        (lambda: convolutions("resnet50", [(1, 2, 3)]), r"a number or a pair \(H, W\); got \(1, 2, 3\)"),
        (lambda: convolutions("resnet50", "speech"), "sizes of images must be numbers or pairs"),
        (lambda: convolutions("resnet50", [0]), "an extent must be at least 1"),
        (lambda: convolutions("whisper-base", [(3, 4)]), r"an extent must be an int; got \(3, 4\)"),
        (lambda: convolutions("wav2vec2", 300), "large enough for every layer of the network; got 300"),
        (lambda: dl.ShapeSet.layers("resnet50", [224]), r"dl.convolutions\('resnet50'\)"),
        (
            lambda: dl.ShapeSet.layers("resnet50", [224], dl.Conv2d(1, dl.Dim(3, 9), 9, 64, 64)),
            "must be a layer of resnet50: .*`dietlab layers resnet50` lists them",
        ),
        (
            lambda: dl.ShapeSet.layers(
                "wav2vec2", [999], dl.Conv2d(1, dl.Dim(10, 90), 10, 1, 512, kernel=10)
            ),
            "must be a layer of wav2vec2",
        ),
        (
            lambda: dl.ShapeSet.layers("resnet50", [224], dl.Conv2d(1, dl.Dim(3, 9), 9, 64, 64, padding=1)),
            "in the operator's ranges; .*The layer meets 1x56x56",
        ),
    ],
)
def test_what_no_network_has_is_refused(call: Any, complaint: str) -> None:
    with pytest.raises(WorkloadError, match=complaint):
        call()


# The command line


def test_the_table_lists_every_layer() -> None:
    said = cli("layers", "resnet50", "--lengths", "224").stdout
    assert said.startswith("He et al. 2016")
    share = 3 * 56 * 56 * 64 * 64 * 9 / 4087136256
    operator = r"conv2d N=1\.\.8 H=56 W=56 IC=64 OC=64 kernel=3 padding=1"
    assert re.search(rf"^conv3x3-64-64 +3 +{share:.1%}  {operator}$", said, re.M)
    rows = json.loads(cli("layers", "wav2vec2", "--json").stdout)
    assert [row["calls"] for row in rows] == [1, 4, 2] and sum(row["share"] for row in rows) == pytest.approx(
        1
    )
    refused = cli("layers", "resnet50", "--lengths", "3x", exits=2).stderr
    assert "sizes are sides or sizes of images, such as 224,800x1333" in refused


@pytest.mark.parametrize(
    ("name", "lengths"), [("resnet50", "64,72x33"), ("whisper-tiny", ""), ("mask-rcnn", "")]
)
def test_printed_commands_tune_the_layers_for_what_they_meet(
    name: str, lengths: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("--lengths", lengths) if lengths else ()
    lines = cli("layers", name, "--commands", *chosen).stdout.splitlines()
    sizes = {"sizes": [64, (72, 33)]} if lengths else {"n": 16}
    layers = convolutions(name, **sizes)
    assert len(lines) == len(layers)
    tuned: list[Any] = []

    def create(out: str, workload: Any, hardware: Any, shapes: Any, **others: Any) -> None:
        tuned.append((workload, shapes))
        raise DietlabError("nothing is tuned here")

    monkeypatch.setattr("dietlab.cli.stages.Study.create", create)
    for line, layer in zip(lines, layers, strict=True):
        program, *words = shlex.split(line)
        assert program == "dietlab" and words[-1] == f"runs/layers/{layer.name}"
        cli(*words, "--hardware", "zen4-1core", exits=2)
    assert tuned == [(layer.workload, layer.shapes) for layer in layers]


def test_usual_sizes_are_the_default_of_lengths() -> None:
    assert usual_sizes(network_named("once-for-all")).startswith("128,132,136,")
    assert usual_sizes(network_named("mask-rcnn")).endswith("750x1333,1067x800,1199x800,1333x800")

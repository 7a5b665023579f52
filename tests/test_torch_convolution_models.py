"""Which convolutions of a model are tuned, what is folded into them, and whole models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from convolutions_of_torch import (
    FEW,
    block,
    calls,
    counts,
    fused,
    study_of,
    told_by,
    with_statistics,
)
from layers_of_torch import close, same, shared_study

from dietlab.base.errors import DietlabError, StudyError
from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import BatchMatmul, Dim, ShapeSet

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

from dietlab.torch import Conv1d, Conv2d, Linear, optimize, replace_layers, replace_linears  # noqa: E402
from dietlab.torch.chains import Chain  # noqa: E402
from dietlab.torch.convolution_groups import groups_of  # noqa: E402
from dietlab.torch.convolution_studies import choices_for  # noqa: E402
from dietlab.torch.found import convolutions_in  # noqa: E402
from dietlab.torch.image_sizes import sizes_met  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


# --- batch norm -----------------------------------------------------------------------------------


class ByName(nn.Module):
    """Modules whose names say the contrary of the order in which they are called."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.relu, self.conv = nn.ReLU(), nn.BatchNorm2d(20), nn.Conv2d(6, 20, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = self.relu(x)
        return self.norm(x)


class NormFirst(ByName):
    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.norm(self.conv(x)))


class Uses(ByName):
    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return self.norm(self.relu(y)) + y


@pytest.mark.parametrize(
    ("kind", "how"), [(ByName, [("relu", True)]), (NormFirst, [("relu", False)]), (Uses, None)]
)
def test_a_norm_is_folded_where_it_is_called_next(kind: type, how: Any, block_study: Study) -> None:
    torch.manual_seed(0)
    original = with_statistics(kind()).eval()
    after = replace_layers(copy.deepcopy(original), block_study)
    assert (fused(after) if isinstance(after, Chain) else None) == how
    same(after, original, torch.randn(2, 6, 13, 17))


NORMS = {
    "without scale": (lambda: nn.BatchNorm2d(20, affine=False), True),
    "another epsilon": (lambda: nn.BatchNorm2d(20, eps=0.5), True),
    "statistics of the batch": (lambda: nn.BatchNorm2d(20, track_running_stats=False), False),
    "of groups": (lambda: nn.GroupNorm(4, 20), None),
}


@pytest.mark.parametrize("name", NORMS)
def test_other_norms_are_pytorchs(name: str, block_study: Study) -> None:
    make, folded = NORMS[name]
    torch.manual_seed(0)
    norm = make()
    if folded:
        with_statistics(norm)
    original = nn.Sequential(block()[0], norm, nn.ReLU()).eval()
    after = copy.deepcopy(original)
    assert not told_by(replace_layers, after, block_study)
    assert isinstance(after, Chain) == (folded is not None)
    assert folded is None or fused(after) == [("relu" if folded else "", folded)]
    same(after, original, torch.randn(2, 6, 13, 17))


def test_a_norm_takes_a_single_sequence_for_a_batch(here: Hardware, tmp_path: Path) -> None:
    torch.manual_seed(2)
    original = with_statistics(nn.Sequential(nn.Conv1d(4, 9, 3, padding=1), nn.BatchNorm1d(9))).eval()
    model = replace_layers(copy.deepcopy(original), study_of(original[0], here, tmp_path))
    assert fused(model) == [("", True)]
    for size, libraries in (((2, 4, 9), 1), ((4, 9), 0)):
        x = torch.randn(size)
        same(model, original, x)
        assert counts(model, x)["dietlab::convolution"] == libraries


def test_a_norm_in_training_mode_is_computed_apart(block_study: Study) -> None:
    original = block().train()
    after = copy.deepcopy(original)
    told = told_by(replace_layers, after, block_study)
    assert told == [
        "1 stays apart from the convolution before: a batch norm in training mode changes with each batch. "
        "Both are computed together after model.eval()"
    ]
    assert fused(after) == [("", False)]
    x = torch.randn(2, 6, 13, 17)
    for mode in (True, False, True):
        same(after.train(mode), original.train(mode), x)
        close(after[1].running_mean, original[1].running_mean)
    assert fused(after.eval()) == [("relu", True)]


def test_what_changes_is_packed_again(tuned_block: nn.Module) -> None:
    original, x = block(), torch.randn(2, 6, 13, 17)
    same(tuned_block, original, x)
    changes: list[Callable[[Any], Any]] = [
        lambda m: m[1].running_var.mul_(3),
        lambda m: m[1].weight.data.mul_(2),
        lambda m: m[0].weight.mul_(2),
        lambda m: m[0].weight.data.copy_(m[0].weight.flip(0)),
        lambda m: setattr(m[1], "eps", 0.3),
        lambda m: m.load_state_dict({name: value + 1 for name, value in m.state_dict().items()}),
        lambda m: setattr(m[0], "bias", nn.Parameter(torch.ones(20))),
        lambda m: m[1].register_forward_hook(lambda module, given, y: 2 * y),
        lambda m: setattr(m[0], "stride", (2, 2)),
    ]
    for change in changes:
        for changed in (tuned_block, original):
            with torch.no_grad():
                change(changed)
        same(tuned_block, original, x)
    assert counts(tuned_block, x)["dietlab::convolution"] == 0  # no library has this stride


# --- which layers ---------------------------------------------------------------------------------


class Derived(nn.Conv2d):
    """Somebody else's convolution."""


KEPT = {
    "padding": (
        lambda: nn.Conv2d(6, 20, 3, padding=1, padding_mode="reflect"),
        "its padding_mode is 'reflect'",
    ),
    "derived": (lambda: Derived(6, 20, 3), "it is a Derived, another class"),
    "transposed": (lambda: nn.ConvTranspose2d(6, 20, 3), "no library computes a ConvTranspose2d"),
    "volumes": (lambda: nn.Conv3d(6, 20, 3), "no library computes a Conv3d"),
    "half": (lambda: nn.Conv2d(6, 20, 3).half(), "its weights are torch.float16 on cpu"),
    "other options": (
        lambda: nn.Conv2d(6, 20, 3, padding=2),
        r"no study is of 6 to 20 channels with kernel=(3, 3), stride=(1, 1), padding=(2, 2), ",
    ),
    "sequences": (lambda: nn.Conv1d(6, 20, 3, padding=1), "no study is of 6 to 20 channels with kernel=(3,)"),
    "pruned": (
        lambda: prune.l1_unstructured(nn.Conv2d(6, 20, 3), "weight", 0.5),
        "not its parameter",
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_convolution_that_stays_pytorchs_is_named_with_its_reason(name: str, block_study: Study) -> None:
    make, reason = KEPT[name]
    model = nn.ModuleDict({"fine": block()[0], "kept": make()})
    kind = type(model["kept"])
    told = told_by(replace_layers, model, block_study)
    assert type(model["kept"]) is kind and type(model["fine"]) is Conv2d
    assert len(told) == 1 and told[0].startswith("kept stays PyTorch's: ") and reason in told[0]


def test_studies_serve_linear_layers_and_convolutions_together(
    block_study: Study, here: Hardware, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    dense = shared_study(here, tmp_path_factory.getbasetemp() / "of torch")
    original = nn.Sequential(*block(), nn.Flatten(2), nn.Linear(221, 48), nn.ReLU()).eval()
    model = replace_layers(copy.deepcopy(original), dense, str(block_study.folder))
    assert (type(model[0]), type(model[4])) == (Conv2d, Linear)
    same(model, original, torch.randn(2, 6, 13, 17))
    assert told_by(replace_layers, nn.ReLU(), dense, block_study) == [
        "no layer of ReLU was replaced: it has no linear layer and no convolution"
    ]
    with pytest.raises(StudyError, match="linear layers need a study of Dense; got conv2d"):
        replace_linears(model, block_study)
    products = BatchMatmul(T=Dim(1, 64), B=2, D=16, form="nt")
    other = Study.create(tmp_path / "products", products, here, ShapeSet.uniform(products, 2), "smoke")
    with pytest.raises(StudyError, match="layers need studies of Dense, Conv1d or Conv2d; got batch-matmul"):
        replace_layers(model, other)


def test_a_study_of_single_images_leaves_batches_to_pytorch(here: Hardware, tmp_path: Path) -> None:
    layer = block()[0]
    model = replace_layers(copy.deepcopy(layer), study_of(layer, here, tmp_path, images=1))
    for images, libraries in ((1, 1), (2, 0)):
        x = torch.randn(images, 6, 13, 17)
        same(model, layer, x)
        assert calls(model, x) == libraries and model(x).is_contiguous(memory_format=torch.channels_last)


# --- optimize -------------------------------------------------------------------------------------


@pytest.fixture
def synthetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets tuning make up its times."""
    runner = lambda hardware, timing: nullcontext(SyntheticRunner(hardware))  # noqa: E731
    monkeypatch.setattr("dietlab.torch.convolution_studies.LocalRunner", runner)
    create = Study.create.__func__  # type: ignore[attr-defined]
    few = classmethod(lambda kind, *given, measure=False: create(kind, *given, max_kernels=FEW))
    monkeypatch.setattr(Study, "create", few)


@pytest.mark.usefixtures("synthetic")
def test_a_model_is_optimized_for_the_sizes_of_its_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    original, home = block().train(), tmp_path / "studies"
    model = copy.deepcopy(original)
    small, large = torch.randn(1, 6, 12, 10), torch.randn(4, 6, 40, 30)
    examples = [small, (large,), {"input": small}]
    told = told_by(optimize, model, home, examples=examples, effort="smoke", observers=[])
    assert len(told) == 1 and told[0].startswith("1 stays apart")
    (study,) = [Study.open(folder) for folder in home.iterdir()]
    work: Any = study.workload
    assert (Dim(1, 4), Dim(12, 40), Dim(10, 30)) == (work.N, work.H, work.W) and work.bias
    assert {str(shape) for shape in study.shapes} >= {"H=12,N=1,W=10", "H=40,N=4,W=30"}
    said = capsys.readouterr().err
    assert "tunes 1 convolution for this machine" in said and "tuned 1 of 1 convolution in" in said
    close(model[1].running_mean, original[1].running_mean)  # the examples changed nothing
    assert model.training and model[1].training
    same(model.eval(), original.eval(), torch.randn(2, 6, 50, 11))
    again = copy.deepcopy(original)
    assert not told_by(optimize, again, home)  # the study is there: no examples are needed
    assert again[0].libraries == model[0].libraries and not capsys.readouterr().err


def test_a_convolution_of_unknown_sizes_is_told(block_study: Study, tmp_path: Path) -> None:
    with pytest.raises(
        DietlabError, match=r"whose convolutions no library can compute: .*examples=\[smallest"
    ):
        optimize(block(), tmp_path)
    with pytest.raises(DietlabError, match=r"its padding_mode is 'circular'"):
        optimize(nn.Conv2d(6, 20, 3, padding=1, padding_mode="circular"), tmp_path)
    for empty in ([], iter(())):
        with pytest.raises(
            DietlabError, match="examples must have at least one input of the model; got none"
        ):
            optimize(block(), tmp_path, examples=empty)


def test_linear_layers_need_no_examples(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> None:
    dense = shared_study(here, tmp_path_factory.getbasetemp() / "of torch")
    original = nn.Sequential(nn.Conv2d(6, 20, 3), nn.Flatten(2), nn.Linear(64, 96), nn.ReLU())
    model = copy.deepcopy(original)
    told = told_by(optimize, model, dense.folder.parent)
    assert len(told) == 1 and told[0].startswith(
        "0 stays PyTorch's: the sizes of its images are unknown: give"
    )
    assert (type(model[0]), type(model[2])) == (nn.Conv2d, Linear)
    same(model, original, torch.randn(2, 6, 10, 10))


@pytest.mark.usefixtures("synthetic")
def test_convolutions_that_differ_in_channels_share_a_study(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = ((3, 16), (16, 32), (32, 24), (24, 16))
    layers = [nn.Conv2d(*channels, 3, padding=1) for channels in sizes]
    original = nn.Sequential(*layers[:3], nn.MaxPool2d(2), layers[3]).eval()
    small, large = torch.randn(1, 3, 14, 14), torch.randn(1, 3, 40, 40)
    model = copy.deepcopy(original)
    assert not told_by(optimize, model, tmp_path, examples=[small, large], effort="smoke", observers=[])
    studies = [Study.open(folder) for folder in tmp_path.iterdir()]
    first, several = sorted(studies, key=lambda study: isinstance(study.workload.IC, Dim))  # type: ignore[union-attr]
    work: Any = several.workload
    assert (Dim(16, 32), Dim(16, 32), Dim(7, 40)) == (work.IC, work.OC, work.H)
    met = {(shape["IC"], shape["OC"]): set[int]() for shape in several.shapes}
    for shape in several.shapes:
        met[shape["IC"], shape["OC"]].add(shape["H"])
    assert {channels: (min(s), max(s)) for channels, s in met.items()} == {
        (16, 32): (14, 40),
        (32, 24): (14, 40),
        (24, 16): (7, 20),
    }
    assert (first.workload.IC, first.workload.OC) == (3, 16)  # type: ignore[union-attr]
    for size in ((1, 14, 14), (2, 33, 21)):
        same(model, original, torch.randn(size[0], 3, *size[1:]))
    # Layers with other channels inside the ranges need no study.
    again = nn.Sequential(nn.Conv2d(20, 28, 3, padding=1)).eval()
    assert not told_by(optimize, again, tmp_path)
    assert isinstance(again[0], Conv2d) and len([*tmp_path.iterdir()]) == 2


def test_five_studies_serve_a_resnet50() -> None:
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"), torch.no_grad():
        model = transformers.ResNetModel(transformers.ResNetConfig()).eval()
        layers = convolutions_in(model)
        images = [torch.empty(1, 3, side, side) for side in (128, 320)]
        groups = groups_of(layers, sizes_met(model, [layer.module for layer in layers], images))
    works: list[Any] = [group.operator for group in groups]
    found = {(work.kernel[0], work.stride[0]): (str(work.IC), str(work.OC)) for work in works}
    assert len(layers) == 53 and found == {
        (1, 1): ("64..2048", "64..2048"),
        (1, 2): ("256..1024", "512..2048"),
        (3, 1): ("64..512", "64..512"),
        (3, 2): ("128..512", "128..512"),
        (7, 2): ("3", "64"),
    }


def test_little_work_and_impossible_operators_are_not_tuned(here: Hardware, tmp_path: Path) -> None:
    model = nn.ModuleDict(
        {
            "large": nn.Conv2d(8, 64, 5),
            "small": nn.Conv2d(8, 1, 1),
            "unused": nn.Conv2d(8, 8, 2),
            "grouped": nn.Conv2d(8, 64, 5, groups=4),
        }
    )
    model.forward = lambda x: [model[name](x) for name in ("large", "small", "grouped")]
    layers = convolutions_in(model)
    met = sizes_met(model, model.values(), [torch.randn(1, 8, 20, 20)])
    assert sorted(met.values()) == 3 * [[(1, 20, 20)]]
    chosen = choices_for(layers, met, [], tmp_path, here, "smoke")
    choices = {layer.name: choice for layer, choice in chosen}
    assert isinstance(choices["large"], Study)
    assert choices["small"] == "too little work, less than 1% of the convolutions' multiply-adds"
    assert choices["unused"] == "no example calls it"
    assert isinstance(choices["grouped"], Study)


# --- whole models ---------------------------------------------------------------------------------


def optimized(model: nn.Module, home: Path, examples: list[Any]) -> nn.Module:
    return optimize(copy.deepcopy(model), home, examples=examples, effort="smoke", observers=[])


@pytest.mark.usefixtures("synthetic")
@pytest.mark.filterwarnings("ignore:.*less than 1% of the convolutions")
def test_a_resnet_is_the_same_at_every_image_size(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 12], "depths": [1, 1], "layer_type": "basic"}
    torch.manual_seed(0)
    original = with_statistics(transformers.ResNetModel(transformers.ResNetConfig(**sizes)).eval())
    model = optimized(original, tmp_path, [torch.randn(1, 3, 32, 32), torch.randn(2, 3, 64, 80)])
    counted = counts(model, torch.randn(1, 3, 32, 32))
    # PyTorch computes the shortcut, whose work is little; the image is copied once, to channels last.
    assert (counted["dietlab::convolution"], counted["aten::convolution"]) == (5, 1)
    assert counted["aten::contiguous"] == counted["aten::clone"] == 1
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    with torch.no_grad():
        for size in ((1, 32, 32), (2, 71, 45), (3, 20, 90)):
            x = torch.randn(size[0], 3, *size[1:])
            for run in (model, compiled):
                found, wanted = run(x), original(x)
                close(found.last_hidden_state, wanted.last_hidden_state)
                close(found.pooler_output, wanted.pooler_output)


def mobile(*middle: nn.Module) -> nn.Module:
    """Returns the inverted bottleneck of a MobileNet: from 6 to 24 channels and back, each convolution with
    its batch norm."""
    channels = middle[-1].out_channels  # type: ignore[union-attr]
    layers: list[nn.Module] = [nn.Conv2d(6, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU()]
    for layer in middle:
        layers += [layer, nn.BatchNorm2d(layer.out_channels), nn.ReLU()]  # type: ignore[arg-type]
    return nn.Sequential(*layers, nn.Conv2d(channels, 6, 1, bias=False), nn.BatchNorm2d(6))


BOTTLENECKS: dict[str, Callable[[], nn.Module]] = {
    "depthwise": lambda: mobile(nn.Conv2d(24, 24, 3, padding=1, groups=24, bias=False)),
    "depthwise, with strides and dilation": lambda: mobile(
        nn.Conv2d(24, 24, 5, stride=2, padding=2, groups=24), nn.Conv2d(24, 24, 3, dilation=2, groups=24)
    ),
    "two outputs for each channel": lambda: mobile(nn.Conv2d(24, 48, 3, padding="same", groups=24)),
    "four groups": lambda: mobile(nn.Conv2d(24, 32, 3, padding=1, groups=4, bias=False)),
}


@pytest.mark.usefixtures("synthetic")
@pytest.mark.parametrize("name", BOTTLENECKS)
def test_a_bottleneck_with_groups_is_the_same_at_every_image_size(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    original = with_statistics(BOTTLENECKS[name]()).eval()
    small, large = torch.randn(1, 6, 12, 10), torch.randn(2, 6, 20, 30)
    model = optimized(original, tmp_path, [small, large])
    kinds = [type(layer) for layer in original if isinstance(layer, nn.Conv2d)]
    assert len(kinds) == len(fused(model)) == calls(model, small)
    assert fused(model) == [*[("relu", True)] * (len(kinds) - 1), ("", True)]
    for size in ((2, 20, 30), (1, 12, 10), (3, 11, 9), (1, 41, 9)):
        same(model, original, torch.randn(size[0], 6, *size[1:]))
    assert model(small).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("synthetic")
def test_whispers_encoder_is_the_same_at_every_length(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    layers = {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    }
    config = transformers.WhisperConfig(
        **layers,
        d_model=16,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_source_positions=30,
        num_mel_bins=10,
        vocab_size=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    torch.manual_seed(0)
    original = transformers.WhisperModel(config).eval().encoder
    short, long = (torch.randn(images, 10, 60) for images in (1, 3))
    model = copy.deepcopy(original)
    choices = nn.ModuleList(
        [model.conv1, model.conv2]
    )  # without the linear layers, which have a study of theirs
    choices.forward = model.forward
    optimize(choices, tmp_path, examples=[short, long], effort="smoke", observers=[])
    assert isinstance(model.conv1, Conv1d) and isinstance(model.conv2, Conv1d)
    with torch.no_grad():
        assert calls(model, short) == 2
        close(model(short).last_hidden_state, original(short).last_hidden_state)
        for length in (1, 2, 45, 60, 131):
            x = torch.randn(2, 10, length)
            found, wanted = (F.gelu(e.conv2(F.gelu(e.conv1(x)))) for e in (model, original))
            close(found, wanted)
            # As the encoder goes on: no copy, since channels come last already.
            assert found.permute(0, 2, 1).is_contiguous()

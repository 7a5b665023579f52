"""Layers of which only the packed weights are left: what they compute, take, refuse and are saved as."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from layers_of_torch import close, same, shared_study

from dietlab.compare.study import Study
from dietlab.machine import Hardware

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402

import dietlab.torch  # noqa: E402
from dietlab.torch import replace_linears  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def study(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return shared_study(here, tmp_path_factory.getbasetemp() / "of torch")


@pytest.fixture
def original() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 200, bias=False), nn.Linear(200, 48)
    )


@pytest.fixture
def model(original: nn.Module, study: Study) -> nn.Module:
    packed = replace_linears(copy.deepcopy(original), study)
    dietlab.torch.pack(packed, originals=False)
    return packed


@pytest.mark.parametrize("rows", [1, 7, 64, 200])
def test_it_computes_the_same(rows: int, model: nn.Module, original: nn.Module) -> None:
    torch.manual_seed(rows)
    same(model, original, torch.randn(rows, 64))
    same(model, original, torch.randn(2, 64, rows).transpose(1, 2))
    with torch.no_grad():
        assert model(torch.ones(0, 64)).shape == (0, 48)


def test_a_hook_takes_the_activation_apart(model: nn.Module, original: nn.Module) -> None:
    seen = list[torch.Tensor]()
    model[0].register_forward_hook(lambda layer, given, y: seen.append(y.clone()))
    x = torch.randn(3, 64)
    same(model, original, x)
    close(seen[0], original[0](x).detach())


def test_the_originals_are_gone_and_their_bytes_told(original: nn.Module, study: Study) -> None:
    model = replace_linears(copy.deepcopy(original), study)
    linear = [layer for layer in original if isinstance(layer, nn.Linear)]
    before = sum(4 * p.numel() for layer in linear for p in layer.parameters())
    beside = dietlab.torch.pack(model)
    told = dietlab.torch.pack(model, originals=False)
    assert told == beside, "each layer is computed in one way here"
    assert before <= told <= 4 * before  # columns are filled up to whole panels
    left = {tensor.data_ptr(): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())}
    assert sum(left.values()) == told + sum(4 * p.numel() for p in original[2].parameters())
    assert dietlab.torch.pack(model) == dietlab.torch.pack(model, originals=False) == told
    with pytest.raises(AttributeError, match=r"has no weight: only its libraries.*pack\(model\) keeps the"):
        _ = model[0].weight
    assert not hasattr(model[0], "bias") and "in_features=64, out_features=96, library=" in repr(model)


def test_a_tied_weight_stays_with_its_other_owner(study: Study) -> None:
    model = nn.Sequential(nn.Embedding(200, 64), nn.Linear(64, 200, bias=False))
    model[1].weight = model[0].weight
    original = copy.deepcopy(model)
    dietlab.torch.pack(replace_linears(model, study), originals=False)
    same(model, original, torch.tensor([3, 199]))
    assert [name for name, _ in model.named_parameters()] == ["0.weight"]


@pytest.mark.filterwarnings("ignore:. stays PyTorch's")
def test_what_only_code_around_a_layer_reads_is_kept(study: Study) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 2}
    torch.manual_seed(0)
    original = transformers.T5EncoderModel(transformers.T5Config(vocab_size=50, **sizes)).eval()
    model, words = replace_linears(copy.deepcopy(original), study), torch.arange(18).view(2, 9)
    told = r"encoder.block.0.*DenseReluDense.wo.* kept the original weights: T5DenseActDense reads them"
    with pytest.warns(UserWarning, match=told):
        dietlab.torch.pack(model, originals=False)
    with torch.no_grad():
        close(model(input_ids=words)[0], original(input_ids=words)[0])
    assert not hasattr(model.encoder.block[0].layer[0].SelfAttention.q, "weight")


@pytest.mark.filterwarnings("ignore:.*PyTorch computes a whole")
def test_an_encoder_that_pytorch_computes_at_once_keeps_its_weights(study: Study) -> None:
    torch.manual_seed(0)
    original = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 96, batch_first=True), 1).eval()
    with pytest.warns(UserWarning):  # noqa: PT030, of attention, which stays, and of the encoder
        model = replace_linears(copy.deepcopy(original), study)
    with pytest.warns(UserWarning, match="linear2 kept the .*: TransformerEncoderLayer reads them"):
        dietlab.torch.pack(model, originals=False)
    same(model, original, torch.randn(2, 5, 64))


def test_what_pytorch_keeps_keeps_its_weights(study: Study) -> None:
    model = nn.Sequential(nn.Linear(64, 2), nn.Linear(64, 96).bfloat16())
    with pytest.warns(UserWarning, match="no layer of Sequential was replaced"):
        replace_linears(model, study)
    assert dietlab.torch.pack(model, originals=False) == 0
    pruned = replace_linears(nn.Sequential(nn.Linear(64, 96)), study)
    prune.l1_unstructured(pruned[0], "weight", 0.5)
    with pytest.warns(UserWarning, match="0 kept the original weights: PyTorch computes them"):
        assert dietlab.torch.pack(pruned, originals=False) == 0
    layer = replace_linears(nn.Linear(64, 96), study)
    dietlab.torch.pack(layer, originals=False)
    with pytest.warns(UserWarning, match="its original weights were dropped: load the model again"):
        replace_linears(layer, study)
    assert isinstance(model[0].weight, nn.Parameter) and model[1].weight.dtype is torch.bfloat16


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "state_dict", "export", "compile", "jagged"])
def test_it_is_saved_and_compiled(way: str, model: nn.Module, original: nn.Module, tmp_path: Path) -> None:
    x = torch.randn(5, 64)
    found = model
    if way == "pickle":
        found = pickle.loads(pickle.dumps(model))
    elif way == "deepcopy":
        found = copy.deepcopy(model)
    elif way == "state_dict":
        found = copy.deepcopy(model)
        for buffer in found.buffers():
            buffer.zero_()
        found.load_state_dict(model.state_dict())
    elif way == "export":
        rows = torch.export.Dim("rows", max=64)
        with torch.no_grad():
            program = torch.export.export(model, (x,), dynamic_shapes=({0: rows},))
        torch.export.save(program, tmp_path / "model.pt2")
        found = torch.export.load(tmp_path / "model.pt2").module()
    elif way == "compile":
        found = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    else:
        lengths = [torch.randn(3, 64), torch.randn(5, 64)]
        with torch.no_grad():
            batch = torch.nested.nested_tensor(lengths, layout=torch.jagged)
            close(model[0](batch).values(), original[0](batch.values()))
            found = model[0](torch.nested.nested_tensor(lengths)).unbind()
            for part, rows in zip(found, lengths, strict=True):
                close(part, original[0](rows))
        return
    same(found, original, x)


Wrong = Callable[[nn.Module], object]
WRONG: dict[str, tuple[Wrong, type[Exception], str]] = {
    "bfloat16": (
        lambda layer: layer(torch.ones(2, 64, dtype=torch.bfloat16)),
        RuntimeError,
        r"takes tensors in float32 on the CPU; got Strided BFloat16 on cpu, and .*pack\(model\) keeps",
    ),
    "another size": (lambda layer: layer(torch.ones(2, 65)), RuntimeError, r"x \[..., 64\].*got \[2, 65\]"),
    "a model in bfloat16": (
        lambda layer: layer.bfloat16()(torch.ones(2, 64)),
        RuntimeError,
        "got Strided Float on cpu, and weights Strided BFloat16 on cpu",
    ),
    "sparse": (
        lambda layer: layer(torch.ones(2, 64).to_sparse()),
        RuntimeError,
        "takes tensors in float32 on the CPU; got Sparse Float on cpu",
    ),
    "another weight": (
        lambda layer: setattr(layer, "weight", nn.Parameter(torch.ones(96, 64))),
        AttributeError,
        "has no weight: only its libraries read",
    ),
    "autocast": (
        lambda layer: torch.autocast("cpu", torch.bfloat16)(layer)(torch.ones(2, 64)),
        RuntimeError,
        "in float32, not under autocast",
    ),
    "a gradient": (
        lambda layer: layer(torch.ones(2, 64, requires_grad=True)),
        RuntimeError,
        r"no gradient. Call it under torch.no_grad\(\)",
    ),
    "a derivative in forward mode": (
        lambda layer: torch.func.jvp(layer, (torch.ones(2, 64),), (torch.ones(2, 64),)),
        RuntimeError,
        "no gradient",
    ),
    "weights of another layer": (
        lambda layer: torch.ops.dietlab.packed_linear(
            torch.ones(2, 64), torch.ones(7), 96, 64, layer.libraries["none"]
        ),
        RuntimeError,
        r"weights \[96, 64\] are packed for .*; got 7 numbers. Pack them again",
    ),
    "no library": (
        lambda layer: torch.ops.dietlab.packed_linear(torch.ones(2, 64), torch.ones(7), 96, 64, "/none"),
        RuntimeError,
        "library that they were packed for, /none; got none that runs here",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("ignore:dietlab. a layer's library must be loadable")
def test_what_only_the_originals_could_compute_is_refused(name: str, model: nn.Module) -> None:
    call, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        call(model[0])


def test_weights_of_several_megabytes_are_packed_and_given_back(study: Study) -> None:
    """They lie in huge pages, in memory that is no allocator's of PyTorch."""
    folder = replace_linears(nn.Linear(64, 96), study).libraries["none"]
    torch.manual_seed(0)
    for cols in (800, 1000):
        weight, bias, x = torch.randn(cols, 900), torch.randn(cols), torch.randn(7, 900)
        panels = torch.ops.dietlab.pack(weight, bias, folder)
        assert panels.nbytes > 2 << 20 and panels.data_ptr() % (2 << 20) == 0
        found = torch.ops.dietlab.linear(x, weight, bias, "none", folder)
        torch.testing.assert_close(found, nn.functional.linear(x, weight, bias), rtol=1e-4, atol=1e-3)
        kept = panels.clone()
        weight += 1
        torch.testing.assert_close(torch.ops.dietlab.pack(weight - 1, bias, folder), kept, rtol=0, atol=1e-5)
        torch.ops.dietlab.drop_packed(weight)
        assert torch.equal(panels, kept), "they live as long as a tensor has them"

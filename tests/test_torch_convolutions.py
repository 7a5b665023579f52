"""Convolutions of PyTorch models that run through tuned libraries: the same results, layouts and errors."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from convolutions_of_torch import (
    FEW,
    THREE,
    block,
    calls,
    counts,
    fused,
    shapes_of,
    study_of,
)
from layers_of_torch import close, same

from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Dim

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

import dietlab.torch  # noqa: E402
from dietlab.torch import Conv1d, Conv2d, replace_layers  # noqa: E402
from dietlab.torch.convolution import Convolution  # noqa: E402
from dietlab.torch.convolution_operator import operator_of  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


# --- what a layer computes ------------------------------------------------------------------------

IMAGES = {
    "contiguous": lambda: torch.randn(2, 6, 13, 17),
    "channels last": lambda: torch.randn(2, 6, 13, 17).contiguous(memory_format=torch.channels_last),
    "every second": lambda: torch.randn(2, 6, 13, 34)[..., ::2],
    "a part": lambda: torch.randn(2, 9, 20, 30)[:, 2:8, 3:16, 5:22],
    "turned": lambda: torch.randn(2, 6, 17, 13).transpose(2, 3),
    "one for many": lambda: torch.randn(1, 6, 13, 17).expand(3, 6, 13, 17),
    "beyond the range": lambda: torch.randn(5, 6, 3, 41),
    "one pixel": lambda: torch.randn(1, 6, 1, 1),
    "as large as channels": lambda: torch.randn(6, 6, 6, 6),
    "no images": lambda: torch.randn(0, 6, 13, 17),
}


@pytest.mark.parametrize("form", IMAGES)
def test_a_block_computes_the_same_and_keeps_channels_last(form: str, tuned_block: nn.Module) -> None:
    x = IMAGES[form]()
    same(tuned_block, block(), x)
    same(tuned_block[0], block()[0], x)
    with torch.no_grad():
        y = tuned_block(x)
    assert y.is_contiguous(memory_format=torch.channels_last) or not y.numel()
    assert calls(tuned_block, x) == bool(x.numel()) and fused(tuned_block) == [("relu", True)]


def test_images_in_channels_last_are_not_copied(tuned_block: nn.Module) -> None:
    x = torch.randn(2, 6, 13, 17)
    tuned_block(x)  # packs
    assert counts(tuned_block, x)["aten::copy_"] == 1
    assert counts(tuned_block, x.contiguous(memory_format=torch.channels_last))["aten::copy_"] == 0


def test_a_single_image_is_no_batch(tuned_block: nn.Module) -> None:
    x = torch.randn(6, 13, 17)
    same(nn.Sequential(*tuned_block[::2]), nn.Sequential(*block()[::2]), x)
    with pytest.raises(ValueError, match="expected 4D input"):
        tuned_block(x)


OPTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "stride and dilation": (lambda: nn.Conv2d(3, 8, (3, 5), (2, 1), (1, 4), (1, 2)), (2, 3, 15, 14)),
    "same, even": (lambda: nn.Conv2d(4, 8, (4, 2), padding="same", dilation=(1, 3)), (1, 4, 11, 10)),
    "valid": (lambda: nn.Conv2d(4, 8, 2, padding="valid", bias=False), (1, 4, 11, 10)),
    "one by one": (lambda: nn.Conv2d(4, 8, 1), (2, 4, 11, 10)),
    "sequences": (lambda: nn.Conv1d(4, 8, 3, 2, 1), (2, 4, 23)),
    "same sequences": (lambda: nn.Conv1d(4, 8, 4, padding="same"), (3, 4, 21)),
    "one sequence": (lambda: nn.Conv1d(4, 8, 5), (4, 19)),
    "as wide as long": (lambda: nn.Conv1d(16, 8, 3, padding=1), (16, 16)),
    "weights in channels last": (
        lambda: nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last),
        (2, 4, 12, 11),
    ),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_pytorchs(name: str, here: Hardware, tmp_path: Path) -> None:
    make, size = OPTIONS[name]
    torch.manual_seed(1)
    layer, x = make(), torch.randn(size)
    original = copy.deepcopy(layer)
    replace_layers(layer, study_of(layer, here, tmp_path))
    assert isinstance(layer, (Conv1d, Conv2d)) and calls(layer, x) == 1
    same(layer, original, x)
    same(layer, original, torch.randn(*size[:-1], size[-1] + 9))
    with torch.no_grad():
        channel = 0 if len(size) == 2 else 1
        assert layer(x).movedim(channel, -1).is_contiguous()


ACTIVATIONS = [(nn.GELU(), "gelu_erf"), (nn.GELU(approximate="tanh"), "gelu_tanh"), (nn.SiLU(), "none")]


@pytest.mark.parametrize(("act", "library"), ACTIVATIONS)
def test_an_activation_is_computed_with_the_convolution(
    act: nn.Module, library: str, block_study: Study
) -> None:
    original = nn.Sequential(block()[0], act)
    after = replace_layers(copy.deepcopy(original), block_study)
    assert [*after[0].libraries] == [library]
    same(after, original, torch.randn(2, 6, 13, 17))


# --- what else PyTorch does with a layer ----------------------------------------------------------


def gradients(model: Any, x: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


def twice(model: Any, x: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    return [*torch.autograd.grad(first.square().sum(), [x, model[0].weight])]


def autocast(model: Any, x: Tensor) -> list[Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        return [model(x).float()]


SITUATIONS: dict[str, Callable[[Any, Tensor], Any]] = {
    "gradients": gradients,
    "second derivatives": twice,
    "autocast": autocast,
    "float64": lambda m, x: [m.double()(x.double())],
    "bfloat16": lambda m, x: [m.bfloat16()(x.bfloat16()).float()],
    "jvp": lambda m, x: torch.func.jvp(m, (x,), (x,)),
    "vmap": lambda m, x: [torch.func.vmap(m)(x[:, None])],
    "inference mode": lambda m, x: [torch.inference_mode()(m)(x).clone()],
    "traced": lambda m, x: [torch.jit.trace(m, x)(x[..., :-2])],
    "symbolically traced": lambda m, x: [torch.fx.symbolic_trace(m)(x)],
    "pruned": lambda m, x: [prune.l1_unstructured(m[0], "weight", 0.3) and m(x)],
    "parametrized": lambda m, x: [parametrizations.weight_norm(m[0]) and m(x)],
}


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_what_pytorchs_layer_takes_ours_takes(name: str, tuned_block: nn.Module) -> None:
    torch.manual_seed(4)
    x = torch.randn(2, 6, 13, 17)
    wanted, found = SITUATIONS[name](block(), x), SITUATIONS[name](tuned_block, x)
    loose = 5e-2 if name in ("autocast", "bfloat16") else 1e-4
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=loose, atol=loose * float(theirs.detach().abs().max()))


@pytest.mark.parametrize(
    "size", [(2, 5, 9, 9), (2, 9), (2, 6, 0, 9), (2, 13, 17, 6), (1, 2, 6, 9, 9)], ids=str
)
def test_bad_input_is_pytorchs_error(size: tuple[int, ...], tuned_block: nn.Module) -> None:
    x = torch.randn(size)
    with pytest.raises((RuntimeError, ValueError)) as wanted:
        block()(x)
    with pytest.raises(type(wanted.value)) as found:
        tuned_block(x)
    assert str(found.value) == str(wanted.value)


def test_an_infinity_beside_padding_stays_beside_it(tuned_block: nn.Module) -> None:
    x = torch.zeros(2, 6, 9, 9)
    x[0, 2, 0, 0] = torch.inf
    with torch.no_grad():
        y = tuned_block(x)
    assert torch.isfinite(y[1]).all() and torch.isfinite(y[0, :, 3:]).all()


def test_the_operator_keeps_pytorchs_rules(tuned_block: nn.Module) -> None:
    convolution, norm = tuned_block[0], tuned_block[1]
    tensors = [norm.running_mean, norm.running_var, norm.weight, norm.bias]
    window, library = list(convolution.window), convolution.libraries["relu"]
    x = torch.randn(2, 6, 9, 11, requires_grad=True)
    for image in (x, x.detach().contiguous(memory_format=torch.channels_last), x[0]):
        more, epsilon = (tensors, norm.eps) if image.dim() == 4 else ([], 0.0)
        rest = (epsilon, window, 1, "relu", library, list(convolution.sizes))
        torch.library.opcheck(
            torch.ops.dietlab.convolution.default, (image, [convolution.weight, *more], None, *rest)
        )


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.thorough)])
def test_a_compiled_block_takes_every_size(backend: str, tuned_block: nn.Module) -> None:
    torch.compiler.reset()
    compiled = torch.compile(tuned_block, fullgraph=True, dynamic=True, backend=backend)
    original = block()
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        compiled(torch.randn(2, 6, 12, 13))
        for size in ((3, 6, 9, 20), (2, 6, 31, 5), (4, 6, 40, 50)):
            x = torch.randn(size)
            close(compiled(x), original(x))
    x = torch.randn(2, 6, 9, 8)
    torch.compiler.reset()
    trained = torch.compile(tuned_block, fullgraph=True, dynamic=True, backend=backend)
    for mine, theirs in zip(gradients(trained, x), gradients(original, x), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4 * float(theirs.abs().max()))


def test_an_exported_block_is_one_operator(tuned_block: nn.Module, tmp_path: Path) -> None:
    high, wide = torch.export.Dim("high", min=4, max=90), torch.export.Dim("wide", min=4, max=90)
    x = torch.randn(2, 6, 12, 13)
    with torch.no_grad():
        exported = torch.export.export(tuned_block, (x,), dynamic_shapes=({2: high, 3: wide},))
        torch.export.save(exported, tmp_path / "block.pt2")
        kept = [node.name for node in exported.graph.nodes if node.op == "call_function"]
        assert kept == ["convolution"]
        run = torch.export.load(tmp_path / "block.pt2").module()
        x = torch.randn(2, 6, 31, 7)
        close(run(x), block()(x))


def test_state_copies_and_saved_models_are_the_originals(tuned_block: nn.Module, tmp_path: Path) -> None:
    original, x = block(), torch.randn(2, 6, 13, 17)
    assert list(tuned_block.state_dict()) == list(original.state_dict())
    torch.save(tuned_block, tmp_path / "model.pt")
    for twin in (
        copy.deepcopy(tuned_block),
        pickle.loads(pickle.dumps(tuned_block)),
        torch.load(tmp_path / "model.pt", weights_only=False),
    ):
        assert fused(twin) == [("relu", True)] and calls(twin, x) == 1
        same(twin, original, x)
    assert isinstance(tuned_block[0], nn.Conv2d) and "libraries=['/" in repr(tuned_block[0])


def test_packing_now_and_without_originals(tuned_block: nn.Module, block_study: Study) -> None:
    before = dietlab.torch.pack(tuned_block)
    assert before >= 4 * (6 * 20 * 9 + 20)
    with pytest.warns(UserWarning, match="all convolutions kept the original weights: convolutions keep"):
        assert dietlab.torch.pack(tuned_block, originals=False) == before
    same(tuned_block, block(), torch.randn(2, 6, 13, 17))
    hooked = replace_layers(block(), block_study)
    hooked[0].register_forward_hook(lambda *given: None)
    assert dietlab.torch.pack(hooked) == 0  # PyTorch computes it


def test_one_study_serves_layers_of_several_channels(here: Hardware, tmp_path: Path) -> None:
    """A study with ranges of channels; a layer beyond them stays PyTorch's."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(*channels, 3, padding=1) for channels in ((6, 20), (20, 12), (12, 40))]
    work = replace(operator_of(layers[0], (THREE, Dim(9, 30), Dim(9, 30))), IC=Dim(4, 20), OC=Dim(8, 24))
    study = Study.create(tmp_path / "study", work, here, shapes_of(work), "smoke", max_kernels=FEW)
    study.tune(SyntheticRunner(here))
    study.dispatch()
    original = nn.Sequential(*layers).eval()
    model = replace_layers(copy.deepcopy(original), study)
    assert [isinstance(layer, Convolution) for layer in model] == [True, True, False]
    x = torch.randn(2, 6, 11, 17)
    with torch.no_grad():
        torch.testing.assert_close(model(x), original(x), rtol=1e-4, atol=1e-4)
    assert counts(model, x)["dietlab::convolution"] == 2

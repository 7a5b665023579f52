"""Residuals that compiled models add, by the library of the convolution before them or by PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from convolutions_of_torch import counts, study_of
from layers_of_torch import close

from dietlab.compare.study import Study
from dietlab.machine import Hardware

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch._inductor import config  # noqa: E402

from dietlab.torch import replace_layers  # noqa: E402
from dietlab.torch.residuals import Residuals, register  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def study(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(nn.Conv2d(12, 12, 3, padding=1), here, tmp_path_factory.mktemp("residuals"))


class Block(nn.Module):
    """A convolution with something that is added to it."""

    def __init__(self, after: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.norm, self.after = nn.Conv2d(12, 12, 3, padding=1), nn.BatchNorm2d(12), after
        self.layer = nn.Sequential(self.conv, self.norm)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.layer(x), x)


def in_place(y: Tensor, x: Tensor) -> Tensor:
    y += x
    return y.relu_()


FUSED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a sum": lambda y, x: y + x,
    "a sum and ReLU": lambda y, x: torch.relu(y + x),
    "the other order": lambda y, x: torch.relu(x + y),
    "in place": in_place,
    "what is computed after the convolution": lambda y, x: torch.relu(torch.sin(x) + y),
}
APART: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a factor": lambda y, x: torch.relu(torch.add(y, x, alpha=2)),
    "a number": lambda y, x: y + 1,
    "one image for all": lambda y, x: torch.relu(y + x[:1]),
    "one number for each channel": lambda y, x: torch.relu(y + x.mean((2, 3), keepdim=True)),
    "a convolution that others read": lambda y, x: torch.relu(y + x) * y.mean(),
    "another type": lambda y, x: torch.relu(y + x.double()),
}


@pytest.mark.parametrize("name", [*FUSED, *APART])
def test_residuals_are_computed_once(name: str, study: Study) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    original = Block({**FUSED, **APART}[name]).eval()
    model = replace_layers(copy.deepcopy(original), study)
    seen = list[bool]()

    class Watch(Residuals):
        def __call__(self, graph: Any) -> None:
            super().__call__(graph)
            found = graph.find_nodes(op="call_function", target=torch.ops.dietlab.convolution.default)
            seen.extend(len(node.args) == 10 for node in found)

        def uuid(self) -> None:  # type: ignore[override]
            return None  # compiled anew each time

    with torch.no_grad(), config.patch(post_grad_custom_pre_pass=(Watch(),)):
        compiled = torch.compile(model, dynamic=True)
        for size in ((2, 12, 15), (3, 9, 30), (2, 40, 11)):
            x = torch.randn(size[0], 12, *size[1:])
            close(compiled(x), original(x))
    assert seen and {*seen} == {name in FUSED}


def test_the_operator_adds_whatever_pytorch_adds(study: Study) -> None:
    torch.manual_seed(0)
    layer = replace_layers(nn.Sequential(nn.Conv2d(12, 12, 3, padding=1)), study)[0]
    plain = nn.Conv2d(12, 12, 3, padding=1)
    plain.load_state_dict(layer.state_dict())
    from dietlab.torch.residuals import _library

    folder = _library(layer.libraries["none"], "relu")
    assert folder is not None
    rest = (0.0, layer.window, 1, "relu", folder, layer.sizes)
    call = torch.ops.dietlab.convolution.default
    for x in (torch.randn(2, 12, 12, 15), torch.randn(12, 12, 15)):
        for residual in (
            torch.randn(x.shape),
            torch.randn(x.shape).movedim(-3, -1).contiguous().movedim(-1, -3),
            torch.randn(1, 1, 15),
            torch.randn(x.shape, dtype=torch.float64),
        ):
            found = call(x, [layer.weight], layer.bias, *rest, residual)
            close(found.double(), torch.relu(plain(x) + residual).double())
    x, residual = (torch.randn(2, 12, 9, 9, requires_grad=True) for _ in range(2))
    given = call(x, [layer.weight], layer.bias, *rest, residual)
    wanted = torch.relu(plain(x) + residual)
    for one, another in zip(
        torch.autograd.grad(given.square().sum(), [x, residual]),
        torch.autograd.grad(wanted.square().sum(), [x, residual]),
        strict=True,
    ):
        close(one, another)
    x, weight, bias, residual = (each.detach() for each in (x, layer.weight, layer.bias, residual))
    torch.library.opcheck(call, (x, [weight], bias, *rest, residual))


@pytest.mark.parametrize("normed", [False, True])
def test_a_model_compiled_ahead_of_time_adds_in_its_libraries(study: Study, normed: bool) -> None:
    original = Block(FUSED["in place"]).eval()
    if not normed:
        del original.layer[1]
    model = replace_layers(copy.deepcopy(original), study)
    sizes = {2: torch.export.Dim("h", min=9), 3: torch.export.Dim("w", min=9)}
    with torch.no_grad():
        program = torch.export.export(model, (torch.randn(2, 12, 12, 15),), dynamic_shapes=(sizes,))
        run = torch._inductor.aoti_load_package(torch._inductor.aoti_compile_and_package(program))
        for size in ((12, 15), (17, 10)):
            x = torch.randn(2, 12, *size)
            close(run(x), original(x))
        counted = counts(run, x)
    assert "aten::add" not in counted and "aten::relu" not in counted


def test_modules_that_a_model_calls_twice_stay_fused_when_it_is_exported(study: Study) -> None:
    relu, norm = nn.ReLU(), nn.BatchNorm2d(12)
    layers = [nn.Conv2d(12, 12, 3, padding=1), norm, relu] * 2
    original = nn.Sequential(*layers, nn.Conv2d(12, 12, 3, padding=1), norm, relu).eval()
    model = replace_layers(copy.deepcopy(original), study)
    x = torch.randn(1, 12, 12, 15)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
        close(program.module()(x), original(x))
    called = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert called == 3 * ["dietlab.convolution.default"]


def test_a_library_that_is_elsewhere_changes_nothing(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dietlab.torch import residuals

    assert residuals._library(str(tmp_path / "digest" / "library"), "relu") is None
    monkeypatch.setattr(residuals, "_library", lambda folder, activation: None)
    torch.compiler.reset()
    original = Block(FUSED["a sum and ReLU"]).eval()
    model = replace_layers(copy.deepcopy(original), study)
    x = torch.randn(1, 12, 12, 15)
    with torch.no_grad():
        close(torch.compile(model, dynamic=True)(x), original(x))


def test_other_passes_stay() -> None:
    def other(graph: Any) -> None:
        pass

    with config.patch(post_grad_custom_pre_pass=other):
        register()
        register()
        first, second = config.post_grad_custom_pre_pass
        assert first is other and isinstance(second, Residuals)

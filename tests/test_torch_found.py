"""Which layers of a model are tuned, and that every other one is named with its reason."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
from layers_of_torch import EVERY, close, computed_with, same, shared_study, synthetic_study

from dietlab.base.errors import DietlabError
from dietlab.compare.study import Study
from dietlab.compare.suites.suite import every_layer_task
from dietlab.machine import Hardware
from dietlab.problem import Dim, ShapeSet

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

from dietlab.torch import Linear, optimize, replace_linears  # noqa: E402
from dietlab.torch.found import layers_in  # noqa: E402
from dietlab.torch.optimize import LEAST_SERVED, WORTH_TUNING, task_for  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def study(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return shared_study(here, tmp_path_factory.getbasetemp() / "of torch")


def replaced(model: nn.Module, study: Study) -> tuple[nn.Module, list[str]]:
    """Returns the replaced model and what was said."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = replace_linears(model, study)
    return model, [str(warning.message) for warning in told]


def calls(model: nn.Module, x: Any) -> int:
    """Returns how often a call of a model calls a library."""
    with torch.profiler.profile() as profiled:
        model(x)
    return sum(event.count for event in profiled.key_averages() if event.key == "dietlab::linear")


def test_the_model_itself_may_be_a_layer(study: Study) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 96)
    original = copy.deepcopy(layer)
    model, told = replaced(layer, study)
    assert model is layer and type(layer) is Linear and not told
    same(model, original, torch.randn(5, 64))
    assert isinstance(optimize(nn.Linear(64, 96), study.folder.parent), Linear)


def test_every_reference_to_a_layer_sees_the_tuned_one(study: Study) -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(64, 96)
            self.others = [self.inner]  # no child
            self.call = self.inner.forward

        def forward(self, x: Any) -> Any:
            return self.others[0](x)

    torch.manual_seed(0)
    model = Holder()
    original, x = copy.deepcopy(model), torch.randn(5, 64)
    replace_linears(model, study)
    same(model, original, x)
    with torch.no_grad():
        assert calls(model, x) == 1


class Derived(nn.Linear):
    def forward(self, input: Any) -> Any:
        return super().forward(input) + 1


KEPT = {
    "derived": (lambda: Derived(64, 96), "it is a Derived, another class"),
    "head": (lambda: nn.Linear(64, 2), "N = 2, and the study was tuned for N = 16..256"),
    "one output": (lambda: nn.Linear(64, 1), "N = 1, and the study was tuned for N = 16..256"),
    "adapter": (lambda: nn.Linear(8, 64), "K = 8, and the study was tuned for K = 16..256"),
    "half": (lambda: nn.Linear(64, 96).half(), "its weights are torch.float16 on cpu, not float32"),
    "meta": (lambda: nn.Linear(64, 96, device="meta"), "its weights are torch.float32 on meta, not float32"),
    "pruned": (
        lambda: prune.l1_unstructured(nn.Linear(64, 96), "weight", 0.5),
        "its weight or bias is not its parameter",
    ),
    "bias pruned": (
        lambda: prune.l1_unstructured(nn.Linear(64, 96), "bias", 0.5),
        "its weight or bias is not its parameter",
    ),
    "parametrized": (
        lambda: parametrizations.weight_norm(nn.Linear(64, 96)),
        "it is a ParametrizedLinear, another class",
    ),
    "attention": (lambda: nn.MultiheadAttention(64, 4), "PyTorch's attention computes its projections"),
}


@pytest.mark.parametrize("name", KEPT)
def test_a_layer_that_stays_pytorchs_is_named_with_its_reason(name: str, study: Study) -> None:
    make, reason = KEPT[name]
    kept = make()
    kind = type(kept)
    model, told = replaced(nn.ModuleDict({"fine": nn.Linear(64, 96), "kept": kept}), study)
    assert type(model["kept"]) is kind and type(model["fine"]) is Linear
    assert any(line.startswith("kept stays PyTorch's: ") and reason in line for line in told), told


def test_quantised_and_other_weights_compute_by_themselves(study: Study) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    def double(layer: nn.Linear) -> nn.Linear:
        layer.weight = nn.Parameter(TwoTensor(layer.weight.detach(), layer.weight.detach().clone()))
        return layer

    layer = double(nn.Linear(64, 96))
    model, told = replaced(nn.Sequential(layer), study)
    assert type(model[0]) is nn.Linear
    assert "0 stays PyTorch's: its weights are a TwoTensor, which computes by itself" in told
    torch.manual_seed(0)
    original = nn.Sequential(nn.Linear(64, 96), nn.ReLU())
    after, x = replace_linears(copy.deepcopy(original), study), torch.randn(5, 64)
    double(after[0])
    with torch.no_grad():
        found = after(x)
        assert type(found) is TwoTensor
        close(found.a, original(x))


def test_many_layers_with_one_reason_are_one_warning(study: Study) -> None:
    _, told = replaced(nn.Sequential(*(nn.Linear(2, 2) for _ in range(12))), study)
    assert told == [
        "no layer of Sequential was replaced",
        "0, 1, 2, 3, 4, 5, 6, 7 and 4 others stay PyTorch's: N = 2, and the study was tuned for N = 16..256",
    ]
    _, told = replaced(nn.Sequential(nn.ReLU()), study)
    assert told == ["no layer of Sequential was replaced: it has no linear layer"]


def test_an_encoder_that_pytorch_computes_at_once_is_named(study: Study) -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2).eval()
    original, x = copy.deepcopy(encoder), torch.randn(2, 7, 64)
    model, told = replaced(encoder, study)
    assert any(line.startswith("layers.0, layers.1: in eval(), without gradients, PyTorch") for line in told)
    assert any("self_attn.out_proj" in line and "NonDynamicallyQuantizableLinear" in line for line in told)
    same(model, original, x)
    with torch.no_grad():
        assert calls(model, x) == 0
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            assert calls(model, x) == 4
            same(model, original, x)
            _, told = replaced(copy.deepcopy(original), study)
            assert not any("in eval()" in line for line in told)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


def gpt2() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=64, n_layer=2, n_head=2, vocab_size=100, n_positions=32)
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config).eval()


def test_gpt2s_layers_are_tuned(study: Study) -> None:
    from transformers.pytorch_utils import Conv1D

    original, words = gpt2(), torch.arange(9)[None]
    model, told = replaced(gpt2(), study)
    assert not told
    layers = [module for module in model.modules() if isinstance(module, Conv1D)]
    assert len(layers) == 8 and all(layer.libraries for layer in layers)
    mlp = model.transformer.h[0].mlp
    assert computed_with(mlp) == [] and [*mlp.c_fc.libraries] == ["none", "gelu_tanh"]
    with torch.no_grad():
        assert calls(lambda ids: model(input_ids=ids), words) == 9
        close(model(input_ids=words).logits, original(input_ids=words).logits)
    for one in (model, original):
        one(input_ids=words, labels=words).loss.backward()
    for mine, theirs in zip(model.parameters(), original.parameters(), strict=True):
        close(mine.grad, theirs.grad)
    assert list(model.state_dict()) == list(original.state_dict())
    torch.compiler.reset()
    compiled = torch.compile(model, dynamic=True, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        close(compiled(input_ids=words, use_cache=False).logits, original(input_ids=words).logits)
    assert isinstance(optimize(gpt2(), study.folder.parent).transformer.h[0].attn.c_attn, Conv1D)


def test_a_replaced_model_takes_another_study(study: Study, here: Hardware, tmp_path: Path) -> None:
    other = synthetic_study(here, tmp_path / "other")
    torch.manual_seed(0)
    original = nn.Sequential(nn.Linear(64, 96), nn.ReLU())
    model = replace_linears(copy.deepcopy(original), study)
    replace_linears(model, other)
    assert all(Path(path).is_relative_to(other.folder) for path in model[0].libraries.values())
    assert computed_with(model) == ["relu"]
    same(model, original, torch.randn(5, 64))


def test_a_library_that_fails_leaves_the_model_as_it_was(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object, **options: object) -> str:
        raise DietlabError("a library is built")

    monkeypatch.setattr("dietlab.torch.replace.library_of", fails)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU())
    with pytest.raises(DietlabError, match="a library is built"):
        replace_linears(model, study)
    assert type(model) is nn.Sequential and type(model[0]) is nn.Linear


@pytest.mark.parametrize(
    "head", [nn.Linear(240, 2), nn.Linear(240, 1), nn.Linear(240, 8, bias=False), nn.Linear(16, 500)]
)
def test_one_layer_outside_takes_the_machines_study_all_the_same(head: nn.Module, study: Study) -> None:
    home = study.folder.parent
    before = sorted(path.name for path in home.iterdir())
    body = [nn.Linear(240, 240), nn.ReLU(), nn.Linear(240, 240)]
    with pytest.warns(
        UserWarning, match=r"3 stays PyTorch's: N = \d+, and the study was tuned for N = 16..256"
    ):
        model = optimize(nn.Sequential(*body, head), home)
    assert isinstance(model[0], Linear) and type(model[3]) is nn.Linear
    assert sorted(path.name for path in home.iterdir()) == before


def test_layers_with_little_work_widen_no_task(
    here: Hardware, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[Any]()

    class Stop(Exception):
        pass

    def stop(folder: Path, workload: Any, *arguments: Any, **options: Any) -> None:
        asked.append(workload)
        raise Stop

    monkeypatch.setattr(Study, "create", stop)
    body = [nn.Linear(1024, 1024) for _ in range(4)]
    for extra, n in (([nn.Linear(1024, 2)], 64), ([nn.Linear(1024, 30000, bias=False)], 64)):
        with pytest.raises(Stop):
            optimize(nn.Sequential(*body, *extra), tmp_path)
        assert asked[-1].N.low == n
    assert asked[0].N.high == 4096 and asked[1].N.high == 30000
    assert 2 / (4 * 1024) < WORTH_TUNING < LEAST_SERVED


def test_the_task_of_a_model_holds_all_its_layers() -> None:
    usual = task_for({(768, 3072), (64, 64)})
    assert usual == every_layer_task()
    wide = task_for({(768, 768), (32000, 48)})
    assert Dim(64, 32000) == wide.workload.N and Dim(48, 4096) == wide.workload.K
    assert any((shape["N"], shape["K"]) == (32000, 48) for shape in wide.shapes)


def test_the_study_that_serves_most_is_taken(study: Study, here: Hardware, tmp_path: Path) -> None:
    narrow = type(EVERY)(T=Dim(1, 64), N=Dim(16, 32), K=Dim(16, 256))
    shapes = ShapeSet.layers([(24, 32)], lengths=[1], workload=narrow)
    home = tmp_path / "studies"
    Study.create(home / "a-narrow", narrow, here, shapes, "smoke")
    wide = synthetic_study(here, home / "b-wide")
    model = optimize(nn.Sequential(nn.Linear(64, 32), nn.Linear(32, 200)), home)
    assert Path(model[0].libraries["none"]).is_relative_to(wide.folder)


def test_a_model_without_layers_is_told_why(study: Study) -> None:
    for model, found in (
        (nn.Sequential(nn.ReLU()), "Sequential, which has no linear layer$"),
        (
            nn.Linear(64, 96).half(),
            r"float16 on cpu, not float32 on the CPU\. Convert the model by model\.float\(\)\.cpu\(\)",
        ),
        (nn.Sequential(Derived(64, 96)), "no library can compute: it is a Derived, another class"),
    ):
        with pytest.raises(DietlabError, match=found):
            optimize(model, study.folder.parent)


def test_looking_calls_nothing(study: Study) -> None:
    class Loud(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(64, 96)

        def forward(self, x: Any) -> Any:
            raise AssertionError("called")

        def __getattr__(self, name: str) -> Any:
            assert not name.startswith("dietlab")
            return super().__getattr__(name)

    assert [layer.name for layer in layers_in(nn.Sequential(Loud(), nn.Linear(2, 2)))] == ["0.inner", "1"]

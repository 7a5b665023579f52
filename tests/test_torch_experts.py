"""Experts of a model whose layers a library computes: the same results for any number of tokens each."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
from conftest import in_turn
from hypothesis import given, settings
from hypothesis import strategies as st
from layers_of_torch import called_elsewhere, close

from dietlab.base.errors import StudyError
from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import Dense, Dim, ShapeSet

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import dietlab.torch  # noqa: E402
from dietlab.torch import Linear, optimize, replace_experts, replace_linears  # noqa: E402
from dietlab.torch.experts import experts_of  # noqa: E402
from dietlab.torch.libraries import SERVED, library_of  # noqa: E402


def tuned(folder: object, here: Hardware, n: Dim) -> Study:
    dense = Dense(T=Dim(1, 64), N=n, K=Dim(16, 128))
    shapes = ShapeSet.layers([(64, 32), (96, 64)], lengths=[1, 8, 64], workload=dense)
    made = Study.create(folder, dense, here, shapes, "smoke")  # type: ignore[arg-type]
    made.tune(SyntheticRunner(here))
    return made


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def study(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return tuned(tmp_path_factory.mktemp("experts") / "study", here, Dim(16, 256))


@pytest.fixture(scope="module")
def library(study: Study) -> str:
    """A library of groups: without a bias, without an activation."""
    return library_of(study, bias=False, activation="none")


def mixture() -> torch.nn.Module:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    experts = {"num_key_value_heads": 2, "num_local_experts": 5, "num_experts_per_tok": 2}
    config = transformers.MixtralConfig(vocab_size=50, use_cache=False, **sizes, **experts)
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(config).eval()


@pytest.mark.parametrize(("tokens", "compiled"), in_turn((1, 2, 17), (False, True)))
def test_a_mixture_computes_the_same(study: Study, tokens: int, compiled: bool) -> None:
    original = mixture()
    model = replace_experts(replace_linears(copy.deepcopy(original), study), study)
    assert original.config._experts_implementation != model.config._experts_implementation == "dietlab"
    words = torch.randint(0, 50, (1, tokens))
    run = torch.compile(model, dynamic=True, fullgraph=True, backend="aot_eager") if compiled else model
    with torch.no_grad():
        close(run(input_ids=words)[0], original(input_ids=words)[0])


@settings(max_examples=30)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 3))
def test_rows_meet_the_weights_of_their_group(library: str, counts: list[int], behind: int) -> None:
    ends = torch.tensor(counts).cumsum(0)
    x, weights = torch.randn(sum(counts) + behind, 32), torch.randn(len(counts), 48, 32)
    with torch.no_grad():
        y = torch.ops.dietlab.grouped_linear(x, weights, ends, library)
        parts = x[: sum(counts)].split(counts)
        close(y[: sum(counts)], torch.cat([part @ w.T for part, w in zip(parts, weights, strict=True)]))
    assert not y[sum(counts) :].any()


def test_weights_changed_in_place_are_packed_again(library: str) -> None:
    x, weights, ends = torch.randn(4, 32), torch.randn(2, 48, 32), torch.tensor([1, 4])
    with torch.no_grad():
        before = torch.ops.dietlab.grouped_linear(x, weights, ends, library)
        weights[1].mul_(2)
        after = torch.ops.dietlab.grouped_linear(x, weights, ends, library)
    close(after, torch.cat([before[:1], 2 * before[1:]]))


def test_groups_of_other_types_go_through_pytorch(library: str) -> None:
    x, weights, ends = torch.randn(4, 32).double(), torch.randn(2, 48, 32).double(), torch.tensor([1, 4])
    with torch.no_grad():
        y = torch.ops.dietlab.grouped_linear(x, weights, ends, library)
    close(y, torch.cat([x[:1] @ weights[0].T, x[1:] @ weights[1].T]))


@pytest.mark.parametrize(
    ("sizes", "ends", "said"),
    [
        ((4, 32), [3, 2], "ends ascend"),
        ((4, 32), [1, 5], "none is beyond the 4 rows"),
        ((4, 31), [1, 4], "grouped_linear takes x"),
        ((4, 32), [4], "grouped_linear takes x"),
    ],
)
def test_groups_that_do_not_fit_are_refused(
    library: str, sizes: tuple[int, int], ends: list[int], said: str
) -> None:
    x, weights = torch.randn(sizes), torch.randn(2, 48, 32)
    with torch.no_grad(), pytest.raises(RuntimeError, match=said):
        torch.ops.dietlab.grouped_linear(x, weights, torch.tensor(ends), library)


@pytest.mark.parametrize("alone", [False, True], ids=["all train", "alone"])
@pytest.mark.parametrize("trained", ["gate_up_proj", "down_proj"])
def test_a_weight_that_trains_has_pytorchs_gradients(trained: str, alone: bool, study: Study) -> None:
    gradients, words = [], torch.arange(14).view(2, 7)
    original = mixture().requires_grad_(not alone)
    for model in (original, replace_experts(copy.deepcopy(original), study)):
        weight = getattr(model.layers[1].mlp.experts, trained).requires_grad_(True)
        model(input_ids=words)[0].square().sum().backward()
        gradients.append(weight.grad)
    close(*gradients)


def test_groups_have_derivatives_of_every_kind(study: Study) -> None:
    library = library_of(study)
    x, weights, ends = torch.randn(9, 32), torch.randn(3, 48, 32), torch.tensor([2, 2, 7])

    def ours(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.ops.dietlab.grouped_linear(x, weights, ends, library)

    def wanted(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[:2] @ weights[0].T, x[2:7] @ weights[2].T, torch.zeros(2, 48)])

    along = (torch.randn_like(x), torch.randn_like(weights))
    forward = [torch.func.jvp(f, (x, weights), along) for f in (ours, wanted)]
    backward = [torch.func.vjp(f, x, weights)[1](ours(x, weights)) for f in (ours, wanted)]
    for found, right in (*zip(*forward, strict=True), *zip(*backward, strict=True)):
        close(found, right)
    with torch.autocast("cpu", torch.bfloat16):
        assert ours(x, weights).dtype is torch.bfloat16


def test_changes_that_pytorch_does_not_count_are_packed_on_demand(study: Study) -> None:
    original, words = mixture(), torch.arange(14).view(2, 7)
    model = replace_experts(copy.deepcopy(original), study)
    with torch.no_grad():
        model(input_ids=words)
        for changed in (original, model):
            changed.layers[0].mlp.experts.down_proj.data[:, 3, 5] = 400.0
        numbers = sum(p.numel() for layer in model.layers for p in layer.mlp.experts.parameters())
        assert dietlab.torch.pack(model) >= 4 * numbers
        close(model(input_ids=words)[0], original(input_ids=words)[0])
        with pytest.warns(UserWarning, match="all experts kept the original weights"):
            dietlab.torch.pack(model, originals=False)


def test_a_mixture_in_bfloat16_is_pytorchs(study: Study) -> None:
    original, words = mixture().bfloat16(), torch.arange(14).view(2, 7)
    model = replace_experts(mixture(), study).bfloat16()
    with torch.no_grad():
        close(model(input_ids=words)[0].float(), original(input_ids=words)[0].float())


def test_a_saved_mixture_runs_in_another_process(study: Study, tmp_path: Path) -> None:
    model = replace_experts(mixture(), study)
    words = torch.arange(14).view(2, 7)
    with torch.no_grad():
        close(called_elsewhere(model, words, tmp_path), model(input_ids=words)[0])


def test_under_autocast_a_mixture_computes_in_pytorchs_types(study: Study) -> None:
    original, words = mixture(), torch.arange(14).view(2, 7)
    model = replace_experts(replace_linears(copy.deepcopy(original), study), study)
    rows, chosen = torch.randn(9, 32), torch.randint(0, 5, (9, 2))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found, wanted = (m(input_ids=words)[0] for m in (model, original))
        shares = torch.full((9, 2), 0.5)
        experts, others = (m.layers[0].mlp.experts(rows, chosen, shares) for m in (model, original))
    torch.testing.assert_close(found, wanted, rtol=0.02, atol=0.02)
    torch.testing.assert_close(experts, others, rtol=0.02, atol=0.02)


@pytest.mark.thorough
def test_experts_that_no_study_serves_stay(here: Hardware, tmp_path: object) -> None:
    narrow = tuned(f"{tmp_path}/narrow", here, Dim(16, 95))  # gate and up together have 96 columns
    with pytest.warns(UserWarning, match=r"layers\.0\.mlp\.experts stays PyTorch's: N = 96"):
        model = replace_experts(mixture(), narrow)
    assert not any(hasattr(module, SERVED) for _, module in experts_of(model))
    words = torch.randint(0, 50, (1, 5))
    with torch.no_grad():
        close(model(input_ids=words)[0], mixture()(input_ids=words)[0])


def test_a_model_without_experts_is_refused(study: Study) -> None:
    with pytest.raises(StudyError, match="experts can only be replaced in models of transformers"):
        replace_experts(torch.nn.Linear(3, 4), study)


def test_optimize_replaces_layers_and_experts(study: Study) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = optimize(mixture(), study.folder.parent)
    assert isinstance(model.layers[0].self_attn.q_proj, Linear)
    assert all(hasattr(module, SERVED) for _, module in experts_of(model))

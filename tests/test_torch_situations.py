"""Whatever PyTorch's layer computes, the replaced one does: values, types, gradients, errors."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from layers_of_torch import close, same, shared_study

from dietlab.compare.study import Study
from dietlab.machine import Hardware

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils import parametrizations, parametrize, prune, stateless  # noqa: E402

import dietlab.torch  # noqa: E402
from dietlab.torch import Linear, replace_linears  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

Model = Any
Situation = Callable[[Model], Any]


@pytest.fixture(scope="module")
def study(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return shared_study(here, tmp_path_factory.getbasetemp() / "of torch")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 48, bias=False), nn.ReLU())


def rows(*sizes: int, seed: int = 1, **options: Any) -> Tensor:
    return torch.randn(*sizes, 64, generator=torch.Generator().manual_seed(seed)).to(**options)


def gradients(model: Model, x: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    y = model(x)
    y.float().square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


class Double(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


class Own(torch.Tensor):
    """A class of tensors that somebody derived."""


def under_autocast(model: Model, dtype: torch.dtype, x: Tensor, train: bool = False) -> Any:
    with torch.autocast("cpu", dtype):
        if not train:
            return model(x)
        y = model(x)
        loss = y.float().square().sum()
    loss.backward()
    return [y.detach(), *(p.grad for p in model.parameters())]


def pruned(model: Model) -> Tensor:
    prune.l1_unstructured(model[0], "weight", 0.3)
    prune.l1_unstructured(model[0], "bias", 0.3)
    return model(rows(5))


def pruned_for_good(model: Model) -> Tensor:
    pruned(model)
    prune.remove(model[0], "weight")
    return model(rows(5))


def normed(norm: Callable[..., Any], model: Model) -> list[Tensor]:
    torch.manual_seed(5)
    norm(model[0])
    return gradients(model, rows(5))


def parametrized(model: Model) -> Tensor:
    parametrize.register_parametrization(model[2], "weight", Double())
    return model(rows(5))


def parametrized_and_back(model: Model) -> Tensor:
    parametrized(model)
    parametrize.remove_parametrizations(model[2], "weight")
    return model(rows(5))


def with_other_parameters(model: Model) -> Tensor:
    return torch.func.functional_call(
        model, {"0.weight": torch.ones(96, 64), "0.bias": torch.ones(96)}, rows(3)
    )


def jagged(model: Model) -> list[Tensor]:
    x = torch.nested.nested_tensor([rows(2), rows(5), rows(0), rows(9)], layout=torch.jagged)
    x.requires_grad_()
    y = model(x)
    y.values().square().sum().backward()
    assert y.is_nested and y.layout is torch.jagged
    return [*(part.detach() for part in y.unbind()), x.grad.values(), *(p.grad for p in model.parameters())]


def jagged_twice(model: Model) -> Tensor:
    """A residual: both sides are of the same batch."""
    x = torch.nested.nested_tensor([rows(2), rows(5)], layout=torch.jagged)
    return (x @ torch.ones(64, 48) + model(x)).values()


def strided_nested(model: Model) -> Tensor:
    return torch.nested.to_padded_tensor(model(torch.nested.nested_tensor([rows(2), rows(5)])), 0.0)


def jvp(model: Model) -> Any:
    return torch.func.jvp(model, (rows(3),), (rows(3, seed=2),))


def forward_mode(model: Model) -> Any:
    with torch.autograd.forward_ad.dual_level():
        y = model(torch.autograd.forward_ad.make_dual(rows(3), rows(3, seed=2)))
        return tuple(torch.autograd.forward_ad.unpack_dual(y))


def second_derivatives(model: Model) -> Any:
    x = rows(3).requires_grad_()
    (first,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), [x, *model.parameters()])


def per_sample_gradients(model: Model) -> Any:
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    loss = lambda p, x: torch.func.functional_call(model, p, x).square().sum()  # noqa: E731
    return torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, rows(4))


def an_ensemble(model: Model) -> Tensor:
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.add_(1.0)
    parameters, _ = torch.func.stack_module_state([model, other])
    run = lambda p, x: torch.func.functional_call(model, p, x)  # noqa: E731
    return torch.func.vmap(run, (0, None))(parameters, rows(3))


def checkpointed(model: Model) -> list[Tensor]:
    x = rows(5).requires_grad_()
    y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters())]


def frozen_but_for_one(model: Model) -> list[Tensor]:
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model[0].bias.requires_grad_()
    model(rows(5)).square().sum().backward()
    return [model[0].bias.grad]


def quantised_dynamically(model: Model) -> Tensor:
    weight = model[2].weight
    model[2].weight = nn.Parameter(torch.fake_quantize_per_tensor_affine(weight.detach(), 0.1, 0, -8, 7))
    return model(rows(5))


def moved(model: Model) -> Tensor:
    model(rows(3))
    return model.double()(rows(3).double())


def on_meta(model: Model) -> Tensor:
    y = model.to("meta")(rows(3).to("meta"))
    assert y.is_meta
    return torch.tensor(y.shape)


def sparse_weights(model: Model) -> Tensor:
    model[0].weight = nn.Parameter(model[0].weight.detach().to_sparse_csr(), requires_grad=False)
    return model[0](rows(3))


def weights_of_another_layout(model: Model) -> Tensor:
    model[0].weight = nn.Parameter(torch.ones(64, 96).t())
    model[2].weight = nn.Parameter(torch.arange(2.0 * 48 * 96).view(48, 192)[:, ::2])
    return model(rows(3)) / 1e3


def traced(model: Model) -> Tensor:
    return torch.jit.trace(model, rows(3))(rows(7))


def symbolically_traced(model: Model) -> Tensor:
    return torch.fx.symbolic_trace(model)(rows(7))


def with_a_functional_mode(model: Model) -> Tensor:
    return torch.func.functionalize(model)(rows(3))


def made_lazily(model: Model) -> Tensor:
    model[0].load_state_dict({name: 2 * value for name, value in model[0].state_dict().items()}, assign=True)
    return model(rows(3))


def swapped(model: Model) -> Tensor:
    model(rows(3))
    torch.utils.swap_tensors(model[0].weight, nn.Parameter(torch.ones(96, 64)))
    return model(rows(3))


def grown(model: Model) -> Tensor:
    """A layer whose parameters were replaced by larger ones, as a vocabulary grows."""
    model(rows(3))
    model[2].weight = nn.Parameter(torch.cat([model[2].weight.detach(), torch.ones(5, 96)]))
    return model(rows(3))


def stacked(model: Model) -> Tensor:
    return stateless._functional_call(model, {"2.weight": torch.ones(48, 96)}, rows(3))


def fitted(model: Model) -> list[Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=True)
    for step in range(3):
        optimizer.zero_grad()
        model(rows(8, seed=step)).square().mean().backward()
        optimizer.step()
    return [model(rows(3)).detach()]


def in_inference_mode(model: Model) -> Tensor:
    with torch.inference_mode():
        return model(rows(5)).clone()


SITUATIONS: dict[str, Situation] = {
    "rows": lambda m: m(rows(5)),
    "one row": lambda m: m(rows(1)),
    "a vector": lambda m: m(rows()),
    "batches": lambda m: m(rows(2, 3, 5)),
    "no rows": lambda m: m(rows(0)),
    "no rows in batches": lambda m: m(rows(2, 0, 3)),
    "every second": lambda m: m(rows(10)[::2]),
    "columns first": lambda m: m(rows(5).t().contiguous().t()),
    "one row for many": lambda m: m(rows(1).expand(7, 64)),
    "a parameter": lambda m: m(nn.Parameter(rows(5))).detach(),
    "a class of tensors": lambda m: m(rows(5).as_subclass(Own)),
    "float64": lambda m: m.double()(rows(5).double()),
    "bfloat16": lambda m: m.bfloat16()(rows(5).bfloat16()),
    "float16": lambda m: m.half()(rows(5).half()),
    "complex": lambda m: m[0].to(torch.complex64)(rows(5).to(torch.complex64)),
    "moved": moved,
    "on meta": on_meta,
    "gradients": lambda m: gradients(m, rows(5)),
    "gradients of batches": lambda m: gradients(m, rows(2, 3)),
    "gradients of no rows": lambda m: gradients(m, rows(0)),
    "frozen but for one": frozen_but_for_one,
    "second derivatives": second_derivatives,
    "checkpointed": checkpointed,
    "forward mode": forward_mode,
    "jvp": jvp,
    "per-sample gradients": per_sample_gradients,
    "an ensemble": an_ensemble,
    "vmap": lambda m: torch.func.vmap(m)(rows(4)),
    "jacobian": lambda m: torch.func.jacrev(m)(rows(1)),
    "functionalized": with_a_functional_mode,
    "optimizer": fitted,
    "inference mode": in_inference_mode,
    "autocast, float32": lambda m: under_autocast(m, torch.bfloat16, rows(5)),
    "autocast, bfloat16": lambda m: under_autocast(m, torch.bfloat16, rows(5).bfloat16()),
    "autocast, training": lambda m: under_autocast(m, torch.bfloat16, rows(5), train=True),
    "autocast, training, bfloat16": lambda m: under_autocast(
        m, torch.bfloat16, rows(5).bfloat16(), train=True
    ),
    "autocast, float16": lambda m: under_autocast(m, torch.float16, rows(5)),
    "jagged": jagged,
    "jagged, residual": jagged_twice,
    "strided nested": strided_nested,
    "pruned": pruned,
    "pruned for good": pruned_for_good,
    "weight norm": partial(normed, parametrizations.weight_norm),
    "old weight norm": partial(normed, torch.nn.utils.weight_norm),
    "spectral norm": partial(normed, parametrizations.spectral_norm),
    "old spectral norm": partial(normed, torch.nn.utils.spectral_norm),
    "orthogonal": partial(normed, parametrizations.orthogonal),
    "parametrized": parametrized,
    "parametrized and back": parametrized_and_back,
    "other parameters": with_other_parameters,
    "stateless": stacked,
    "assigned": made_lazily,
    "swapped": swapped,
    "grown": grown,
    "fake-quantised": quantised_dynamically,
    "sparse weights": sparse_weights,
    "weights of another layout": weights_of_another_layout,
    "traced": traced,
    "symbolically traced": symbolically_traced,
}


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore:.*prototype")
def test_what_pytorchs_layer_takes_ours_takes(name: str, study: Study) -> None:
    original = network()
    model = replace_linears(network(), study)
    assert isinstance(model[0], Linear) and isinstance(model[2], Linear)
    wanted, found = SITUATIONS[name](original), SITUATIONS[name](model)
    loose = "autocast" in name
    for mine, theirs in zip(_tensors(found), _tensors(wanted), strict=True):
        assert type(mine) is type(theirs)
        tolerance = {"rtol": 2e-2, "atol": 2e-2} if loose else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(mine, theirs, equal_nan=True, **tolerance)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda m: m(rows(3)[:, :63]),
        lambda m: m(torch.tensor(1.0)),
        lambda m: m(rows(3).double()),
        lambda m: m(rows(3).long()),
        lambda m: m("rows"),
        lambda m: m(None),
        lambda m: m(),
        lambda m: m(rows(3), rows(3)),
    ],
)
def test_what_pytorchs_layer_refuses_ours_refuses_alike(wrong: Situation, study: Study) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        wrong(network())
    with pytest.raises(theirs.type):
        wrong(replace_linears(network(), study))


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _tensors(value[key])
    else:
        for part in value:
            yield from _tensors(part)


# ---- Weights that changed ----


def _through_data(model: Model) -> None:
    model[0].weight.data += 1.0


def _copied_through_data(model: Model) -> None:
    model[0].weight.data.copy_(torch.ones(96, 64))


def _bias_through_data(model: Model) -> None:
    model[0].bias.data += 1.0


def _through_numpy(model: Model) -> None:
    model[0].weight.detach().numpy()[:] += 1.0


def _through_a_detached_alias(model: Model) -> None:
    torch.utils.dlpack.from_dlpack(model[0].weight.detach()).mul_(2.0)


def _merged(model: Model) -> None:
    """As PEFT merges an adapter of rank 8."""
    left = torch.randn(96, 8, generator=torch.Generator().manual_seed(7))
    model[0].weight.data += left @ torch.ones(8, 64)


def _averaged(model: Model) -> None:
    for parameter in model.parameters():
        parameter.data.lerp_(torch.ones_like(parameter), 0.1)


def _in_place(model: Model) -> None:
    model[2].weight.mul_(2.0)
    model[0].bias.add_(1.0)


def _other_parameters(model: Model) -> None:
    model[2].weight = nn.Parameter(torch.ones(48, 96))


def _there_and_back(model: Model) -> None:
    model.double()(rows(5).double())
    model.float()


def _loaded(model: Model) -> None:
    model.load_state_dict({name: value + 1.0 for name, value in model.state_dict().items()})


CHANGES = [
    *(_through_data, _copied_through_data, _bias_through_data, _through_numpy, _through_a_detached_alias),
    *(_merged, _averaged, _loaded, _in_place, _other_parameters, _there_and_back),
]


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_changed_in_any_way_are_packed_again(
    change: Callable[[Model], None], study: Study
) -> None:
    model, original, x = replace_linears(network(), study), network(), rows(5)
    with torch.no_grad():
        close(model(x), original(x))
        for changed in (model, original):
            change(changed)
        close(model(x), original(x))


FEW: dict[str, Callable[[Model], Any]] = {
    "pack": dietlab.torch.pack,
    "train": lambda m: m.train(),
    "eval": lambda m: m.eval(),
    "load_state_dict": lambda m: m.load_state_dict(m.state_dict()),
    "to": lambda m: m.to("cpu"),
    "float": lambda m: m.float(),
}


@pytest.mark.parametrize("call", FEW)
def test_one_number_that_changed_unseen_is_packed_again_at(call: str, study: Study) -> None:
    model, x = replace_linears(network(), study), rows(5)
    with torch.no_grad():
        before = model(x)
        model[2].weight.data.view(-1)[97 * 41] = 1000.0  # not among the numbers of its fingerprint
        torch.testing.assert_close(model(x), before, rtol=0, atol=0)
        FEW[call](model)
        layer = F.linear(F.gelu(F.linear(x, model[0].weight, model[0].bias)), model[2].weight).relu()
        close(model(x), layer)
        assert not torch.allclose(before, layer)


def test_weights_that_another_process_changes_are_packed_again(study: Study) -> None:
    model = replace_linears(network(), study).share_memory()
    x = rows(5)
    with torch.no_grad():
        model(x)
        child = os.fork()
        if not child:
            torch.set_num_threads(1)
            model[0].weight.add_(1.0)
            os._exit(0)
        os.waitpid(child, 0)
        original = network()
        original.load_state_dict(model.state_dict())
        close(model(x), original(x))


@pytest.mark.parametrize("bias", [False, True])
def test_a_bias_that_comes_or_goes_is_pytorchs(bias: bool, study: Study) -> None:
    torch.manual_seed(0)
    original = nn.Linear(64, 96, bias=bias)
    model = replace_linears(copy.deepcopy(original), study)
    for layer in (model, original):
        layer.bias = None if bias else nn.Parameter(torch.ones(96))
    same(model, original, torch.randn(3, 64))
    assert dietlab.torch.pack(model) == 0


def test_packing_says_how_much_memory_it_takes(study: Study) -> None:
    model = replace_linears(network(), study)
    once, numbers = dietlab.torch.pack(model), sum(p.numel() for p in model.parameters())
    assert 4 * numbers <= once <= 4 * 4 * numbers  # columns are filled up to whole panels
    assert dietlab.torch.pack(model) == once
    assert dietlab.torch.pack(network()) == 0

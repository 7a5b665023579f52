"""Attention whose two products run through tuned libraries: the same results, whatever it is given."""

from __future__ import annotations

import copy
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import in_turn
from layers_of_torch import called_elsewhere, close

from dietlab.base.errors import StudyError
from dietlab.compare.study import Study
from dietlab.machine import Hardware
from dietlab.measure import SyntheticRunner
from dietlab.problem import BatchMatmul, Dense, Dim, Shape, ShapeSet

torch = pytest.importorskip("torch")

from dietlab.torch import replace_attention  # noqa: E402
from dietlab.torch.libraries import library_of  # noqa: E402

DENSE = Dense(T=Dim(1, 32), N=32, K=8)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def products(here: Hardware, tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Study]:
    found = []
    for form in ("nt", "nn"):
        work = BatchMatmul(T=Dim(1, 32), B=Dim(1, 16), D=8, form=form)  # type: ignore[arg-type]
        shapes = ShapeSet.of({Shape.of(T=4, B=4): 1.0, Shape.of(T=32, B=8): 1.0})
        made = Study.create(tmp_path_factory.mktemp("products") / form, work, here, shapes, "smoke")
        made.tune(SyntheticRunner(here))
        found.append(made)
    return found[0], found[1]


def bert(**more: object) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = transformers.BertConfig(vocab_size=50, **{**sizes, **more})
    torch.manual_seed(0)
    return transformers.BertModel(config, add_pooling_layer=False).eval()


@pytest.mark.parametrize(("is_decoder", "masked"), in_turn((False, True), (False, True)))
def test_attention_computes_the_same(products: tuple[Study, Study], is_decoder: bool, masked: bool) -> None:
    original, model = bert(is_decoder=is_decoder), replace_attention(bert(is_decoder=is_decoder), *products)
    words = torch.randint(0, 50, (2, 9))
    mask = torch.ones(2, 9)
    if masked:
        mask[0, 6:] = 0
    with torch.no_grad():
        found, wanted = (m(input_ids=words, attention_mask=mask)[0] for m in (model, original))
        close(found[mask.bool()], wanted[mask.bool()])
        torch.compiler.reset()
        compiled = torch.compile(model, dynamic=True, fullgraph=True, backend="aot_eager")
        close(compiled(input_ids=words, attention_mask=mask)[0][mask.bool()], wanted[mask.bool()])


def decoder(kind: str, **more: object) -> torch.nn.Module:
    """A model with heads of 8 whose queries see no key behind them."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    keys = {"num_key_value_heads": 2, "head_dim": 8}
    config = getattr(transformers, f"{kind}Config")(vocab_size=50, **{**sizes, **keys, **more})
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(config).eval()


def left_padded(model: torch.nn.Module) -> torch.Tensor:
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0
    return model(input_ids=torch.arange(18).view(2, 9), attention_mask=mask)[0][mask.bool()]


def cached(model: torch.nn.Module, cache: Any) -> torch.Tensor:
    words = torch.arange(12).view(2, 6)
    start = model(input_ids=words[:, :4], past_key_values=cache, use_cache=True)
    later = model(input_ids=words[:, 4:], past_key_values=start.past_key_values, use_cache=True)
    return torch.cat([start[0], later[0]], 1)


def with_a_static_cache(model: torch.nn.Module) -> torch.Tensor:
    return cached(model, sys.modules["transformers"].StaticCache(config=model.config, max_cache_len=16))


def under_autocast(model: torch.nn.Module) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return left_padded(model)


def in_bfloat16(model: torch.nn.Module) -> torch.Tensor:
    return left_padded(copy.deepcopy(model).bfloat16())


CALLS = {
    "left_padded": left_padded,
    "one_word": lambda model: model(input_ids=torch.ones(2, 1, dtype=torch.long))[0],
    "cached": lambda model: cached(model, None),
    "with_a_static_cache": with_a_static_cache,
    "under_autocast": under_autocast,
    "in_bfloat16": in_bfloat16,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("kind", "more"), [("Llama", {}), ("Mistral", {"sliding_window": 3})])
def test_whatever_pytorchs_attention_takes_ours_takes(
    kind: str, more: dict[str, object], call: str, products: tuple[Study, Study]
) -> None:
    model = replace_attention(decoder(kind, **more), *products)
    with torch.no_grad():
        found, wanted = CALLS[call](model), CALLS[call](decoder(kind, **more))
    assert found.dtype == wanted.dtype and bool(wanted.isfinite().all())
    near = 1e-4 if found.dtype is torch.float32 else 0.05
    torch.testing.assert_close(found, wanted, rtol=near, atol=near)


def test_a_saved_model_runs_in_another_process(products: tuple[Study, Study], tmp_path: Path) -> None:
    model = replace_attention(bert(), *products)
    words = torch.arange(18).view(2, 9)
    with torch.no_grad():
        close(called_elsewhere(model, words, tmp_path), model(input_ids=words)[0])


@pytest.mark.parametrize("padded", [False, True], ids=["each query sees a key", "one sees none"])
def test_attention_has_pytorchs_gradients(padded: bool, products: tuple[Study, Study]) -> None:
    gradients = []
    make = partial(decoder, "Llama") if padded else bert
    for model in (make(), replace_attention(make(), *products)):
        y = left_padded(model) if padded else model(input_ids=torch.arange(14).view(2, 7))[0]
        y.square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    close(*gradients)


@pytest.mark.filterwarnings("ignore:no attention of")
def test_biases_of_positions_and_heads_of_other_sizes_go_through_pytorch(
    products: tuple[Study, Study],
) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 64, "num_layers": 2}

    def encoder() -> torch.nn.Module:
        torch.manual_seed(0)
        return transformers.T5EncoderModel(transformers.T5Config(vocab_size=50, **sizes)).eval()

    words = torch.arange(18).view(2, 9)
    with torch.no_grad():
        close(replace_attention(encoder(), *products)(input_ids=words)[0], encoder()(input_ids=words)[0])
        model = replace_attention(decoder("Llama"), *products)
        other = decoder("Llama", head_dim=16)
        for layer, wide in zip(model.layers, other.layers, strict=True):
            wide.self_attn.dietlab_served = layer.self_attn.dietlab_served
        other.set_attn_implementation("dietlab")
        close(left_padded(other), left_padded(decoder("Llama", head_dim=16)))


@pytest.mark.parametrize("kind", ["Gemma2", "GptOss"])
def test_attention_that_is_more_than_products_and_a_softmax_is_refused(
    kind: str, products: tuple[Study, Study]
) -> None:
    with pytest.raises(StudyError, match=rf"by PyTorch's sdpa; got {kind}Model with eager"):
        replace_attention(decoder(kind), *products)


def test_products_of_other_lengths_and_types_go_through_pytorch(products: tuple[Study, Study]) -> None:
    library = library_of(products[0])
    for x, w in (
        (torch.randn(2, 3, 8), torch.randn(2, 5, 8)),
        (torch.randn(2, 3, 8).double(), torch.randn(2, 3, 8).double()),
        (torch.randn(0, 3, 8), torch.randn(0, 3, 8)),
    ):
        close(torch.ops.dietlab.batch_matmul(x, w, True, library), x @ w.transpose(1, 2))


def test_attention_of_other_models_and_studies_is_refused(
    products: tuple[Study, Study], here: Hardware, tmp_path: Path
) -> None:
    with pytest.raises(StudyError, match="models of transformers"):
        replace_attention(torch.nn.Linear(8, 8), *products)
    with pytest.raises(StudyError, match="the study must be of batch-matmul-nt"):
        replace_attention(bert(), *reversed(products))
    with pytest.raises(StudyError, match="with D=16, a head's size"):
        replace_attention(bert(num_attention_heads=2), *products)
    dense = Study.create(tmp_path / "dense", DENSE, here, ShapeSet.uniform(DENSE, 2), "smoke")
    with pytest.raises(StudyError, match="products of attention need a study of BatchMatmul"):
        replace_attention(bert(), dense, dense)


@pytest.mark.thorough
def test_a_fixed_number_of_products_must_be_one_of_a_batch(
    products: tuple[Study, Study], here: Hardware, tmp_path: Path
) -> None:
    for number in (6, 8):
        work = BatchMatmul(T=Dim(1, 32), B=number, D=8, form="nn")
        made = Study.create(tmp_path / f"{number}", work, here, ShapeSet.of({Shape.of(T=4): 1.0}), "smoke")
        if number % 4:
            told = "batch x heads, 4 for each sentence; got B=6.*tune batch-matmul-nn --dim B=1:64 "
            with pytest.raises(StudyError, match=told):
                replace_attention(bert(), products[0], made)
        else:
            made.tune(SyntheticRunner(here))
            model, words = replace_attention(bert(), products[0], made), torch.arange(18).view(2, 9)
            with torch.no_grad():
                close(model(input_ids=words)[0], bert()(input_ids=words)[0])

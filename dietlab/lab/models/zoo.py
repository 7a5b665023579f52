"""Models that are timed from end to end: built from a configuration, with weights that a seed gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import MissingDependencyError, WorkloadError, require_names
from dietlab.problem.dims import Dim, Shape

if TYPE_CHECKING:
    import torch

SEED = 0
"""The seed of the weights and of the words."""

LENGTHS = Dim(1, 512)
"""The lengths that BERT has positions for."""

Layers = Mapping[tuple[int, int], int]
"""The numbers of dense layers with N columns and K rows, by (N, K)."""


def _bert_layers(c: Any) -> Layers:
    hidden, inner = c.hidden_size, c.intermediate_size
    return _counted(c, (hidden, hidden, 4), (inner, hidden, 1), (hidden, inner, 1))


def _attention(c: Any) -> list[tuple[int, int, int]]:
    """Returns (N, K, count) of attention's projections; several heads of queries may share one head of keys
    and values."""
    shared = c.hidden_size // c.num_attention_heads * c.num_key_value_heads
    return [(c.hidden_size, c.hidden_size, 2), (shared, c.hidden_size, 2)]


def _llama_layers(c: Any) -> Layers:
    hidden, inner = c.hidden_size, c.intermediate_size
    return _counted(c, *_attention(c), (inner, hidden, 2), (hidden, inner, 1))


def _mixtral_layers(c: Any) -> Layers:
    hidden, inner, chosen = c.hidden_size, c.intermediate_size, c.num_experts_per_tok
    return _counted(c, *_attention(c), (2 * inner, hidden, chosen), (hidden, inner, chosen))


def _counted(c: Any, *each: tuple[int, int, int]) -> Layers:
    """Returns the numbers of a model's dense layers, by (N, K): ``each`` has those of a hidden layer."""
    found = Counter[tuple[int, int]]()
    for n, k, count in each:
        found[n, k] += count * c.num_hidden_layers
    return found


@dataclass(frozen=True)
class Family:
    """Models of one kind in ``transformers``: the class of its configuration, the dense layers, further
    ``options`` of building, and whether a word sees only those before it (``causal``)."""

    configuration: str
    layers: Callable[[Any], Layers]
    options: Mapping[str, Any] = field(default_factory=dict)
    causal: bool = True


BERT = Family("BertConfig", _bert_layers, {"add_pooling_layer": False}, causal=False)
LLAMA = Family("LlamaConfig", _llama_layers)
MIXTRAL = Family("MixtralConfig", _mixtral_layers)

TINY = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {
    "vocab_size": 8192,
    "hidden_size": 1280,
    "intermediate_size": 3456,
    "num_hidden_layers": 6,
    "num_attention_heads": 20,
    "num_key_value_heads": 5,
    "use_cache": False,
}
EXPERTS = {
    **DECODER,
    "hidden_size": 1024,
    "intermediate_size": 1408,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}

CONFIGURATIONS: Mapping[str, tuple[Family, Mapping[str, Any]]] = {
    "bert-base": (BERT, {}),
    "bert-tiny": (BERT, {**TINY, "intermediate_size": 128}),
    "decoder": (LLAMA, DECODER),
    "decoder-tiny": (LLAMA, {**DECODER, **TINY, "intermediate_size": 96, "num_key_value_heads": 2}),
    "experts": (MIXTRAL, EXPERTS),
    "experts-tiny": (MIXTRAL, {**EXPERTS, **TINY, "intermediate_size": 48, "num_key_value_heads": 2}),
}
"""The family of each model, and what differs from the family's own configuration, which for BERT is
BERT-base's. No library was tuned for the widths of ``decoder`` and ``experts``."""


@dataclass(frozen=True)
class Model:
    """A model at one batch size, whose sentences have any length ``T``. A decoder of one sentence computes a
    step of a server that batches continuously, on ``T`` tokens, without the tokens of earlier steps.

    Args:
        name: one of :data:`CONFIGURATIONS`.
        batch: the number of sentences in a call, 1 or more.
        T: the range of lengths, in tokens.
        weights: a folder with weights that ``transformers`` reads (default: random ones).

    Raises:
        WorkloadError: if the model is unknown or the batch is empty.
    """

    name: str = "bert-base"
    batch: int = 1
    T: Dim = LENGTHS
    weights: str = ""

    def __post_init__(self) -> None:
        require_names("models", CONFIGURATIONS, [self.name], WorkloadError)
        if self.batch < 1:
            raise WorkloadError("a batch must have 1 sentence or more", self.batch)

    @property
    def dims(self) -> Mapping[str, Dim]:
        """The range of the length, by its name ``T``."""
        return {"T": self.T}

    @property
    def signature(self) -> Mapping[str, tuple[int | str, ...]]:
        """The shape of the token numbers, ``[batch, T]``."""
        return {"words": (self.batch, "T")}

    @property
    def family(self) -> Family:
        """The traits that it shares with other models, such as whether attention is causal."""
        return CONFIGURATIONS[self.name][0]

    @property
    def configuration(self) -> Any:
        """The configuration that ``transformers`` builds the model from (:meth:`build`)."""
        try:
            import transformers
        except ImportError as error:
            rule = "whole models need the package transformers"
            raise MissingDependencyError(rule, error, "pip install 'dietlab[torch,models]'.") from None
        made = getattr(transformers, self.family.configuration)
        if self.weights:
            found = made.from_pretrained(self.weights, local_files_only=True)
        else:
            found = made(**CONFIGURATIONS[self.name][1])
        if self.T.high > (most := found.max_position_embeddings):
            raise WorkloadError(f"{self.name} takes at most {most} tokens", self.T.high)
        return found

    def build(self) -> torch.nn.Module:
        """Returns the model, ready for inference: ``model(input_ids=words)[0]`` is ``[batch, T, hidden]``.

        Raises:
            MissingDependencyError: without PyTorch or ``transformers``.
            WorkloadError: if the model has no position for the longest sentence.
        """
        configuration = self.configuration
        import torch
        from transformers import AutoModel

        options = self.family.options
        if self.weights:
            folder = str(Path(self.weights).expanduser())
            model = AutoModel.from_pretrained(folder, local_files_only=True, **options).to(torch.float32)
        else:
            torch.manual_seed(SEED)
            model = AutoModel.from_config(configuration, **options)
        built: torch.nn.Module = model.train(False)
        return built

    def words(self, shape: Shape) -> torch.Tensor:
        """Returns random words ``[batch, T]``, the same for the same length."""
        import torch

        length = shape["T"]
        generator = torch.Generator().manual_seed(SEED + length)
        return torch.randint(self.configuration.vocab_size, (self.batch, length), generator=generator)

    def layers(self) -> Layers:
        """Returns the numbers of dense layers that a token passes, by (N, K); of a layer's experts only the
        chosen ones count.
        """
        return self.family.layers(self.configuration)

    def flops(self, shape: Shape) -> int:
        """Returns the number of floating-point operations of dense layers and both batched products."""
        c, length = self.configuration, shape["T"]
        dense = sum(count * 2 * n * k for (n, k), count in self.layers().items()) * length
        pairs = length * (length + 1) // 2 if self.family.causal else length * length
        return int(self.batch * (dense + c.num_hidden_layers * 4 * pairs * c.hidden_size))

    def to_json(self) -> dict[str, Any]:
        """Returns the model as a JSON value."""
        about = {"operator": self.name, "T": [self.T.low, self.T.high], "batch": self.batch}
        return {**about, "weights": self.weights, "dtype": "float32"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Model:
        """Returns the model of a JSON value made by :meth:`to_json`."""
        return cls(value["operator"], value["batch"], Dim(*value["T"]), value["weights"])

    def __str__(self) -> str:
        return f"{self.name} T={self.T} batch={self.batch}"

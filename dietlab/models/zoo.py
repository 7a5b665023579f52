"""Models that are timed from end to end: built from a configuration, with weights that a seed gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.dims import Dim, Shape
from dietlab.errors import MissingDependencyError, WorkloadError, require_names

if TYPE_CHECKING:
    import torch

SEED = 0
"""Of the weights and of the words."""

LENGTHS = Dim(1, 512)
"""The lengths that BERT has positions for."""

CONFIGURATIONS: Mapping[str, Mapping[str, Any]] = {
    "bert-base": {},
    "bert-tiny": {
        "vocab_size": 100,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
    },
}
"""What differs from the configuration of ``transformers.BertConfig``, which is BERT-base's."""


@dataclass(frozen=True)
class Model:
    """A model at one batch size, whose sentences have any length ``T``.

    Args:
        name: one of :data:`CONFIGURATIONS`.
        batch: sentences in a call, 1 or more.
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
            raise WorkloadError("a batch has 1 sentence or more", self.batch)

    @property
    def dims(self) -> Mapping[str, Dim]:
        return {"T": self.T}

    @property
    def signature(self) -> Mapping[str, tuple[int | str, ...]]:
        return {"words": (self.batch, "T")}

    @property
    def configuration(self) -> Any:
        """The configuration, of ``transformers``.

        Raises:
            MissingDependencyError: without ``transformers``.
        """
        try:
            from transformers import BertConfig
        except ImportError as error:
            raise MissingDependencyError(
                "whole models are those of transformers", error, "pip install 'dietlab[torch,models]'."
            ) from None
        if self.weights:
            return BertConfig.from_pretrained(self.weights, local_files_only=True)
        return BertConfig(**CONFIGURATIONS[self.name])

    def build(self) -> torch.nn.Module:
        """Returns the model, ready for inference: ``model(input_ids=words)[0]`` is ``[batch, T, hidden]``.

        Raises:
            MissingDependencyError: without PyTorch or ``transformers``.
        """
        configuration = self.configuration
        import torch
        from transformers import BertModel

        if self.weights:
            folder = str(Path(self.weights).expanduser())
            model = BertModel.from_pretrained(folder, add_pooling_layer=False, local_files_only=True)
            model = model.to(torch.float32)
        else:
            torch.manual_seed(SEED)
            model = BertModel(configuration, add_pooling_layer=False)
        built: torch.nn.Module = model.train(False)
        return built

    def words(self, shape: Shape) -> torch.Tensor:
        """Returns random words ``[batch, T]``, the same for the same length."""
        import torch

        length = shape["T"]
        generator = torch.Generator().manual_seed(SEED + length)
        return torch.randint(self.configuration.vocab_size, (self.batch, length), generator=generator)

    def layers(self) -> dict[tuple[int, int], int]:
        """Returns how often each dense layer (N, K) occurs."""
        c = self.configuration
        hidden, wide, blocks = c.hidden_size, c.intermediate_size, c.num_hidden_layers
        return {(hidden, hidden): 4 * blocks, (wide, hidden): blocks, (hidden, wide): blocks}

    def flops(self, shape: Shape) -> int:
        """Returns the floating-point operations of the dense layers and of both batched products."""
        c, length = self.configuration, shape["T"]
        dense = sum(count * 2 * n * k for (n, k), count in self.layers().items()) * length
        products = c.num_hidden_layers * 4 * length * length * c.hidden_size
        return int(self.batch * (dense + products))

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.name,
            "T": [self.T.low, self.T.high],
            "batch": self.batch,
            "weights": self.weights,
            "dtype": "float32",
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Model:
        return cls(value["operator"], value["batch"], Dim(*value["T"]), value["weights"])

    def __str__(self) -> str:
        return f"{self.name} T={self.T} batch={self.batch}"

"""Models that are timed from end to end: built from a configuration, with weights that a seed gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dietlab.base.errors import MissingDependencyError, WorkloadError, require_names
from dietlab.lab.models.given import IMAGES, SPEECH, WORDS, Given
from dietlab.problem.dims import Dim, Shape

if TYPE_CHECKING:
    import torch

SEED = 0
"""The seed of the weights and of the inputs."""

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


def _whisper_layers(c: Any) -> Layers:
    hidden, inner = c.d_model, c.encoder_ffn_dim
    return _counted(c, (hidden, hidden, 4), (inner, hidden, 1), (hidden, inner, 1))


def _counted(c: Any, *each: tuple[int, int, int]) -> Layers:
    """Returns the numbers of a model's dense layers, by (N, K): ``each`` has those of a hidden layer."""
    found = Counter[tuple[int, int]]()
    for n, k, count in each:
        found[n, k] += count * c.num_hidden_layers
    return found


@dataclass(frozen=True)
class Family:
    """Models of one kind in ``transformers``.

    Args:
        configuration: the class of its configuration.
        layers: the dense layers of a configuration, by (N, K).
        options: further options of building.
        causal: whether a word sees only those before it.
        given: what a call takes.
        rows: the rows of dense layers for one input of a size.
    """

    configuration: str
    layers: Callable[[Any], Layers]
    options: Mapping[str, Any] = field(default_factory=dict)
    causal: bool = True
    given: Given = WORDS
    rows: Callable[[int], int] = lambda size: size


BERT = Family("BertConfig", _bert_layers, {"add_pooling_layer": False}, causal=False)
LLAMA = Family("LlamaConfig", _llama_layers)
MIXTRAL = Family("MixtralConfig", _mixtral_layers)
RESNET = Family("ResNetConfig", lambda c: {}, causal=False, given=IMAGES)
WHISPER = Family("WhisperConfig", _whisper_layers, causal=False, given=SPEECH, rows=lambda size: size // 2)

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

RESNET_TINY = {"embedding_size": 16, "hidden_sizes": [32, 48], "depths": [1, 1]}
WHISPER_BASE = {
    "d_model": 512,
    "encoder_layers": 6,
    "encoder_attention_heads": 8,
    "encoder_ffn_dim": 2048,
    "decoder_layers": 0,
}
WHISPER_TINY = {
    **WHISPER_BASE,
    "d_model": 64,
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "num_mel_bins": 20,
}

CONFIGURATIONS: Mapping[str, tuple[Family, Mapping[str, Any]]] = {
    "bert-base": (BERT, {}),
    "bert-tiny": (BERT, {**TINY, "intermediate_size": 128}),
    "decoder": (LLAMA, DECODER),
    "decoder-tiny": (LLAMA, {**DECODER, **TINY, "intermediate_size": 96, "num_key_value_heads": 2}),
    "experts": (MIXTRAL, EXPERTS),
    "experts-tiny": (MIXTRAL, {**EXPERTS, **TINY, "intermediate_size": 48, "num_key_value_heads": 2}),
    "resnet50": (RESNET, {}),
    "resnet-tiny": (RESNET, RESNET_TINY),
    "whisper-base": (WHISPER, WHISPER_BASE),
    "whisper-front": (WHISPER, {**WHISPER_BASE, "encoder_layers": 0}),
    "whisper-tiny": (WHISPER, WHISPER_TINY),
}
"""The family of each model, and what differs from the family's own configuration, which for BERT is
BERT-base's and for ResNet that of 50 layers. No library was tuned for the widths of ``decoder`` and
``experts``. Of Whisper only the encoder is a model here, or the convolutions in front of its layers."""


@dataclass(frozen=True)
class Model:
    """A model at one batch size, whose inputs have any size: sentences of ``T`` tokens, square images with
    sides of ``side`` pixels, or speech of ``frames`` frames. A decoder of one sentence computes a step of a
    server that batches continuously, on ``T`` tokens, without the tokens of earlier steps. Whisper's encoder
    takes speech of any length, without the silence that fills it up to 30 s elsewhere.

    Args:
        name: one of :data:`CONFIGURATIONS`.
        batch: the number of sentences, images or utterances in a call, 1 or more.
        sizes: the range of the inputs' sizes (default: up to 128 tokens, 320 pixels, 1000 frames).
        weights: a folder with weights that ``transformers`` reads (default: random ones).

    Raises:
        WorkloadError: if the model is unknown or the batch is empty.
    """

    name: str = "bert-base"
    batch: int = 1
    sizes: Dim | None = None
    weights: str = ""

    def __post_init__(self) -> None:
        require_names("models", CONFIGURATIONS, [self.name], WorkloadError)
        if self.batch < 1:
            raise WorkloadError("a batch must have 1 input or more", self.batch)
        self._require(*((self.sizes.low, self.sizes.high) if self.sizes else ()))

    @property
    def range(self) -> Dim:
        """The range of the inputs' sizes."""
        return self.sizes or self.given.sizes

    @property
    def dims(self) -> Mapping[str, Dim]:
        """The range of the size, by its name."""
        return {self.given.dim: self.range}

    @property
    def signature(self) -> Mapping[str, tuple[int | str, ...]]:
        """The batch and the size of the input; what else it has is the model's."""
        return {"input": (self.batch, *(self.given.dim for _ in self.given.axes))}

    @property
    def family(self) -> Family:
        """The traits that it shares with other models, such as whether attention is causal."""
        return CONFIGURATIONS[self.name][0]

    @property
    def given(self) -> Given:
        """The traits of the input."""
        return self.family.given

    def size_of(self, shape: Shape) -> int:
        """Returns the size of the input for a shape.

        Raises:
            WorkloadError: if the model takes no input of this size.
        """
        size = shape[self.given.dim]
        self._require(size)
        return size

    def _require(self, *sizes: int) -> None:
        step = self.given.step
        for size in sizes:
            if size % step:
                rule = f"{self.given.dim} of {self.name} must be a multiple of {step}"
                raise WorkloadError(rule, size, f"For example {size + step - size % step}.")

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
        most = self.given.most(found)
        if most is not None and self.range.high > most:
            raise WorkloadError(f"{self.name} takes at most {most} {self.given.unit}", self.range.high)
        return found

    def build(self) -> torch.nn.Module:
        """Returns the model, ready for inference: ``model(self.input(shape))[0]`` is the last hidden state,
        ``[batch, T, hidden]`` or ``[batch, channels, height, width]``.

        Raises:
            MissingDependencyError: without PyTorch or ``transformers``.
            WorkloadError: if the model has no position for the largest input.
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
            _draw_statistics(model)
        if self.given is SPEECH:
            model = encoder_of(model)
        if self.given is IMAGES:
            model = model.to(memory_format=torch.channels_last)  # as PyTorch computes convolutions fastest
        built: torch.nn.Module = model.train(False)
        return built

    def input(self, shape: Shape) -> torch.Tensor:
        """Returns a random input, the same for the same shape: words ``[batch, T]``, images
        ``[batch, colours, side, side]`` or a spectrum ``[batch, bands, frames]``."""
        import torch

        size = self.size_of(shape)
        generator = torch.Generator().manual_seed(SEED + size)
        return self.given.make(self.configuration, self.batch, size, generator)

    def layers(self) -> Layers:
        """Returns the numbers of dense layers that a token passes, by (N, K); of a layer's experts only the
        chosen ones count.
        """
        return self.family.layers(self.configuration)

    def rows(self, shape: Shape) -> int:
        """Returns the number of rows of the dense layers."""
        return self.batch * self.family.rows(self.size_of(shape))

    def flops(self, shape: Shape) -> int:
        """Returns the number of floating-point operations of dense layers, convolutions and both batched
        products."""
        if self.given is not WORDS:
            return counted_flops(self, shape)
        c, length = self.configuration, self.size_of(shape)
        dense = sum(count * 2 * n * k for (n, k), count in self.layers().items()) * length
        pairs = length * (length + 1) // 2 if self.family.causal else length * length
        return int(self.batch * (dense + c.num_hidden_layers * 4 * pairs * c.hidden_size))

    def to_json(self) -> dict[str, Any]:
        """Returns the model as a JSON value."""
        sizes = [self.range.low, self.range.high]
        about = {"operator": self.name, self.given.dim: sizes, "batch": self.batch}
        return {**about, "weights": self.weights, "dtype": "float32"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Model:
        """Returns the model of a JSON value made by :meth:`to_json`."""
        named = cls(value["operator"], value["batch"], weights=value["weights"])
        return replace(named, sizes=Dim(*value[named.given.dim]))

    def __str__(self) -> str:
        return f"{self.name} {self.given.dim}={self.range} batch={self.batch}"


def _draw_statistics(model: torch.nn.Module) -> None:
    """Gives batch norms means and variances, which a model without training lacks."""
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)


def counted_flops(model: Model, shape: Shape) -> int:
    """Returns the number of floating-point operations that PyTorch counts in a call, without computing it."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.build()(torch.empty(model.input(shape).shape))
    return int(counter.get_total_flops())


def encoder_of(whisper: torch.nn.Module) -> torch.nn.Module:
    """Returns the encoder of a Whisper with the same layers, for speech of any length: that of
    ``transformers`` takes 30 s."""
    import torch

    class Encoder(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, given: torch.nn.Module) -> None:
            super().__init__()
            gelu = torch.nn.GELU()
            self.front = torch.nn.Sequential(given.conv1, gelu, given.conv2, gelu)
            self.positions, self.layers, self.norm = given.embed_positions, given.layers, given.layer_norm

        def forward(self, spectrum: torch.Tensor) -> tuple[torch.Tensor]:
            hidden = self.front(spectrum).permute(0, 2, 1)
            hidden = hidden + self.positions.weight[: hidden.shape[1]]
            for layer in self.layers:
                hidden = layer(hidden, None)
            return (self.norm(hidden),)

    return Encoder(whisper.encoder)

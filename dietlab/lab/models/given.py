"""Inputs of models: words, images, or the spectrum of speech, each of any size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dietlab.problem.dims import Dim

if TYPE_CHECKING:
    import torch


BEYOND = 7
"""Steps by which the example of images or speech exceeds the smallest size; the tokens of one of words."""


@dataclass(frozen=True)
class Given:
    """The first argument of a model.

    Args:
        dim: the name of the size that calls differ in.
        unit: that size in words.
        axes: the argument's axes of that size.
        sizes: the usual range of sizes.
        step: the number that divides all sizes.
        lengths: usual sizes, as text for ``--shapes``.
        names: OpenVINO's names of the inputs; the second is a mask of ones.
        most: the largest size that a configuration allows; None for any.
        make: makes the argument of a call from a configuration, the batch, the size, and a generator of
            random numbers.
        example: returns the size of the example with which a model is traced, for a range of sizes: not 1,
            which PyTorch would take for a constant, and not the size of any layer.
    """

    dim: str
    unit: str
    axes: tuple[int, ...]
    sizes: Dim
    step: int
    lengths: str
    names: tuple[str, ...]
    most: Callable[[Any], int | None]
    make: Callable[[Any, int, int, Any], torch.Tensor]
    example: Callable[[Dim], int]


def _words(c: Any, batch: int, length: int, generator: Any) -> torch.Tensor:
    import torch

    return torch.randint(c.vocab_size, (batch, length), generator=generator)


def _signals(channels: str, axes: tuple[int, ...]) -> Callable[[Any, int, int, Any], torch.Tensor]:
    """Returns a function that makes random images or spectra.

    Args:
        channels: the name of their number of channels in a configuration.
        axes: the axes of their size.
    """

    def make(c: Any, batch: int, size: int, generator: Any) -> torch.Tensor:
        import torch

        made = torch.randn(batch, getattr(c, channels), *[size] * len(axes), generator=generator)
        return made.contiguous(memory_format=torch.channels_last) if len(axes) == 2 else made

    return make


WORDS = Given(
    dim="T",
    unit="tokens",
    axes=(1,),
    sizes=Dim(1, 128),
    step=1,
    lengths="paper",
    names=("input_ids", "attention_mask"),
    most=lambda c: c.max_position_embeddings,
    make=_words,
    example=lambda sizes: BEYOND,
)
IMAGES = Given(
    dim="side",
    unit="pixels",
    axes=(2, 3),
    sizes=Dim(64, 320),
    step=1,
    lengths="128,160,200,224,256,277,320",
    names=("pixel_values",),
    most=lambda c: None,
    make=_signals("num_channels", (2, 3)),
    example=lambda sizes: sizes.low + BEYOND,
)
SPEECH = Given(
    dim="frames",
    unit="frames of 10 ms",
    axes=(2,),
    sizes=Dim(4, 1000),
    step=2,
    lengths="100,232,500,778,1000",
    names=("input_features",),
    most=lambda c: 2 * c.max_source_positions,
    make=_signals("num_mel_bins", (2,)),
    example=lambda sizes: sizes.low + 2 * BEYOND,
)

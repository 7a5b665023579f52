"""The convolutions of Whisper's and wav2vec 2.0's fronts, over sequences."""

from __future__ import annotations

from functools import partial

from dietlab.problem.networks.walk import Image, Network, Size, Walk

BINS = 80
"""Whisper's mel bands: the channels of its input, in frames of 10 ms (section 2.2)."""

WHISPER = {"tiny": 384, "base": 512, "small": 768, "medium": 1024, "large": 1280}
"""Channels of each size of Whisper (table 1)."""

WAV2VEC2 = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
"""Kernel and stride of each layer of wav2vec 2.0's feature encoder (section 4.2)."""

WAV2VEC2_CHANNELS = 512
"""Channels of each of these layers."""

SAMPLES = 160
"""Samples of a frame of 10 ms at 16 kHz, wav2vec 2.0's input."""


def whisper(width: int, walk: Walk, size: Size) -> None:
    """Calls both convolutions in front of Whisper's encoder (section 2.2)."""
    walk.conv(walk.conv(Image(size, BINS), width, kernel=3), width, kernel=3, stride=2)


def wav2vec2(walk: Walk, size: Size) -> None:
    """Calls the seven convolutions of wav2vec 2.0's feature encoder, none of them padded."""
    image = Image(size, 1)
    for kernel, stride in WAV2VEC2:
        image = walk.conv(image, WAV2VEC2_CHANNELS, kernel, stride, padding=0)


SPEECH = {
    **{
        f"whisper-{name}": Network(
            "Radford et al. 2022, Robust Speech Recognition via Large-Scale Weak Supervision, section 2.2 "
            "and table 1",
            partial(whisper, width),
            "speech",
        )
        for name, width in WHISPER.items()
    },
    "wav2vec2": Network(
        "Baevski et al. 2020, wav2vec 2.0: A Framework for Self-Supervised Learning of Speech "
        "Representations, section 4.2",
        wav2vec2,
        "speech",
        step=SAMPLES,
    ),
}
"""Networks of 1-D convolutions; their usual lengths are those of the traffic table ``speech``."""

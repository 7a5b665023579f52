"""The lengths that suites are tuned for and evaluated on, by effort."""

from __future__ import annotations

from collections.abc import Mapping

from dietlab.base.errors import DietlabError

PAPER_LENGTHS = (5, 24, 43, 62, 81, 100, 119, 128)
"""The eight lengths of the paper's evaluation (DietCode, section 5)."""
LONG_LENGTHS = (256, 512, 1024, 2048)
LONG_WEIGHT = 0.5
"""The weight of a long length in tuning, relative to a length of the paper: most sentences are short."""

LOW_PRECISION_QUICK = (1, 5, 16, 24, 43, 64, 100, 128)

QUICK_LENGTHS = (
    1, 2, 3, 5, 8, 13, 16, 17, 24, 31, 32, 43, 48, 56, 61, 64, 81, 96, 97, 104, 113, 120, 127, 128,
    131, 136, 256, 504, 509, 512, 1021, 2048,
)  # fmt: skip
"""Evaluated lengths of the effort ``quick``: ends of the range, tuned lengths, multiples of 8, and primes
between two evaluated multiples of 8."""
BEYOND_128 = (
    129, 131, 136, 144, 160, 191, 192, 200, 251, 256, 257, 320, 384, 504, 509, 512, 640, 768, 1000,
    1021, 1024, 1536, 2039, 2048,
)  # fmt: skip
LENGTHS: Mapping[str, tuple[int, ...]] = {
    "smoke": (1, 7, 8, 13, 16, 128),
    "quick": QUICK_LENGTHS,
    "full": (*range(1, 129), *BEYOND_128),
}
"""Evaluated lengths by the bench's effort; a task leaves out those beyond its range."""

PAPER_ROWS = 16
"""The number of sentences in a batch of the paper's dense layers: a length T has 16 T rows (section 5)."""
PAPER_CPU_LENGTHS: Mapping[str, tuple[int, ...]] = {
    "smoke": (5, 128),
    "quick": PAPER_LENGTHS,
    "full": PAPER_LENGTHS,
}
PAPER_GPU_LENGTHS: Mapping[str, tuple[int, ...]] = {
    "smoke": (5, 128),
    "quick": tuple(sorted({1, 2, 4, 8, 16, 32, *PAPER_LENGTHS})),
    "full": tuple(range(1, 129)),
}
LLM_GPU_LENGTHS: Mapping[str, tuple[int, ...]] = {
    "smoke": (1, 100, 512),
    "quick": (1, 2, 4, 8, 16, 17, 32, 64, 100, 127, 128, 256, 384, 509, 512, 1024, 2039, 4096),
    "full": (*range(1, 513), 640, 768, 1000, 1021, 1024, 1536, 2039, 2048, 3072, 4093, 4096),
}
"""Evaluated lengths of a served model, by effort. ``full`` has every length of a serving batch, and a sample
of prompts' lengths."""
LLM_TUNED = (
    *((length, 1.0) for length in (1, 16, 32, 64, 96, 128, 192, 256, 384, 512)),
    *((length, LONG_WEIGHT) for length in (768, 1024, 2048, 4096)),
)
"""Tuned lengths of a served model, with weights: powers of two, and lengths between them. At 384 rows a wave
of blocks has room for three row tiles of 128; the best tiles there are best at no power of two."""

LAYER_LENGTHS: Mapping[str, tuple[int, ...]] = {
    "smoke": (1, 24),
    "quick": (1, 5, 24, 61, 128, 509),
    "full": (1, 2, 5, 8, 16, 24, 32, 43, 61, 64, 97, 128, 131, 256, 300, 509, 1024, 2048),
}
"""Evaluated lengths of the tuned layers: ends of the range, tuned lengths and primes."""
HELD_OUT_LENGTHS: Mapping[str, tuple[int, ...]] = {
    "smoke": (17,),
    "quick": (2, 17, 100, 300),
    "full": (1, 2, 8, 17, 31, 64, 100, 127, 300, 1000),
}
"""Evaluated lengths of the held-out layers."""
OWN_LIBRARIES: Mapping[str, tuple[int, int]] = {"smoke": (1, 1), "quick": (3, 3), "full": (4, 12)}
"""The number of BERT's layers, and the number of held-out layers, with an own library, by effort. Each
library takes one to two minutes of tuning."""


def lengths_named(effort: str, lengths: Mapping[str, tuple[int, ...]] = LENGTHS) -> tuple[int, ...]:
    """Returns the lengths of an effort, or raises :class:`DietlabError` if the table has no such effort."""
    if effort not in lengths:
        raise DietlabError(f"an effort of the bench is one of {', '.join(lengths)}", repr(effort))
    return lengths[effort]


BERT_GPU_LENGTHS: Mapping[str, tuple[int, ...]] = {
    effort: tuple(PAPER_ROWS * length for length in lengths)
    for effort, lengths in {
        "smoke": (8, 112),
        "quick": (8, 56, 112),
        "full": (1, 3, 8, 13, 31, 48, 56, 64, 72, 97, 112, 127),
    }.items()
}
"""Evaluated rows of BERT's layers by one library on a GPU, by effort. Tuning sees none of these."""
DECODER_LENGTHS: Mapping[str, tuple[int, ...]] = {
    "smoke": (8, 300),
    "quick": (8, 80, 300),
    "full": (2, 8, 24, 48, 80, 112, 160, 224, 300, 448, 640, 1536),
}
"""Evaluated rows of a decoder's layers by one library on a GPU, by effort. Tuning sees none of these."""
NO_LIBRARIES = dict.fromkeys(BERT_GPU_LENGTHS, (0, 0))
"""No library for a single layer, by effort: visits of a GPU are too short to tune for each."""

"""Makes ``speech.csv``: lengths of read English utterances in frames of 10 ms.

    python data/traffic/make_speech.py list/dev-clean-1mix.jsonl list/test-clean-1mix.jsonl > speech.csv

The files are LibriSpeechMix's lists of one speaker at a time, with each utterance of LibriSpeech's
dev-clean and test-clean once. A frame is 160 samples at 16 kHz, as in Whisper's spectrogram (Radford
et al. 2022, section 2.2); what is left at the end, under a frame, does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SAMPLES_PER_SECOND = 16_000
FRAME = 160
HEADER = """\
# Lengths of read English utterances in frames of 10 ms: LibriSpeech, dev-clean and test-clean.
# Source: LibriSpeech (Panayotov et al. 2015), openslr.org/12, CC BY 4.0; durations as listed by
# github.com/NaoyukiKanda/LibriSpeechMix, MIT. Licence of this table: CC BY 4.0. How it was made:
# data/traffic/README.md.
extent,count
"""


def seconds(path: Path) -> Iterator[float]:
    """The duration of every utterance of a list."""
    for line in path.read_text(encoding="utf-8").splitlines():
        (duration,) = json.loads(line)["durations"]
        yield duration


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lists", type=Path, nargs="+")
    samples = [
        round(duration * SAMPLES_PER_SECOND)
        for path in parser.parse_args().lists
        for duration in seconds(path)
    ]
    counts = Counter(count // FRAME for count in samples)
    sys.stdout.write(HEADER + "".join(f"{extent},{counts[extent]}\n" for extent in sorted(counts)))
    mean = sum(samples) / len(samples) / SAMPLES_PER_SECOND
    print(f"{len(samples)} utterances, mean {mean:.2f} s", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Makes ``bert.csv``: lengths of English sentences in BERT's tokens.

    python data/traffic/make_bert.py vocab.txt UD_English-EWT/not-to-release/sources > bert.csv

Needs the package ``tokenizers``, and the vocabulary of bert-base-uncased. A length counts [CLS] and
[SEP]; a longer sentence is cut to 128, as is usual when BERT is tuned for sentences.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tokenizers import BertWordPieceTokenizer

LONGEST = 128
WORD_PIECES = 30522
TEXT = "# text = "
HEADER = """\
# Lengths of English sentences in word pieces of bert-base-uncased, with [CLS] and [SEP], cut to 128.
# Source: Universal Dependencies English Web Treebank 2.15, github.com/UniversalDependencies/UD_English-EWT,
# CC BY-SA 4.0. Licence of this table: CC BY-SA 4.0. How it was made: data/traffic/README.md.
extent,count
"""


def sentences(folder: Path) -> Iterator[str]:
    """The texts of a treebank's files in the CoNLL-U format."""
    for path in sorted(folder.rglob("*.xml.conllu")):
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.startswith(TEXT):
                yield line[len(TEXT) :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("treebank", type=Path)
    given = parser.parse_args()
    words = given.vocabulary.read_text(encoding="utf-8").split("\n")[:WORD_PIECES]
    tokenizer = BertWordPieceTokenizer({word: i for i, word in enumerate(words)}, lowercase=True)
    lengths = [len(tokenizer.encode(text).ids) for text in sentences(given.treebank)]
    counts = Counter(min(length, LONGEST) for length in lengths)
    sys.stdout.write(HEADER + "".join(f"{extent},{counts[extent]}\n" for extent in sorted(counts)))
    cut = sum(length > LONGEST for length in lengths)
    mean = sum(lengths) / len(lengths)
    print(f"{len(lengths)} sentences, mean {mean:.1f} tokens, {cut} cut", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Tag parts of speech with and without ELMo, to measure the gain from a biLM (after Peters et al. 2018).

    python examples/pos_tagging.py --train ud-en-ewt/en_ewt-ud-train.conllu \
        --dev ud-en-ewt/en_ewt-ud-dev.conllu --test ud-en-ewt/en_ewt-ud-test.conllu \
        --save-dir run --results pos.json

Takes CoNLL-U files, such as Universal Dependencies English EWT, and a biLM: a run directory, or weights and
their options. Trains the taggers of `tagging.py` to predict universal tags (UPOS) on fractions of the
training sentences, and prints a Markdown table of test accuracies. `--ablations` trains the taggers of the
paper's tables 2, 3 and 6 instead: ELMo at the output only, mixes kept nearly even by an L2 term of 1, and
each LSTM layer of the biLM alone.
"""

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from tagging import Sentence, Tags, Task, tagging_command

from bilm.errors import BilmError, DataError
from bilm.io.lines import read_lines


def read_conllu(path: Path) -> list[Sentence]:
    """Read words and universal tags of a CoNLL-U file.

    Multiword tokens (1-2) and empty nodes (1.1) are skipped.

    Raises:
        DataError: the file cannot be read, has no sentences, or is not CoNLL-U.
    """
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        fields = line.split("\t")
        if len(fields) == 10 and fields[0].isdigit():
            words.append(fields[1].replace(" ", "_"))  # a few languages have words with spaces
            tags.append(fields[3])
        elif not line.strip() and words:
            sentences.append(Sentence(words, tags))
            words, tags = [], []
        elif line.strip() and not line.startswith("#") and len(fields) != 10:
            raise DataError(f"{path} line {number}: has {len(fields)} fields, CoNLL-U has 10")
    if not sentences:
        raise DataError(f"{path}: there are no sentences in it")
    return sentences


def accuracy(gold: Tags, predicted: Tags, counted: Sequence[Sequence[bool]]) -> float:
    """Return the share of correct tags among the words that count, 0 where none does."""
    words = zip(*map(chain.from_iterable, (gold, predicted, counted)), strict=True)
    hits = [tag == guess for tag, guess, counts in words if counts]
    return sum(hits) / max(1, len(hits))


main = tagging_command(Task("CoNLL-U", read_conllu, "accuracy", accuracy), __doc__)

if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")

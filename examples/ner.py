"""Recognise named entities with and without ELMo, to measure the gain from a biLM (after Peters et al. 2018).

    python examples/ner.py --train eng.train --dev eng.testa --test eng.testb \
        --save-dir run --results ner.json

Takes files in the form of CoNLL 2003: a word per line, in the first column, with its tag in the last, and an
empty line after each sentence. Tags are O, B-TYPE and I-TYPE; where an entity begins with I-TYPE, as in the
first release of CoNLL 2003, it is read as B-TYPE. Trains the taggers of `tagging.py` on fractions of the
training sentences, and prints a Markdown table of F1 on entities: an entity is right if its first word, its
last word and its type are. Predicted tags are the most probable of each word, without a CRF.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tagging import Sentence, Tags, Task, tagging_command

from bilm.errors import BilmError, DataError
from bilm.io.lines import read_lines

Entity = tuple[int, int, str]  # first word, word after the last, type


def entities(tags: Sequence[str]) -> set[Entity]:
    """Return the entities of a sentence; I-TYPE after anything but TYPE begins one, as in conlleval."""
    spans: set[Entity] = set()
    first, name = 0, ""
    for i, tag in enumerate([*tags, "O"]):
        prefix, _, own = tag.partition("-")
        if prefix != "I" or own != name:
            if name:
                spans.add((first, i, name))
            first, name = i, own
    return spans


def f1(gold: Tags, predicted: Tags, counted: Sequence[Sequence[bool]]) -> float:
    """Return F1 on the entities that have a word that counts, 0 where there are none."""
    n_right = n_entities = 0
    for tags, guesses, counts in zip(gold, predicted, counted, strict=True):
        right, guessed = (
            {entity for entity in entities(row) if any(counts[entity[0] : entity[1]])}
            for row in (tags, guesses)
        )
        n_right += len(right & guessed)
        n_entities += len(right) + len(guessed)
    return 2 * n_right / max(1, n_entities)


def read_conll(path: Path) -> list[Sentence]:
    """Read words and entity tags of a CoNLL file, each entity from B-TYPE on; -DOCSTART- lines are skipped.

    Raises:
        DataError: the file cannot be read, has no sentences, or a line of another form.
    """
    sentences: list[Sentence] = []
    words: list[str] = []
    tags: list[str] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        fields = line.split()
        if fields and fields[0] != "-DOCSTART-":
            prefix, _, name = fields[-1].partition("-")
            if len(fields) < 2 or not (fields[-1] == "O" or (prefix in ("B", "I") and name)):
                raise DataError(f"{path} line {number}: is not WORD ... O, B-TYPE or I-TYPE: {line[:60]!r}")
            begins = prefix == "I" and (tags[-1:] or ["O"])[0][2:] != name
            words.append(fields[0])
            tags.append(f"B-{name}" if begins else fields[-1])
        elif words:
            sentences.append(Sentence(words, tags))
            words, tags = [], []
    if not sentences:
        raise DataError(f"{path}: there are no sentences in it")
    return sentences


main = tagging_command(Task("CoNLL", read_conll, "F1", f1), __doc__)

if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")

from pathlib import Path

import numpy as np
import pytest

from bilm.cli.shared import describe_corpus
from bilm.data.corpus import CorpusCounts
from tests.helpers import HELDOUT, TRAIN, VOCAB, refuse


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", ""),
        ("train", "--train-prefix", "", "--vocab-file", VOCAB, "--save-dir", "run"),
        (
            "train",
            "--train-prefix",
            TRAIN,
            "--vocab-file",
            VOCAB,
            "--save-dir",
            "run",
            "--heldout-prefix",
            "",
        ),
        ("restart", "--train-prefix", TRAIN, "--save-dir", "run", "--save-to", ""),
        ("vocab", "build", "--train-prefix", TRAIN, "--outfile", ""),
        ("dump-weights", "--save-dir", "run", "--outfile", ""),
        ("embed", "", "out.hdf5", "--save-dir", "run"),
        ("info", ""),
        ("test", "--test-prefix", HELDOUT, "--save-dir", ""),
    ],
)
def test_an_empty_name_is_refused(arguments):
    message = refuse(*arguments, status=2)
    assert message.startswith("Invalid value for ") and message.endswith("is a variable not set?")


def test_nul_bytes_are_told_of_on_a_line_of_their_own():
    counts = CorpusCounts(2, 3, 0, 10, 1, np.array([3, 3, 1, 9]))
    assert describe_corpus(counts).splitlines() == [
        "corpus: 2 files, 3 sentences, 13 tokens with sentence ends, OOV 10.00%"
    ]
    counts = CorpusCounts(2, 3, 0, 10, 1, np.array([3, 3, 1, 9]), 4812, (Path("a/b.gz"), 1234))
    assert describe_corpus(counts).splitlines()[1:] == [
        "warning: 4,812 NUL bytes in the text, first at a/b.gz line 1234; kept as characters"
    ]

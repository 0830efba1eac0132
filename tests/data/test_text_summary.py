from pathlib import Path

import numpy as np

from bilm.data.corpus import CorpusCounts, describe_corpus


def test_nul_bytes_are_told_of_on_a_line_of_their_own():
    counts = CorpusCounts(2, 3, 0, 10, 1, np.array([3, 3, 1, 9]))
    assert describe_corpus(counts) == [
        "corpus: 2 files, 3 sentences, 13 tokens with sentence ends, OOV 10.00%"
    ]
    counts = CorpusCounts(2, 3, 0, 10, 1, np.array([3, 3, 1, 9]), 4812, (Path("a/b.gz"), 1234))
    assert describe_corpus(counts)[1:] == [
        "warning: 4,812 NUL bytes in the text, first at a/b.gz line 1234; kept as characters"
    ]

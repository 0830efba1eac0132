import json

import pytest

from bilm.data.corpus import corpus_record, count_corpus, recorded_counts
from bilm.errors import CheckpointError, DataError
from tests.corpora import WORDS, write


def test_a_record_gives_the_counts_again(tmp_path, monkeypatch):
    path = write(tmp_path / "text", "a b d\n\nc\n")
    counts = count_corpus([path], WORDS)
    monkeypatch.chdir(tmp_path.parent)
    record = json.loads(json.dumps(corpus_record(counts)))
    again = recorded_counts(record, [path])
    names = ("n_files", "n_sentences", "n_blank_lines", "n_words", "n_oov", "n_tokens", "oov_rate", "shards")
    assert [getattr(again, name) for name in names] == [getattr(counts, name) for name in names]
    assert corpus_record(again) == record
    write(path, "a b d\n\na\n")
    with pytest.raises(DataError, match="text: the file has changed"):
        recorded_counts(record, [path])


@pytest.mark.parametrize("record", [5, [], {"shards": "x"}, {"shards": [{}], "n_words": "x"}, {"text": "x"}])
def test_a_damaged_record(record):
    with pytest.raises(CheckpointError, match="not a valid record of a text: text"):
        recorded_counts(record, [])

import pytest

from bilm.errors import VocabularyError
from bilm.vocabulary.file import write_vocabulary


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "vocab.txt"
    write_vocabulary(["a", "b"], path)
    for bad in ("", "a b", "a\n", "!!!MAXTERMID", "\ud800"):
        with pytest.raises(VocabularyError, match="vocab.txt: "):
            write_vocabulary(["c", bad], path)
    assert path.read_bytes() == b"a\nb\n" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(VocabularyError, match="cannot be written: No such file"):
        write_vocabulary(["a"], tmp_path / "none" / "vocab.txt")

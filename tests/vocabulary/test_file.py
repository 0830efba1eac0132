import pytest

from bilm.errors import VocabularyError
from bilm.vocabulary.file import vocabulary_lines, write_vocabulary


def test_only_line_ends_end_a_line():
    data = "a\x85b\nc\u2028d\re\r\nf".encode()
    assert vocabulary_lines(data, "vocab") == ["a\x85b", "c\u2028d", "e", "f"]


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "vocab.txt"
    write_vocabulary(["a", "b"], path)
    for bad in ("", "a b", "a\n", "!!!MAXTERMID", "\ud800"):
        with pytest.raises(VocabularyError, match="vocab.txt: "):
            write_vocabulary(["c", bad], path)
    assert path.read_bytes() == b"a\nb\n" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(VocabularyError, match="cannot be written: No such file"):
        write_vocabulary(["a"], tmp_path / "none" / "vocab.txt")

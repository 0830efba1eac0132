import os
import stat

import pytest

from bilm.errors import DataError, VocabularyError
from bilm.vocabulary.file import vocabulary_lines, write_vocabulary


def test_only_line_ends_end_a_line():
    data = "a\x85b\nc\u2028d\re\r\nf".encode()
    assert vocabulary_lines(data, "vocab") == ["a\x85b", "c\u2028d", "e", "f"]


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "vocab.txt"
    write_vocabulary(["a", "b"], path)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    for bad in ("", "a b", "a\n", "!!!MAXTERMID", "\ud800"):
        with pytest.raises(VocabularyError, match="vocab.txt: "):
            write_vocabulary(["c", bad], path)
    assert path.read_bytes() == b"a\nb\n"
    with pytest.raises(VocabularyError, match="cannot be written: No such file"):
        write_vocabulary(["a"], tmp_path / "none" / "vocab.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match="folder: is a directory; give the name of a file"):
        write_vocabulary(["a"], tmp_path / "folder")
    assert sorted(os.listdir(tmp_path)) == ["folder", "vocab.txt"]

"""`bilm vocab build` and `bilm vocab check`."""

import pytest

from bilm.io import lines
from tests.helpers import HELDOUT, TRAIN, VOCAB, combined_perplexity, invoke, refuse, run, train_command

TEXT = "the cat saw the dog\n\nthe dog saw a cat\r\nthe zebra\n"
# counts: the 4, cat 2, dog 2, saw 2, a 1, zebra 1


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


def test_build_and_check(text, tmp_path):
    outfile = tmp_path / "vocab.txt"
    build = ("vocab", "build", "--train-prefix", text, "--outfile", outfile)
    output = run(*build, "--min_count", 2)
    assert outfile.read_bytes() == b"<S>\n</S>\n<UNK>\nthe\ncat\ndog\nsaw\n"
    assert "12 tokens, 6 types (1 blank line skipped)" in output and "83.33%" in output  # 10 of 12
    assert refuse(*build) == f"{outfile}: exists; --overwrite replaces it"
    text.write_bytes(TEXT.replace("cat", "cafe\u0301").encode())
    run(*build, "--max-size", 5, "--overwrite", "--form", "none")
    assert outfile.read_text().split()[3:] == ["the", "cafe\u0301"]
    text.write_bytes(TEXT.encode())
    assert "50.00%" in run(*build, "--max-size", 5, "--overwrite")
    assert outfile.read_text().split()[3:] == ["the", "cat"]
    assert run("vocab", "check", outfile) == f"{outfile}: no problems found\n"
    output = run("vocab", "check", outfile, "--train-prefix", text)
    assert (
        "50.00% unknown words" in output and "warning: " in output and "50% of the words are not in" in output
    )


def test_second_build_is_refused(text, tmp_path, monkeypatch):
    outfile, read = tmp_path / "vocab.txt", lines.read_lines
    build = ("vocab", "build", "--train-prefix", text, "--outfile", outfile)

    def meanwhile(*arguments):
        monkeypatch.undo()
        assert f"{outfile}: is being written by host" in refuse(*build)
        return read(*arguments)

    monkeypatch.setattr(lines, "read_lines", meanwhile)
    run(*build)


def test_build_refuses_its_corpus(text, tmp_path):
    (tmp_path / "link").symlink_to(text)
    for outfile in (text, tmp_path / "link"):
        command = ("vocab", "build", "--train-prefix", tmp_path / "t*", "--outfile", outfile, "--overwrite")
        assert "is one of the files that are read; give another path" in refuse(*command)

    assert text.read_bytes() == TEXT.encode()
    outfile = tmp_path / "vocab.txt"
    message = refuse("vocab", "build", "--train-prefix", tmp_path, "--outfile", outfile)
    assert message == f"{outfile}: is part of {tmp_path}, which is read; give a path outside it"
    (tmp_path / "loop").symlink_to("loop")
    message = refuse("vocab", "build", "--train-prefix", text, "--outfile", tmp_path / "loop")
    assert message == f"{tmp_path}/loop: Too many levels of symbolic links"


@pytest.mark.parametrize(
    ("content", "status", "finding"),
    [
        pytest.param(b"<S>\nthe\n", 1, "error: {path}: missing special tokens", id="error"),
        pytest.param(b"<S>\n</S>\n<UNK>\na\n\na\n", 0, "warning: {path}:5: blank line or", id="rows"),
        pytest.param(b"<S>\n</S>\nthe\n", 0, "warning: {path}: no <UNK>: a text with a word", id="warning"),
    ],
)
def test_check_finds(tmp_path, content, status, finding):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    result = invoke("vocab", "check", path)
    assert result.exit_code == status and finding.format(path=path) in result.output


def test_check_reads_a_text_in_the_form_of_the_vocabulary(tmp_path):
    text, path = tmp_path / "text.txt", tmp_path / "vocab.txt"
    text.write_text("e\u0301te\u0301 a", "utf-8")
    path.write_text("<S>\n</S>\n<UNK>\n\xe9t\xe9\na\n", "utf-8")
    assert ", 0.00% unknown words" in run("vocab", "check", path, "--text", text)


def test_check_refuses_unknown_words_without_unk(tmp_path):
    text, path = tmp_path / "text.txt", tmp_path / "vocab.txt"
    path.write_text("<S>\n</S>\na\n")
    text.write_text("a")
    assert ", 0.00% unknown words" in run("vocab", "check", path, "--text", text)
    text.write_text("a b")
    result = invoke("vocab", "check", path, "--text", text)
    assert result.exit_code == 1 and "warning:" in result.output
    assert f"error: {path}: 'b' is not in the vocabulary, which has no <UNK>" in result.output
    path.write_text("a\n")  # whose own error comes first
    assert "'b'" not in invoke("vocab", "check", path, "--text", text).output
    path.write_text("<S>\n</S>\n<UNK>\n\xe9\ne\u0301\n", "utf-8")
    assert run("vocab", "check", path, "--text", text).count("that look the same") == 1


@pytest.mark.slow
def test_blank_lines_are_read_as_in_bilm_tf(tmp_path, smallest_file, caplog):
    """They are rows that no text uses, as those of other words would be."""
    words, odd, plain = VOCAB.read_text().split("\n"), tmp_path / "odd.txt", tmp_path / "plain.txt"
    words[40:40] = ["", "the"]
    odd.write_text("\n".join(words))
    plain.write_text(
        "\n".join(word or f"unused-{k}" for k, word in enumerate(words[:-1])).replace("the", "o", 1)
    )
    path, new = tmp_path / "run", ("--train-prefix", TRAIN, "--max-steps", 1, "--seed", 7)
    run(*train_command(path, smallest_file(), "--max-steps", 1, "--seed", 7, vocab=odd))
    assert caplog.text.count("odd.txt: blank line or repeated word") == 1
    assert "the" in run("predict", HELDOUT, "--model", path, "--context", "left")
    for file in path.glob("vocab.txt*"):  # bilm-tf's directories have no copy
        file.unlink()
    tested, other = (
        combined_perplexity(run("test", "--model", path, "--test-prefix", HELDOUT, "--vocab-file", file))
        for file in (odd, plain)
    )
    assert tested == other
    assert "step 1" in run("restart", "--model", path, "--vocab-file", odd, *new)
    assert (path / "vocab.txt").read_text() == odd.read_text()

"""`bilm vocab build` and `bilm vocab check`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers import invoke, refuse, run

TEXT = "the cat saw the dog\n\nthe dog saw a cat\r\nthe zebra\n"
# counts: the 4, cat 2, dog 2, saw 2, a 1, zebra 1


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


@pytest.fixture
def build(text, tmp_path):
    def call(*flags):
        outfile = tmp_path / "vocab.txt"
        return run("vocab", "build", "--train-prefix", text, "--outfile", outfile, *flags), outfile

    return call


def test_words_come_by_descending_count_and_ties_by_code_point(build, text):
    output, outfile = build()
    words = ["<S>", "</S>", "<UNK>", "the", "cat", "dog", "saw", "a", "zebra"]
    assert outfile.read_bytes() == "".join(f"{word}\n" for word in words).encode()
    assert "12 tokens, 6 types (1 blank line skipped)" in output
    assert "9 words" in output and "100.00%" in output
    assert run("vocab", "check", outfile) == f"{outfile}: no problems found\n"
    output = run("vocab", "check", outfile, "--train-prefix", text)
    assert "0 of 12 words of the corpus are out of vocabulary (0.00%)" in output
    assert "error" not in output and "warning" not in output


def test_min_count_and_max_size(build, text):
    output, outfile = build("--min_count", 2)
    assert outfile.read_text().split()[3:] == ["the", "cat", "dog", "saw"]
    assert "83.33%" in output  # 10 of 12
    message = refuse("vocab", "build", "--train-prefix", text, "--outfile", outfile)
    assert message == f"{outfile}: exists; --overwrite replaces it"
    output, outfile = build("--max-size", 5, "--overwrite")
    assert outfile.read_text().split()[3:] == ["the", "cat"]
    assert "12 tokens, 6 types" in output and "50.00%" in output


@pytest.mark.parametrize("how", ["repeated", "glob", "directory", "shell"])
def test_ways_to_name_several_files(tmp_path, how):
    shards = tmp_path / "shards"
    shards.mkdir()
    for name, line in (("a.txt", "one\n"), ("b.txt", "two\n"), ("c.txt", "three\n")):
        (shards / name).write_text(line)
    files = sorted(shards.iterdir())
    prefixes = {
        "repeated": [part for file in files for part in ("--train-prefix", file)],
        "glob": ["--train-prefix", shards / "*.txt"],
        "directory": ["--train-prefix", shards],
        "shell": ["--train-prefix", *files],
    }[how]
    assert "3 tokens" in run("vocab", "build", *prefixes, "--outfile", tmp_path / "v")


def test_build_does_not_write_over_its_corpus(text, tmp_path):
    (tmp_path / "link").symlink_to(text)
    for outfile in (text, tmp_path / "link"):
        command = ("vocab", "build", "--train-prefix", tmp_path / "t*", "--outfile", outfile, "--overwrite")
        assert "is an input and would be lost; give another name" in refuse(*command)
    words = ("vocab", "build", "--train-prefix", "-", "--overwrite", "--outfile", text)
    command = [sys.executable, "-m", "bilm", *map(str, words)]
    with text.open() as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"Error: {text}: standard input is an input and would be lost; give another name\n"
    assert text.read_bytes() == TEXT.encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"good\n\xff\n", "line 2: not UTF-8"), (b"\n\n", "the corpus is empty"), (None, "no file matches")],
    ids=["not-utf8", "blank", "missing"],
)
def test_build_of_bad_text_leaves_nothing(content, message, tmp_path):
    bad = tmp_path / "bad.txt"
    if content is not None:
        bad.write_bytes(content)
    assert message in refuse("vocab", "build", "--train-prefix", bad, "--outfile", tmp_path / "v")
    assert set(tmp_path.iterdir()) <= {bad}


@pytest.mark.parametrize(
    ("content", "status", "finding"),
    [
        pytest.param(b"<S>\nthe\n\nthe\n", 1, "{path}:3: the line is blank", id="error"),
        pytest.param(b"<S>\n</S>\nthe\n", 0, "warning: {path}: no <UNK>: a text with a word", id="warning"),
        pytest.param(None, 1, "Error: {path}: No such file or directory", id="missing"),
    ],
)
def test_check_finds(tmp_path, content, status, finding):
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_bytes(content)
    result = invoke("vocab", "check", path)
    assert result.exit_code == status and finding.format(path=path) in result.output


def test_check_against_a_corpus(text, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\nzebra\na\ncat\nthe\n")
    output = run("vocab", "check", path, "--train-prefix", text, "--max-characters", 5)
    assert "4 of 12 words of the corpus are out of vocabulary (33.33%)" in output
    assert "not in order of descending count" in output and "more than 3 bytes" in output

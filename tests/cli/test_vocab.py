"""`bilm vocab build` and `bilm vocab check`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers import TRAIN, VOCAB, invoke, refuse, run

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


def test_words_come_by_descending_count_and_ties_by_code_point(build):
    output, outfile = build()
    words = ["<S>", "</S>", "<UNK>", "the", "cat", "dog", "saw", "a", "zebra"]
    assert outfile.read_bytes() == "".join(f"{word}\n" for word in words).encode()
    assert "12 tokens, 6 types (1 blank line skipped)" in output
    assert "9 words" in output and "100.00%" in output


def test_min_count_and_max_size(build):
    output, outfile = build("--min-count", 2)
    assert outfile.read_text().split()[3:] == ["the", "cat", "dog", "saw"]
    assert "83.33%" in output  # 10 of 12
    output, outfile = build("--max-size", 5, "--overwrite")
    assert outfile.read_text().split()[3:] == ["the", "cat"]
    assert "12 tokens, 6 types" in output and "50.00%" in output


def test_underscored_flags(text, tmp_path):
    run("vocab", "build", "--train_prefix", text, "--outfile", tmp_path / "v", "--min_count", 2)
    assert len((tmp_path / "v").read_text().split()) == 7


def test_golden_vocabulary_is_a_subset_of_the_built_one(tmp_path):
    run("vocab", "build", "--train-prefix", TRAIN, "--outfile", tmp_path / "v")
    built = set((tmp_path / "v").read_text().split("\n"))
    assert built == set(TRAIN.read_text().split()) | {"<S>", "</S>", "<UNK>", ""}


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


def test_build_overwrites_only_when_told(build, text, tmp_path):
    _, outfile = build("--min-count", 2)
    before = outfile.read_bytes()
    message = refuse("vocab", "build", "--train-prefix", text, "--outfile", outfile)
    assert message == f"{outfile}: exists; --overwrite replaces it"
    assert outfile.read_bytes() == before
    _, outfile = build("--overwrite")
    assert outfile.read_bytes() != before


def test_build_does_not_write_over_its_corpus(text, tmp_path):
    before = text.read_bytes()
    (tmp_path / "link").symlink_to(text)
    for outfile in (text, tmp_path / "link"):
        command = ("vocab", "build", "--train-prefix", tmp_path / "t*", "--outfile", outfile, "--overwrite")
        assert "is an input and would be lost; give another name" in refuse(*command)
    code = "from bilm.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        code,
        "vocab",
        "build",
        "--train-prefix",
        "-",
        "--overwrite",
        "--outfile",
    ]
    with text.open() as stdin:
        done = subprocess.run([*command, text], stdin=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"Error: {text}: standard input is an input and would be lost; give another name\n"
    assert text.read_bytes() == before


@pytest.mark.parametrize("flags", [("--min-count", 0), ("--max-size", 3)])
def test_build_refuses_senseless_bounds(text, tmp_path, flags):
    message = refuse("vocab", "build", "--train-prefix", text, "--outfile", tmp_path / "v", *flags, status=2)
    assert flags[0] in message
    assert not (tmp_path / "v").exists()


def test_build_of_bad_text_leaves_nothing(tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\xff\n")
    message = refuse("vocab", "build", "--train-prefix", bad, "--outfile", tmp_path / "v")
    assert message.startswith(f"{bad}: line 2: not UTF-8")
    bad.write_text("\n\n")
    message = refuse("vocab", "build", "--train-prefix", bad, "--outfile", tmp_path / "v")
    assert "empty" in message
    message = refuse("vocab", "build", "--train-prefix", bad.with_name("none*"), "--outfile", tmp_path / "v")
    assert "no file matches" in message and "none*" in message
    assert list(tmp_path.iterdir()) == [bad]


def test_build_into_a_missing_directory(text, tmp_path):
    message = refuse("vocab", "build", "--train-prefix", text, "--outfile", tmp_path / "no" / "v")
    assert message == f"{tmp_path / 'no' / 'v'}: cannot be written: No such file or directory"


def test_check_a_good_vocabulary(build, text):
    _, outfile = build()
    assert run("vocab", "check", outfile) == f"{outfile}: no problems found\n"
    output = run("vocab", "check", outfile, "--train-prefix", text)
    assert "0 of 12 words of the corpus are out of vocabulary (0.00%)" in output
    assert "error" not in output and "warning" not in output


@pytest.mark.parametrize(
    ("content", "status", "finding"),
    [
        (b"<S>\nthe\n", 1, "missing special tokens: </S>, <UNK>"),
        (b"<S>\n</S>\nthe\n", 0, "no <UNK>: a text with a word"),
        (b"the\n<S>\n</S>\n<UNK>\n", 0, "not the first three lines"),
        (b"<S>\n</S>\n<UNK>\nthe\ncat\nthe\n", 1, "'the' is on lines 4 and 6"),
        (b"<S>\n</S>\n<UNK>\n\nthe\n", 1, "blank"),
        (b"<S>\n</S>\n<UNK>\nna\xefve\n", 1, "not UTF-8"),
        ("<S>\n</S>\n<UNK>\n".encode("utf-16"), 1, "convert it with iconv"),
        (b"<S>\n</S>\n<UNK>\n" + b"x" * 60 + b"\n", 0, "more than 48 bytes"),
        (b"<S>\n</S>\n<UNK>\nNew York\n", 0, "whitespace inside"),
        (b"", 1, "empty"),
    ],
)
def test_check_finds(tmp_path, content, status, finding):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    result = invoke("vocab", "check", path)
    assert result.exit_code == status, result.output
    lines = [line for line in result.output.splitlines() if finding in line]
    assert len(lines) == 1, result.output
    severity, place = lines[0].split(": ")[:2]
    assert (severity == "error") == (status == 1)
    assert place.startswith(str(path))


def test_check_reports_every_problem(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"<S>\nthe\n\nthe\n")
    result = invoke("vocab", "check", path)
    assert result.exit_code == 1
    for finding in ("</S>, <UNK>", "'the' is on lines 2 and 4", f"{path}:3: the line is blank"):
        assert finding in result.output


def test_check_against_a_corpus(text, tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("<S>\n</S>\n<UNK>\nzebra\na\ncat\nthe\n")
    result = invoke("vocab", "check", path, "--train-prefix", text)
    assert result.exit_code == 0
    assert "4 of 12 words of the corpus are out of vocabulary (33.33%)" in result.output
    assert "by descending count" in result.output


def test_check_of_the_golden_vocabulary_with_a_character_limit():
    assert "more than 8 bytes" in run("vocab", "check", VOCAB, "--max-characters", 10)


def test_check_takes_one_vocabulary(tmp_path):
    assert "extra argument" in refuse("vocab", "check", VOCAB, tmp_path / "other", status=2)
    message = refuse("vocab", "check", tmp_path / "none")
    assert message == f"{tmp_path / 'none'}: No such file or directory"

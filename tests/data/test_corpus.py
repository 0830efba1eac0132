import gzip
import json
import tomllib
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import bilm
from bilm.data import BidirectionalLMDataset, corpus
from bilm.errors import ArgumentError, CheckpointError, DataError, VocabularyError
from bilm.io import lines as text_module
from bilm.io.shards import find_files
from bilm.text.doubts import first_lines
from bilm.vocabulary.vocabulary import Vocabulary
from tests.corpora import MARKS, WORDS, write
from tests.helpers import VOCAB, smallest_options


def test_find_files(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", ".hidden", "a[1].txt", "a1.txt", "sub/c.txt"):
        write(tmp_path / name, "x")
    (tmp_path / "sub" / "above").symlink_to(tmp_path)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "sub").symlink_to(tmp_path / "sub")
    inner = tmp_path / "sub" / "c.txt"
    for patterns, names in [
        ([tmp_path], ["a.txt", "a1.txt", "a[1].txt", "b.txt", "c.txt"]),
        ([tmp_path / "[abs]*"], ["a.txt", "a1.txt", "a[1].txt", "b.txt", "c.txt"]),
        ([tmp_path / "a*.txt"], ["a.txt", "a1.txt", "a[1].txt"]),
        ([tmp_path / "a[1].txt"], ["a[1].txt"]),  # a file of that very name comes first
        ([tmp_path / "[ab].txt", inner, tmp_path / "a.txt"], ["a.txt", "b.txt", "c.txt"]),
        ([tmp_path / "linked"], ["c.txt"]),
    ]:
        assert [path.name for path in find_files(map(str, patterns))] == names
    for pattern in ("nothing*", "a.txt/x"):
        with pytest.raises(DataError, match="no file matches"):
            find_files([f"{tmp_path}/a.txt", f"{tmp_path}/{pattern}"])
    with pytest.raises(DataError, match="no input files"):
        find_files([])
    for target in ("none", "dangling"):
        link = tmp_path / "linked" / "dangling"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        for pattern in ("linked", "linked/*"):
            with pytest.raises(DataError, match=f"^{link}: is a link to {target}, which does not exist"):
                find_files([f"{tmp_path}/{pattern}"])


def test_backups_and_files_of_runs_are_no_text(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("a.txt", "a.txt~", "run/vocab.txt", "run/bilm-run.json", "run/b.txt"):
        write(tmp_path / name, "x")
    for pattern, names in [
        (tmp_path, ["a.txt", "b.txt"]),
        (tmp_path / "**" / "*.txt", ["a.txt", "b.txt"]),
        (run / "*.txt", ["b.txt"]),  # a text beside the files of a run
        (run / "vocab.txt", ["vocab.txt"]),  # given by its name
    ]:
        assert [path.name for path in find_files([str(pattern)])] == names
    with pytest.raises(DataError, match="no file matches"):
        find_files([str(run / "v*")])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [iter, np.array, lambda names: np.array([*map(Path, names)], object)])
def test_text_is_named_by_any_iterable(trained, tmp_path, kind):
    names = [str(write(tmp_path / name, "the owl sat\n" * 9)) for name in ("b", "a")]
    assert bilm.test(kind(names), trained).tokens == bilm.test(names, trained).tokens == 72
    dataset = BidirectionalLMDataset(kind(names), WORDS, test=True)
    assert dataset.filepattern == tuple(names)
    assert len(next(dataset.iter_batches(1, 4))) == 6
    path = tmp_path / "run"
    bilm.train(kind(names[:1]), VOCAB, path, options=smallest_options(batch_size=1), max_steps=1, seed=1)
    assert tomllib.loads((path / "run.toml").read_text())["train_prefix"] == names[:1]
    assert f"train_prefix={names[0]!r}" in (path / "calls.jsonl").read_text()


@pytest.mark.parametrize("text", [5, np.array("a"), b"a", "", [""], [None], ["a", 5]])
def test_text_of_another_kind_is_refused(text):
    with pytest.raises(ArgumentError, match="`test_prefix` is .*; expected files, directories or globs"):
        bilm.test(text, "run")


def test_run_is_refused_as_text(tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("checkpoint", "model.ckpt-400.index"):
        (tmp_path / "run" / name).touch()
    run, prefix = (str(tmp_path / name) for name in ("run", "run/model.ckpt-400"))
    directory = f"a run directory, which `bilm test` takes as `model` {run}"
    checkpoint = f"a checkpoint, which `bilm test` takes as `model` {run} `checkpoint` 400"
    (tmp_path / "corpus" / "train").mkdir(parents=True)
    write(tmp_path / "corpus" / "text.json", "{}")
    path = f"{tmp_path}/corpus"
    with pytest.raises(DataError, match=f"^{path}: .* a corpus, which `bilm train --corpus {path}` takes; i"):
        find_files([path])
    for path, what in ((run, directory), (prefix, checkpoint)):
        with pytest.raises(DataError, match=f"^{path}: is not a text but {what}$"):
            find_files([path])
        with pytest.raises(DataError, match=f"^{path}: is {what}$"):
            next(text_module.read_lines(path))


@pytest.mark.parametrize("block", [4, 1 << 20])
def test_counts(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    first = write(tmp_path / "1", "a b a d\n\nb\n")
    second = write(tmp_path / "2", gzip.compress(b"e <UNK>\r\n \r\n"))
    counts = corpus.count_corpus([first, second], WORDS)
    assert (counts.n_sentences, counts.n_blank_lines, counts.n_words, counts.n_oov) == (3, 2, 7, 2)
    assert counts.n_tokens == 10 and counts.oov_rate == 2 / 7 and counts.n_characters == 11 + 7
    np.testing.assert_array_equal(counts.word_counts, [3, 3, 3, 2, 2, 0])
    told = "corpus: 2 files, 3 sentences (2 blank lines skipped), 10 tokens with sentence ends, "
    told += "28.57% unknown words"
    assert corpus.describe_corpus(counts) == told


def test_shared_sentences_are_counted(tmp_path):
    heldout = [write(tmp_path / "heldout", "a b c\nb  c\na b c\na\n\n")]
    text = write(tmp_path / "text", "b c\n  a b c \n\na b c\na b\nb a\n")
    counts = corpus.count_corpus([text, text], WORDS, heldout)
    assert counts.n_shared == 6  # two of the four sentences; other spaces make another sentence
    assert corpus.count_corpus([text], WORDS).n_shared == 0
    vocabulary = Vocabulary.from_words([*MARKS, "\u00e9t", "e"])
    vocabulary.unicode_form = "NFC"
    forms = [write(tmp_path / f"form-{k}", word) for k, word in enumerate(("e\u0301t", "\u00e9t"))]
    assert [corpus.count_corpus([text], vocabulary, forms[:1]).n_shared for text in forms] == [1, 1]


def test_text_is_read_in_the_order_of_bilm_tf(tmp_path):
    files = [write(tmp_path / name, text) for name, text in (("1", "a\n\nb\n"), ("2", "c\n"))]
    text = corpus.Text(WORDS, corpus.count_corpus(files, WORDS))
    for compat, expected in ((False, [["a"], ["b"], ["c"]]), (True, [["c"], ["a"], [], ["b"]])):
        (block,) = text.sentences(compat=compat)
        assert [block.words(k, WORDS) for k in range(len(block))] == expected


def test_every_third_sentence_is_read_across_files(tmp_path, monkeypatch):
    monkeypatch.setattr("bilm.data.stream._FILE_ORDER_TOKENS", 4)  # several blocks
    files = [write(tmp_path / str(k), text) for k, text in enumerate(("a\n" * 7, "b\n", "\nc\nb\n"))]
    text = corpus.Text(WORDS, corpus.count_corpus(files, WORDS))
    read = [block.words(k, WORDS) for block in text.sentences(every=3) for k in range(len(block))]
    assert read == [["a"], ["a"], ["a"], ["b"]]


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_unknown_word_without_unk_is_named(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    vocab = Vocabulary.from_words(["<S>", "</S>", "a", "b"])
    known = write(tmp_path / "1", "a b\na\n")
    assert corpus.count_corpus([known], vocab).word_counts.tolist() == [2, 2, 2, 1]
    other = write(tmp_path / "2", "a b\n\nb\na c a\nd\n")
    with pytest.raises(VocabularyError, match="'c' is not in the vocabulary, which has no <UNK>"):
        corpus.count_corpus([known, other], vocab)


def test_empty_corpus_is_refused(tmp_path):
    files = [write(tmp_path / f"empty-{k}", "\n \n") for k in range(5)]
    with pytest.raises(DataError, match=r"no words in .*empty-0.* and 2 more: the corpus is empty"):
        corpus.count_corpus(files, WORDS)


def test_record_round_trip(tmp_path):
    counts = corpus.count_corpus([write(tmp_path / "text", "a b d\n\nc\n")], WORDS)
    record = json.loads(json.dumps(corpus.corpus_record(counts)))
    again = corpus.recorded_counts(record)
    assert corpus.describe_corpus(again) == corpus.describe_corpus(counts)
    assert corpus.corpus_record(again) == record


@pytest.mark.parametrize("record", [5, {"shards": "x"}, {"shards": [{}], "n_words": "x"}])
def test_damaged_record_is_refused(record):
    with pytest.raises(CheckpointError, match="the checkpoint's record of the text is damaged: text"):
        corpus.recorded_counts(record)


RANKED = " ".join(f"w{i}" for i in range(2000))
# what it is about: (text, words of the vocabulary, message)
DOUBTS = {
    "none": ("a b\n" * 9, "a b", None),
    "language": ("a e f g\n" * 9, "a b", "75% of the words are not in"),
    "no known word": ("x y z\n" * 9, RANKED, "100% of the words are not in"),
    "most words among the first": ("w1999 w1 w2 w3\n" * 9, RANKED, None),
    "order": ("w1999 w1998 w1\n" * 9, RANKED, "the first half of the vocabulary covers only 33%"),
    "a line of 500 words": ("a " * 500 + "\n", "a", None),
    "long lines": (
        "a\n\n" + "a " * 501 + "\n" + "a " * 600,
        "a",
        "lines of more than 500 words, the longest of 600, which begins 'a a ",
    ),
    "marks": ("<S> a </S>\n", "a", "the text contains <S> or </S> 2 times"),
    "table": ("a\tb\nb\ta\nc\n", "a b c", "most lines have tabs"),
    "half a table": ("a\tb\nc\n", "a b c", None),
    "misread": ("a cafÃ ©\n" + "a\n" * 9, "a cafÃ ©", "letters such as Ã© for é"),
    "raw": ("a, b\n" * 9, "a, b", "50% of the words end"),
    "gap": ("a ___ -- ...\n" * 9, "a ___ -- ...", None),
    "raw Hindi": ("a b।\n" * 9, "a b।", "50% of the words end"),
    "elision": ("c’ l' a-\n" * 9, "c’ l' a-", None),
    "invisible": ("a b\u00ad b\ufffd b\u00ad\n", "a b\u00ad b\ufffd", "the text has 2 soft hyphens, 1 repl"),
    "two forms": (
        "e\u0301t e\n" * 9,
        "e\u0301t \u00e9t e",
        "that look the same, in different Unicode normal forms: 1;",
    ),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_doubts(name, tmp_path):
    text, words, doubt = DOUBTS[name]
    vocabulary, file = Vocabulary.from_words([*MARKS, *words.split(" ")]), write(tmp_path / "text", text)
    counts = corpus.count_corpus([file], vocabulary)
    told = [*corpus.doubts_about_corpus(counts, vocabulary, first_lines([file]))]
    assert len(told) == (doubt is not None) and (doubt is None or doubt in told[0]), told
    if name in ("order", "two forms"):
        with ExitStack() as held:
            assert not corpus.read_text([str(file)], "test_prefix", vocabulary, held).doubts


def test_first_lines_are_some_of_each_file(tmp_path):
    file = write(tmp_path / "text", "a\n" * 30)
    assert [len(first_lines([file] * n_files)) for n_files in (1, 50, 3000)] == [30, 1500, 2000]
    assert len(first_lines([write(tmp_path / "long", f"{'a ' * 1_500_000}\n" * 3)])) == 2

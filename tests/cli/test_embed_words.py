"""`bilm embed --words` and `--format word2vec`: vectors of words at their occurrences, and their means."""

import dataclasses
import io

import h5py
import numpy as np
import pytest

from bilm import ElmoEmbedder
from bilm.embedding import parquet_output
from bilm.errors import DataError, OptionsError
from tests.helpers import VOCAB, refuse, run
from tests.models.test_bidirectional_lm import write_model

pytestmark = pytest.mark.usefixtures("opened_once")

LINES = ["an owl and/or a cat", "", "nothing here", "owl file owl", "a file"]
PLACES = {"and/or": [(0, 2)], "owl": [(0, 1), (3, 0), (3, 2)], "file": [(3, 1), (4, 1)], "../unseen": []}


@pytest.fixture
def files(tmp_path):
    text, words = tmp_path / "text", tmp_path / "words"
    text.write_text("\n".join(LINES) + "\n")
    words.write_text("\n\n".join([*PLACES, "owl"]) + "\n")
    return text, words


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Flags of a model over words, which is compiled sooner than one over characters."""
    options, weights = write_model(tmp_path_factory.mktemp("model"), n_words=73, char_cnn=None)
    return ("--options-file", options, "--weight-file", weights, "--vocab-file", VOCAB)


@pytest.fixture
def embedder(model):
    return ElmoEmbedder(*model[1::2])


def expected(text, folder, layers, model):
    """The vectors of each listed word, from those of the whole text."""
    run("embed", text, folder / "whole.hdf5", *model, layers)
    with h5py.File(folder / "whole.hdf5") as file:
        return {
            word: np.array([file[str(line)][..., position, :] for line, position in places])
            for word, places in PLACES.items()
        }


@pytest.mark.parametrize(("flags", "layers"), [((), "--average"), (("--all",), "--all")])
def test_npz_has_vectors_of_each_occurrence(files, tmp_path, flags, layers, model):
    text, words = files
    out = tmp_path / "out.npz"
    *_, missing, said = run("embed", text, out, "--words", words, *model, *flags).splitlines()
    assert missing == f"{words}: no vectors of ../unseen"
    # The words of three sentences are computed.
    assert said.startswith(f"5 lines -> {out}: 3 word types, 6 occurrences; 10 words computed in ")
    with np.load(out) as archive:
        found, vectors = dict(archive), expected(text, tmp_path, layers, model)
    assert [name for name in found if " " not in name] == [*PLACES]
    for word, places in PLACES.items():
        assert [*zip(found[f"{word} line"], found[f"{word} position"], strict=True)] == places
        assert found[word].shape == (len(places), *vectors["owl"].shape[1:])
        if places:
            np.testing.assert_allclose(found[word], vectors[word], atol=1e-6, rtol=0)
    written = out.read_bytes()
    assert "exists; --overwrite replaces it" in refuse("embed", text, out, "--words", words, *model)
    run("embed", text, out, "--words", words, *model, *flags, "--overwrite")
    assert out.read_bytes() == written


def test_parquet_has_row_for_each_occurrence(files, tmp_path, model):
    text, words = files
    flags = ("--words", words, *model, "--format", "parquet", "--dtype", "float32")
    run("embed", text, text, tmp_path / "out", *flags)
    table = parquet_output.pq.read_table(tmp_path / "out").to_pylist()
    vectors = expected(text, tmp_path, "--average", model)
    rows = sorted((*place, word) for word, places in PLACES.items() for place in places)
    assert [(row["line"], row["position"], row["word"]) for row in table] == rows * 2
    for row in table:
        own = vectors[row["word"]][PLACES[row["word"]].index((row["line"], row["position"]))]
        assert row["file"] == str(text)
        np.testing.assert_allclose(row["vector"], own, atol=1e-6, rtol=0)


def read_word2vec(path):
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    vectors = {word: np.array(numbers, float) for word, *numbers in (line.split(" ") for line in lines)}
    assert head == f"{len(lines)} {len(next(iter(vectors.values())))}"
    return vectors


def test_word2vec_has_mean_of_occurrences(files, tmp_path, embedder, monkeypatch, model):
    (text, words), told = files, []
    tell = lambda self, report: told.append(report.n_tokens)  # noqa: E731
    monkeypatch.setattr("bilm.cli.commands.embed.EmbeddingProgress.__call__", tell)
    for name, *flags in (("chosen.vec", "--words", words), ("all.vec",), ("twice.vec", "--min-count", 2)):
        said = run("embed", text, tmp_path / name, *model, *flags).splitlines()[-1]
    assert f"5 lines -> {tmp_path / 'twice.vec'}: 3 word types, 7 occurrences; 12 words computed" in said
    assert told == [10, 12, 12]
    names = ("chosen", "all", "twice")
    chosen, everything, twice = (read_word2vec(tmp_path / f"{name}.vec") for name in names)
    assert [*chosen] == ["owl", "file", "and/or"] and [*twice] == ["owl", "a", "file"]
    assert {*everything} == {word for line in LINES for word in line.split()}
    sentences, means = [line.split() for line in LINES], expected(text, tmp_path, "--average", model)
    in_python = embedder.word_vectors(sentences, min_count=2)
    assert [*in_python] == [*twice]
    for word, vector in chosen.items():
        for other in (means[word].mean(0), everything[word], in_python.get(word, vector)):
            np.testing.assert_allclose(vector, other, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_embed_words_computes_sentences_with_words(embedder, monkeypatch):
    computed, embed_chunk = [], ElmoEmbedder.embed_chunk

    def spied(self, sentences, form):
        computed.extend(sentences)
        return embed_chunk(self, sentences, form)

    monkeypatch.setattr(ElmoEmbedder, "embed_chunk", spied)
    sentences = [line.split() for line in LINES]
    found = [*embedder.embed_words(sentences, ["owl", "owl"], layers="top")]
    places = [(place.line, place.position, place.word) for place in found]
    assert places == [(*place, "owl") for place in PLACES["owl"]]
    assert computed == [sentences[0], sentences[3]]
    assert found[2].vector.base is None  # which would keep the vectors of its sentence
    (top,) = embedder.embed_sentences([sentences[3]], layers="top")
    np.testing.assert_allclose(found[2].vector, top[2], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("out", "flags", "message"),
    [
        ("out.hdf5", ("--words", "words"), "--words does not go with --format hdf5, the form of /"),
        ("out.csv", (), "out.csv: unknown ending; give .hdf5"),
        ("out.vec.gz", (), "out.vec.gz: unknown ending; give .hdf5"),
        ("OUT.VEC", ("--all",), "--format word2vec does not go with --all"),
        ("out.npz", (), "out.npz: npz has the vectors of chosen words; give --words"),
        ("out.npz", ("--words", "words", "--stateful"), "--words does not go with --stateful"),
        ("out.vec", ("--all",), "--format word2vec does not go with --all: a word has one vector"),
        ("out.vec", ("--dtype", "float16"), "--format word2vec does not go with --dtype, the form of /"),
        ("out.npz", ("--words", "words", "--use-sentence-keys"), "--use-sentence-keys, the form of /"),
        ("out", ("--min-count", 2), "--min-count does not go with --format hdf5"),
        ("out.parquet", ("--min-count", 2), "does not go with --format parquet, the form of /"),
    ],
)
def test_flags_of_words_contradict_others(out, flags, message, files, tmp_path, model):
    own = [tmp_path / flag if flag == "words" else flag for flag in flags]
    assert message in refuse("embed", files[0], tmp_path / out, *model, *own, status=2)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("owl\nof it\n", "words: line 2: 'of it' is not one word; give a word per line"),
        ("\n", "words: lists no words"),
        ("Owl\n", "none of the words is in the text; they are compared as they are written"),
        ("owl\nowl.npy\n", "'owl.npy' cannot name an array of an .npz file"),
        ("owl\n\0" + "l" * 20 + "\n", r"'\x00llllllllllllllllllll' cannot name an array of an .npz file"),
    ],
)
def test_unusable_words_are_refused(listed, message, files, tmp_path, model):
    text, words = files
    words.write_text(listed)
    assert message in refuse("embed", text, tmp_path / "out.npz", "--words", words, *model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text", "words"]


def test_text_without_words_to_write_is_refused(files, tmp_path, model):
    asked = ("embed", files[0], tmp_path / "out.vec", *model)
    message = refuse(*asked, "--min-count", 9)
    assert "no vectors to write: no word occurs often enough (--min-count 9)" in message
    files[0].write_text("")
    assert "the text is empty" in refuse(*asked)
    assert not (tmp_path / "out.vec").exists()


@pytest.mark.slow
def test_spellings_of_a_word_share_occurrences(embedder):
    embedder.model.options = dataclasses.replace(embedder.model.options, unicode_form="NFC")
    spellings = ["caf\u00e9", "cafe\u0301"]
    found = embedder.embed_words([["the", spellings[1]]], spellings)
    assert [place[:3] for place in found] == [(0, 1, word) for word in spellings]


def test_list_of_words_is_not_written_over(files, model):
    text, words = files
    flags = ("--words", words, "--format", "npz", "--overwrite", *model)
    assert "is an input and would be lost" in refuse("embed", text, words, *flags)


def test_words_are_a_list_of_strings(embedder):
    with pytest.raises(DataError, match="`words` is a string, not a list of words: 'owl'"):
        embedder.embed_words([["owl"]], "owl")
    with pytest.raises(DataError, match="`words` is of type StringIO, not a list of words"):
        embedder.embed_words([["owl"]], io.StringIO("owl\n"))
    assert not [*embedder.embed_words([["owl"]], [])]
    embedder.stateful = True
    with pytest.raises(OptionsError, match="`stateful` needs all sentences"):
        next(embedder.embed_words([["owl"]], ["owl"]))
    with pytest.raises(DataError, match="`words`, word 0 is of type list, not a string"):
        next(embedder.embed_words([["owl"]], [["owl"]]))

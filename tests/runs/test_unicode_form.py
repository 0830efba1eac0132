"""The normal form of a model's text: what looks alike gives the same numbers."""

import json
import unicodedata

import numpy as np
import pytest
import tensorflow as tf

import bilm
from bilm import ElmoEmbedder, SentenceVectorizer, WordPredictor, batch_to_ids
from bilm.data.batcher import Batcher
from bilm.errors import VocabularyError
from bilm.text.prepare import prepare
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary
from tests.helpers import TRAIN, assert_same_arrays, combined_perplexity, run, small_options, smallest_options

SETTINGS = {"recipe": "one-pass", "optimizer": "adagrad", "max_steps": 2, "seed": 1}
WORDS = ("ἄνθρωπος", "ἦν", "ὁ", "été", "naïve")


@pytest.fixture(scope="module")
def accented(tmp_path_factory):
    """A text in NFC and in NFD, a vocabulary in NFC, and runs of two steps on both, and one over words."""
    path = tmp_path_factory.mktemp("accented")
    lines = TRAIN.read_text().splitlines()
    text = "".join(f"{line} {' '.join(WORDS[: k % 6])}\n" for k, line in enumerate(lines))
    for form in ("NFC", "NFD"):
        (path / f"{form}.txt").write_text(unicodedata.normalize(form, text))
    command = ("vocab", "build", "--train-prefix", path / "NFD.txt", "--outfile", path / "vocab.txt")
    assert "words also occurred" not in run(*command, "--min-count", 2)
    characters = {"filters": [[1, 4]], "n_highway": 0}
    options = small_options(bidirectional=False, lstm={"n_layers": 1}, char_cnn=characters)
    words = smallest_options()
    for name, form, of_model in (("NFC", "NFC", options), ("NFD", "NFD", options), ("words", "NFC", words)):
        corpus = path / f"{form}.txt"
        bilm.train(corpus, path / "vocab.txt", path / f"run-{name}", options=of_model, **SETTINGS)
    return path


def forms(text):
    return [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]


@pytest.mark.slow
def test_new_model_takes_form_of_its_vocabulary(accented):
    stored = [bilm.RunDirectory.open(accented / f"run-{form}") for form in ("NFC", "NFD")]
    options, other = (json.loads((each.path / "options.json").read_text()) for each in stored)
    assert options == other and options["unicode_form"] == "NFC"
    assert_same_arrays(*(each.weights() for each in stored))
    assert "normal form NFC" in run("info", accented / "run-NFC")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["NFD", "NFKC", None])
def test_model_takes_form_of_its_new_corpus(accented, tmp_path, form):
    """A new model, and one that is carried over to the words of the corpus."""
    text = unicodedata.normalize("NFC", " ".join([*WORDS, "\u00b2", "."])) + "\n"
    (tmp_path / "raw.txt").write_text(text * 40)
    prepare(tmp_path / "raw.txt", tmp_path / "corpus", form=form, heldout=0, keep_lines=True)
    corpus = {"corpus": tmp_path / "corpus"}
    bilm.train(save_dir=tmp_path / "run", options=smallest_options(), **corpus, **SETTINGS)
    run = bilm.RunDirectory.open(tmp_path / "run")
    assert run.options.unicode_form == form
    assert bilm.test(tmp_path / "raw.txt", tmp_path / "run").oov_rate == 0
    arguments = {"save_dir": accented / "run-words", "save_to": tmp_path / "carried", "remap_vocab": True}
    if form == "NFD":
        with pytest.raises(VocabularyError, match="id 4, is not in NFC"):
            bilm.restart(max_steps=1, **corpus, **arguments)
    else:
        bilm.restart(max_steps=1, **corpus, **arguments)
        assert bilm.RunDirectory.open(tmp_path / "carried").options.unicode_form == form


@pytest.mark.slow
def test_model_as_bilm_tf_reads_bytes(accented, tmp_path):
    """Two texts that look alike differ, as they did."""
    for name, recipe in (("tf", "bilm-tf"), ("file", None)):
        settings = {"options": smallest_options(), "recipe": recipe, "max_steps": 1, "seed": 1}
        bilm.train(accented / "NFC.txt", accented / "vocab.txt", tmp_path / name, **settings)
        assert "unicode_form" not in json.loads((tmp_path / name / "options.json").read_text())
    oov = [bilm.test(accented / f"{form}.txt", tmp_path / "tf").oov_rate for form in ("NFC", "NFD")]
    assert oov[0] < oov[1]


@pytest.mark.slow
def test_test_and_score_of_both_forms_are_equal(accented):
    model = ("--model", accented / "run-NFC")
    outputs = [run("test", *model, "--test-prefix", accented / f"{form}.txt") for form in ("NFC", "NFD")]
    assert combined_perplexity(outputs[0]) == combined_perplexity(outputs[1])
    results = [bilm.test(accented / f"{form}.txt", model[1]) for form in ("NFC", "NFD")]
    assert results[0] == results[1]
    predictor = WordPredictor.from_model(model[1])
    first, second = (next(predictor([[*WORDS, word]])) for word in forms("né"))
    assert (first.forward == second.forward).all() and (first.is_known == second.is_known).all()


@pytest.mark.slow
def test_vectors_of_both_forms_are_equal(accented, tmp_path):
    dump = bilm.dump_weights(accented / "run-NFC", tmp_path / "dump.hdf5")
    sentences = [text.split() for text in forms(" ".join([*WORDS, "né"]))]
    for model in (accented / "run-NFC", dump.weight_file):
        composed, decomposed = map(ElmoEmbedder.from_model(model).embed_sentence, sentences)
        np.testing.assert_allclose(composed, decomposed, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_words_are_found_in_both_forms(accented, tmp_path):
    composed, decomposed = forms("été")
    embedder = ElmoEmbedder.from_model(accented / "run-NFC")
    sentences = [["the", composed], ["no"], [decomposed, "the"]]
    found = [*embedder.embed_words(sentences, [decomposed])]
    assert [(one.line, one.position, one.word) for one in found] == [(0, 1, decomposed), (2, 0, decomposed)]
    assert [*embedder.word_vectors(sentences)] == ["the", composed, "no"]
    predictor = WordPredictor.from_model(accented / "run-NFC")
    at_words = [*predictor.predict(sentences, words=[decomposed])]
    assert [[place.position for place in places] for places in at_words] == [[1], [], [0]]
    [[place]] = predictor.predict([["the", forms("ét?")[1]]], patterns=True)
    assert [word for word, _ in place.best] == [composed]


def test_ids_of_both_forms_are_equal():
    composed, decomposed = forms("été naïve ἄνθρωπος")
    vocabulary = UnicodeCharsVocabulary.from_words(["<S>", "</S>", "<UNK>"])
    vocabulary.unicode_form = "NFC"
    vectorizer = SentenceVectorizer(unicode_form="NFC")
    again = SentenceVectorizer.from_config(vectorizer.get_config())
    wanted = batch_to_ids([composed.split()])
    for text in (composed, decomposed):
        assert (batch_to_ids([text.split()], unicode_form="NFC") == wanted).all()
        assert (Batcher(vocabulary, 50).batch_sentences([text.split()])[:, 1:-1] == wanted).all()
        assert (again(tf.constant([text])) == wanted).numpy().all()
        data = tf.data.Dataset.from_tensors(tf.constant([text])).map(vectorizer)
        assert (next(iter(data)) == wanted).numpy().all()
    assert not np.array_equal(batch_to_ids([decomposed.split()]), wanted)


@pytest.mark.slow
def test_saved_model_says_its_form(accented, tmp_path):
    command = ("export", "--saved-model", tmp_path / "x", "--model", accented / "run-words")
    assert "normal form NFC" in run(*command)
    run(*command, "--overwrite")


@pytest.mark.slow
def test_neighbours_of_word_in_another_form(accented):
    composed, decomposed = forms("été")
    command = ("neighbours", composed, f"the {decomposed} ends", accented / "NFD.txt", "--same-word")
    assert decomposed in run(*command, "--model", accented / "run-NFC")

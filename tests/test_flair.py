"""`ElmoEmbeddings` in flair's own stacks and taggers."""

import shutil

import numpy as np
import pytest

from bilm import ElmoEmbedder
from bilm.errors import OptionsError
from tests.distributed import model_files, write_folder
from tests.helpers import FILES

pytest.importorskip("flair")

import torch
from flair.data import Corpus, Sentence
from flair.datasets import FlairDatapointDataset
from flair.embeddings import OneHotEmbeddings, StackedEmbeddings
from flair.models import SequenceTagger
from flair.trainers import ModelTrainer

from bilm.flair import ElmoEmbeddings

TEXTS = {"the river": ["D", "N"], "a fish swims in it": ["D", "N", "V", "P", "N"], "it": ["N"]}


def sentences():
    """Tagged sentences."""
    tagged = [Sentence(text) for text in TEXTS]
    for sentence, tags in zip(tagged, TEXTS.values(), strict=True):
        for token, tag in zip(sentence, tags, strict=True):
            token.add_label("pos", tag)
    return tagged


@pytest.mark.parametrize("layers", ["all", "average", "concat", 1])
def test_vectors_are_those_of_embedder(layers):
    embeddings, texts = ElmoEmbeddings(FILES[1], layers), sentences()
    embeddings.embed(texts)
    embedder = ElmoEmbedder(*FILES)
    for sentence, text in zip(texts, TEXTS, strict=True):
        expected = embedder.embed_sentence(text.split())
        if layers != "all":
            expected = next(embedder.embed_sentences([text.split()], layers=layers))[None]
        for place, token in enumerate(sentence):
            assert token.embedding.shape == (embeddings.embedding_length,)
            np.testing.assert_allclose(token.embedding.cpu(), expected[:, place].ravel(), atol=1e-6)


def test_embeddings_of_one_sentence_are_kept_apart():
    (text,) = texts = [Sentence("the river")]
    for layer in (0, 1):
        embeddings = ElmoEmbeddings(FILES[1], layer)
        embeddings.embed(texts)
        (expected,) = ElmoEmbedder(*FILES).embed_sentences([["the", "river"]], layers=layer)
        for token, vector in zip(text, expected, strict=True):
            np.testing.assert_allclose(token.get_embedding([embeddings.name]).cpu(), vector, atol=1e-6)


def test_embeddings_refuse_missing_layer():
    with pytest.raises(OptionsError, match="layers"):
        ElmoEmbeddings(FILES[1], "first")


def test_saved_tagger_holds_model(tmp_path):
    model = write_folder(tmp_path / "elmo", model_files())
    corpus = Corpus(*[FlairDatapointDataset(sentences())] * 3, sample_missing_splits=False)
    stack = StackedEmbeddings(
        [
            ElmoEmbeddings(model),
            ElmoEmbeddings(model, 0, "words"),
            OneHotEmbeddings.from_corpus(corpus, min_freq=1),
        ]
    )
    dictionary = corpus.make_label_dictionary("pos")
    tagger = SequenceTagger(stack, dictionary, "pos", hidden_size=8, use_rnn=False, use_crf=False)
    ModelTrainer(tagger, corpus).train(tmp_path / "out", max_epochs=1, save_model_each_k_epochs=0)
    shutil.rmtree(model)
    read = SequenceTagger.load(tmp_path / "out" / "final-model.pt")
    with torch.no_grad():
        scores = [each.eval()._prepare_tensors(sentences())[0] for each in (tagger, read)]
    assert scores[0].abs().sum() > 0
    torch.testing.assert_close(*scores)

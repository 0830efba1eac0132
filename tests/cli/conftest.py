"""Fixtures of the tests of commands."""

import pytest

from bilm.embedding.embedder import ElmoEmbedder


@pytest.fixture(scope="session")
def compiled():
    return {}


@pytest.fixture
def opened_once(compiled, monkeypatch):
    """Every model is read; where it is the same as one from before, that one is taken, compiled already.

    One that carries its state is opened anew.
    """
    open_model = ElmoEmbedder

    def before(*files, model=None, stateful=False, **settings):
        found = open_model(*files, model=model, stateful=stateful, **settings)
        words = found.vocabulary and tuple(found.vocabulary.words)
        key = (found.fingerprint, words, *sorted((settings | {"vocab_file": None}).items()))
        return found if stateful else compiled.setdefault(key, found)

    monkeypatch.setattr("bilm.embedding.embedder.ElmoEmbedder", before)

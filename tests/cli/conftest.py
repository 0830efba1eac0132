"""Fixtures of the tests of commands."""

from __future__ import annotations

import functools

import pytest

from bilm.cli import flags


@pytest.fixture(scope="module")
def opened():
    return functools.cache(flags.EmbeddingModel.open)


@pytest.fixture
def opened_once(opened, monkeypatch):
    """A model that is opened again in the same way is the one from before, compiled already.

    One that carries its state is opened anew.
    """
    open_model = flags.EmbeddingModel.open

    def before(model, *, stateful=False, **settings):
        return (open_model if stateful else opened)(model, stateful=stateful, **settings)

    monkeypatch.setattr(flags.EmbeddingModel, "open", before)


@pytest.fixture(scope="module")
def compiled():
    return {}


@pytest.fixture
def compiled_once(compiled, monkeypatch):
    """Every model is read; where it is the same as one from before, that one is taken, compiled already."""
    open_model = flags.EmbeddingModel.open

    def before(model, **settings):
        found = open_model(model, **settings)
        words = found.vocabulary and tuple(found.vocabulary.words)
        return compiled.setdefault((found.fingerprint, words, *sorted(settings.items())), found)

    monkeypatch.setattr(flags.EmbeddingModel, "open", before)

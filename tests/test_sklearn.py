"""`ElmoVectorizer` in scikit-learn's own pipelines, searches and checks."""

import importlib
import pickle
import sys

import h5py
import numpy as np
import pytest

from bilm import ElmoEmbedder
from bilm.errors import BilmError, DataError, WeightsError
from tests.distributed import model_files, write_folder
from tests.helpers import FILES, write_json

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

from bilm.sklearn import ElmoVectorizer

WEIGHTS = FILES[1]
TEXTS = ["the river flows", "a fish swims in the river", "the river", "a fish", "fish swim", "rivers flow"]
LABELS = [0, 1, 0, 1, 1, 0]
CHECKS = (
    *("check_estimator_cloneable", "check_estimator_repr", "check_no_attributes_set_in_init"),
    *("check_get_params_invariance", "check_set_params", "check_estimator_tags_renamed"),
    *("check_valid_tag_types", "check_do_not_raise_errors_in_init_or_set_params", "check_mixin_order"),
)


@pytest.mark.parametrize("name", CHECKS)
def test_vectorizer_passes_estimator_check(name):
    getattr(estimator_checks, name)("ElmoVectorizer", ElmoVectorizer(WEIGHTS))


def test_vectorizer_without_its_model_is_shown():
    assert "none.hdf5" in ElmoVectorizer("none.hdf5")._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("layers", ["all", "average", 0, "characters", "concat"])
def test_vectors_are_those_of_embedder(layers):
    found = ElmoVectorizer(WEIGHTS, layers=layers, pooling="max").fit_transform(
        [*TEXTS, ["the", "river"], ""]
    )
    sentences = [*map(str.split, TEXTS), ["the", "river"], []]
    expected = ElmoEmbedder(*FILES).embed_sentences(sentences, layers=layers, pooling="max")
    np.testing.assert_allclose(found, [vectors.ravel() for vectors in expected], atol=1e-6)


@pytest.mark.slow
def test_string_has_the_words_of_all_its_sentences(tmp_path, caplog):
    """As the steps of the training text find them, where the model has these."""
    write_folder(tmp_path, model_files("weights.hdf5"))
    write_json(tmp_path / "text.json", {"language": "en", "form": "NFC", "icu": "9.1"})
    found = ElmoVectorizer(tmp_path).fit_transform(["The river flows. It's wet."])
    assert caplog.text.count("tokenised by ICU 9.1") == 1
    fitted = ElmoVectorizer(tmp_path).fit(["It's wet."])
    write_json(tmp_path / "text.json", {"language": "en", "form": "NFKC"})
    with pytest.raises(WeightsError, match="is not the model of `fit`; fit again"):
        fitted.transform(["It's wet."])
    expected = ElmoVectorizer(tmp_path).fit_transform([["The", "river", "flows", ".", "It's", "wet", "."]])
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_table_is_its_only_column():
    class Table:  # as of pandas and polars
        def __init__(self, *columns):
            self.columns = columns

        def to_numpy(self):
            return np.array([TEXTS] * len(self.columns), object).T

    vectorizer = ElmoVectorizer(WEIGHTS).fit(TEXTS)
    expected = vectorizer.transform(TEXTS)
    np.testing.assert_allclose(vectorizer.transform(Table("t")), expected, atol=1e-6)
    words = [text.split()[:2] for text in TEXTS]
    rows, lists = map(vectorizer.transform, (np.array(words, object), words))
    np.testing.assert_allclose(rows, lists, atol=1e-6)  # of words
    with pytest.raises(DataError, match="`texts` is a table of 2 columns; give one of them"):
        vectorizer.transform(Table("t", "u"))


def test_no_texts_keep_width():
    vectorizer = ElmoVectorizer(WEIGHTS).fit([])
    assert vectorizer.transform([]).shape == (0, len(vectorizer.get_feature_names_out()))


@pytest.mark.slow
def test_vectorizer_works_in_searches():
    pipeline = make_pipeline(ElmoVectorizer(WEIGHTS), LogisticRegression())
    assert cross_val_score(pipeline, TEXTS, LABELS, cv=3).shape == (3,)
    grid = {"elmovectorizer__layers": ["all", "top"], "logisticregression__C": [1.0, 10.0]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=1, error_score="raise").fit(TEXTS, LABELS)
    assert search.best_estimator_.predict(TEXTS).shape == (6,)


def test_clone_and_pickle_hold_path_alone():
    vectorizer = ElmoVectorizer(WEIGHTS).fit(TEXTS)
    data = pickle.dumps(vectorizer)
    assert len(data) < 1000
    for other in (pickle.loads(data), clone(vectorizer)):
        np.testing.assert_allclose(other.transform(TEXTS), vectorizer.transform(TEXTS), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "weights.hdf5"], ids=["folder", "file"])
def test_replaced_model_is_read_anew(name, tmp_path):
    write_folder(tmp_path, model_files("weights.hdf5"))
    vectorizer = ElmoVectorizer(tmp_path / name)
    before = vectorizer.fit_transform(TEXTS)
    with h5py.File(tmp_path / "weights.hdf5", "r+") as file:
        file["CNN_proj/W_proj"][...] *= 2
    with pytest.raises(WeightsError, match="is not the model of `fit`; fit again"):
        vectorizer.transform(TEXTS)
    assert not np.allclose(vectorizer.fit_transform(TEXTS), before)


@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        *(({"layers": "first"}, TEXTS), ({"pooling": None}, TEXTS), ({"model": "none"}, TEXTS)),
        *(({"model": ""}, TEXTS), ({"model": None}, TEXTS)),
        *(({}, "the river"), ({}, [["a", 1]]), ({}, {"the river": 1})),
    ],
    ids=["layers", "pooling", "model", "empty", "no model", "string", "number", "dictionary"],
)
def test_vectorizer_refuses_bad_input(settings, texts):
    with pytest.raises(BilmError):
        ElmoVectorizer(**{"model": WEIGHTS, **settings}).fit_transform(texts)
    if settings:
        with pytest.raises(BilmError):
            ElmoVectorizer(**{"model": WEIGHTS, **settings}).fit(texts)


@pytest.mark.parametrize(
    ("extra", "library"), [("sklearn", "sklearn.base"), ("spacy", "srsly"), ("flair", "flair")]
)
def test_missing_library_names_extra(extra, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"bilm.{extra}", raising=False)
    with pytest.raises(ImportError) as raised:
        importlib.import_module(f"bilm.{extra}")
    assert str(raised.value).endswith(f"run pip install '.[{extra}]'")

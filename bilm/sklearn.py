"""Vectors of texts for scikit-learn: `ElmoVectorizer`."""

import os
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bilm.data.batcher import require_sentences
from bilm.data.packing import Layers, Pooling, VectorForm
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import BackendError, DataError, WeightsError, require_kind
from bilm.io.messages import os_errors_as

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils import Tags
except ImportError as error:
    raise BackendError(
        "bilm.sklearn needs scikit-learn 1.6 or later; in a clone of bilm, run pip install '.[sklearn]'"
    ) from error


@lru_cache(maxsize=2)
def _read(model: str, changed_ns: tuple[int, ...]) -> ElmoEmbedder:  # noqa: ARG001
    """Read a model once for all clones of a vectorizer, and anew when its file or folder has changed."""
    return ElmoEmbedder.from_model(model)


def _column(texts: Any) -> Any:  # noqa: ANN401
    """Return texts, or those in the one column of a table.

    Raises:
        DataError: the table has several columns; or `texts` is a string.
    """
    if hasattr(texts, "columns"):  # of pandas or polars
        if len(texts.columns) != 1:
            raise DataError(f"`texts` is a table of {len(texts.columns)} columns; give one of them")
        texts = texts.to_numpy()
    if isinstance(texts, np.ndarray) and texts.ndim == 2 and texts.shape[1] == 1:
        texts = texts[:, 0]
    return require_sentences(texts)


def _identity(embedder: ElmoEmbedder) -> tuple[str, bytes | None]:
    """Return what tells models, and the steps from text to their sentences, apart."""
    return embedder.fingerprint, embedder.steps.content


class ElmoVectorizer(TransformerMixin, BaseEstimator):
    """Transformer of texts to the pooled vectors of a pretrained biLM.

    A text is a string or a list of words, and is embedded as one sentence. The words of a string are found by
    the steps of the model's training text, if the model has them (``text.json``), otherwise at white space.
    `fit` learns nothing, but notes which model it is: `transform` then refuses another. Clones and pickles
    hold the path of the model, not its weights.

    Args:
        model: path of a model, see `bilm.ElmoEmbedder.from_model`.
        layers: ``"all"`` for all layers end to end, or as for `bilm.ElmoEmbedder.embed_sentences`.
        pooling: ``"mean"`` or ``"max"`` over the words.

    Example:
        >>> from bilm.sklearn import ElmoVectorizer
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> classifier = make_pipeline(ElmoVectorizer("weights.hdf5"), LogisticRegression())
        >>> classifier.fit(["the river flows", "a fish swims"], ["water", "animal"]).classes_.tolist()
        ['animal', 'water']
    """

    def __init__(self, model: str | Path, layers: Layers = "average", pooling: str = "mean") -> None:
        self.model, self.layers, self.pooling = model, layers, pooling

    def fit(self, texts: Sequence[str | Sequence[str]], y: object = None) -> "ElmoVectorizer":  # noqa: ARG002
        """Read the model and check the arguments.

        Raises:
            BilmError: the model cannot be read, or there are no such layers or pooling.
        """
        self.model_ = _identity(self._embedder())
        self.transform([[]])
        return self

    def transform(self, texts: Sequence[str | Sequence[str]]) -> np.ndarray:
        """Embed texts: float32 (texts, features).

        Raises:
            BilmError: as for `fit`; the model is another than that of `fit`; `texts` is a string, or a table
                of several columns; or a text is neither a string nor a list of words.
        """
        Pooling(self.pooling)
        texts = _column(texts)
        embedder = self._embedder()
        if getattr(self, "model_", _identity(embedder)) != _identity(embedder):
            raise WeightsError(f"{self.model}: is not the model of `fit`; fit again")
        steps = None if embedder.steps.content is None else embedder.pipeline

        def words_of(text: str | Sequence[str]) -> Sequence[str]:
            if not isinstance(text, str):
                return text
            return text.split() if steps is None else [*chain.from_iterable(steps.sentences(text))]

        sentences = map(words_of, texts)
        vectors = [*embedder.embed_sentences(sentences, layers=self.layers, pooling=self.pooling)]
        return np.reshape(np.asarray(vectors, np.float32), (len(vectors), self._width(embedder)))

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:  # noqa: ARG002
        """Return the names of the columns.

        Raises:
            BilmError: as for `fit`.
        """
        return np.array([f"elmovectorizer{i}" for i in range(self._width(self._embedder()))], object)

    # No properties, which scikit-learn reads to show an estimator.
    def _embedder(self) -> ElmoEmbedder:
        require_kind("model", self.model, str | os.PathLike)
        path = os.path.abspath(self.model)
        with os_errors_as(WeightsError, path):
            files = [path, *(filter(os.path.exists, os.scandir(path)) if os.path.isdir(path) else ())]
            changed_ns = tuple(sorted(os.stat(file).st_mtime_ns for file in files))
        return _read(path, changed_ns)

    def _width(self, embedder: ElmoEmbedder) -> int:
        return embedder.no_vectors(VectorForm(self.layers, pooling=self.pooling)).size

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags

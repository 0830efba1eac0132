"""spaCy's architecture ``bilm.Elmo.v1``: a frozen biLM as the ``embed`` part of ``spacy.Tok2Vec.v2``."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import cast

import numpy as np

from bilm.data.packing import VectorForm
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import BackendError, WeightsError

try:
    import srsly
    from spacy.tokens import Doc
    from thinc.api import Maxout, Model, Shim, chain, concatenate, with_array
    from thinc.types import Floats2d
except ImportError as error:
    raise BackendError(
        "bilm.spacy needs spaCy 3.8; in a clone of bilm, run pip install '.[spacy]'"
    ) from error


_FORM = VectorForm("concat")


class FrozenElmo(Shim):
    """A biLM in a model of Thinc, which embeds each sentence once in a training.

    Args:
        path: path of the model, which is read on first use.
        store: whether to save the model itself with the pipeline, or its checksum.
        cache_mb: megabytes of vectors that a training keeps; what does not fit is computed at each step.
    """

    def __init__(self, path: str | None, store: bool, cache_mb: float) -> None:
        super().__init__(None)
        self.path, self.store = path, store
        self.free_bytes, self.is_training = cache_mb * 1e6, False
        self.cache: dict[tuple[str, ...], np.ndarray] = {}

    @cached_property
    def embedder(self) -> ElmoEmbedder:
        """The embedder."""
        return ElmoEmbedder.from_model(cast(str, self.path))

    def vectors(self, docs: Sequence[Doc]) -> np.ndarray:
        """Embed the words of all documents: float32 (tokens, dim), everything that the biLM knows of a word.

        White space has zeros, and is no word of a sentence.

        Sentences are those that an earlier component has found; otherwise a document is one sentence.
        """
        spans = [span for doc in docs for span in (doc.sents if doc.has_annotation("SENT_START") else [doc])]
        sentences = [tuple(token.text for token in span if not token.is_space) for span in spans]
        new = [*dict.fromkeys(words for words in sentences if words not in self.cache)]
        found = dict(zip(new, self.embedder.embed_sentences(new, layers="concat"), strict=True))
        if self.is_training:
            for words, vectors in found.items():
                if vectors.nbytes <= self.free_bytes:
                    self.cache[words] = vectors
                    self.free_bytes -= vectors.nbytes
        by_sentence = (self.cache.get(words, found.get(words)) for words in sentences)
        is_word = np.array([not token.is_space for doc in docs for token in doc], bool)
        nothing = self.embedder.no_vectors(_FORM)
        result = np.zeros((len(is_word), nothing.shape[-1]), np.float32)
        result[is_word] = np.concatenate([nothing, *by_sentence])
        return result

    def to_bytes(self) -> bytes:
        """Return the checksum of the model and, if it is to be stored, the model as a ZIP archive."""
        archive = self.embedder.to_bytes() if self.store else None
        return srsly.msgpack_dumps({"sha256": self.embedder.fingerprint, "archive": archive})

    def from_bytes(self, data: bytes) -> "FrozenElmo":
        """Read the model from the result of `to_bytes`, or from its path.

        Raises:
            BilmError: there is no such file, or it is another model.
        """
        content = srsly.msgpack_loads(data)
        self.free_bytes += sum(vectors.nbytes for vectors in self.cache.values())
        self.cache, self.is_training = {}, False
        if content["archive"] is not None:
            self.embedder = ElmoEmbedder.from_bytes(content["archive"])
        if self.embedder.fingerprint != content["sha256"]:
            raise WeightsError(
                f"{self.path}: not the model that the pipeline was trained with; give the path of that one "
                "as `model` of bilm.Elmo.v1 in the configuration"
            )
        return self

    def copy(self) -> "FrozenElmo":
        """Return the same object: copies of a model share what is frozen."""
        return self

    def finish_update(self, optimizer: object) -> None:
        """Do nothing: the biLM is frozen."""

    def to_device(self, device_type: str, device_id: int) -> None:
        """Do nothing: the biLM stays on its device."""


def _initialize(model: Model, X: object = None, Y: object = None) -> None:  # noqa: ARG001, N803
    model.set_dim("nO", model.shims[0].embedder.no_vectors(_FORM).shape[-1])


def _forward(
    model: Model, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    """Return the vectors of each document, (words, dim) each."""
    elmo = model.shims[0]
    elmo.is_training |= is_train
    vectors = model.ops.asarray(elmo.vectors(docs))
    return model.ops.unflatten(vectors, model.ops.asarray1i([len(doc) for doc in docs])), lambda _: []


def make_elmo(
    model: str | None,
    width: int,
    beside: Model[list[Doc], list[Floats2d]] | None = None,
    store: bool = True,
    cache_mb: float = 2000,
) -> Model[list[Doc], list[Floats2d]]:
    """Make the architecture ``bilm.Elmo.v1``.

    All layers of the biLM and the output of its character convolutions, end to end, are reduced to `width`,
    with the vectors of `beside`, as spaCy's ``MultiHashEmbed`` reduces its own.

    Args:
        model: path of a model, see `bilm.ElmoEmbedder.from_model`; None only where nothing is embedded.
        width: width of the result, that of the ``encode`` part.
        beside: another architecture of embeddings, such as ``spacy.MultiHashEmbed.v2``, or None.
        store: save the model in the folder of the pipeline; if false, a checksum, and the pipeline reads the
            model from its path.
        cache_mb: megabytes for vectors that a training computes once.
    """
    shims = [FrozenElmo(model, store, cache_mb)]
    elmo = Model("elmo", _forward, init=_initialize, dims={"nO": None}, shims=shims)
    both = elmo if beside is None else concatenate(elmo, beside)
    return chain(both, with_array(Maxout(width, nP=3, dropout=0.0, normalize=True)))

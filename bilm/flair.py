"""Vectors of words for flair: `ElmoEmbeddings`."""

from pathlib import Path
from typing import Any

from bilm.data.packing import Layers
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import BackendError

try:
    import flair
    import torch
    from flair.data import Sentence
    from flair.embeddings import TokenEmbeddings
    from flair.embeddings.base import register_embeddings
except ImportError as error:
    raise BackendError("bilm.flair needs flair; in a clone of bilm, run pip install '.[flair]'") from error


@register_embeddings("bilm.flair.ElmoEmbeddings")
class ElmoEmbeddings(TokenEmbeddings):
    """Embeddings of a frozen biLM, for a ``StackedEmbeddings``, a ``SequenceTagger`` and others.

    A saved tagger holds the whole biLM. Import this module before such a tagger is loaded.

    Args:
        model: path of a model, see `bilm.ElmoEmbedder.from_model`; or the bytes of an archive of one.
        layers: ``"all"`` for all layers end to end, or as for `bilm.ElmoEmbedder.embed_sentences`.
        name: name of the embeddings, by which a sentence keeps them; by default of the model and `layers`.

    Raises:
        BilmError: the model cannot be read, or there are no such layers.

    Example:
        >>> from bilm.flair import ElmoEmbeddings
        >>> from flair.data import Sentence
        >>> embeddings, sentence = ElmoEmbeddings("weights.hdf5"), Sentence("time flies")
        >>> embeddings.embed(sentence)[0][1].embedding.shape  # 3 layers of 24
        torch.Size([72])
    """

    def __init__(self, model: str | Path | bytes, layers: Layers = "all", name: str | None = None) -> None:
        self.layers, self.static_embeddings = layers, True
        super().__init__()
        if isinstance(model, bytes):
            self.embedder = ElmoEmbedder.from_bytes(model)
        else:
            self.embedder = ElmoEmbedder.from_model(model)
        self.name = name or f"ELMo-{self.embedder.fingerprint[:8]}-{layers}"
        (vectors,) = self.embedder.embed_sentences([[]], layers=layers, pooling="mean")
        self._length = vectors.size
        self.eval()

    @property
    def embedding_length(self) -> int:
        """Width of the vectors."""
        return self._length

    def _add_embeddings_internal(self, sentences: list[Sentence]) -> None:
        words = ([token.text for token in sentence] for sentence in sentences)
        embedded = self.embedder.embed_sentences(words, layers=self.layers)
        for sentence, vectors in zip(sentences, embedded, strict=True):
            # (layers, words, dim) or (words, dim)
            by_word = vectors.swapaxes(0, -2).reshape(len(sentence), self._length)
            tensors = torch.from_numpy(by_word.copy()).to(flair.device)
            for token, vector in zip(sentence, tensors, strict=True):
                token.set_embedding(self.name, vector)

    def to_params(self) -> dict[str, Any]:
        """Return the arguments of the class, with the model itself, for a saved tagger."""
        return {"model": self.embedder.to_bytes(), "layers": self.layers, "name": self.name}

    @classmethod
    def from_params(cls, params: dict[str, Any]) -> "ElmoEmbeddings":
        """Make the embeddings from the result of `to_params`."""
        return cls(**params)

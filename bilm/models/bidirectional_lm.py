"""The biLM at inference, like bilm-tf's ``model.py``: from ids to the vectors of every layer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bilm.backend import keras_backend
from bilm.backend.keras_backend import Tensor, backend, keras, require_ready, require_tensorflow
from bilm.errors import DataError, OptionsError, checked, require_positive
from bilm.layers.scalar_mix import FieldMapping
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import Encoder, States
from bilm.options.options_file import load_inference_options
from bilm.weights import distribution, hdf5_file, names


@dataclass(frozen=True, eq=False)
class BilmOutput(FieldMapping):
    """Vectors of a batch of sentences; also a mapping from its attributes' names.

    Attributes:
        lm_embeddings: float32 (rows, layers + 1, words, directions * projection_dim), without the
            sentence marks: the word vector, once for each direction, then the LSTM layers from the
            lowest to the top, residuals included. Zero after the end of a sentence.
        lengths: int32 (rows,), words in each sentence.
        token_embeddings: float32 (rows, words + 2, projection_dim), word vectors with the sentence marks.
        mask: bool (rows, words), true for a word, false for padding.
    """

    lm_embeddings: Tensor
    lengths: Tensor
    token_embeddings: Tensor
    mask: Tensor
    _mixes: set[str] = field(default_factory=set, repr=False)  # of the model: names of `weight_layers`


class InferenceModel:
    """The encoder of a biLM at inference, and the LSTM states that it may carry from batch to batch.

    A model can be copied and pickled, the carried states included, but not used in a fork.

    Args:
        encoder: the encoder with its weights.
        max_batch_size: maximum number of rows in a batch if `stateful`.
        stateful: carry the LSTM state of each row, in both directions, from batch to batch.

    Attributes:
        n_layers: number of layers in the result: the word vectors and the LSTM layers.
        dim: width of the result.
    """

    def __init__(self, encoder: Encoder, max_batch_size: int = 128, stateful: bool = False) -> None:
        require_positive(max_batch_size=max_batch_size)
        self.encoder, self.options = encoder, encoder.options
        lstm = self.options.lstm
        self.n_layers, self.dim = lstm.n_layers + 1, self.options.n_directions * lstm.projection_dim
        self.max_batch_size, self.stateful = max_batch_size, stateful
        self._states: States = ()
        if stateful:
            require_tensorflow("stateful=True")
            self._states = keras.tree.map_structure(
                lambda values: keras.Variable(values, trainable=False, autocast=False),
                encoder.zero_states(max_batch_size),
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the arrays and arguments for pickle and copy, the carried states included."""
        to_numpy = keras.ops.convert_to_numpy
        weights = {name: to_numpy(leaf) for name, leaf in self.encoder.named_weights().items()}
        return {
            "encoder": (self.options, weights, "a copy of a model", self.encoder.precision),
            "rows": (self.max_batch_size, self.stateful),
            "states": [*map(to_numpy, self._state_variables())],
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Restore the model from `__getstate__`."""
        InferenceModel.__init__(self, inference.make_encoder(*saved["encoder"]), *saved["rows"])
        for variable, values in zip(self._state_variables(), saved["states"], strict=True):
            variable.assign(values)

    def reset_states(self) -> None:
        """Set the state of every row to zero."""
        for variable in self._state_variables():
            variable.assign(keras.ops.zeros_like(variable))

    def _state_variables(self) -> list[keras.Variable]:
        return keras.tree.flatten(self._states)

    def first_states(self, n_rows: Tensor) -> States:
        """Return the carried states of the first rows; zeros if not `stateful`."""
        if not self.stateful:
            return self.encoder.zero_states(n_rows)
        return keras.tree.map_structure(lambda state: state[:n_rows], self._states)

    def keep(self, states: States) -> None:
        """Store the states of the first rows if `stateful`; other rows keep theirs."""
        for state, after in zip(self._state_variables(), keras.tree.flatten(states), strict=False):
            others = state[keras.ops.shape(after)[0] :]
            state.assign(keras.ops.concatenate([after, others], axis=0))

    def require_states(self, n_rows: int | None, rows: str, remedy: str) -> None:
        """Raise a `DataError` for more rows than `max_batch_size`, if `stateful` and the number is known."""
        if self.stateful and n_rows is not None and n_rows > self.max_batch_size:
            problem = f"{n_rows} {rows}, but the state of only {self.max_batch_size} is carried"
            raise DataError(f"{problem}; give {remedy}")


class BidirectionalLanguageModel(InferenceModel):
    """A pretrained biLM that maps ids to vectors, like bilm-tf's class of this name.

    By default no state is carried from sentence to sentence, so that a vector depends on its own
    sentence alone. The model can be called eagerly and inside a ``tf.function``, which may return
    ``dict(model(ids))``.

    Args:
        options_file: ``options.json`` of the weights, with 261 or 262 characters.
        weight_file: weights, as for `bilm.ElmoEmbedder`.
        use_character_inputs: True for the ids of `Batcher`, False for those of `TokenBatcher`.
        embedding_weight_file: word vectors from `dump_token_embeddings`, which a character-level model needs
            for word ids. A word-level model has its own.
        max_batch_size: maximum number of rows in a batch if `stateful`.
        stateful: carry the LSTM state of each row, in both directions, from batch to batch, as bilm-tf and
            AllenNLP do. Rows missing from a smaller batch keep their state.

    Raises:
        BilmError: a file cannot be read, the files do not fit each other, or an argument is invalid.

    Example:
        >>> from bilm.data.batcher import Batcher
        >>> model = BidirectionalLanguageModel("options.json", "weights.hdf5")
        >>> output = model(Batcher(None, 50).batch_sentences([["Time", "flies"], ["Hello"]]))
        >>> output.lm_embeddings.shape
        TensorShape([2, 3, 2, 24])
        >>> output["mask"].numpy()  # bilm-tf's names are keys too
        array([[ True,  True],
               [ True, False]])
    """

    @checked
    def __init__(
        self,
        options_file: str | Path,
        weight_file: str | Path,
        use_character_inputs: bool = True,
        embedding_weight_file: str | Path | None = None,
        max_batch_size: int = 128,
        *,
        stateful: bool = False,
    ) -> None:
        options = load_inference_options(options_file)
        if use_character_inputs:
            if options.char_cnn is None:
                raise OptionsError(
                    "use_character_inputs: the model reads words of its vocabulary, not characters; give "
                    "False, and ids of a TokenBatcher; it needs no vectors of dump_token_embeddings"
                )
            if embedding_weight_file is not None:
                raise OptionsError(
                    "embedding_weight_file: is for word ids; give use_character_inputs=False with it"
                )
        elif options.char_cnn is not None and embedding_weight_file is None:
            raise OptionsError(
                "embedding_weight_file: missing; for word ids a character-level model needs the vectors that "
                "dump_token_embeddings writes"
            )
        weights = distribution.find_weights(weight_file).read(names.dump_names(options))
        if embedding_weight_file is not None:  # with vectors of words it is a word-level model
            vectors = hdf5_file.read_token_embeddings(embedding_weight_file, options.lstm.projection_dim)
            weights = {name: array for name, array in weights.items() if "/char_cnn/" not in name}
            options, weights["encoder/embedding"] = replace(options, char_cnn=None), vectors
        encoder = inference.make_encoder(options, weights, str(weight_file))
        super().__init__(encoder, max_batch_size, stateful)

    @cached_property
    def _mixes(self) -> set[str]:
        """Names of the `weight_layers` of this model's outputs."""
        return set()

    @cached_property
    def _ids(self) -> inference.IdKind:
        return inference.IdKind.from_options(self.options, has_marks=True)

    @cached_property
    def _run(self) -> Callable[..., Any]:
        spec = keras.KerasTensor((None, None, self._ids.width)[: 1 + self._ids.n_inner], "int32")
        return backend.compiled(self._compute, self.encoder, [spec])

    def __call__(self, ids: Any) -> BilmOutput:  # noqa: ANN401
        """Compute the vectors of a batch of sentences.

        Args:
            ids: integers (rows, words + 2, max_characters_per_token), or (rows, words + 2) for word ids, with
                the sentence marks, 0 for padding.

        Raises:
            DataError: the ids do not fit the model, see `IdKind`; or, if `stateful`, there are more than
                `max_batch_size` rows, if their number is known.
            ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
        """
        require_ready()
        ids = self._ids.checked(ids)
        self.require_states(ids.shape[0], "rows", "a smaller batch or a larger max_batch_size")
        # What infers shapes assigns no states, so its graph must not be the one that is kept.
        run = self._compute if keras_backend.infers_shapes() else self._run
        return BilmOutput(**run(ids), _mixes=self._mixes)

    def _compute(self, ids: Tensor) -> dict[str, Tensor]:
        lengths = inference.count_tokens(inference.token_mask(ids))
        words = inference.word_vectors(self.encoder, ids)
        states = self.first_states(keras.ops.shape(words)[0])
        layers, after = inference.run_sentences(self.encoder, words, lengths, states)
        self.keep(after)
        n_words = keras.ops.maximum(lengths - 2, 0)
        steps = keras.ops.arange(keras.ops.shape(ids)[1] - 2, dtype="int32")
        return {
            "lm_embeddings": inference.without_marks(layers, lengths),
            "lengths": n_words,
            "token_embeddings": words,
            "mask": steps < n_words[:, None],
        }

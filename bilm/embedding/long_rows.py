"""Packed rows run through the network in windows of steps, so that memory does not grow with their length.

The states at the end of a window are those that the next one begins with. The backward direction has its own
order of tokens (see `bilm.embedding.packing`), from the ends of the sentences on, so that its windows follow
one another in the same way, and the vectors are those of whole rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bilm.backend.current import backend
from bilm.backend.keras_backend import Tensor, keras
from bilm.backend.spec import TOKENS_AT_ONCE, Spec, power_of_two
from bilm.embedding.packing import Packing
from bilm.embedding_files.chunks import Layers
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import Encoder, States

_LONG = 16384  # tokens, of which the whole rows do without windows


class LongRows:
    """Runs packed rows in windows; its graph is compiled once.

    Args:
        encoder: the network; its state is zero where a sentence begins.
        layers: which are wanted, as `bilm.embedding.embedder.ElmoEmbedder.embed_chunk` takes them.
        dtype: of the vectors.
    """

    def __init__(self, encoder: Encoder, layers: Layers, dtype: str) -> None:
        self._encoder, self._layers, self._dtype = encoder, layers, dtype
        self._run = backend.compiled(self._window, encoder, self._specs())

    def __call__(self, table: np.ndarray, packing: Packing, numbers: np.ndarray) -> np.ndarray:
        """Vectors of words.

        Args:
            table: vectors of distinct words, float32 (words, projection_dim).
            packing: where the tokens are.
            numbers: of the word of each token in the table, int32 (tokens,).

        Returns:
            Vectors (layers, words, dim) of the tokens that are words, sentence after sentence; with one
            layer or a mean, (1, words, dim).
        """
        n_directions = self._encoder.options.n_directions
        tokens = packing.fill(numbers, n_directions)
        places = packing.places(*[packing.is_word] * n_directions)
        order = np.argsort(places, axis=1)  # of words, as each direction comes to them
        sorted_places = np.take_along_axis(places, order, axis=1)
        begins, n_rows = packing.begins, packing.n_rows
        n_layers = self._encoder.options.lstm.n_layers + 1 if self._layers == "all" else 1
        width = self._encoder.options.lstm.projection_dim
        result = np.empty((n_layers, places.shape[1], n_directions * width), self._dtype)
        states = self._encoder.zero_states(n_rows)
        for steps in windows(packing.n_steps, n_rows):
            window = table, tokens[:, steps], begins[steps]
            if backend.FIXED_SHAPES:
                window = _padded(*window)
            found, states = self._run(*window, states)
            for direction, vectors in enumerate(map(keras.ops.convert_to_numpy, found)):
                first, end = np.searchsorted(
                    sorted_places[direction], [steps.start * n_rows, steps.stop * n_rows]
                )
                there = sorted_places[direction, first:end] - steps.start * n_rows
                columns = slice(direction * width, (direction + 1) * width)
                result[:, order[direction, first:end], columns] = vectors[:, there]
        return result

    def _window(
        self, table: Tensor, tokens: Tensor, begins: Tensor, states: States
    ) -> tuple[list[Tensor], States]:
        """By direction, vectors of all places, (layers, places, projection_dim); and the states after."""
        ops = keras.ops
        every = ops.arange(ops.size(begins), dtype="int32")
        n_directions = self._encoder.options.n_directions
        layers, after = inference.run_packed(
            self._encoder, table, tokens, ops.stack([every] * n_directions), begins, states=states
        )
        by_direction = []
        for direction in range(n_directions):
            words = backend.gather(table, ops.reshape(tokens[direction], (-1,)))
            stack = [words, *(layer[direction] for layer in layers)]
            by_direction.append(ops.cast(self._chosen(stack), self._dtype))
        return by_direction, after

    def _chosen(self, stack: list[Tensor]) -> Tensor:
        if self._layers == "all":
            return keras.ops.stack(stack)
        if self._layers == "average":
            return keras.ops.mean(keras.ops.stack(stack), axis=0, keepdims=True)
        return stack[-1 if isinstance(self._layers, str) else self._layers][None]

    def _specs(self) -> list[Any]:
        width, n_directions = self._encoder.options.lstm.projection_dim, self._encoder.options.n_directions
        states = keras.tree.map_structure(
            lambda state: Spec((None, *state.shape[1:]), "float32"), self._encoder.zero_states(1)
        )
        return [
            Spec((None, width), "float32"),
            Spec((n_directions, None, None), "int32"),
            Spec((None, None), "bool"),
            states,
        ]


def _padded(
    table: np.ndarray, tokens: np.ndarray, begins: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A window with as many words and steps as the next power of two, so that few sizes are compiled.

    Only the last window of the rows has its steps padded, since the others have all the same number.
    """
    n_words, n_steps = map(power_of_two, (len(table), len(begins)))
    if len(begins) == window_size(begins.shape[1]):
        n_steps = len(begins)
    return (
        np.pad(table, [(0, n_words - len(table)), (0, 0)]),
        np.pad(tokens, [(0, 0), (0, n_steps - len(begins)), (0, 0)]),
        np.pad(begins, [(0, n_steps - len(begins)), (0, 0)]),
    )


def is_long(packing: Packing, batch_tokens: int) -> bool:
    """Whether rows are worth the windows: they take twice the tokens that are computed together otherwise."""
    return packing.n_steps * packing.n_rows > 2 * min(batch_tokens, _LONG)


def window_size(n_rows: int) -> int:
    """Steps that the LSTM takes at once."""
    return max(1, TOKENS_AT_ONCE // n_rows)


def windows(n_steps: int, n_rows: int) -> list[slice]:
    """Steps run together, as many as the LSTM takes at once, so that the bits are those of whole rows."""
    size = window_size(n_rows)
    return [slice(start, min(start + size, n_steps)) for start in range(0, n_steps, size)]

"""The network on PyTorch: plain loops over the steps, and gradients by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights, lstm_step, zero_where
from bilm.backend.settings import TOKENS_AT_ONCE, WORDS_AT_ONCE

FIXED_SHAPES = False


class Dropout(keras.layers.Layer):
    """Dropout by PyTorch's own generator, so that no seed stands among the parameters of a module."""

    def __init__(self, rate: float) -> None:
        super().__init__(name="dropout")
        self.rate = rate

    def call(self, values: torch.Tensor, training: bool | None = None) -> torch.Tensor:
        """Drop a share of the values in training, and scale up the rest."""
        return torch.nn.functional.dropout(values, self.rate) if training and self.rate else values


def is_dense(tensor: Any) -> bool:  # noqa: ANN401
    """Whether a tensor has a value in each place, or stands for one where Keras finds out shapes."""
    is_tensor = isinstance(tensor, torch.Tensor)
    return not is_tensor or (tensor.layout == torch.strided and tensor.is_meta <= is_symbolic(tensor))


def run_lstm(
    inputs: torch.Tensor,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: torch.Tensor | None = None,
    begins: torch.Tensor | None = None,
    training: bool | None = None,  # noqa: ARG001
) -> tuple[torch.Tensor, LSTMState]:
    """One layer over rows; the input's share of the gates is one product for many steps.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the first step.
        weights: see `LSTMWeights`.
        clips: see `Clips`.
        lengths: int32 (batch,), the steps of each row that count; all of them if None.
        begins: bool (steps, batch), the steps before which the state is set to zero; none if None.
        training: as for TensorFlow; autograd keeps what it needs.

    Returns:
        Outputs (steps, batch, projection_dim), zero after the end of a row, and the state of each row
        at its own end.
    """
    n_steps, n_rows, input_dim = inputs.shape
    of_inputs, recurrent = weights.kernel[:input_dim], weights.kernel[input_dim:]
    outputs: list[torch.Tensor] = []
    for some in torch.split(inputs, max(1, TOKENS_AT_ONCE // max(n_rows, 1))):
        shares = torch.matmul(some.reshape(-1, input_dim).to(of_inputs.dtype), of_inputs)
        shares = shares.to(state.c.dtype) + weights.bias
        for share in shares.reshape(len(some), n_rows, -1).unbind():
            now = len(outputs)
            goes_on = None if lengths is None else (now < lengths)[:, None]
            is_new = None if begins is None else begins[now][:, None]
            before = LSTMState(*(zero_where(is_new, values) for values in state))
            gates = _add_product(share, before.h, recurrent)
            output, state = lstm_step(gates, before, weights, clips, goes_on)
            outputs.append(output)
    stacked = torch.stack(outputs) if outputs else inputs.new_zeros((n_steps, *state.h.shape))
    return stacked, state


def _add_product(share: torch.Tensor, h: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """The gates: their share of the input and that of the hidden state, added up in the type of the first."""
    if kernel.dtype == share.dtype:
        return torch.addmm(share, h, kernel)  # spares a pass over the gates
    return share + torch.matmul(h.to(kernel.dtype), kernel).to(share.dtype)


def gather(table: torch.Tensor | keras.Variable, numbers: torch.Tensor) -> torch.Tensor:
    """Rows of a table."""
    return torch.nn.functional.embedding(numbers, table.value if isinstance(table, keras.Variable) else table)


def distinct_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows there are, each once, and the number of each row among them."""
    if rows.is_meta:
        return rows, torch.arange(len(rows), device="meta")
    return torch.unique(rows, dim=0, return_inverse=True)


def encode_in_parts(encoder: Any, rows: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """Vectors of words, some at a time and each among others of its length.

    Args:
        encoder: a `bilm.layers.char_cnn.CharCNN`.
        rows: character ids 0-260, int32 (words, max_characters).

    Returns:
        Shape (words, output_dim).
    """
    if rows.is_meta:  # which words are long is in the values
        return torch.empty((len(rows), encoder.output_dim), device="meta")
    return torch.cat([_encode_some(encoder, some) for some in torch.split(rows, WORDS_AT_ONCE)])


def _encode_some(encoder: Any, rows: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    bucket = encoder.buckets_of(rows)
    places = [torch.nonzero(bucket == i)[:, 0] for i in range(len(encoder.options.bucket_widths))]
    parts = zip(places, encoder.options.bucket_widths, strict=True)
    vectors = encoder(tuple(rows[at, :width] for at, width in parts if len(at)) or (rows,))
    return vectors[torch.argsort(torch.cat(places))]


def compiled(
    function: Callable[..., Any],
    layer: keras.layers.Layer,  # noqa: ARG001
    specs: Sequence[Any],
) -> Callable[..., Any]:
    """A function for inference, which runs operation by operation and keeps nothing for a gradient.

    Args:
        function: of tensors, or nests of them.
        layer: whose weights it uses.
        specs: of its arguments, `keras.KerasTensor` or nests of them.
    """

    def run(*args: Any) -> Any:  # noqa: ANN401
        with torch.no_grad():
            tensors = keras.tree.map_structure(
                lambda spec, values: keras.ops.convert_to_tensor(values, spec.dtype), [*specs], [*args]
            )
            return function(*tensors)

    return run


def is_symbolic(tensor: Any) -> bool:  # noqa: ANN401
    """Whether it is a tensor without values, where Keras finds out shapes and makes no others."""
    return isinstance(tensor, torch.Tensor) and tensor.is_meta and keras.ops.zeros(()).is_meta


def require_ready() -> None:
    """It always is."""


def n_gpus() -> int:
    """GPUs that PyTorch finds."""
    return torch.cuda.device_count()

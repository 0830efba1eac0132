"""The network on PyTorch: plain loops over the steps, with gradients by autograd."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import torch

from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights, lstm_step, zero_where
from bilm.backend.settings import TOKENS_AT_ONCE, WORDS_AT_ONCE

FIXED_SHAPES = False


class Layer(keras.layers.Layer):
    """A layer whose copies and pickles keep its mode, and the dtypes and gradients of its parameters."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes a layer like this one; Keras would make one in training mode, of float32."""
        modes = {name: module.training for name, module in self.named_modules()}
        arguments = type(self), self.get_config(), self.get_build_config(), modes, [*self.parameters()]
        return _made_again, arguments


def _made_again(
    kind: type[Layer],
    config: dict[str, Any],
    build: dict[str, Any],
    modes: dict[str, bool],
    parameters: Sequence[torch.nn.Parameter],
) -> Layer:
    layer = kind.from_config(config)
    if parameters and not layer.built:
        layer.build_from_config(build)
    for parameter, saved in zip(layer.parameters(), parameters, strict=True):
        parameter.data = saved.data
        parameter.requires_grad_(saved.requires_grad)
    for name, module in layer.named_modules():
        module.training = modes.get(name, modes[""])  # some are made when they are used
    return layer


class Dropout(keras.layers.Layer):
    """Dropout with PyTorch's own generator, so that a module has no seed among its parameters."""

    def __init__(self, rate: float, dtype: Any = None) -> None:  # noqa: ANN401
        super().__init__(name="dropout", autocast=False, dtype=dtype)
        self.rate = rate

    def call(self, values: torch.Tensor, training: bool | None = None) -> torch.Tensor:
        """Zero a share of the values in training and scale up the others."""
        return torch.nn.functional.dropout(values, self.rate) if training and self.rate else values


def is_dense(tensor: Any) -> bool:  # noqa: ANN401
    """Return True for a dense tensor, or one that stands for it while Keras infers shapes."""
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
    """Run one layer over rows; the inputs of many steps are multiplied with the kernel at once.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the first step.
        weights: see `LSTMWeights`.
        clips: see `Clips`.
        lengths: int32 (batch,), the length of each row in steps; None if all rows are full.
        begins: bool (steps, batch), True at steps that start from a zero state; None if no step does.
        training: ignored; autograd keeps the values that the gradient needs.

    Returns:
        Outputs (steps, batch, projection_dim), zero after the end of a row, and the state of each row
        at its own end.
    """
    n_steps, n_rows, input_dim = inputs.shape
    input_kernel, recurrent = weights.kernel[:input_dim], weights.kernel[input_dim:]
    outputs: list[torch.Tensor] = []
    for window in torch.split(inputs, max(1, TOKENS_AT_ONCE // max(n_rows, 1))):
        shares = torch.matmul(window.reshape(-1, input_dim).to(input_kernel.dtype), input_kernel)
        shares = shares.to(state.c.dtype) + weights.bias
        for share in shares.reshape(len(window), n_rows, -1).unbind():
            now = len(outputs)
            continues = None if lengths is None else (now < lengths)[:, None]
            is_new = None if begins is None else begins[now][:, None]
            before = LSTMState(*(zero_where(is_new, values) for values in state))
            gates = _add_product(share, before.h, recurrent)
            output, state = lstm_step(gates, before, weights, clips, continues)
            outputs.append(output)
    stacked = torch.stack(outputs) if outputs else inputs.new_zeros((n_steps, *state.h.shape))
    return stacked, state


def _add_product(share: torch.Tensor, h: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """Add the hidden state's product with the kernel to the inputs' share, in the share's dtype."""
    if kernel.dtype == share.dtype:
        return torch.addmm(share, h, kernel)  # saves a pass over the gates
    return share + torch.matmul(h.to(kernel.dtype), kernel).to(share.dtype)


def gather(table: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Return rows of a table by number."""
    return torch.nn.functional.embedding(numbers, table)


max_over_windows = functools.partial(keras.ops.max, axis=1)


def distinct_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the distinct rows and the index of each row among them."""
    if rows.is_meta:
        return rows, torch.arange(len(rows), device="meta")
    return torch.unique(rows, dim=0, return_inverse=True)


def encode_in_parts(encoder: Any, rows: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """Encode words in parts, each with others of its length.

    Args:
        encoder: a `bilm.layers.char_cnn.CharCNN`.
        rows: int32 (words, max_characters), character ids 0-260.

    Returns:
        Shape (words, output_dim).
    """
    if rows.is_meta:  # the lengths of the words are in the values
        return torch.empty((len(rows), encoder.output_dim), device="meta")
    return torch.cat([_encode_part(encoder, part) for part in torch.split(rows, WORDS_AT_ONCE)])


def _encode_part(encoder: Any, rows: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    bucket = encoder.buckets_of(rows)
    places = [torch.nonzero(bucket == i)[:, 0] for i in range(len(encoder.options.bucket_widths))]
    parts = zip(places, encoder.options.bucket_widths, strict=True)
    vectors = encoder(tuple(rows[at, :width] for at, width in parts if len(at)) or (rows,))
    return vectors[torch.argsort(torch.cat(places))]


def compiled(
    function: Callable[..., Any], layer: keras.layers.Layer, specs: Sequence[Any]
) -> Callable[..., Any]:
    """Prepare a function for inference, which runs operation by operation and without a gradient.

    Args:
        function: a function of tensors or nests of them.
        layer: ignored.
        specs: `keras.KerasTensor` or nests of them, the specification of each argument.
    """

    def run(*args: Any) -> Any:  # noqa: ANN401
        with torch.no_grad():
            tensors = keras.tree.map_structure(
                lambda spec, values: keras.ops.convert_to_tensor(values, spec.dtype), [*specs], [*args]
            )
            return function(*tensors)

    return run


def is_symbolic(tensor: Any) -> bool:  # noqa: ANN401
    """Return True for a tensor without values, made while Keras infers shapes."""
    return isinstance(tensor, torch.Tensor) and tensor.is_meta and keras.ops.zeros(()).is_meta


def runs_in_fork() -> bool:
    """Return True in a process with one thread, as the workers of ``torch.utils.data.DataLoader`` are."""
    return torch.get_num_threads() == 1


def n_gpus() -> int:
    """Return the number of GPUs that PyTorch finds."""
    return torch.cuda.device_count()

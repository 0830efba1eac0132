"""The forward and backward pass of an LSTM window, unrolled over its steps.

TensorFlow's own operations compute the products, which take bfloat16 at the processor's speed, and XLA, if it
can, the arithmetic between them: a few passes over the gates instead of some thirty. The gradient is written
by hand: the inputs' share of the gates is one product before the steps, and the gradients of the inputs and
of each weight are one product after them. The batch is the last axis, because large weights are multiplied
faster from the left; all steps together are (width, steps * batch).
"""

import tensorflow as tf

from bilm.backend.gradients import with_gradient
from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights, clip, update_cell
from bilm.backend.xla import compiled


def lstm_window(
    inputs: tf.Tensor, state: LSTMState, weights: LSTMWeights, clips: Clips
) -> tuple[tf.Tensor, LSTMState]:
    """Run one layer over a window whose length is known when the graph is built.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the window.
        weights: see `LSTMWeights`.
        clips: see `Clips`.

    Returns:
        Outputs (steps, batch, projection_dim) and the state after the window, in the dtype of `state`.
    """

    def forward(*arguments: tf.Tensor) -> tuple[tuple, tuple]:
        inputs, c, h, kernel, bias, *projections = arguments
        (n_steps, _, input_dim), dtype = inputs.shape, kernel.dtype
        columns = tf.reshape(tf.transpose(tf.cast(inputs, dtype), [2, 0, 1]), [input_dim, -1])
        parts = kernel[:input_dim], kernel[input_dim:], *projections
        input_kernel, recurrent, *projections_t = _swap_apart(parts)
        cells, hidden, activations = [_swap(c)], [tf.cast(_swap(h), dtype)], []
        for share in tf.split(tf.matmul(input_kernel, columns), n_steps, axis=1):
            gates = share, tf.matmul(recurrent, hidden[-1])
            c, m, activated = _step(gates, bias[:, None], cells[-1], clips.cell)
            for projection in projections_t:
                m = clip(tf.matmul(projection, m), clips.projection)
            cells.append(c)
            hidden.append(m)
            activations.append(activated)
        outputs = tf.cast(_swap(tf.stack(hidden[1:])), h.dtype)
        kept = inputs, h, kernel, bias, projections, columns, cells, hidden, activations
        return (outputs, _swap(cells[-1]), outputs[-1]), kept

    def backward(kept: tuple, d_outputs: tf.Tensor, dc: tf.Tensor, dh: tf.Tensor) -> list[tf.Tensor]:
        inputs, h, kernel, bias, projections, columns, cells, hidden, activations = kept
        (n_steps, _, input_dim), dtype = inputs.shape, kernel.dtype
        dc, dh, d_outputs = _swap(dc), tf.cast(_swap(dh), dtype), tf.cast(_swap(d_outputs), dtype)
        d_outputs = tf.unstack(d_outputs)
        d_gates, d_projected, ms = [], [], []  # from the last step to the first
        for now in reversed(range(n_steps)):
            dm = dh + d_outputs[now]
            for projection in projections:
                d_projected.append(_through_clip(dm, hidden[now + 1], clips.projection))
                dm = tf.matmul(projection, d_projected[-1])
            dc, d_gates_now, m = _step_gradient(
                activations[now], cells[now], cells[now + 1], dc, dm, clips.cell
            )
            d_gates.append(d_gates_now)
            ms.append(m)
            dh = tf.matmul(kernel[input_dim:], d_gates_now)
        d_all = tf.concat(d_gates[::-1], axis=1)
        d_columns = tf.reshape(tf.matmul(kernel[:input_dim], d_all), [input_dim, n_steps, -1])
        joined = tf.concat([columns, tf.concat(hidden[:-1], axis=1)], axis=0)
        return [
            tf.cast(tf.transpose(d_columns, [1, 2, 0]), inputs.dtype),
            _swap(dc),
            tf.cast(_swap(dh), h.dtype),
            _weight_gradient(joined, d_all),
            _sum_of_columns(d_all, bias.dtype),
            *(_weight_gradient(tf.concat(ms, 1), tf.concat(d_projected, 1)) for _ in projections),
        ]

    tensors = inputs, *state, *(weight for weight in weights if weight is not None)
    outputs, c, h = with_gradient(forward, backward, *tensors)
    return outputs, LSTMState(c, h)


_swap = tf.linalg.matrix_transpose  # exchanges the last two axes


@compiled
def _swap_apart(tensors: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    """Transpose factors where TensorFlow cannot fuse it into their products, at half their speed in Eigen."""
    return tuple(map(_swap, tensors))


@compiled
def _step(
    shares: tuple[tf.Tensor, tf.Tensor], bias: tf.Tensor, c: tf.Tensor, bound: float | None
) -> tuple[tf.Tensor, tf.Tensor, tuple[tf.Tensor, ...]]:
    """Compute a step from the shares of its gates, (4 * dim, batch), up to the projection."""
    gates = sum((tf.cast(share, c.dtype) for share in shares), bias)
    c, m, kept = update_cell(tf.split(gates, 4), c, bound)
    return c, tf.cast(m, shares[0].dtype), kept


@compiled
def _step_gradient(
    kept: tuple, before: tf.Tensor, c: tf.Tensor, dc: tf.Tensor, dm: tf.Tensor, bound: float | None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the gradients of the cell before a step and of its gates, and the output before the projection.

    Args:
        kept: activated gates of the step, see `update_cell`.
        before: cell before the step.
        c: cell after the step.
        dc: gradient of the cell after the step, from later steps.
        dm: gradient of the output before the projection.
        bound: bound of the cell, or None.
    """
    i, j, f, o = kept
    dtype, dm, tanh_c = dm.dtype, tf.cast(dm, c.dtype), tf.tanh(c)
    dc = _through_clip(dc + dm * o * (1.0 - tanh_c * tanh_c), c, bound)
    d_gates = [
        dc * j * i * (1.0 - i),
        dc * i * (1.0 - j * j),
        dc * before * f * (1.0 - f),
        dm * tanh_c * o * (1.0 - o),
    ]
    return dc * f, tf.cast(tf.concat(d_gates, axis=0), dtype), tf.cast(o * tanh_c, dtype)


def _through_clip(gradient: tf.Tensor, clipped: tf.Tensor, bound: float | None) -> tf.Tensor:
    """Return the gradient before a clip: zero where the clipped value reached the bound."""
    if bound is None:
        return gradient
    return tf.where(tf.abs(clipped) < tf.cast(bound, clipped.dtype), gradient, tf.zeros_like(gradient))


def _sum_of_columns(gates: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Sum over all columns; in low precision a product adds up in float32 without a cast of all of them."""
    if gates.dtype == dtype:
        return tf.reduce_sum(gates, axis=1)
    return tf.cast(tf.matmul(gates, tf.ones([tf.shape(gates)[1], 1], gates.dtype)), dtype)[:, 0]


def _weight_gradient(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Sum the outer products over all columns; Eigen is twice as fast with the wider factor on the left."""
    return _swap(tf.matmul(right, left, transpose_b=True))

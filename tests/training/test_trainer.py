import dataclasses
import itertools
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bilm.data.pipeline import Batch, training_batches
from bilm.data.stream import Order
from bilm.errors import OptionsError
from bilm.models.language_model import LanguageModel
from bilm.options import Decay, Optimizer, Options, Precision
from bilm.run_directory.directory import RunDirectory
from bilm.training.trainer import Trainer, TypePadding, training_steps
from bilm.vocabulary.vocabulary import load_vocabulary
from tests.helpers import SMALLEST, TRAIN, VOCAB, restore, small_options

STEPS = 3  # of a window: soon compiled


def make(weights=None, freeze=None, jit=False, values=SMALLEST, **changes):
    """A trainer of the smallest model, which begins with weights of another or always with the same."""
    keras.utils.set_random_seed(3)
    options = Options.from_json(values | {"n_tokens_vocab": 73, "batch_size": 4, "dropout": 0.0})
    model = LanguageModel(dataclasses.replace(options, **changes))
    trainer = Trainer(model, seed=5, freeze=freeze, jit=jit)
    if weights is not None:
        trainer.model.set_weights(weights)
    return trainer


def batches_of(trainer):
    """As many parts each as the trainer has."""
    cnn = trainer.options.char_cnn
    vocabulary = load_vocabulary(VOCAB, cnn and cnn.max_characters_per_token)
    files, n_parts = [TRAIN], trainer.n_parts
    return training_batches(files, vocabulary, trainer.options, Order(), n_replicas=n_parts)


def weights(trainer):
    return {name: weight.numpy() for name, weight in trainer.model.named_weights().items()}


@pytest.mark.slow
def test_training_lowers_loss():
    trainer = make(dropout=0.2)

    def late_once():
        for number, batch in enumerate(batches_of(trainer)):
            time.sleep(0.2 * (number == 9))
            yield batch

    reports = list(training_steps(trainer, late_once(), 100))
    losses = [report.loss for report in reports]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
    assert [report.step for report in reports] == list(range(1, 101))
    assert 0.2 <= reports[9].wait_seconds < reports[9].seconds
    assert reports[0].n_tokens == 4 * STEPS and reports[-1].n_done == reports[-1].n_steps == 100


@pytest.mark.parametrize("sampled", [pytest.param(False, marks=pytest.mark.slow), True])
def test_accumulated_batches_equal_one_batch(sampled):
    whole = make(batch_size=8, sample_softmax=sampled)
    parts = make(whole.model.get_weights(), accumulate=2, sample_softmax=sampled)
    reports = [training_steps(trainer, batches_of(trainer), 4) for trainer in (whole, parts)]
    for one, other in zip(*reports, strict=True):
        assert other.loss == pytest.approx(one.loss, rel=1e-6)
        assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-5)
        assert other.n_tokens == one.n_tokens
    found = weights(parts)
    for name, weight in weights(whole).items():
        np.testing.assert_allclose(found[name], weight, atol=1e-6, err_msg=name)


def test_parts_and_directions_have_draws_of_their_own():
    """Of dropout, which would else be that of the first part, and of negative samples."""
    plain = {"dropout": 0.5, "sample_softmax": False}
    one = make(**plain)
    several = make(one.model.get_weights(), accumulate=2, **plain)
    batch = next(batches_of(one)).parts
    (sum_of_one,), _ = one.step(batch, 1)
    (sum_of_two,), _ = several.step(batch * 2, 1)
    assert sum_of_two != pytest.approx(2 * sum_of_one, rel=1e-4)
    ((forward, backward),) = make(bidirectional=True, sample_softmax=True)._negatives(1)
    assert not np.array_equal(forward.ids, backward.ids)


@pytest.mark.slow
def test_penalties_change_gradient_not_loss():
    """A step of SGD moves by the gradient of (loss + penalty) * unroll_steps, at half the rate."""
    plain = {"dropout": 0.2, "optimizer": Optimizer.SGD, "learning_rate": 0.5, "sample_softmax": False}
    plain |= {"all_clip_norm_val": 1e6, "warmup_steps": 2}
    penalised = plain | {"activation_regularization": 2.0, "temporal_activation_regularization": 1.0}
    penalised |= {"word_vector_tying": 3.0, "softmax_row_tying": 2.0}
    values = small_options(bidirectional=False, lstm={"n_layers": 1})  # of characters, whose vectors are tied
    moved, reports = [], []
    for changes in (plain, penalised):
        trainer = make(values=values, **changes)
        before = weights(trainer)
        reports.append(next(training_steps(trainer, batches_of(trainer), 1)))
        moved.append({name: before[name] - weight for name, weight in weights(trainer).items()})
    assert reports[0].loss == reports[1].loss
    trainer = make(values=values, **penalised)
    batch = next(batches_of(trainer)).parts[0]
    with tf.GradientTape() as tape:
        seed = tf.random.experimental.stateless_fold_in(tf.constant([5, 1]), 0)
        penalty = trainer.model.losses(batch, trainer.states[0], (), seed, tying_share=0.5).penalty
    gradients = tape.gradient(penalty, [weight.value for weight in trainer.model.weights])
    for name, gradient in zip(trainer.model.named_weights(), gradients, strict=True):
        expected = 0.0 if gradient is None else 0.25 * STEPS * tf.convert_to_tensor(gradient)
        np.testing.assert_allclose(moved[1][name] - moved[0][name], expected, atol=1e-5, err_msg=name)
    top = f"encoder/forward_{trainer.options.lstm.n_layers - 1}/bias"
    assert np.abs(moved[1][top] - moved[0][top]).max() > 1e-4


def test_step_decays_changed_weights():
    plain, decayed = make(), make(weight_decay=0.5)
    before = weights(plain)
    for trainer in (plain, decayed):
        next(training_steps(trainer, batches_of(trainer), 1))
    found, factor = weights(decayed), 1 - 0.5 * plain.options.step_size
    for name, expected in weights(plain).items():
        if expected.ndim > 1:  # of tables the rows that a step has changed, of kernels all
            changed = (expected != before[name]).any(1, keepdims=True)
            expected = np.where(changed, factor * expected, expected)
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("part", ["encoder", "softmax"])
def test_frozen_part_stays(part):
    trainer = make(freeze=f"{part}/", dropout=0.2)
    before = weights(trainer)
    list(training_steps(trainer, batches_of(trainer), 2))
    for name, weight in weights(trainer).items():
        assert np.array_equal(weight, before[name]) == name.startswith(part), name


@pytest.mark.parametrize(
    "optimizer",
    [pytest.param(one, marks=[] if one == "muon" else [pytest.mark.slow]) for one in [*Optimizer][1:]],
)
def test_keras_optimizers_learn_and_restore(optimizer, tmp_path):
    changes = {"optimizer": optimizer, "learning_rate": optimizer.default_learning_rate}
    trainer = make(**changes, learning_rate_decay=Decay.LINEAR, sample_softmax=False)
    batch = itertools.repeat(next(batches_of(trainer)))
    reports = list(training_steps(trainer, batch, 12))
    assert reports[-1].loss < reports[5].loss  # by then the LSTM's state has settled
    assert reports[-1].learning_rate == pytest.approx(optimizer.default_learning_rate / 12)
    run = RunDirectory.create(tmp_path / "run", trainer.options, load_vocabulary(VOCAB))
    run.save(trainer.model, trainer.optimizer, 12, 50.0)
    again = make(**changes)
    restore(run, again.model, again.optimizer)
    for variable, saved in zip(again.optimizer.variables, trainer.optimizer.variables, strict=True):
        np.testing.assert_array_equal(variable, saved, err_msg=variable.path)
    assert int(again.optimizer.iterations) == 12


@pytest.mark.slow
def test_jit_steps_equal_plain_steps():
    reports = []
    for jit in (False, True):
        trainer = make(values=small_options(lstm={"n_layers": 1}, bidirectional=False), jit=jit)
        reports.append(list(training_steps(trainer, batches_of(trainer), 3)))
    for plain, compiled in zip(*reports, strict=True):
        assert compiled.loss == pytest.approx(plain.loss, rel=1e-5)
        assert compiled.gradient_norm == pytest.approx(plain.gradient_norm, rel=1e-4)
    with pytest.raises(OptionsError, match="jit=True: XLA cannot compile the full softmax"):
        make(jit=True, sample_softmax=False)


@pytest.mark.parametrize(
    "optimizer", [pytest.param(Optimizer.ADAGRAD, marks=pytest.mark.slow), Optimizer.MUON]
)
def test_skipped_step_changes_nothing(optimizer):
    changes = {"sample_softmax": False, "weight_decay": 0.1, "optimizer": optimizer}
    trainer = make(precision=Precision.FLOAT16, **changes)
    norm = next(training_steps(trainer, batches_of(trainer), 1)).gradient_norm
    assert norm < 1e3  # without the loss scale, 2**15
    if optimizer is Optimizer.ADAGRAD:
        exact = make(**changes)
        assert norm == pytest.approx(
            next(training_steps(exact, batches_of(exact), 1)).gradient_norm, rel=0.02
        )
    trainer.loss_scale.value = 2.0**127  # overflows for certain, with such weights
    trainer.model.softmax.kernel.assign(1e3 * trainer.model.softmax.kernel)
    before, states = weights(trainer), trainer.states
    report = next(training_steps(trainer, batches_of(trainer), 1))
    assert report.is_skipped and not report.is_finite and trainer.loss_scale.value == 2.0**126
    for name, weight in weights(trainer).items():
        np.testing.assert_array_equal(weight, before[name], err_msg=name)
    for new, old in zip(tf.nest.flatten(trainer.states), tf.nest.flatten(states), strict=True):
        np.testing.assert_array_equal(new, old)


def words(batch):
    """The characters of every token."""
    rows = [tuple(row) for bucket in batch.type_characters for row in bucket]
    return [rows[k] for k in batch.token_types.ravel()]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=5))
def test_padding_keeps_words(sizes):
    random, padding, before = np.random.default_rng(0), TypePadding(), (0, 0, 0)
    for step in sizes:
        buckets = tuple(random.integers(1, 261, (n, 3 + k)).astype(np.int32) for k, n in enumerate(step))
        tokens = random.integers(0, sum(step), (2, 4, 3)).astype(np.int32)
        batch = Batch(buckets, np.arange(sum(step), dtype=np.int32), tokens, tokens)
        padded = padding(batch)
        assert words(padded) == words(batch)
        np.testing.assert_array_equal(padded.type_words[padded.token_types], tokens)
        assert (padded.type_words >= 0).sum() == sum(step)
        after = tuple(len(rows) for rows in padded.type_characters)
        assert all(n & (n - 1) == 0 and n >= max(a, b) for n, a, b in zip(after, before, step, strict=True))
        before = after

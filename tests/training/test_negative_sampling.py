import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bilm.training.negative_sampling import LogUniformSampler


@given(st.integers(1, 200), st.integers(0, 300), st.integers(0, 2**31 - 1), st.integers(0, 10**6))
def test_samples_are_distinct_ordered_classes(n_samples, more, seed, step):
    sampler = LogUniformSampler(n_samples, n_samples + more, seed)
    ids, n_draws = sampler.sample(step, 0)
    assert len(ids) == n_samples and np.all(np.diff(ids) > 0)
    assert ids[0] >= 0 and ids[-1] < n_samples + more and n_draws >= n_samples


def test_sample_depends_on_seed_step_and_stream():
    first, second = LogUniformSampler(50, 1000, 3), LogUniformSampler(50, 1000, 3)
    for step in range(5):
        second.sample(step, 1)  # what was drawn before makes no difference
    assert np.array_equal(first.sample(7, 0).ids, second.sample(7, 0).ids)
    others = [first.sample(8, 0), first.sample(7, 1), LogUniformSampler(50, 1000, 4).sample(7, 0)]
    assert not any(np.array_equal(first.sample(7, 0).ids, other.ids) for other in others)


@pytest.mark.slow
def test_sample_follows_tensorflow_distribution():
    n_samples, n_classes, n_trials = 10, 40, 2000
    tf.random.set_seed(0)  # another test may have left one
    sampler = LogUniformSampler(n_samples, n_classes, 0)
    ours = [sampler.sample(step, 0) for step in range(n_trials)]
    theirs = [
        tf.random.log_uniform_candidate_sampler([[n_classes - 1]], 1, n_samples, True, n_classes, seed=k)
        for k in range(n_trials)
    ]

    def frequencies(samples):
        return np.bincount(np.concatenate(samples), minlength=n_classes) / n_trials

    our_share = frequencies([sample.ids for sample in ours])
    their_share = frequencies([sample.sampled_candidates.numpy() for sample in theirs])
    np.testing.assert_allclose(our_share, their_share, atol=0.06)  # about 4 standard errors
    # The rarest class's expected count tells the number of draws behind it.
    p = np.log((n_classes + 1) / n_classes) / np.log(n_classes + 1)
    draws = [np.log1p(-sample.true_expected_count.numpy()[0, 0]) / np.log1p(-p) for sample in theirs]
    assert np.mean([sample.n_draws for sample in ours]) == pytest.approx(np.mean(draws), rel=0.03)

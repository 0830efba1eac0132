import dataclasses

import pytest

from bilm.options import PRESETS, Decay
from bilm.training.optimizer import learning_rate

N = 10


def rates(decay, warmup=0):
    options = dataclasses.replace(
        PRESETS["tiny"], learning_rate=2.0, learning_rate_decay=decay, warmup_steps=warmup
    )
    return [learning_rate(options, step, N) for step in range(1, N + 1)]


@pytest.mark.parametrize("decay", Decay)
@pytest.mark.parametrize("warmup", [0, 1, 3, N])
def test_rises_in_the_warm_up_to_the_whole_rate_and_never_again(decay, warmup):
    found = rates(decay, warmup)
    peak = max(warmup, 1)
    assert found[:peak] == pytest.approx([2.0 * step / peak for step in range(1, peak + 1)])
    assert all(after <= before for before, after in zip(found[peak - 1 :], found[peak:], strict=False))
    assert all(rate > 0 for rate in found)


def test_the_reference_has_one_rate():
    assert rates(Decay.NONE) == [2.0] * N


@pytest.mark.parametrize(
    ("decay", "sixth"),
    [(Decay.LINEAR, 2.0 * 5 / 10), (Decay.COSINE, 1.0), (Decay.INVERSE_SQRT, 2.0 / 6**0.5)],
)
def test_falls_by_its_formula(decay, sixth):
    assert rates(decay)[5] == pytest.approx(sixth)

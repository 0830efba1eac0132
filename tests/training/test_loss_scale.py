import math

from bilm.training.meter import LossScale


def test_overflow_halves_and_a_long_time_without_doubles():
    scale = LossScale(8.0)
    assert scale.follow(math.inf) and scale.value == 4.0
    for _ in range(1999):
        assert not scale.follow(1.0)
    assert scale.value == 4.0
    scale.follow(1.0)
    assert scale.value == 8.0 and scale.n_good_steps == 0


def test_what_overflows_without_a_scale_is_no_overflow():
    scale = LossScale(2.0)
    assert scale.follow(math.nan)
    assert not scale.follow(math.nan) and scale.value == 1.0

"""The plan of a call: where it validates, its steps, and what it is resumed with."""

import contextlib
import dataclasses

import pytest

from bilm.errors import OptionsError
from bilm.options import PRESETS
from bilm.options.plan import count_steps
from tests.records import plan

TINY = PRESETS["tiny"]


def test_validations_are_an_epoch_apart():
    assert [plan(eval_every=every).n_steps_to_validation for every in ("epoch", 7, None)] == [50, 7, 0]


def test_steps_are_counted_over_all_replicas():
    options = TINY.with_values({"batch_size": 4, "unroll_steps": 5, "accumulate": 2, "n_epochs": 3})
    assert count_steps(options, 1000, 1) == (75, 25, 3.0)
    assert count_steps(options, 1000, 2) == (36, 12, 2.88)
    shorter = dataclasses.replace(options, n_train_tokens=500)
    assert count_steps(shorter, 1000, 1, max_steps=20) == (20, 12, 0.8)


@pytest.mark.parametrize("decay", ["none", "linear", "cosine"])
def test_schedule_that_ends_is_resumed_with_its_steps(decay):
    options = TINY.with_values({"learning_rate_decay": decay})
    now, begun = (plan(options=options, n_steps=n) for n in (200, 100))
    refused = pytest.raises(OptionsError, match=r"another number of steps \(100 to 200\)")
    with contextlib.nullcontext() if decay == "none" else refused:
        now.require_same(begun, "run")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("command", "restart"), ("eval_every", 3), ("shuffle", False), ("n_gpus", 2), ("jit", True)),
        *(("workers", 2), ("xla", False), ("freeze", "encoder")),
    ],
)
def test_what_determines_numbers_is_resumed_unchanged(name, value):
    with pytest.raises(OptionsError, match="^run: cannot be resumed with "):
        plan(**{name: value}).require_same(plan(), "run")

"""Recipes: the hyper-parameters of training that belong together, and which of them a run wants.

What a new model should be trained with follows from its text and the passes over it: a text that is read
once cannot be learned by heart, and dropout only slows it down; a small text that is read many times needs
the more of it, the more often it is read. The values were found by measurement, see ``docs/results.md``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from bilm.options.hyper_parameters import Options
from bilm.options.parameters import Decay, Optimizer, Recipe, SoftmaxBiasInit

AUTO = "auto"
"""The recipe is chosen by the text and the number of passes, see `choose`."""

RECIPES = (AUTO, *(recipe.value for recipe in Recipe))
"""What may be asked for."""

SCHEDULE = ("optimizer", "learning_rate", "warmup_steps", "learning_rate_decay", "weight_decay")
"""Keys that go together: a rate, and a decay that is multiplied by it, mean nothing without the optimizer."""

_LONGEST_WARMUP = 1000
_WARMUP_SHARE = 16
_RATE, _RATE_DIM = Optimizer.MUON.default_learning_rate, 512  # measured at this size
_MOST_OF_SEVERAL = 4  # passes
_DROPOUT, _MOST_DROPOUT = 0.1, 0.3
_DROPOUT_RISES = 5, 60  # passes; evenly in their logarithm
_DROPOUT_TOKENS = 200_000  # of a text that is known by heart after so many passes

_MUON: dict[str, Any] = {
    "optimizer": Optimizer.MUON,
    "learning_rate_decay": Decay.LINEAR,
    "weight_decay": 0.0,
    "weight_dropout": 0.0,
    "activation_regularization": 0.0,
    "temporal_activation_regularization": 0.0,
    "softmax_bias_init": SoftmaxBiasInit.UNIGRAM,
    "softmax_init_scale": 0.1,
    "variational_dropout": True,
}
_VALUES: dict[Recipe, dict[str, Any]] = {
    Recipe.BILM_TF: {
        "optimizer": Optimizer.ADAGRAD,
        "warmup_steps": 0,
        "learning_rate_decay": Decay.NONE,
        "weight_decay": 0.0,
        "softmax_bias_init": SoftmaxBiasInit.ZEROS,
        "softmax_init_scale": 1.0,
        "variational_dropout": False,
    },
    Recipe.ONE_PASS: _MUON | {"dropout": 0.0},
    Recipe.SEVERAL_PASSES: _MUON | {"dropout": _DROPOUT},
    Recipe.MANY_PASSES: _MUON
    | {"activation_regularization": 2.0, "temporal_activation_regularization": 1.0, "weight_decay": 0.1},
}
_KEYS = {"recipe", "dropout", *SCHEDULE, *_MUON}


class TrainingPlan(NamedTuple):
    """What is known of a run before its first step.

    Attributes:
        n_tokens: of the training text.
        n_passes: over it.
        n_steps: updates.
    """

    n_tokens: int
    n_passes: float
    n_steps: int


def choose(plan: TrainingPlan) -> Recipe:
    """The recipe for a text and a number of passes over it."""
    if plan.n_passes <= 1.5:
        return Recipe.ONE_PASS
    if plan.n_passes <= _MOST_OF_SEVERAL or plan.n_tokens >= 100_000_000:
        return Recipe.SEVERAL_PASSES
    return Recipe.MANY_PASSES


def with_recipe(options: Options, recipe: Recipe, plan: TrainingPlan, given: Collection[str] = ()) -> Options:
    """Options with the values of a recipe, which is recorded in them.

    Args:
        options: of the model.
        recipe: see `choose`.
        plan: the schedule follows from its steps.
        given: keys that keep the value they have in the options. With ``optimizer`` among them all of
            `SCHEDULE` keeps its own.
    """
    values = {**_VALUES[recipe], "recipe": recipe}
    if recipe is not Recipe.BILM_TF:  # wide LSTMs need smaller steps
        values["learning_rate"] = _rate(options)
        values["warmup_steps"] = _warmup_steps(plan.n_steps)
    if recipe is Recipe.MANY_PASSES:  # the more, the sooner the text would be known by heart
        passes = plan.n_passes / math.sqrt(max(plan.n_tokens / _DROPOUT_TOKENS, 1.0))
        first, last = _DROPOUT_RISES
        share = math.log(max(passes, first) / first) / math.log(last / first)
        values["dropout"] = round(_DROPOUT + min(share, 1.0) * (_MOST_DROPOUT - _DROPOUT), 2)
    return _filled(options, values, given)


def with_recipe_of_run(options: Options, begun: Mapping[str, Any], given: Collection[str] = ()) -> Options:
    """Options with what the recipe of a run decided, whatever recipe would be chosen now.

    Args:
        options: of the model.
        begun: the values of the run's ``options.json``.
        given: see `with_recipe`.
    """
    return _filled(options, {key: begun[key] for key in _KEYS if key in begun}, given)


def with_schedule(
    options: Options, n_steps: int, given: Collection[str] = (), has_ended: bool = False
) -> Options:
    """Options of a trained model whose training goes on, with a warm-up that fits its steps.

    The rest of the schedule follows from the steps by itself. Options without a recipe stand as they are.

    Args:
        options: of the model.
        n_steps: updates that are planned.
        given: see `with_recipe`.
        has_ended: whether the learning rate had fallen to its end on the same text. It then rises to a sixth
            of a recipe's at most: from its whole height a model would lose what it had gained.
    """
    if options.recipe in (None, Recipe.BILM_TF):
        return options
    values: dict[str, Any] = {"warmup_steps": _warmup_steps(n_steps)}
    if has_ended:
        values["learning_rate"] = min(options.learning_rate, round(_rate(options) / 6, 5))
    return _filled(options, values, given)


def _rate(options: Options) -> float:
    return round(_RATE * min(1.0, math.sqrt(_RATE_DIM / options.lstm.dim)), 5)


def _warmup_steps(n_steps: int) -> int:
    return min(n_steps // _WARMUP_SHARE, _LONGEST_WARMUP)


def _filled(options: Options, values: Mapping[str, Any], given: Collection[str]) -> Options:
    kept = {*given, *(SCHEDULE if "optimizer" in given else ())}
    changes = {key: value for key, value in values.items() if key not in kept}
    for key in {"learning_rate", "weight_decay"}.intersection(given):  # another optimizer would bring its own
        changes[key] = getattr(options, key)
    return options.with_values(changes)


def summary(options: Options) -> str:
    """The values that a recipe decides and that are not zero, in a line."""
    values, penalties = options.to_json(), ("activation_regularization", "temporal_activation_regularization")
    keys = (*SCHEDULE, "dropout", "weight_dropout", *penalties)
    return ", ".join(f"{key} {values[key]}" for key in keys if values[key] not in (0, "none"))

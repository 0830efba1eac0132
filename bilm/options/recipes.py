"""Recipes: sets of training hyper-parameters, chosen by the size of the text and the number of passes.

A model that reads its text once cannot memorise it, and dropout only slows training down. The more often a
small text is read, the more dropout is needed. The values were measured, see ``docs/results.md``.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from bilm.errors import OptionsError
from bilm.options.hyper_parameters import Options
from bilm.options.parameters import Decay, Optimizer, Recipe, SoftmaxBiasInit

AUTO = "auto"
"""Lets `choose` select the recipe."""

RECIPES = (AUTO, *(recipe.value for recipe in Recipe))
"""Names that a user can give."""

SCHEDULE = ("optimizer", "learning_rate", "warmup_steps", "learning_rate_decay", "weight_decay")
"""Keys that belong together: learning rate and weight decay depend on the optimizer."""

_LONGEST_WARMUP = 1000
_WARMUP_SHARE = 16
_RATE, _RATE_DIM = Optimizer.MUON.default_learning_rate, 512  # measured at this `lstm.dim`
_MOST_OF_SEVERAL = 4  # passes
_DROPOUT, _MOST_DROPOUT = 0.1, 0.3
_DROPOUT_RISES = 5, 60  # passes; dropout rises linearly with their logarithm
_DROPOUT_TOKENS = 200_000  # a larger text is memorised more slowly: passes count less

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
OF_BILM_TF: dict[str, Any] = {
    "softmax_bias_init": SoftmaxBiasInit.ZEROS.value,
    "softmax_init_scale": 1.0,
    "variational_dropout": False,
}
"""Values of bilm-tf where the defaults of `Options` differ; its options files lack these keys."""
_VALUES: dict[Recipe, dict[str, Any]] = {
    Recipe.BILM_TF: {
        "optimizer": Optimizer.ADAGRAD,
        "warmup_steps": 0,
        "learning_rate_decay": Decay.NONE,
        "weight_decay": 0.0,
        **OF_BILM_TF,
    },
    Recipe.ONE_PASS: _MUON | {"dropout": 0.0},
    Recipe.SEVERAL_PASSES: _MUON | {"dropout": _DROPOUT},
    Recipe.MANY_PASSES: _MUON
    | {"activation_regularization": 2.0, "temporal_activation_regularization": 1.0, "weight_decay": 0.1},
}
_KEYS = {"recipe", "dropout", *SCHEDULE, *_MUON}


class TrainingPlan(NamedTuple):
    """Size of a planned training run.

    Attributes:
        n_tokens: tokens of the training text.
        n_passes: passes over the text.
        n_steps: updates.
    """

    n_tokens: int
    n_passes: float
    n_steps: int


def require_recipe(recipe: str | None) -> None:
    """Raise an `OptionsError` unless the name is in `RECIPES`, or None."""
    if recipe not in (None, *RECIPES):
        raise OptionsError(f"`recipe` is {recipe!r}, not one of {', '.join(RECIPES)}")


def choose(plan: TrainingPlan) -> Recipe:
    """Return the recipe for a text and a number of passes over it."""
    if plan.n_passes <= 1.5:
        return Recipe.ONE_PASS
    if plan.n_passes <= _MOST_OF_SEVERAL or plan.n_tokens >= 100_000_000:
        return Recipe.SEVERAL_PASSES
    return Recipe.MANY_PASSES


def with_recipe(
    options: Options, recipe: Recipe, plan: TrainingPlan, explicit: Collection[str] = ()
) -> Options:
    """Return options with the values of a recipe, and its name.

    Args:
        options: options of the model.
        recipe: the recipe, see `choose`.
        plan: size of the run; determines warm-up and dropout.
        explicit: keys set by the user, which keep their values. ``optimizer`` stands for all of `SCHEDULE`.
    """
    values = {**_VALUES[recipe], "recipe": recipe}
    if recipe is not Recipe.BILM_TF:  # wide LSTMs need smaller steps
        values["learning_rate"] = _rate(options)
        values["warmup_steps"] = _warmup_steps(plan.n_steps)
    if recipe is Recipe.MANY_PASSES:  # the more passes over a small text, the more it is memorised
        passes = plan.n_passes / math.sqrt(max(plan.n_tokens / _DROPOUT_TOKENS, 1.0))
        first, last = _DROPOUT_RISES
        share = math.log(max(passes, first) / first) / math.log(last / first)
        values["dropout"] = round(_DROPOUT + min(share, 1.0) * (_MOST_DROPOUT - _DROPOUT), 2)
    return _filled(options, values, explicit)


def with_recipe_of_run(options: Options, begun: Mapping[str, Any], explicit: Collection[str] = ()) -> Options:
    """Return options with the values that the recipe of an existing run set.

    Args:
        options: options of the model.
        begun: the values of the run's ``options.json``.
        explicit: as for `with_recipe`.
    """
    return _filled(options, {key: begun[key] for key in _KEYS if key in begun}, explicit)


def with_schedule(
    options: Options, n_steps: int, explicit: Collection[str] = (), has_ended: bool = False
) -> Options:
    """Return options for continuing to train a model, with a warm-up that fits the number of steps.

    The decay adapts to the steps by itself. Options without a recipe, or with bilm-tf's, are unchanged.

    Args:
        options: options of the model.
        n_steps: planned updates.
        explicit: as for `with_recipe`.
        has_ended: the learning rate had already decayed to its end on the same text. It is then limited to
            a sixth of the recipe's, since the full rate would undo part of the training.
    """
    if options.recipe in (None, Recipe.BILM_TF):
        return options
    values: dict[str, Any] = {"warmup_steps": _warmup_steps(n_steps)}
    if has_ended:
        values["learning_rate"] = min(options.learning_rate, round(_rate(options) / 6, 5))
    return _filled(options, values, explicit)


def _rate(options: Options) -> float:
    return round(_RATE * min(1.0, math.sqrt(_RATE_DIM / options.lstm.dim)), 5)


def _warmup_steps(n_steps: int) -> int:
    return min(n_steps // _WARMUP_SHARE, _LONGEST_WARMUP)


def _filled(options: Options, values: Mapping[str, Any], explicit: Collection[str]) -> Options:
    kept = {*explicit, *(SCHEDULE if "optimizer" in explicit else ())}
    changes = {key: value for key, value in values.items() if key not in kept}
    for key in {"learning_rate", "weight_decay"}.intersection(explicit):  # a new optimizer resets them
        changes[key] = getattr(options, key)
    return options.with_values(changes)


def summary(options: Options) -> str:
    """Return the non-zero values that a recipe sets, in one line."""
    values, penalties = options.to_json(), ("activation_regularization", "temporal_activation_regularization")
    keys = (*SCHEDULE, "dropout", "weight_dropout", *penalties)
    return ", ".join(f"{key} {values[key]}" for key in keys if values[key] not in (0, "none"))

"""Recipes: sets of training hyper-parameters, chosen by the size of the text and the number of passes.

A model that reads its text once cannot memorise it, and dropout only slows training down. The more often a
small text is read, the more dropout is needed. The values were measured, see ``docs/results.md``.
"""

import math
from collections.abc import Collection
from typing import Any

from bilm.options.hyper_parameters import SCHEDULE, Options
from bilm.options.parameters import Decay, Optimizer, Recipe, SoftmaxBiasInit, SoftmaxRowInit

AUTO = "auto"
"""Lets `choose` select the recipe."""

RECIPES = (AUTO, *(recipe.value for recipe in Recipe))
"""Names that a user can give."""

_EXTRAS: dict[str, Any] = {
    "weight_decay": 0.0,
    "activation_regularization": 0.0,
    "temporal_activation_regularization": 0.0,
    "word_vector_tying": 0.0,
    "softmax_row_tying": 0.0,
    "passage_tokens": 0,
}  # what bilm-tf lacks
_SHOWN = (*SCHEDULE, "dropout", *_EXTRAS)

_LONGEST_WARMUP = 1000
_WARMUP_SHARE = 16
_RATE, _RATE_DIM = Optimizer.MUON.default_learning_rate, 512  # measured at this `lstm.dim`
_MOST_OF_SEVERAL = 4  # passes
_DROPOUT, _MOST_DROPOUT = 0.1, 0.3
_DROPOUT_THEN, _DROPOUT_TOKENS = 0.15, 2_000_000  # a shorter text is memorised sooner
_ROW_TYING = 3.0
_RISE = 5, 16  # passes; dropout and tying rise linearly with their logarithm

_MUON: dict[str, Any] = {
    "optimizer": Optimizer.MUON,
    "learning_rate_decay": Decay.LINEAR,
    **_EXTRAS,
    "word_vector_tying": 3.0,
    "softmax_bias_init": SoftmaxBiasInit.UNIGRAM,
    "softmax_row_init": SoftmaxRowInit.COOCCURRENCE,
    "softmax_init_scale": 0.1,
    "variational_dropout": True,
}
OF_BILM_TF: dict[str, Any] = {
    "softmax_bias_init": SoftmaxBiasInit.ZEROS.value,
    "softmax_row_init": SoftmaxRowInit.RANDOM.value,
    "softmax_init_scale": 1.0,
    "variational_dropout": False,
}
"""Values of bilm-tf where the defaults of `Options` differ; its options files lack these keys."""
_VALUES: dict[Recipe, dict[str, Any]] = {
    Recipe.BILM_TF: {
        "optimizer": Optimizer.ADAGRAD,
        "warmup_steps": 0,
        "learning_rate_decay": Decay.NONE,
        **_EXTRAS,
        **OF_BILM_TF,
    },
    Recipe.ONE_PASS: _MUON | {"dropout": 0.0},
    Recipe.SEVERAL_PASSES: _MUON | {"dropout": _DROPOUT},
    Recipe.MANY_PASSES: _MUON
    | {
        "activation_regularization": 2.0,
        "temporal_activation_regularization": 1.0,
        "weight_decay": 0.1,
        "passage_tokens": 1000,
    },
}


def choose(n_tokens: int, n_passes: float) -> Recipe:
    """Return the recipe for a text and a number of passes over it."""
    if n_passes <= 1.5:
        return Recipe.ONE_PASS
    if n_passes <= _MOST_OF_SEVERAL or n_tokens >= 100_000_000:
        return Recipe.SEVERAL_PASSES
    return Recipe.MANY_PASSES


def complete(
    options: Options,
    explicit: Collection[str] = (),
    *,
    n_tokens: int,
    n_passes: float,
    n_steps: int,
    recipe: str | None = None,
    begun: Options | None = None,
    has_ended: bool | None = None,
) -> tuple[Options, str]:
    """Fill in what depends on the size of the run; return the options, and a line that says why or "".

    The values are those of a recipe; or, to continue training a model that had one with Muon, a warm-up that
    fits the number of steps (the decay adapts by itself).

    Args:
        options: options of the model.
        explicit: keys set by the user, which keep their values. ``optimizer`` stands for all of `SCHEDULE`.
        n_tokens: tokens of the training text.
        n_passes: passes over the text.
        n_steps: updates.
        recipe: name in `RECIPES`; None for no other recipe than that of the options.
        begun: options of an interrupted call, whose values are kept; None to start.
        has_ended: None for a new model; true if the learning rate had already decayed to its end on the same
            text. It is then limited to a sixth of the recipe's, since the full rate would undo part of the
            training.
    """
    values: dict[str, Any] = {}
    has_schedule = options.recipe not in (None, Recipe.BILM_TF) and options.optimizer is Optimizer.MUON
    if recipe is not None:
        chosen = choose(n_tokens, n_passes) if recipe == AUTO else Recipe(recipe)
        values = _of_recipe(options, chosen, n_tokens, n_passes, n_steps)
    elif has_ended is not None and has_schedule:
        highest = round(_rate(options) / 6, 5) if has_ended else math.inf
        values = {"warmup_steps": _warmup_steps(n_steps), "learning_rate": min(options.step_size, highest)}
    if begun is not None:
        values = {key: getattr(begun, key) for key in values}
    kept = {*explicit, *(SCHEDULE if "optimizer" in explicit else ())}
    changes = {key: value for key, value in values.items() if key not in kept}
    for key in {*SCHEDULE[1:]}.intersection(explicit):  # a new optimizer resets them
        changes[key] = getattr(options, key)
    completed = options.with_values(changes)
    before, after = options.step_size, completed.step_size
    if begun is not None or (recipe is None and after == before):
        return completed, ""
    if recipe is None:
        line = f"recipe: learning_rate {after:g} instead of {before:g}, because the schedule had ended on"
        return completed, f"{line} the same text; set `learning_rate` for another"
    shown = {key: completed.to_json()[key] for key in _SHOWN}
    settings = ", ".join(f"{key} {value}" for key, value in shown.items() if value not in (0, "none"))
    reason = f"{n_passes:.1f} passes over {n_tokens:,} tokens"
    return completed, f"recipe: {values['recipe'].value} ({reason}): {settings}"


def _of_recipe(
    options: Options, recipe: Recipe, n_tokens: int, n_passes: float, n_steps: int
) -> dict[str, Any]:
    """Return the values of a recipe, and its name."""
    values = {**_VALUES[recipe], "recipe": recipe}
    if recipe is not Recipe.BILM_TF:  # wide LSTMs need smaller steps
        values["learning_rate"] = _rate(options)
        values["warmup_steps"] = _warmup_steps(n_steps)
    if recipe is Recipe.MANY_PASSES:
        first, last = _RISE
        share = min(math.log(max(n_passes / first, 1.0)) / math.log(last / first), 1.0)
        then = _DROPOUT_THEN * (_DROPOUT_TOKENS / n_tokens) ** (1 / 6)
        then = min(max(then, _DROPOUT), _MOST_DROPOUT)
        values["dropout"] = round(_DROPOUT + share * (then - _DROPOUT), 2)
        values["softmax_row_tying"] = round(share * _ROW_TYING, 1)
    if options.char_cnn is None:
        values["word_vector_tying"] = values["softmax_row_tying"] = 0.0  # they would have no effect
    return values


def _rate(options: Options) -> float:
    return round(_RATE * min(1.0, math.sqrt(_RATE_DIM / options.lstm.dim)), 5)


def _warmup_steps(n_steps: int) -> int:
    return min(n_steps // _WARMUP_SHARE, _LONGEST_WARMUP)

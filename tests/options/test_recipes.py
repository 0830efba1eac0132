import pytest

from bilm.options import PRESETS, Decay, Optimizer, Options, Recipe, SoftmaxBiasInit
from bilm.options.recipes import (
    TrainingPlan,
    choose,
    summary,
    with_recipe,
    with_recipe_of_run,
    with_schedule,
)

PLAN = TrainingPlan(n_tokens=2_000_000, n_passes=1.0, n_steps=1600)


@pytest.mark.parametrize(
    ("n_tokens", "n_passes", "recipe"),
    [
        (2_000_000, 0.2, Recipe.ONE_PASS),
        (800_000_000, 1.0, Recipe.ONE_PASS),
        (2_000_000, 3.0, Recipe.SEVERAL_PASSES),
        (800_000_000, 10.0, Recipe.SEVERAL_PASSES),
        (2_000_000, 4.0, Recipe.SEVERAL_PASSES),
        (2_000_000, 5.0, Recipe.MANY_PASSES),
    ],
)
def test_the_recipe_follows_from_text_and_passes(n_tokens, n_passes, recipe):
    assert choose(TrainingPlan(n_tokens, n_passes, 1000)) is recipe


@pytest.mark.parametrize(
    ("n_passes", "dropout"),
    [(1.0, 0.0), (3.0, 0.1), (5.0, 0.1), (10.0, 0.16), (20.0, 0.21), (60.0, 0.3), (500.0, 0.3)],
)
def test_a_text_that_is_read_more_often_gets_more_dropout(n_passes, dropout):
    plan = PLAN._replace(n_tokens=200_000, n_passes=n_passes)
    options = with_recipe(PRESETS["tiny"], choose(plan), plan)
    assert options.dropout == dropout
    assert options.weight_dropout == 0
    penalties = options.activation_regularization, options.temporal_activation_regularization
    assert (*penalties, options.weight_decay) == ((2, 1, 0.1) if n_passes > 4 else (0, 0, 0))


@pytest.mark.parametrize(
    ("n_tokens", "dropout"), [(1_000, 0.19), (200_000, 0.19), (1_000_000, 0.13), (50_000_000, 0.1)]
)
def test_a_longer_text_gets_less_dropout(n_tokens, dropout):
    plan = PLAN._replace(n_tokens=n_tokens, n_passes=16.0)
    assert with_recipe(PRESETS["tiny"], Recipe.MANY_PASSES, plan).dropout == dropout


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("recipe", Recipe)
def test_every_recipe_is_recorded_and_can_be_read_again(preset, recipe):
    options = with_recipe(PRESETS[preset], recipe, PLAN)
    assert options.recipe is recipe
    assert Options.from_json(options.to_json()) == options
    assert with_recipe(options, recipe, PLAN) == options
    assert options.lstm == PRESETS[preset].lstm and options.n_epochs == PRESETS[preset].n_epochs


def test_the_recipe_of_bilm_tf():
    options = with_recipe(PRESETS["original"], Recipe.BILM_TF, PLAN)
    assert (options.optimizer, options.learning_rate) == (Optimizer.ADAGRAD, 0.2)
    assert (options.warmup_steps, options.learning_rate_decay) == (0, Decay.NONE)
    assert (options.softmax_bias_init, options.softmax_init_scale) == (SoftmaxBiasInit.ZEROS, 1.0)
    assert not options.variational_dropout and options.dropout == 0.1 and options.weight_decay == 0


@pytest.mark.parametrize("n_steps", [1, 15, 160, 1_000_000])
def test_the_warm_up_is_a_small_part_of_the_steps(n_steps):
    options = with_recipe(PRESETS["tiny"], Recipe.ONE_PASS, PLAN._replace(n_steps=n_steps))
    assert options.warmup_steps <= min(n_steps / 10, 1000)


def test_what_is_given_wins():
    changes = {"dropout": 0.3, "softmax_init_scale": 0.5, "learning_rate": 0.01, "weight_decay": 0.2}
    options = with_recipe(PRESETS["tiny"].with_values(changes), Recipe.MANY_PASSES, PLAN, changes)
    assert changes.items() <= options.to_json().items()
    assert options.learning_rate_decay is Decay.LINEAR


def test_another_optimizer_brings_its_own_rate_and_schedule():
    changes = {"optimizer": "lion"}
    options = with_recipe(PRESETS["tiny"].with_values(changes), Recipe.MANY_PASSES, PLAN, changes)
    assert (options.optimizer, options.learning_rate) == (Optimizer.LION, 1e-4)
    assert (options.warmup_steps, options.learning_rate_decay, options.weight_decay) == (0, Decay.NONE, 0)
    assert options.recipe is Recipe.MANY_PASSES


@pytest.mark.parametrize(
    "given", [{}, {"dropout": 0.3}, {"learning_rate": 0.002}, {"optimizer": "lion"}, {"optimizer": "adagrad"}]
)
def test_a_run_that_is_resumed_keeps_its_values(given):
    changed = PRESETS["tiny"].with_values(given)
    options = with_recipe(changed, Recipe.ONE_PASS, PLAN, given)
    assert with_recipe_of_run(changed, options.to_json(), given) == options


def test_a_value_that_is_given_wins_over_that_of_the_run():
    begun = with_recipe(PRESETS["tiny"], Recipe.ONE_PASS, PLAN).to_json()
    changes = {"dropout": 0.3}
    assert with_recipe_of_run(PRESETS["tiny"].with_values(changes), begun, changes).dropout == 0.3


def test_summary_says_what_is_decided():
    line = summary(with_recipe(PRESETS["tiny"], Recipe.ONE_PASS, PLAN))
    assert line == "muon, learning rate 0.006, warm-up of 100 steps, linear decay, dropout 0"
    assert (
        summary(with_recipe(PRESETS["tiny"], Recipe.BILM_TF, PLAN))
        == "adagrad, learning rate 0.2, dropout 0.1"
    )
    line = summary(with_recipe(PRESETS["tiny"], Recipe.MANY_PASSES, TrainingPlan(200_000, 20.0, 1600)))
    assert line.endswith("dropout 0.21, weight decay 0.1, activation penalties 2 and 1")
    assert summary(PRESETS["tiny"].with_values({"weight_dropout": 0.3})).endswith("of recurrent weights 0.3")


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_training_goes_on_with_another_optimizer_without_the_decay_of_the_first(optimizer):
    begun = with_recipe(PRESETS["tiny"], Recipe.MANY_PASSES, PLAN)
    assert begun.weight_decay == begun.with_values({"optimizer": "muon"}).weight_decay == 0.1
    assert begun.with_values({"optimizer": optimizer}).weight_decay == 0
    assert begun.with_values({"weight_decay": 0.3, "optimizer": optimizer}).weight_decay == 0.3


def test_training_goes_on_with_a_warm_up_for_its_own_steps():
    begun = with_recipe(PRESETS["tiny"], Recipe.ONE_PASS, TrainingPlan(10**9, 1.0, 10**6))
    assert begun.warmup_steps == 1000
    assert with_schedule(begun, 400) == begun.with_values({"warmup_steps": 25})
    assert with_schedule(begun, 400, {"warmup_steps"}) == begun
    without = PRESETS["tiny"].with_values({"warmup_steps": 7})
    assert with_schedule(without, 400) == without

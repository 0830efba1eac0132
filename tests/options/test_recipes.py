import pytest

from bilm.options import PRESETS, Decay, Optimizer, Options, Recipe, SoftmaxBiasInit, recipes

PLAN = {"n_tokens": 2_000_000, "n_passes": 1.0, "n_steps": 1600}
LONG = {"n_tokens": 10**9, "n_passes": 1.0, "n_steps": 10**6}
TINY = PRESETS["tiny"]


def with_recipe(options, recipe, plan, explicit=(), begun=None):
    return recipes.complete(options, explicit, **plan, recipe=recipe, begun=begun)[0]


def continued(options, explicit=(), has_ended=False, begun=None):
    plan = PLAN | {"n_steps": 400}
    return recipes.complete(options, explicit, **plan, has_ended=has_ended, begun=begun)[0]


@pytest.mark.parametrize(
    ("n_tokens", "n_passes", "recipe"),
    [
        (800_000_000, 1.0, Recipe.ONE_PASS),
        (800_000_000, 10.0, Recipe.SEVERAL_PASSES),
        (2_000_000, 4.0, Recipe.SEVERAL_PASSES),
        (2_000_000, 5.0, Recipe.MANY_PASSES),
        (2_000_000, 2.0, Recipe.SEVERAL_PASSES),
        (100_000_000, 5.0, Recipe.SEVERAL_PASSES),
        (99_000_000, 5.0, Recipe.MANY_PASSES),
    ],
)
def test_the_recipe_follows_from_text_and_passes(n_tokens, n_passes, recipe):
    assert recipes.choose(n_tokens, n_passes) is recipe


@pytest.mark.parametrize(
    ("n_tokens", "n_passes", "dropout"),
    [
        *((200_000, 1.0, 0.0), (200_000, 3.0, 0.1), (200_000, 5.0, 0.1), (200_000, 10.0, 0.17)),
        *((200_000, 16.0, 0.22), (200_000, 500.0, 0.22)),
        *((1_000, 16.0, 0.3), (44_000, 10.0, 0.21), (2_000_000, 16.0, 0.15), (50_000_000, 16.0, 0.1)),
    ],
)
def test_a_text_gets_more_dropout_that_is_read_more_often_or_is_short(n_tokens, n_passes, dropout):
    plan = PLAN | {"n_tokens": n_tokens, "n_passes": n_passes}
    options = with_recipe(TINY, recipes.choose(n_tokens, n_passes), plan)
    assert options.dropout == dropout
    others = (
        *(options.activation_regularization, options.temporal_activation_regularization),
        *(options.weight_decay, options.passage_tokens),
        options.word_vector_tying,
    )
    assert others == ((2, 1, 0.1, 1000, 3) if n_passes > 4 else (0, 0, 0, 0, 3))
    assert options.softmax_row_tying == {10.0: 1.8, 16.0: 3.0, 500.0: 3.0}.get(n_passes, 0)


@pytest.mark.parametrize("recipe", Recipe)
def test_every_recipe_is_recorded_and_can_be_read_again(recipe):
    for preset in PRESETS.values():
        options = with_recipe(preset, recipe, PLAN)
        assert options.recipe is recipe
        assert options == with_recipe(options, recipe, PLAN)
        assert Options.from_json(options.to_json()).to_json() == options.to_json()
        assert options.lstm == preset.lstm and options.n_epochs == preset.n_epochs


def test_the_recipe_of_bilm_tf():
    options = with_recipe(PRESETS["original"], Recipe.BILM_TF, PLAN)
    assert options.dropout == 0.1
    other = with_recipe(PRESETS["original"], Recipe.MANY_PASSES, PLAN)
    assert other.step_size == 0.00212  # the rate of its wide LSTM
    assert with_recipe(other, Recipe.BILM_TF, PLAN) == options.with_values({"dropout": other.dropout})
    assert (options.optimizer, options.step_size) == (Optimizer.ADAGRAD, 0.2)
    assert (options.warmup_steps, options.learning_rate_decay) == (0, Decay.NONE)
    assert (options.softmax_bias_init, options.softmax_init_scale) == (SoftmaxBiasInit.ZEROS, 1.0)
    assert not options.variational_dropout and options.weight_decay == options.word_vector_tying == 0
    assert options.activation_regularization == options.temporal_activation_regularization == 0
    assert options.passage_tokens == options.softmax_row_tying == 0


def test_word_input_is_not_tied():
    words = TINY.with_values({"char_cnn": None})
    options = with_recipe(words, Recipe.MANY_PASSES, PLAN | {"n_passes": 16.0})
    assert options.word_vector_tying == options.softmax_row_tying == 0


def test_what_is_given_wins():
    changes = {"dropout": 0.3, "softmax_init_scale": 0.5, "learning_rate": 0.01, "weight_decay": 0.2}
    options = with_recipe(TINY.with_values(changes), Recipe.MANY_PASSES, PLAN, changes)
    assert changes.items() <= options.to_json().items()
    assert options.learning_rate_decay is Decay.LINEAR
    begun = with_recipe(TINY, Recipe.ONE_PASS, PLAN)
    assert with_recipe(TINY.with_values(changes), "auto", PLAN, changes, begun).dropout == 0.3


def test_another_optimizer_brings_its_own_rate_and_schedule():
    changes = {"optimizer": "lion"}
    options = with_recipe(TINY.with_values(changes), Recipe.MANY_PASSES, PLAN, changes)
    assert (options.optimizer, options.step_size) == (Optimizer.LION, 1e-4)
    assert (options.warmup_steps, options.learning_rate_decay, options.weight_decay) == (0, Decay.NONE, 0)
    assert options.recipe is Recipe.MANY_PASSES


@pytest.mark.parametrize(
    "given", [{}, {"dropout": 0.3}, {"learning_rate": 0.002}, {"optimizer": "lion"}, {"optimizer": "adagrad"}]
)
def test_a_run_that_is_resumed_keeps_its_values(given):
    changed = TINY.with_values(given)
    options = with_recipe(changed, Recipe.ONE_PASS, PLAN, given)
    other = PLAN | {"n_passes": 9.0}
    assert with_recipe(changed, "auto", other, given, options) == options


def test_training_goes_on_with_another_optimizer_without_the_decay_of_the_first():
    begun = with_recipe(TINY, Recipe.MANY_PASSES, PLAN)
    assert begun.weight_decay == begun.with_values({"optimizer": "muon"}).weight_decay == 0.1
    other = begun.with_values({"optimizer": "adam"})
    assert (other.weight_decay, other.warmup_steps, other.learning_rate_decay) == (0, 0, Decay.NONE)
    with_own = with_recipe(TINY.with_values({"warmup_steps": 50}), Recipe.ONE_PASS, PLAN, {"warmup_steps"})
    assert with_own.warmup_steps == 50 and with_own.optimizer is Optimizer.MUON
    assert begun.with_values({"weight_decay": 0.3, "optimizer": "adam"}).weight_decay == 0.3


def test_training_goes_on_with_a_warm_up_for_its_own_steps():
    begun = with_recipe(TINY, Recipe.ONE_PASS, LONG)
    assert begun.warmup_steps == 1000
    assert continued(begun) == begun.with_values({"warmup_steps": 25})
    assert continued(begun, {"warmup_steps"}) == begun
    without = TINY.with_values({"warmup_steps": 7})
    assert continued(without) == without


def test_after_a_schedule_has_ended_on_a_text_the_rate_rises_to_a_sixth_there():
    begun = with_recipe(TINY, Recipe.ONE_PASS, LONG)
    again = continued(begun, has_ended=True)
    assert again.learning_rate == pytest.approx(begun.learning_rate / 6)
    assert continued(again, has_ended=True).learning_rate == again.learning_rate
    assert continued(begun, {"learning_rate"}, has_ended=True).learning_rate == 0.006
    assert continued(begun, begun=again) == again, "an interrupted call keeps its rate"
    adagrad = with_recipe(TINY, Recipe.BILM_TF, LONG)
    for own in (adagrad, begun.with_values({"optimizer": "adagrad"})):
        assert continued(own, has_ended=True) == own


def test_the_chosen_recipe_is_told():
    _, line = recipes.complete(TINY, **PLAN, recipe="auto")
    assert line == (
        "recipe: one-pass (1.0 passes over 2,000,000 tokens): optimizer muon, learning_rate 0.006, "
        "warmup_steps 100, learning_rate_decay linear, word_vector_tying 3.0"
    )

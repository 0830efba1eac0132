"""Which recipe a new run is trained with: the one asked for, or the one its text and passes want."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from bilm.errors import OptionsError
from bilm.options import Options, Recipe
from bilm.options.recipes import AUTO, RECIPES, TrainingPlan, choose, summary, with_recipe, with_recipe_of_run
from bilm.runs.reporter import Reporter


@dataclasses.dataclass(frozen=True)
class RecipeRequest:
    """A recipe, to be filled in when the text has been counted.

    Attributes:
        name: one of `bilm.options.recipes.RECIPES`; None for ``auto`` where nobody asked for it.
        given: hyper-parameters with a value that wins.
    """

    name: str | None
    given: Collection[str]

    @classmethod
    def of(cls, name: str | None, is_new: bool, given: Collection[str]) -> RecipeRequest | None:
        """What was asked for; None where the options stand as they are.

        Args:
            name: as given, or None.
            is_new: whether the options are those of a preset, which leave the recipe open.
            given: see the class.

        Raises:
            OptionsError: there is no such recipe.
        """
        if name is not None and name not in RECIPES:
            raise OptionsError(f"`recipe` is {name!r}, not one of {', '.join(RECIPES)}")
        return cls(name, given) if is_new or name is not None else None

    def complete(
        self, options: Options, plan: TrainingPlan, begun: Mapping[str, Any], reporter: Reporter
    ) -> Options:
        """Options with the recipe in them; tells which, and why.

        Args:
            options: without it.
            plan: what is to be trained.
            begun: the options of the run that is resumed, which keeps its recipe; empty for a new run.
            reporter: told.
        """
        if self.name is None and begun:
            return with_recipe_of_run(options, begun, self.given)
        recipe = choose(plan) if self.name in (None, AUTO) else Recipe(self.name)
        options = with_recipe(options, recipe, plan, self.given)
        reporter.say(
            f"recipe: {recipe.value} ({plan.n_passes:.1f} passes over {plan.n_tokens:,} tokens): "
            f"{summary(options)}"
        )
        return options

"""What a search varies: declared for every model, within the ranges of its settings, around the preset."""

from __future__ import annotations

from typing import Any

import pytest

from raindrop import Classifier, ConfigError
from raindrop.models.base import DirectModel
from raindrop.models.registry import MODELS
from raindrop.models.search_spaces import SEARCH_SPACES, Between, OneOf
from raindrop.search.space import check_space, distributions, search_space, start_values


def values_to_try(values: Between | OneOf) -> list[Any]:
    """The ends of a range, or all values."""
    return [values.low, values.high] if isinstance(values, Between) else list(values)


def test_every_model_declares_what_a_search_varies() -> None:
    assert SEARCH_SPACES.keys() == MODELS.keys()
    for name, entry in MODELS.items():
        check_space(entry, SEARCH_SPACES[name])
        trained = [setting for setting in SEARCH_SPACES[name] if setting.startswith("train.")]
        assert bool(trained) != issubclass(entry.model, DirectModel)


@pytest.mark.parametrize("name", MODELS)
def test_the_preset_lies_in_the_space_and_every_end_of_it_can_be_built(name: str) -> None:
    start = start_values(Classifier(name))
    for setting, values in SEARCH_SPACES[name].items():
        assert start[setting] in values, setting
        for value in values_to_try(values):
            Classifier(name, config={setting: value}).resolved()


@pytest.mark.parametrize("name", MODELS)
def test_settings_that_go_together_are_possible_in_every_combination(name: str) -> None:
    space = search_space(Classifier(name))
    for at in (0, -1):
        Classifier(name, config={setting: values_to_try(values)[at] for setting, values in space.items()}).resolved()
    for first in (name for name in space if name.endswith(("heads", "dim", "width"))):
        for value in values_to_try(space[first]):
            for second in (name for name in space if name.endswith(("heads", "dim", "width")) and name != first):
                for other in values_to_try(space[second]):
                    Classifier(name, config={first: value, second: other}).resolved()


def test_what_is_given_is_not_varied() -> None:
    given = {"train.learning_rate": 1e-3, "model": {"slots": {"dim": 8}}}
    space = search_space(Classifier(config=given))
    assert "train.learning_rate" not in space
    assert "model.slots.dim" not in space
    assert "train.weight_decay" in space


def test_what_a_preset_switches_off_stays_off() -> None:
    space = search_space(Classifier(preset="paper"))
    assert not [name for name in space if name.startswith("model.slots") or name == "model.graph.reconstruction"]
    assert "train.learning_rate" in space


def test_nothing_to_vary_is_an_error() -> None:
    given = {name: start_values(Classifier("trees"))[name] for name in SEARCH_SPACES["trees"]}
    with pytest.raises(ConfigError, match="nothing to search: every setting that a search of 'trees' varies"):
        search_space(Classifier("trees", config=given))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({"model.hiden": OneOf(1)}, "no setting 'model.hiden'"),
        ({"model.head.dropout": Between(0.0, 1.0)}, "model.head.dropout must be at least 0 and below 1, not 1.0"),
        ({"train.batch_size": OneOf(0, 8)}, "train.batch_size must be at least 1"),
    ],
)
def test_a_space_outside_the_ranges_is_refused(space: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_space(MODELS["raindrop"], space)


def test_optuna_gets_whole_numbers_factors_and_choices() -> None:
    found = distributions({"a": Between(1, 4), "b": Between(0.1, 10.0, log=True), "c": OneOf(8, 16)})
    assert type(found["a"]).__name__ == "IntDistribution"
    assert (type(found["b"]).__name__, found["b"].log) == ("FloatDistribution", True)
    assert found["c"].choices == (8, 16)


def test_a_value_of_another_kind_lies_in_no_range() -> None:
    assert [value in Between(1, 4) for value in (1, 4, 5, 2.0, True, None, "2")] == [True, True] + 5 * [False]
    assert [value in Between(0.0, 1.0) for value in (0, 0.5, 1.5, None, True)] == [True, True, False, False, False]

"""Configs from dictionaries, TOML and NAME=VALUE arguments; every error names the setting and what is allowed."""

import json
from dataclasses import dataclass, field
from typing import Literal

import pytest

from raindrop.config import describe, make, parse_assignments, read_toml, split_sections, to_dict
from raindrop.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Brewing:
    """Settings of an imaginary machine."""

    minutes: int = 4
    """How long."""
    degrees: float = 95.0
    """How hot,
    in Celsius."""
    grind: Literal["fine", "coarse"] = "coarse"
    sugar: float | None = None
    steps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.minutes < 0:
            raise ValueError(f"minutes must be at least 0, not {self.minutes}.")


def test_later_layers_win_and_other_fields_keep_their_defaults():
    config = make(Brewing, {"minutes": 1, "sugar": 2}, {"minutes": 3, "steps": [1, 2]})
    assert config == Brewing(minutes=3, sugar=2.0, steps=(1, 2))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"minuets": 3}, "Unknown setting 'brew.minuets': did you mean 'brew.minutes'?"),
        (
            {"xyz": 3},
            "Unknown setting 'brew.xyz': there are: 'brew.minutes', 'brew.degrees', 'brew.grind', 'brew.sugar', 'brew.steps'.",
        ),
        ({1: 3}, "Unknown setting 'brew.1': there are:"),
        ({"minutes": "3"}, "Setting 'brew.minutes': expected `int`, got `str`."),
        ({"minutes": 3.5}, "Setting 'brew.minutes': expected `int`, got `float`."),
        ({"minutes": True}, "Setting 'brew.minutes': expected `int`, got `bool`."),
        ({"degrees": None}, "Setting 'brew.degrees': expected `float`, got `null`."),
        ({"degrees": 1j}, "Setting 'brew.degrees': expected `float`, got `complex`."),
        ({"grind": "corse"}, "Setting 'brew.grind': 'corse' is not known; did you mean 'coarse'?"),
        ({"grind": 3}, "Setting 'brew.grind': '3' is not known; there are: 'fine', 'coarse'."),
        ({"steps": [1, "a"]}, "Setting 'brew.steps[1]': expected `int`, got `str`."),
        ({"minutes": -1}, "brew.minutes must be at least 0, not -1."),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(values, message):
    with pytest.raises(ConfigError) as caught:
        make(Brewing, values, where="brew.")
    assert str(caught.value).startswith(message)


@dataclass(frozen=True, kw_only=True)
class Kitchen:
    """Settings with groups of settings."""

    coffee: Brewing = field(default_factory=Brewing)
    tea: Brewing = field(default_factory=lambda: Brewing(degrees=80.0))
    cups: int = 2


def test_a_group_of_settings_is_given_with_dots_or_as_a_dictionary_and_later_layers_win():
    config = make(
        Kitchen, {"coffee": {"minutes": 1, "sugar": 2}, "cups": 3}, {"coffee.minutes": 5, "tea.grind": "fine"}
    )
    assert config.coffee == Brewing(minutes=5, sugar=2.0)
    assert config.cups == 3
    assert to_dict(config)["coffee.minutes"] == 5
    assert make(Kitchen, json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"coffee.minuets": 3}, "Unknown setting 'at.coffee.minuets': did you mean 'at.coffee.minutes'?"),
        ({"coffee": {"minuets": 3}}, "Unknown setting 'at.coffee.minuets': did you mean 'at.coffee.minutes'?"),
        ({"coffee.minutes": "3"}, "Setting 'at.coffee.minutes': expected `int`, got `str`."),
        ({"coffee.minutes": -1}, "at.coffee.minutes must be at least 0, not -1."),
        ({"coffee": 3}, "'at.coffee' is a group of settings; give a table of them, or 'at.coffee.NAME'."),
        ({"cups.minutes": 3}, "Unknown setting 'at.cups.minutes': "),
        ({"water.minutes": 3}, "Unknown setting 'at.water.minutes': "),
    ],
)
def test_a_wrong_setting_in_a_group_is_named_with_its_group(values, message):
    with pytest.raises(ConfigError) as caught:
        make(Kitchen, values, where="at.")
    assert str(caught.value).startswith(message)


def test_settings_survive_a_round_trip_through_json():
    config = Brewing(minutes=7, sugar=0.1, steps=(3,))
    assert make(Brewing, to_dict(config)) == config
    assert make(Brewing, json.loads(json.dumps(to_dict(config)))) == config


def test_sections_may_be_given_with_dots_or_nested():
    flat = {"train.epochs": 5, "model": {"prune": 0.3}, "model.layers": 2}
    assert split_sections(flat) == {"train": {"epochs": 5}, "model": {"prune": 0.3, "layers": 2}}
    assert split_sections({}) == {"model": {}, "train": {}}


@pytest.mark.parametrize(
    ("flat", "message"),
    [
        ({"epochs": 5}, "Unknown setting 'epochs': settings start with 'model.' or 'train.'."),
        ({"trian.epochs": 5}, "Unknown setting 'trian.epochs': settings start with 'model.' or 'train.'."),
        ({"model": 3}, "'model' is a group of settings; give a table of them, or 'model.NAME'."),
    ],
)
def test_a_setting_outside_the_sections_is_an_error(flat, message):
    with pytest.raises(ConfigError, match="^" + message.replace(".", r"\.") + "$"):
        split_sections(flat)


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("a=5", 5),
        ("a=1e-3", 1e-3),
        ("a=-1", -1),
        ("a=True", True),
        ("a=false", False),
        ("a=none", None),
        ("a=mean", "mean"),
        ("a='5'", "5"),
        ("a=[1, 2]", [1, 2]),
        ("a=x=y", "x=y"),
        ("a=", ""),
        (" a =5", 5),
        ("a=007", "007"),
        ("a={[]: 1}", "{[]: 1}"),
        ("a=" + "[" * 9999, "[" * 9999),
        ("a=\0", "\0"),
    ],
)
def test_an_argument_becomes_the_value_it_looks_like(assignment, value):
    assert parse_assignments([assignment]) == {"a": value}


@pytest.mark.parametrize("assignment", ["epochs", "=5", " =5", ""])
def test_an_argument_without_name_or_value_is_an_error_with_an_example(assignment):
    with pytest.raises(ConfigError, match="is not of the form NAME=VALUE, for example"):
        parse_assignments([assignment])


def test_the_last_argument_for_a_setting_wins():
    assert parse_assignments(["train.epochs=5", "train.epochs=6"]) == {"train.epochs": 6}


def test_settings_are_read_from_toml(tmp_path):
    (tmp_path / "a.toml").write_text('[train]\nepochs = 3\n[model]\nreadout = "mean"\n')
    assert split_sections(read_toml(tmp_path / "a.toml")) == {"train": {"epochs": 3}, "model": {"readout": "mean"}}


def test_a_toml_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "bad.toml").write_text("[train\n")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    for name, reason in {
        "none.toml": "there is no such settings file",
        "bad.toml": "not a valid TOML file",
        "binary.toml": "not a valid TOML file",
        ".": "cannot be read",
    }.items():
        with pytest.raises(ConfigError, match=reason) as caught:
            read_toml(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_the_docstring_below_a_field_is_its_help():
    assert describe(Brewing) == {"minutes": "How long.", "degrees": "How hot,\nin Celsius."}

"""`raindrop models` and `raindrop settings`: what there is to choose from, from one source."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from command_line import Ask
from learnable import easy_table

from raindrop import ConfigError
from raindrop.config import list_settings, setting_names
from raindrop.estimators.catalogue import catalogue, find_model, markdown
from raindrop.models.descriptions import MODEL_DESCRIPTIONS, PRESET_DESCRIPTIONS, QUERY_MODEL_DESCRIPTIONS
from raindrop.models.raindrop.config import RaindropConfig, SlotsConfig
from raindrop.models.registry import MODELS, QUERY_MODELS
from raindrop.training.config import Plan, TrainConfig

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def test_every_model_and_preset_has_a_description() -> None:
    assert list(MODEL_DESCRIPTIONS) == list(MODELS)
    assert list(QUERY_MODEL_DESCRIPTIONS) == list(QUERY_MODELS)
    used = {preset for entry in (*MODELS.values(), *QUERY_MODELS.values()) for preset in entry.presets}
    assert set(PRESET_DESCRIPTIONS) == used


@pytest.mark.slow
def test_the_page_of_models_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run: raindrop models --markdown > docs/models.md"


def test_models_lists_every_model_with_when_to_use_it(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    code, shown, errors = ask("models")
    assert (code, errors) == (0, "")
    for name in (*MODELS, *QUERY_MODELS):
        assert f"│ {name} " in shown
    assert "to compare with" in shown


def test_the_help_of_train_names_every_model_and_preset(ask: Ask) -> None:
    shown = ask("train", "--help")[1]
    words = set(re.findall(r"[a-z0-9_]+", shown))
    assert set(MODELS) <= words
    assert {preset for entry in MODELS.values() for preset in entry.presets} <= words


def test_settings_shows_value_range_default_and_help(ask: Ask) -> None:
    code, shown, _ = ask("settings", "raindrop", "--preset", "tuned")
    assert code == 0
    epochs = TrainConfig.__dataclass_fields__["learning_rate"].default
    assert f"default {epochs:g}" in shown
    assert "train.drop_sensors = 0.5  (at least 0 and below 1; default 0)" in shown
    assert "Largest share of a training sample's sensors to drop at random" in shown
    assert "model.slots.dim" in shown
    assert "train.epochs" not in ask("settings", "trees")[1]  # the training loop does not grow trees
    assert "model.state_dim = 128" in ask("settings", "grud", "--readings")[1]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["raindorp"], "Unknown model 'raindorp': did you mean 'raindrop'?"),
        (["raindrop", "--preset", "tunned"], "no preset 'tunned': did you mean 'tuned'?"),
        (["brits", "--preset", "paper"], "no preset 'paper': there are: 'tuned'"),
        (["blend", "--readings"], "Unknown model 'blend'"),
    ],
)
def test_a_misspelt_model_or_preset_suggests(ask: Ask, asked: list[str], message: str) -> None:
    code, _, errors = ask("settings", *asked)
    assert code == 1
    assert message in errors


@pytest.mark.parametrize(
    ("setting", "suggestion"),
    [("model.slot.dim=8", "slots.dim"), ("model.dim=8", "dim"), ("train.epoch=3", "epochs")],
)
def test_a_misspelt_setting_suggests_also_within_groups(
    ask: Ask, tmp_path: Path, setting: str, suggestion: str
) -> None:
    errors = ask("train", tmp_path, "--out", tmp_path / "run", "--set", setting)[2]
    assert "Unknown setting" in errors
    assert suggestion in errors


def test_ranges_are_those_that_the_configs_check() -> None:
    allowed = {each.name: each.allowed for each in find_model("raindrop").settings()}
    assert allowed["model.prune"] == "at least 0 and below 1"
    assert allowed["model.hidden"] == "at least 1 and at most 65,536"
    assert allowed["model.slots.rank"] == "at least 0 and at most 65,536"
    assert allowed["train.soft_targets"] == "at least 0 and at most 1"
    assert allowed["train.learning_rate"].startswith("above 0 ")
    assert allowed["model.readout"] == "concat | mean | squeeze"
    assert allowed["model.static_dim"].endswith("| none")
    assert allowed["train.half_precision"] == "true | false"


@pytest.mark.slow
def test_every_setting_of_every_preset_is_listed_once_and_explained() -> None:
    for each in catalogue():
        for preset in each.presets:
            settings = each.settings(preset)
            names = [setting.name for setting in settings]
            assert len(set(names)) == len(names)
            assert all(setting.help and setting.allowed for setting in settings)
    own = [setting.name for setting in list_settings(RaindropConfig())]
    assert own == setting_names(RaindropConfig)
    assert {f"slots.{field.name}" for field in fields(SlotsConfig)} <= set(own)


@pytest.mark.slow
def test_fewer_steps_than_the_presets_are_pointed_out(ask: Ask, tmp_path: Path) -> None:
    data = easy_table(60).write(tmp_path / "data")
    asked = ("train", data, "--split", "none", "--set", "train.soft_targets=0", "train.holdout=0")
    shown = ask(*asked, "train.epochs=2", "--out", tmp_path / "few")[1]
    assert "train.epochs=2 and train.batch_size=128 make 2 steps on these 60 samples" in shown
    assert "the preset 'tuned' takes 800 (800 epochs)" in shown


def test_as_many_steps_as_the_preset_are_not_pointed_out() -> None:
    from raindrop import Classifier

    assert Classifier(config={"train.epochs": 800}).fewer_steps(60, 10.0) is None
    assert "799" in str(Classifier(config={"train.epochs": 799}).fewer_steps(60, 10.0))
    assert Classifier(config={"train.learning_rate": 0.1}).fewer_steps(60, 10.0) is None


def test_a_plan_counts_readings_where_batches_are_made_by_them() -> None:
    assert Plan.of(TrainConfig(batch_readings=1000), 100, 50.0) == Plan(20, 5, 20)
    assert Plan.of(TrainConfig(min_steps=101), 256, 50.0) == Plan(128, 2, 51)


def test_an_unknown_model_of_a_purpose_is_an_error() -> None:
    with pytest.raises(ConfigError, match="Unknown model 'odernn'"):
        find_model("odernn", "readings")

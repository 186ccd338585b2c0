"""The settings of an estimator: model, preset and changes to it, validated and resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from sklearn.base import BaseEstimator

from raindrop import config as configs
from raindrop.errors import ConfigError, check_seed, suggest
from raindrop.hardware import check_threads
from raindrop.models.registry import MODELS, Entry
from raindrop.training.config import Plan, TrainConfig


class Settings(BaseEstimator):  # type: ignore[misc]
    """The arguments, stored unchanged, and the settings they resolve to."""

    registry: ClassVar[Mapping[str, Entry]] = MODELS
    model: str
    preset: str
    config: Mapping[str, Any] | None
    seed: int
    unknown_sensors: Literal["error", "ignore"]
    device: str
    threads: int | None
    progress: bool
    chosen_: Mapping[str, Any] = MappingProxyType({})
    """Settings that training chose, such as {"model.ablation.messages": False}."""

    def set_params(self, **params: Any) -> Self:
        """As in scikit-learn; `train__epochs=5` or `model__slots__dim=8` changes a single setting, for searches."""
        single = {name: params.pop(name) for name in list(params) if name.startswith(("model__", "train__"))}
        super().set_params(**params)
        if single or {"model", "preset", "config"} & set(params):
            self.chosen_ = {}
        if single:
            sections = configs.split_sections(self.config or {})
            present = {f"{section}.{name}": value for section, own in sections.items() for name, value in own.items()}
            self.config = present | {name.replace("__", "."): value for name, value in single.items()}
        return self

    def _check_arguments(self) -> None:
        """Raise on arguments that the subclass does not accept."""

    def _given_model_settings(self) -> set[str]:
        """The names of the model's settings that `config` changes."""
        own = configs.split_sections(self.config or {})["model"]
        groups = {name: value for name, value in own.items() if isinstance(value, Mapping)}
        return {*own, *(f"{group}.{name}" for group, names in groups.items() for name in names)}

    def _configs(self, chosen: Mapping[str, Any] | None = None) -> tuple[Entry, Any, TrainConfig]:
        """Entry, model and training settings; with `chosen` instead of what training chose."""
        if self.model not in self.registry:
            raise ConfigError(f"Unknown model '{self.model}': {suggest(self.model, self.registry)}")
        entry = self.registry[self.model]
        if self.preset not in entry.presets:
            raise ConfigError(
                f"Model '{self.model}' has no preset '{self.preset}': {suggest(self.preset, entry.presets)}"
            )
        if self.unknown_sensors not in ("error", "ignore"):
            raise ConfigError(f"unknown_sensors is 'error' or 'ignore', not '{self.unknown_sensors}'.")
        check_seed(self.seed)
        check_threads(self.threads)
        self._check_arguments()
        preset, own = configs.split_sections(entry.presets[self.preset]), configs.split_sections(self.config or {})
        choice = configs.split_sections(self.chosen_ if chosen is None else chosen)
        model_config = configs.make(entry.config, preset["model"], own["model"], choice["model"], where="model.")
        if "epochs" in own["train"]:
            preset["train"] = {name: value for name, value in preset["train"].items() if name != "min_steps"}
        return entry, model_config, configs.make(TrainConfig, preset["train"], own["train"], where="train.")

    def fewer_steps(self, samples: int, mean_readings: float) -> str | None:
        """A warning if the settings train for fewer steps than the preset would on this many samples; else None."""
        entry, _, config = self._configs()
        preset = configs.make(TrainConfig, configs.split_sections(entry.presets[self.preset])["train"])
        planned, usual = (Plan.of(each, samples, mean_readings) for each in (config, preset))
        if planned.epochs * planned.steps >= usual.epochs * usual.steps:
            return None
        return (
            f"train.epochs={config.epochs} and train.batch_size={planned.batch_size} make "
            f"{planned.epochs * planned.steps:,} steps on these {samples:,} samples; the preset '{self.preset}' takes "
            f"{usual.epochs * usual.steps:,} ({usual.epochs} epochs). The model may be trained too little."
        )

    def resolved(self) -> dict[str, dict[str, Any]]:
        """Every setting of the groups "model" and "train", from `config`, the preset and the defaults."""
        _, model_config, train_config = self._configs()
        return {"model": configs.to_dict(model_config), "train": configs.to_dict(train_config)}

    def _refuse_train_settings(self, config: TrainConfig, watched: bool) -> None:
        """Raise on training settings that a model without the training loop would ignore."""
        ignored = [f.name for f in fields(config) if f.name != "holdout" and getattr(config, f.name) != f.default]
        if ignored or watched:
            names = ", ".join(f"train.{name}" for name in ignored) or "tensorboard or a callback"
            raise ConfigError(
                f"Model '{self.model}' is not trained by gradients, so {names} cannot have an effect. Leave it out; "
                f"the settings of '{self.model}' start with 'model.'."
            )

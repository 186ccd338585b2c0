"""The models with their presets and settings, for `raindrop models`, `raindrop settings` and docs/models.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from raindrop import config as configs
from raindrop.config import Setting
from raindrop.errors import ConfigError, suggest
from raindrop.models.base import DirectModel
from raindrop.models.descriptions import (
    MODEL_DESCRIPTIONS,
    PRESET_DESCRIPTIONS,
    QUERY_MODEL_DESCRIPTIONS,
    Description,
)
from raindrop.models.registry import MODELS, QUERY_MODELS, Entry
from raindrop.training.config import TrainConfig

Purpose = Literal["samples", "readings"]
PURPOSES: dict[Purpose, str] = {
    "samples": "Classes, labels and quantities (train)",
    "readings": "Gaps and forecasts (impute, forecast)",
}


@dataclass(frozen=True)
class CatalogueEntry:
    """One model with its description, presets and settings."""

    name: str
    purpose: Purpose
    description: Description
    entry: Entry

    @property
    def presets(self) -> list[str]:
        """The names of the presets, the default first."""
        return sorted(self.entry.presets, key=lambda name: name != "tuned")

    def settings(self, preset: str = "tuned") -> list[Setting]:
        """Every setting with its value in this preset; a model not trained by gradients has few settings in 'train'."""
        if preset not in self.entry.presets:
            raise ConfigError(f"Model '{self.name}' has no preset '{preset}': {suggest(preset, self.entry.presets)}")
        sections = {name: configs.split_sections(content) for name, content in self.entry.presets.items()}
        found: list[Setting] = []
        kinds: Mapping[str, type[Any]] = {"model": self.entry.config, "train": TrainConfig}
        for section, kind in kinds.items():
            made = {name: configs.make(kind, content[section]) for name, content in sections.items()}
            found += configs.list_settings(made[preset], f"{section}.")
        if issubclass(self.entry.model, DirectModel):
            found = [s for s in found if not s.name.startswith("train.") or s.name == "train.holdout"]
        return found


def catalogue() -> list[CatalogueEntry]:
    """Every model, in display order."""
    tables: list[tuple[Purpose, Mapping[str, Entry], Mapping[str, Description]]] = [
        ("samples", MODELS, MODEL_DESCRIPTIONS),
        ("readings", QUERY_MODELS, QUERY_MODEL_DESCRIPTIONS),
    ]
    return [
        CatalogueEntry(name, purpose, descriptions[name], entry)
        for purpose, registry, descriptions in tables
        for name, entry in registry.items()
    ]


def find_model(name: str, purpose: Purpose | None = None) -> CatalogueEntry:
    """The model of this name; if there are two, the one for samples unless `purpose` says otherwise."""
    candidates = [each for each in catalogue() if purpose in (None, each.purpose)]
    for each in candidates:
        if each.name == name:
            return each
    raise ConfigError(f"Unknown model '{name}': {suggest(name, dict.fromkeys(each.name for each in candidates))}")


def format_value(value: Any) -> str:
    """The value as written after `--set NAME=`."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def markdown() -> str:
    """The text of docs/models.md."""
    lines = [
        "# Models, presets and settings",
        "",
        "Made from the source by `raindrop models --markdown`; a test keeps it up to date. On the command line,",
        "`raindrop models` lists the models and `raindrop settings MODEL --preset PRESET` their settings. A setting is",
        'changed with `--set NAME=VALUE`, in a TOML file (`--config`), or in Python with `config={"NAME": VALUE}`.',
        "",
        "| preset | when to use it |",
        "| --- | --- |",
        *(f"| `{name}` | {text} |" for name, text in PRESET_DESCRIPTIONS.items()),
    ]
    for purpose, title in PURPOSES.items():
        entries = [each for each in catalogue() if each.purpose == purpose]
        lines += [
            "",
            f"## {title}",
            "",
            "| model | what it is | when to use it | presets |",
            "| --- | --- | --- | --- |",
        ]
        for each in entries:
            presets = ", ".join(f"`{name}`" for name in each.presets)
            lines.append(f"| `{each.name}` | {each.description.summary} | {each.description.when} | {presets} |")
        for each in entries:
            own = [setting for setting in each.settings() if setting.name.startswith("model.")]
            lines += ["", f"### `{each.name}`", ""] if own else []
            lines += _settings_table(own) if own else []
    shared = [setting for setting in find_model("raindrop").settings() if setting.name.startswith("train.")]
    lines += ["", "## Training", "", "Of every network; the second column is the preset `tuned` of `raindrop`.", ""]
    lines += _settings_table(shared)
    return "\n".join(lines) + "\n"


def _settings_table(settings: list[Setting]) -> list[str]:
    rows = ["| setting | `tuned` | default | allowed | |", "| --- | --- | --- | --- | --- |"]
    for each in settings:
        allowed = each.allowed.replace("|", "\\|")
        text = " ".join(each.help.split()).replace("|", "\\|")
        rows.append(
            f"| `{each.name}` | {format_value(each.value)} | {format_value(each.default)} | {allowed} | {text} |"
        )
    return rows

"""The models, by name. To add one, write its file and add its line here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.raindrop import Raindrop, RaindropConfig

__all__ = ["MODELS", "DataSpec", "Entry", "Model", "Output"]


@dataclass(frozen=True)
class Entry:
    """A model with its settings; presets are changes to the defaults, by group."""

    model: type[Model]
    config: type[Any]
    presets: dict[str, dict[str, dict[str, Any]]]


MODELS: dict[str, Entry] = {
    "raindrop": Entry(Raindrop, RaindropConfig, {"paper": {}, "tuned": {}}),
}

"""Every numeric setting has a range; what is outside is refused in one sentence that shows it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from raindrop import config as configs
from raindrop.errors import ConfigError
from raindrop.models.registry import MODELS, QUERY_MODELS
from raindrop.ranges import Range, Share, ranges_of
from raindrop.training.config import TrainConfig

ENTRIES = {**MODELS, **QUERY_MODELS}
KINDS = {**{name: entry.config for name, entry in ENTRIES.items()}, "train": TrainConfig}


def numeric_settings(kind: type, prefix: str = "") -> Iterator[tuple[str, Range | None]]:
    """(name, range) of every setting that is a number, groups included."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            assert isinstance(hint, type)
            yield from numeric_settings(hint, f"{prefix}{field.name}.")
        elif {int, float} & {hint, *get_args(hint)} and get_origin(hint) is not tuple:
            yield prefix + field.name, ranges_of(kind).get(field.name)


@pytest.mark.parametrize("name", KINDS)
def test_every_number_has_a_range_and_nothing_outside_is_accepted(name: str) -> None:
    for setting, allowed in numeric_settings(KINDS[name]):
        assert allowed is not None, f"{setting} of {name} declares no range"
        outside: list[Any] = [allowed.low - 1, allowed.high * 2, math.nan, math.inf, -math.inf]
        outside += [allowed.low] * allowed.above + [allowed.high] * allowed.below
        for value in outside:
            number = int(value) if math.isfinite(value) and value == int(value) else value
            with pytest.raises(ConfigError) as caught:
                configs.make(KINDS[name], {setting: number}, where="model.")
            message = str(caught.value)
            assert f"model.{setting}" in message, message
            assert str(allowed) in message or "expected `int" in message, message


@pytest.mark.parametrize("name", ENTRIES)
def test_every_preset_is_within_the_ranges(name: str) -> None:
    for preset in ENTRIES[name].presets.values():
        sections = configs.split_sections(preset)
        configs.make(ENTRIES[name].config, sections["model"])
        configs.make(TrainConfig, sections["train"])


def test_a_range_says_which_ends_belong_to_it() -> None:
    assert str(Range(1, 65_536)) == "at least 1 and at most 65,536"
    assert str(Range(0, 1, above=True, below=True)) == "above 0 and below 1"
    (share,) = Share.__metadata__  # type: ignore[attr-defined]
    assert [x in share for x in (0, 0.999, 1, -0.0, -1e-9, math.nan)] == [True, True, False, True, False, False]

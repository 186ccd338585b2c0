"""Which settings of an estimator a search varies, and their form for Optuna."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from raindrop import config as configs
from raindrop.errors import ConfigError
from raindrop.estimators.settings import Settings
from raindrop.models.base import DirectModel
from raindrop.models.registry import Entry
from raindrop.models.search_spaces import SEARCH_SPACES, TRAINING, Between, OneOf, Space
from raindrop.ranges import Range, ranges_of
from raindrop.training.config import TrainConfig


def search_space(estimator: Settings) -> dict[str, Between | OneOf]:
    """The settings to vary: those that the model declares, without the ones that were set explicitly.

    A setting whose value lies outside its declared values is left unchanged.
    """
    entry = estimator.registry[estimator.model]
    declared = SEARCH_SPACES.get(estimator.model, {} if issubclass(entry.model, DirectModel) else TRAINING)
    check_space(entry, declared)
    own, given = start_values(estimator), set(given_settings(estimator))
    space = {name: values for name, values in declared.items() if name not in given and own[name] in values}
    if not space:
        raise ConfigError(
            f"There is nothing to search: every setting that a search of '{estimator.model}' varies "
            f"({', '.join(declared) or 'none'}) is given, or switched off by the preset '{estimator.preset}'."
        )
    return space


def check_space(entry: Entry, space: Space) -> None:
    """Raise unless every name is a setting and every value lies within the range that the setting declares."""
    ranges = dict(_ranges(entry.config, "model.")) | dict(_ranges(TrainConfig, "train."))
    for name, values in space.items():
        if name not in ranges:
            raise ConfigError(f"Search space: there is no setting '{name}'.")
        ends = (values.low, values.high) if isinstance(values, Between) else tuple(values)
        allowed = ranges[name]
        outside = [value for value in ends if allowed is not None and value not in allowed]
        if outside:
            raise ConfigError(f"Search space: {name} must be {allowed}, not {outside[0]}.")


def start_values(estimator: Settings) -> dict[str, Any]:
    """Every setting of an estimator by its full name, such as 'train.epochs'."""
    resolved = estimator.resolved()
    return {f"{section}.{name}": value for section, own in resolved.items() for name, value in own.items()}


def given_settings(estimator: Settings) -> dict[str, Any]:
    """The changes to its preset that an estimator was given, by their full names."""
    return dict(_flat(configs.split_sections(estimator.config or {})))


def distributions(space: Space) -> dict[str, Any]:
    """The space as Optuna distributions."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {}
    for name, values in space.items():
        if isinstance(values, OneOf):
            found[name] = CategoricalDistribution(tuple(values))
        elif values.is_whole:
            found[name] = IntDistribution(int(values.low), int(values.high), log=values.log)
        else:
            found[name] = FloatDistribution(values.low, values.high, log=values.log)
    return found


def describe_space(space: Space) -> dict[str, list[Any]]:
    """The space as JSON values, to compare it with that of a search on disk."""
    return {
        name: list(values) if isinstance(values, OneOf) else [values.low, values.high, "log" if values.log else "even"]
        for name, values in space.items()
    }


def _ranges(kind: type, prefix: str) -> Iterator[tuple[str, Range | None]]:
    """(name, range) of every setting of a config dataclass, including groups; None if it is not a number."""
    hints, declared = get_type_hints(kind), ranges_of(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from _ranges(hint, f"{prefix}{field.name}.")  # type: ignore[arg-type]
        else:
            yield prefix + field.name, declared.get(field.name)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings, flattened."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value

"""The range of each numeric setting: declared in its type, checked when a config is created, and shown in errors."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; `above` and `below` exclude the ends."""

    low: float
    high: float
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        at_an_end = (self.above and value == self.low) or (self.below and value == self.high)
        return self.low <= value <= self.high and not at_an_end  # NaN is in no range

    def __str__(self) -> str:
        low, high = (f"{int(end):,}" if end == int(end) and end < 1e15 else f"{end:g}" for end in (self.low, self.high))
        return f"{'above' if self.above else 'at least'} {low} and {'below' if self.below else 'at most'} {high}"


Size = Annotated[int, Range(1, 65_536)]
"""Size of a vector or a layer."""
OptionalSize = Annotated[int, Range(0, 65_536)]
"""As Size; 0 switches it off."""
Layers = Annotated[int, Range(1, 256)]
"""Number of layers, heads or steps, each of which costs time."""
Length = Annotated[int, Range(1, 10_000_000)]
"""Length of a series, or number of passes over the data."""
Count = Annotated[int, Range(0, 1_000_000_000)]
Share = Annotated[float, Range(0, 1, below=True)]
"""Dropout and other shares for which 1 would leave nothing."""
WholeShare = Annotated[float, Range(0, 1)]
Weight = Annotated[float, Range(0, 1e6)]
"""Weight of a part of the loss, and other factors that may be 0."""
Positive = Annotated[float, Range(0, 1e12, above=True)]
"""Scales, windows and rates."""


class Ranged:
    """Base of config dataclasses: a number outside the range of its setting raises a ValueError that names both."""

    def __post_init__(self) -> None:
        for name, allowed in ranges_of(type(self)).items():  # type: ignore[arg-type]
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else (value,):
                if number is not None and number not in allowed:
                    raise ValueError(f"{name} must be {allowed}, not {number}.")


@cache
def ranges_of(kind: type) -> dict[str, Range]:
    """The ranges that the fields of a config dataclass declare, by field name."""
    hints = get_type_hints(kind, include_extras=True)
    found = {field.name: _find_range(hints[field.name]) for field in fields(kind)}
    return {name: allowed for name, allowed in found.items() if allowed is not None}


def _find_range(hint: Any) -> Range | None:
    """The range in an annotated type, including one inside a union."""
    if isinstance(hint, Range):
        return hint
    parts = (*getattr(hint, "__metadata__", ()), *get_args(hint))
    return next((allowed for part in parts if (allowed := _find_range(part)) is not None), None)

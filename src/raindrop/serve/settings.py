"""The settings of a stream: how late readings may arrive, which of them count, and when samples are dropped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from raindrop.errors import ConfigError, check_choice
from raindrop.table.time_columns import TimeUnit

Late = Literal["error", "drop"]
BeforeReference = Literal["error", "keep"]


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """The validated arguments of a Stream, except its model."""

    lateness: float | None = None
    late: Late = "error"
    window: float | None = None
    cutoff: float | None = None
    max_samples: int | None = None
    max_age: float | None = None
    time_unit: TimeUnit = "hours"
    before_reference: BeforeReference = "error"

    def __post_init__(self) -> None:
        for name in ("lateness", "window", "max_age"):
            value = getattr(self, name)
            if value is not None and (not is_finite_number(value) or value < 0 or (value == 0 and name != "lateness")):
                raise ConfigError(f"{name}={value!r}: must be a positive length of time, or None for no limit.")
        if self.cutoff is not None and not is_finite_number(self.cutoff):
            raise ConfigError(
                f"cutoff={self.cutoff!r}: must be a finite time, or None; set_samples sets it for single samples."
            )
        if self.cutoff is not None and self.window is not None:
            raise ConfigError("window and cutoff: times count from the start of the window; leave one of them out.")
        if self.max_samples is not None and (not isinstance(self.max_samples, int) or self.max_samples < 1):
            raise ConfigError(
                f"max_samples={self.max_samples!r}: must be a whole number of at least 1, or None for no limit."
            )
        check_choice(self.late, Late, "late")
        check_choice(self.before_reference, BeforeReference, "before_reference")
        check_choice(self.time_unit, TimeUnit, "time_unit")


def is_finite_number(value: Any) -> bool:
    """Whether it is an int or a float, and finite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)

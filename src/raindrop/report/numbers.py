"""Number formats of the page."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def digits(values: NDArray[Any], number: int) -> list[Any]:
    """Values rounded to a number of significant digits, as a list."""
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.where(values == 0, 0, np.floor(np.log10(np.abs(values))))
    power = number - 1 - np.nan_to_num(power, posinf=0, neginf=0)
    up, down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)  # so that only integers are divided
    rounded: list[Any] = (np.round(values * up / down) / up * down).tolist()
    return rounded


def static_text(value: Any) -> str:
    """A static attribute as text; a float has at most five significant digits, but all digits before the point."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:.5g}" if abs(value) < 1e5 else f"{value:.0f}"


def quantity_text(value: float) -> str:
    """A quantity with three significant digits, but all digits before the point; a dash if there is none."""
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    return text.replace("-", "−") if "e" not in text else text


def share_text(value: float) -> str:
    """A share with three decimals; a dash if there is none."""
    return "–" if np.isnan(value) else f"{value:.3f}".replace("-", "−")


def percent_text(share: float, decimals: int = 1) -> str:
    """A share in percent."""
    return f"{100 * share:.{decimals}f} %"


def size_text(samples: int, readings: int) -> str:
    """The size of a table as text."""
    return f"{samples:,} sample{'' if samples == 1 else 's'} with {readings:,} readings"

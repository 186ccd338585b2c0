"""Detect whether the values of a sensor look like those of training in another unit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raindrop.monitor.pieces import Float64

CLOSE = 0.35  # mean distance of quantiles, relative to the spread, that counts as equal
MUCH_CLOSER = 0.25  # relative to the distance without a change of unit
TIE = 0.05  # a power of ten is preferred unless a rarer change is closer by more than this


@dataclass(frozen=True)
class UnitChange:
    """New values are factor times old ones, plus an offset."""

    factor: float
    offset: float = 0.0
    words: str = ""

    def describe(self) -> str:
        """A description of the change."""
        if self.words:
            return f"values look like those of training {self.words}"
        often = f"{self.factor:g} times" if self.factor > 1 else f"1/{1 / self.factor:g} of"
        return f"values look like {often} those of training; has the unit changed?"


def _both_ways(factor: float, words: str = "") -> list[UnitChange]:
    there = f"multiplied by {factor:g} ({words})" if words else ""
    back = f"divided by {factor:g} ({words})" if words else ""
    return [UnitChange(factor, words=there), UnitChange(1 / factor, words=back)]


POWERS = tuple(change for factor in (10.0, 100.0, 1000.0, 1e4, 1e6) for change in _both_ways(factor))
CHANGES: tuple[UnitChange, ...] = (
    *POWERS,
    UnitChange(1.8, 32.0, "in Fahrenheit instead of Celsius"),
    UnitChange(1 / 1.8, -32 / 1.8, "in Celsius instead of Fahrenheit"),
    UnitChange(1.0, 273.15, "in kelvin instead of Celsius"),
    UnitChange(1.0, -273.15, "in Celsius instead of kelvin"),
    *_both_ways(18.016, "glucose: mg/dL and mmol/L"),
    *_both_ways(88.42, "creatinine: µmol/L and mg/dL"),
    *_both_ways(2.801, "urea nitrogen: mg/dL and mmol/L"),
    *_both_ways(17.1, "bilirubin: µmol/L and mg/dL"),
    *_both_ways(38.67, "cholesterol: mg/dL and mmol/L"),
    *_both_ways(9.008, "lactate: mg/dL and mmol/L"),
    *_both_ways(2.431, "magnesium: mg/dL and mmol/L"),
    *_both_ways(4.008, "calcium: mg/dL and mmol/L"),
    *_both_ways(7.50062, "mmHg and kPa"),
    *_both_ways(6.89476, "kPa and psi"),
    *_both_ways(2.20462, "pounds and kilograms"),
    *_both_ways(2.54, "centimetres and inches"),
    *_both_ways(3.28084, "feet and metres"),
    *_both_ways(1.60934, "kilometres and miles"),
    *_both_ways(3.6, "km/h and m/s"),
    *_both_ways(60.0, "per minute and per second"),
)
"""The unit changes that are considered."""


def find_unit_change(old_quantiles: Float64, new: Float64) -> str | None:
    """A description of the unit change after which new values match the old quantiles; None if there is none."""
    old = old_quantiles[5:-5]
    if len(new) < 2 or not np.isfinite(old).all():
        return None
    now = np.quantile(new, np.linspace(0, 1, len(old_quantiles)))[5:-5]
    unchanged = _distance(old, now, UnitChange(1.0))
    distances = [_distance(old, now, change) for change in CHANGES]
    best = int(np.argmin(distances))
    power = int(np.argmin(distances[: len(POWERS)]))
    best = power if distances[power] <= distances[best] + TIE else best
    if distances[best] > CLOSE or distances[best] > MUCH_CLOSER * unchanged:
        return None
    return CHANGES[best].describe()


def _distance(old: Float64, now: Float64, change: UnitChange) -> float:
    """Mean distance between the quantiles expected after the change and the actual ones, in units of their spread.

    For positive values it is computed on logarithms, so that a long tail does not dominate.
    """
    expected = change.factor * old + change.offset
    if min(expected[0], now[0], old[0]) > 0:
        expected, now = np.log(expected), np.log(now)
    spread = expected[-1] - expected[0]
    scale = spread if spread > 0 else max(abs(expected[0]) * 0.1, 1e-12)
    return float(np.abs(expected - now).mean() / scale)

"""Probabilities that mean what they say: of samples given 30 %, three in ten should come true.

Both ways are fitted on validation samples. A temperature T takes every probability to the power of 1 / T and
normalises again: it makes all of them bolder or more cautious and changes no ranking between samples of two classes
(Guo et al., "On calibration of modern neural networks", ICML 2017). Isotonic calibration follows any rising curve
(Zadrozny and Elkan, KDD 2002), one for each class against the rest, but needs more samples and makes ties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

Method = Literal["none", "temperature", "isotonic"]
METHODS: tuple[Method, ...] = ("none", "temperature", "isotonic")
WARMEST = 20.0  # temperatures are looked for between this and its inverse
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Calibrator:
    """From the probabilities of a model to calibrated ones; as it is by default, it changes nothing."""

    method: Method = "none"
    temperature: float = 1.0
    curves: tuple[Curve, ...] = ()
    """Of each class (of two, only the second): probabilities, and the share that came true; linear in between."""

    @classmethod
    def fit(cls, method: Method, truth: NDArray[np.int64], probability: NDArray[Any]) -> Self:
        """Learn from the codes of the right classes and (samples, classes)."""
        if method == "temperature":
            return cls(method, _temperature(truth, probability))
        if method == "isotonic":
            classes = probability.shape[1]
            codes = [1] if classes == 2 else range(classes)
            return cls(method, curves=tuple(_curve(truth == code, probability[:, code]) for code in codes))
        return cls()

    def __call__(self, probability: NDArray[np.float32]) -> NDArray[np.float32]:
        """(samples, classes), each row with sum 1."""
        if self.method == "none":
            return probability
        p = probability.astype(np.float64)
        if self.method == "temperature":
            p = _tempered(p, self.temperature)
        elif len(self.curves) == 1:
            second = np.interp(p[:, 1], *self.curves[0])
            p = np.stack([1 - second, second], axis=1)
        else:
            p = np.stack([np.interp(p[:, at], *curve) for at, curve in enumerate(self.curves)], axis=1)
            p /= p.sum(1, keepdims=True)
        return p.astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which `from_dict` makes the same calibrator."""
        curves = [[said.tolist(), true.tolist()] for said, true in self.curves]
        return {"method": self.method, "temperature": self.temperature, "curves": curves}

    @classmethod
    def from_dict(cls, held: Mapping[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        curves = tuple(
            (np.array(said, dtype=np.float64), np.array(true, dtype=np.float64)) for said, true in held["curves"]
        )
        if held["method"] not in METHODS:
            raise ValueError(f"unknown calibration '{held['method']}'")
        return cls(held["method"], float(held["temperature"]), curves)


def _tempered(p: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    log = np.log(np.maximum(p, 1e-45)) / temperature  # the smallest single-precision number: sure, but not infinitely
    power = np.exp(log - log.max(1, keepdims=True))
    normalised: NDArray[np.float64] = power / power.sum(1, keepdims=True)
    return normalised


def _temperature(truth: NDArray[np.int64], probability: NDArray[Any]) -> float:
    """That of the lowest log loss, which has one valley."""
    from scipy.optimize import minimize_scalar

    p, at = probability.astype(np.float64), np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        right = _tempered(p, float(np.exp(log_temperature)))[at, truth]
        return float(-np.log(np.maximum(right, 1e-300)).mean())

    found = minimize_scalar(loss, bounds=(-np.log(WARMEST), np.log(WARMEST)), method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x))


def _curve(true: NDArray[np.bool_], said: NDArray[Any]) -> Curve:
    """The rising step curve nearest to the truth; n samples cannot show that something never or always comes true."""
    from sklearn.isotonic import IsotonicRegression

    least = 1 / (len(true) + 2)
    model = IsotonicRegression(y_min=least, y_max=1 - least).fit(said.astype(np.float64), true.astype(np.float64))
    return model.X_thresholds_.astype(np.float64), model.y_thresholds_.astype(np.float64)

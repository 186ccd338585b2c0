"""Calibration: of the samples with a predicted probability of 30 %, three in ten should be positive.

Both methods are fitted on validation samples. A temperature T raises every probability to the power of 1 / T and
normalises again: all predictions become more or less confident, and samples of two classes keep their ranking (Guo et
al., "On calibration of modern neural networks", ICML 2017). Isotonic regression follows any rising curve (Zadrozny and
Elkan, KDD 2002), one for each class against the rest, but needs more samples and makes ties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

Method = Literal["none", "temperature", "isotonic"]
METHODS: tuple[Method, ...] = ("none", "temperature", "isotonic")
MAX_TEMPERATURE = 20.0  # the search is between this and its inverse
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Calibrator:
    """Turns a model's probabilities into calibrated ones; by default it changes nothing."""

    method: Method = "none"
    temperature: float = 1.0
    curves: tuple[Curve, ...] = ()
    """For each class (of two, only the second): probabilities, and calibrated ones; linear in between."""

    @classmethod
    def fit(cls, method: Method, truth: NDArray[np.int64], probability: NDArray[Any]) -> Self:
        """Fit to the codes of the true classes and probabilities (samples, classes)."""
        if method == "temperature":
            return cls(method, _temperature(truth, probability))
        if method == "isotonic":
            classes = probability.shape[1]
            codes = [1] if classes == 2 else range(classes)
            return cls(method, curves=tuple(_curve(truth == code, probability[:, code]) for code in codes))
        return cls()

    def __call__(self, probability: NDArray[np.float32]) -> NDArray[np.float32]:
        """(samples, classes) calibrated; each row sums to 1."""
        if self.method == "none":
            return probability
        p = probability.astype(np.float64)
        if self.method == "temperature":
            p = _with_temperature(p, self.temperature)
        elif len(self.curves) == 1:
            second = np.interp(p[:, 1], *self.curves[0])
            p = np.stack([1 - second, second], axis=1)
        else:
            p = np.stack([np.interp(p[:, at], *curve) for at, curve in enumerate(self.curves)], axis=1)
            p /= p.sum(1, keepdims=True)
        return p.astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """JSON values from which `from_dict` restores the calibrator."""
        curves = [[predicted.tolist(), calibrated.tolist()] for predicted, calibrated in self.curves]
        return {"method": self.method, "temperature": self.temperature, "curves": curves}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The calibrator that `to_dict` described."""
        curves = tuple(
            (np.array(predicted, dtype=np.float64), np.array(calibrated, dtype=np.float64))
            for predicted, calibrated in content["curves"]
        )
        if content["method"] not in METHODS:
            raise ValueError(f"unknown calibration '{content['method']}'")
        return cls(content["method"], float(content["temperature"]), curves)


def _with_temperature(p: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    log = np.log(np.maximum(p, 1e-45)) / temperature  # the smallest positive float32 keeps the logarithm finite
    power = np.exp(log - log.max(1, keepdims=True))
    normalised: NDArray[np.float64] = power / power.sum(1, keepdims=True)
    return normalised


def _temperature(truth: NDArray[np.int64], probability: NDArray[Any]) -> float:
    """The temperature with the lowest log loss, which has a single minimum."""
    from scipy.optimize import minimize_scalar

    p, at = probability.astype(np.float64), np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        of_truth = _with_temperature(p, float(np.exp(log_temperature)))[at, truth]
        return float(-np.log(np.maximum(of_truth, 1e-300)).mean())

    found = minimize_scalar(
        loss, bounds=(-np.log(MAX_TEMPERATURE), np.log(MAX_TEMPERATURE)), method="bounded", options={"xatol": 1e-4}
    )
    return float(np.exp(found.x))


def _curve(happened: NDArray[np.bool_], predicted: NDArray[Any]) -> Curve:
    """The best increasing step curve, within (0, 1): n samples cannot show that something never or always happens."""
    from sklearn.isotonic import IsotonicRegression

    least = 1 / (len(happened) + 2)
    model = IsotonicRegression(y_min=least, y_max=1 - least).fit(
        predicted.astype(np.float64), happened.astype(np.float64)
    )
    return model.X_thresholds_.astype(np.float64), model.y_thresholds_.astype(np.float64)

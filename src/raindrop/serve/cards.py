"""What the service publishes about a model, with synthetic readings to try it."""

from __future__ import annotations

from typing import Any

import numpy as np


def card_of(name: str, kind: str, estimator: Any) -> dict[str, Any]:
    """The card of a model: what it predicts, its inputs, and its training data."""
    scaler = estimator.scaler_
    first, last = estimator.data_["window"]
    statics = [
        {"name": column.name, "values": None if column.categories is None else list(column.categories)}
        for column in scaler.statics
    ]
    return {
        "name": name,
        "kind": kind,
        "run": estimator.identity_[:16],
        "task": estimator.task_.name,
        "model": estimator.model,
        "preset": estimator.preset,
        "parameters": sum(p.numel() for p in estimator.model_.parameters()),
        "labels": [str(label) for label in getattr(estimator.task_, "labels", ())],
        "classes": [str(name) for name in getattr(estimator, "classes_", ())],
        "positive": _text(getattr(estimator, "positive_", None)),
        "sensors": list(scaler.observed_sensors),
        "statics": statics,
        "time_unit": estimator.time_unit_,
        "times": [float(first), float(last)],
        "trained_on": {"samples": estimator.data_["samples"], "readings": estimator.data_["readings"]},
        "intervals": getattr(estimator, "conformal_", None) is not None,
        "horizon": getattr(estimator, "horizon", None),
        "examples": [example(estimator, *kind) for kind in (("Typical", 0.0), ("Rising", 1.5), ("Falling", -1.5))],
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def example(estimator: Any, title: str, shift: float, seed: int = 0) -> dict[str, Any]:
    """Synthetic readings around the means of training, with gaps; they contain no training reading.

    shift: the change of the first two sensors at the end, in standard deviations.
    """
    scaler, (first, last) = estimator.scaler_, estimator.data_["window"]
    rng = np.random.default_rng(seed)
    start = max(first, 0.0)
    reach = (last - start) or 1.0
    rows: dict[tuple[float, str], float] = {}
    for rank, code in enumerate(np.flatnonzero(scaler.observed)[:6]):
        share = np.sort(rng.random(10))
        share = share[(share < 0.4) | (share > 0.75)] if rank % 2 else share  # a gap to fill
        level = (shift * share if rank < 2 else 0 * share) + 0.4 * rng.standard_normal(len(share))
        for at, value in zip(share, scaler.mean[code] + scaler.scale[code] * level, strict=True):
            rows[round(float(start + reach * at), 2), scaler.sensors[code]] = float(f"{value:.4g}")
    ordered = sorted(rows)
    readings = {
        "time": [time for time, _ in ordered],
        "sensor": [sensor for _, sensor in ordered],
        "value": [rows[key] for key in ordered],
    }
    return {"title": title, "readings": readings}

"""Simple baselines for a fitted imputer or forecaster, with the same scaling and intervals between readings."""

from __future__ import annotations

from typing import Literal, cast

import torch
from sklearn.base import clone

from raindrop.estimators.readings import ReadingsEstimator
from raindrop.models.baselines.simple_imputation import PointModel

Name = Literal["mean", "last", "linear"]


def simple_baseline(fitted: ReadingsEstimator, model: Name) -> ReadingsEstimator:
    """A baseline that needs no training data, to compare with a saved model by `evaluate`; it has no intervals.

    Its means, scales and typical intervals are those that the fitted estimator learned in training.
    """
    fitted._require_fitted()
    baseline = cast(ReadingsEstimator, clone(fitted))
    baseline.set_params(model=model, preset="tuned", config=None)
    for name in ("task_", "scaler_", "time_unit_", "data_", "interval_"):
        setattr(baseline, name, getattr(fitted, name))
    entry, config, _ = baseline._configs()
    network = cast(PointModel, entry.model(config, baseline._spec()))
    network.interval.copy_(torch.from_numpy(fitted.interval_))
    baseline.model_, baseline.conformal_ = network.eval(), None
    return baseline

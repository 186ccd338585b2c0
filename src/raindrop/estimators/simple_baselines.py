"""Simple baselines for a fitted imputer or forecaster, with the same scaling and intervals between readings."""

from __future__ import annotations

from typing import Literal, cast

import torch
from sklearn.base import clone

from raindrop.errors import ConfigError
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.models.baselines.simple_imputation import NearestSensors, PointModel

Name = Literal["mean", "last", "linear", "nearest"]


def baseline_names(fitted: ReadingsEstimator) -> tuple[Name, ...]:
    """The baselines to compare a fitted estimator with, without itself.

    After a cutoff, no other sensor has a reading nearby and there is no next one, so `nearest` and `linear` are only
    for imputers; `nearest` also needs sensors with correlated readings at the same time.
    """
    names: tuple[Name, ...] = ("last", "mean")
    if isinstance(fitted, Imputer):
        correlated = fitted.correlation_ is not None and (fitted.correlation_ > 0).any()
        names = ("linear", *names, "nearest") if correlated else ("linear", *names)
    return tuple(name for name in names if name != fitted.model)


def simple_baseline(fitted: ReadingsEstimator, model: Name) -> ReadingsEstimator:
    """A baseline that needs no training data, to compare with a saved model by `evaluate`; it has no intervals.

    Its means, scales, typical intervals and correlations are those that the fitted estimator learned in training.
    """
    fitted._require_fitted()
    baseline = cast(ReadingsEstimator, clone(fitted))
    baseline.set_params(model=model, preset="tuned", config=None)
    for name in ("task_", "scaler_", "time_unit_", "data_", "interval_"):
        setattr(baseline, name, getattr(fitted, name))
    entry, config, _ = baseline._configs()
    network = cast(PointModel, entry.model(config, baseline._spec()))
    network.interval.copy_(torch.from_numpy(fitted.interval_))
    if isinstance(network, NearestSensors):
        if not isinstance(fitted, Imputer) or fitted.correlation_ is None:
            raise ConfigError("The correlations that the baseline 'nearest' needs were not learned with this model.")
        network.correlation.copy_(torch.from_numpy(fitted.correlation_))
    baseline.model_, baseline.conformal_ = network.eval(), None
    return baseline

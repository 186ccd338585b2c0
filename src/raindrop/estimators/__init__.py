"""Estimators with scikit-learn's conventions over an EventTable: fit, predict, embed, graphs, save and load."""

from raindrop.estimators.base import Estimator
from raindrop.estimators.classifier import Classifier
from raindrop.estimators.forecaster import Forecaster
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.loading import ESTIMATORS, estimator_type, load, make_estimator, sign_model
from raindrop.estimators.multilabel import MultiLabelClassifier
from raindrop.estimators.regressor import Regressor
from raindrop.estimators.samples import SampleEstimator

__all__ = [
    "ESTIMATORS",
    "Classifier",
    "Estimator",
    "Forecaster",
    "Imputer",
    "MultiLabelClassifier",
    "Regressor",
    "SampleEstimator",
    "estimator_type",
    "load",
    "make_estimator",
    "sign_model",
]

"""raindrop: learning from irregularly sampled multivariate time series, with a sensor graph for every sample."""

from raindrop.classifier import Classifier, RaindropClassifier, load
from raindrop.errors import ConfigError, DataError, ModelFileError, OutputExistsError, RaindropError
from raindrop.events import EventTable
from raindrop.graph import SensorGraph, SensorGraphs
from raindrop.predictions import Predictions
from raindrop.storage import VERSION as __version__

__all__ = [
    "Classifier",
    "ConfigError",
    "DataError",
    "EventTable",
    "ModelFileError",
    "OutputExistsError",
    "Predictions",
    "RaindropClassifier",
    "RaindropError",
    "SensorGraph",
    "SensorGraphs",
    "__version__",
    "load",
]

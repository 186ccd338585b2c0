"""raindrop: learning from irregularly sampled multivariate time series, with a sensor graph for every sample."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from raindrop.errors import ConfigError, DataError, ModelFileError, OutputExistsError, RaindropError
from raindrop.version import VERSION as __version__

if TYPE_CHECKING:
    from raindrop.classifier import Classifier, RaindropClassifier, load
    from raindrop.events import EventTable
    from raindrop.graph import SensorGraph, SensorGraphs
    from raindrop.predictions import Predictions

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

# Imported when first asked for: torch takes seconds, and a table or `raindrop --help` does not need it.
_MODULES = {
    "Classifier": "raindrop.classifier",
    "EventTable": "raindrop.events",
    "Predictions": "raindrop.predictions",
    "RaindropClassifier": "raindrop.classifier",
    "SensorGraph": "raindrop.graph",
    "SensorGraphs": "raindrop.graph",
    "load": "raindrop.classifier",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'raindrop' has no attribute '{name}'")
    globals()[name] = found = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

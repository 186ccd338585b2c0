"""raindrop: learning from irregularly sampled multivariate time series, with a sensor graph for every sample."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from raindrop.errors import ConfigError, DataError, ModelFileError, OutputExistsError, RaindropError, RaindropWarning
from raindrop.version import VERSION as __version__

if TYPE_CHECKING:
    from raindrop import scale
    from raindrop.estimators import Classifier, Forecaster, Imputer, MultiLabelClassifier, Regressor, load
    from raindrop.estimators.auto import auto
    from raindrop.graphs import (
        ClassGraphs,
        InformedGraph,
        SensorGraph,
        SensorGraphs,
        class_graphs,
        sensor_graph,
    )
    from raindrop.search import SearchResult
    from raindrop.search.tuning import tune
    from raindrop.serve import Stream
    from raindrop.table import EventTable, Readings, grid
    from raindrop.tasks.predictions import Predictions
    from raindrop.tasks.threshold import CostRatio, Sensitivity

__all__ = [
    "ClassGraphs",
    "Classifier",
    "ConfigError",
    "CostRatio",
    "DataError",
    "EventTable",
    "Forecaster",
    "Imputer",
    "InformedGraph",
    "ModelFileError",
    "MultiLabelClassifier",
    "OutputExistsError",
    "Predictions",
    "RaindropError",
    "RaindropWarning",
    "Readings",
    "Regressor",
    "SearchResult",
    "Sensitivity",
    "SensorGraph",
    "SensorGraphs",
    "Stream",
    "__version__",
    "auto",
    "class_graphs",
    "grid",
    "load",
    "scale",
    "sensor_graph",
    "tune",
]

# Imported on first use: torch takes seconds, and a table or `raindrop --help` does not need it.
_MODULES = {
    "auto": "raindrop.estimators.auto",
    "ClassGraphs": "raindrop.graphs",
    "Classifier": "raindrop.estimators",
    "CostRatio": "raindrop.tasks.threshold",
    "EventTable": "raindrop.table",
    "Forecaster": "raindrop.estimators",
    "Imputer": "raindrop.estimators",
    "InformedGraph": "raindrop.graphs",
    "MultiLabelClassifier": "raindrop.estimators",
    "Predictions": "raindrop.tasks.predictions",
    "Readings": "raindrop.table",
    "Regressor": "raindrop.estimators",
    "SearchResult": "raindrop.search",
    "SensorGraph": "raindrop.graphs",
    "SensorGraphs": "raindrop.graphs",
    "Sensitivity": "raindrop.tasks.threshold",
    "Stream": "raindrop.serve",
    "class_graphs": "raindrop.graphs",
    "grid": "raindrop.table",
    "load": "raindrop.estimators",
    "sensor_graph": "raindrop.graphs",
    "tune": "raindrop.search.tuning",
}


def __getattr__(name: str) -> Any:
    if name == "scale":
        return import_module("raindrop.scale")
    if name not in _MODULES:
        raise AttributeError(f"module 'raindrop' has no attribute '{name}'")
    globals()[name] = found = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Explanations of a fitted model: information graphs, linear probes, occlusion, attention and faithfulness.

Global importances are a method of the estimators (`estimator.importances`).
"""

from raindrop.explain.faithfulness import faithfulness
from raindrop.explain.information import attention_over_time, information_graphs
from raindrop.explain.occlusion import reading_contributions, sensor_contributions
from raindrop.explain.probe import probe_graph

__all__ = [
    "attention_over_time",
    "faithfulness",
    "information_graphs",
    "probe_graph",
    "reading_contributions",
    "sensor_contributions",
]

"""Watching a model in use: what of the readings, the scores and the calibration is no longer as in training.

`Reference` is saved with every model; `Monitor` compares new samples with it, a few at a time or a table at once.
"""

from raindrop.monitor.drift import Drift, Findings
from raindrop.monitor.monitor import Monitor, findings_by_group, monitor_table, reference_from, watched_by
from raindrop.monitor.reference import Reference

__all__ = [
    "Drift",
    "Findings",
    "Monitor",
    "Reference",
    "findings_by_group",
    "monitor_table",
    "reference_from",
    "watched_by",
]

"""Monitoring a model in use: changes of readings, scores and calibration since training.

`Reference` is saved with every model; `Monitor` compares new samples with it, in batches or a whole table at once.
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

"""Sensor graphs: what they are, how they are exported, compared and tested."""

from raindrop.graphs.graph import SensorGraph, SensorGraphs

__all__ = ["SensorGraph", "SensorGraphs"]

"""Sensor graphs: the graphs themselves, how they are exported, compared with each other and tested."""

from raindrop.graphs.graph import SensorGraph, SensorGraphs

__all__ = ["SensorGraph", "SensorGraphs"]

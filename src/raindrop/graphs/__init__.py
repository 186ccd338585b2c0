"""Sensor graphs: the graphs themselves, how they are exported, compared with each other and tested."""

from raindrop.graphs.graph import SensorGraph, SensorGraphs
from raindrop.graphs.informed import InformedGraph, sensor_graph

__all__ = ["InformedGraph", "SensorGraph", "SensorGraphs", "sensor_graph"]

"""Sensor graphs: the graphs themselves, exporting, comparing and testing them."""

from raindrop.graphs.class_differences import ClassGraphs
from raindrop.graphs.graph import SensorGraph, SensorGraphs
from raindrop.graphs.informed import InformedGraph, sensor_graph
from raindrop.graphs.informed_classes import class_graphs

__all__ = ["ClassGraphs", "InformedGraph", "SensorGraph", "SensorGraphs", "class_graphs", "sensor_graph"]

"""EventTable: the readings of many samples, validated once.

constructors.py has every way to build a table; adapters/ convert other shapes and libraries, build.py validates and
sorts. event_table.py is the table, store.py its folder on disk, export.py writes it for other programs. Splits, hidden
sensors and the overview of `raindrop inspect` are functions of a table. queries.py describes readings to predict,
query_times.py the times and durations that a user gives for them; readings.py holds predicted readings.
"""

from raindrop.table.event_table import EventTable
from raindrop.table.hide import hide_random_sensors, hide_sensors
from raindrop.table.overview import overview
from raindrop.table.queries import grid
from raindrop.table.readings import Readings
from raindrop.table.split_files import Split, write_splits

__all__ = [
    "EventTable",
    "Readings",
    "Split",
    "grid",
    "hide_random_sensors",
    "hide_sensors",
    "overview",
    "write_splits",
]

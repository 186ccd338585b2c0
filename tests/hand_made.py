"""A small event table written out by hand, and what its tests share."""

import datetime as dt

import polars as pl

EVENTS = {  # on purpose not in order
    "sample": ["b", "a", "a", "a", "b"],
    "time": [2.0, 1.5, 0.0, 1.5, 0.5],
    "sensor": ["HR", "T", "HR", "HR", "T"],
    "value": [5.0, 3.0, 1.0, 2.0, 4.0],
}
SAMPLES = {"sample": ["a", "b", "c"], "label": ["no", "yes", "no"], "age": [50, 60, 70]}
SORTED = [  # by sample as listed, then time, then sensor
    ("a", 0.0, "HR", 1.0),
    ("a", 1.5, "HR", 2.0),
    ("a", 1.5, "T", 3.0),
    ("b", 0.5, "T", 4.0),
    ("b", 2.0, "HR", 5.0),
]
MIDNIGHT = dt.datetime(2024, 1, 31)


def hours(*numbers):
    """Date times this many hours after MIDNIGHT."""
    return [MIDNIGHT + dt.timedelta(hours=number) for number in numbers]


def is_same(one, other):
    """Assert that two tables are equal; returns True for use in an assertion."""
    assert one.events().equals(other.events())
    assert one.samples.equals(other.samples)
    assert (one.sensors, one.roles, one.time_unit) == (other.sensors, other.roles, other.time_unit)
    assert one.fingerprint == other.fingerprint
    return True


def write_folder(folder, events, samples=None, kind="parquet"):
    """Write the two frames alone, without the files that `EventTable.write` adds."""
    folder.mkdir(exist_ok=True)
    for name, columns in {"events": events, "samples": samples}.items():
        if columns is not None:
            frame = pl.DataFrame(columns)
            getattr(frame, f"write_{kind}")(folder / f"{name}.{kind}")
    return folder

"""What tests of bad input share: how a call is refused, and what a table promises if it is not."""

import numpy as np
import pytest

from raindrop.errors import DataError, RaindropError


def refused(call, *arguments, **options):
    """The message of the DataError that the call must end with."""
    with pytest.raises(DataError) as caught:
        call(*arguments, **options)
    return str(caught.value)


def outcome(call, *arguments, **options):
    """What the call returns, or the RaindropError it ends with; anything else is a bug and passes through."""
    try:
        return call(*arguments, **options)
    except RaindropError as error:
        return error


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def write_csv(folder, events="sample,time,sensor,value\np1,0,HR,80\n", samples=None):
    folder.mkdir(exist_ok=True)
    (folder / "events.csv").write_text(events)
    if samples is not None:
        (folder / "samples.csv").write_text(samples)
    return folder


def is_sound(table):
    """The promises of a table, whatever it was built from."""
    rows = table.rows()
    owner = np.repeat(np.arange(len(table)), table.count)
    time, sensor, value = table.time[rows], table.sensor[rows], table.value[rows]
    assert (time.dtype, sensor.dtype, value.dtype) == (np.float64, np.int32, np.float64)
    assert np.isfinite(time).all()
    assert np.isfinite(value).all()
    assert len(sensor) == 0 or (sensor.min() >= 0 and sensor.max() < len(table.sensors))
    keys = list(zip(owner.tolist(), time.tolist(), sensor.tolist(), strict=True))
    assert keys == sorted(set(keys)), "sorted by (sample, time, sensor), each once"
    assert len(table.offsets) == len(table) + 1 == len(table.samples) + 1
    assert table.offsets[-1] == len(rows) == table.num_readings
    assert len(set(table.ids)) == len(table) > 0
    assert all(isinstance(name, str) and name for name in [*table.ids, *table.sensors])
    assert len(set(table.sensors)) == len(table.sensors)
    assert table.events().height == len(rows)
    assert table.fingerprint
    return True

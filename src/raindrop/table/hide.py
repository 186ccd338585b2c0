"""Hide readings of a table by removing them; a model is evaluated on the result as on any other table.

`hide_*` are the paper's Settings 2 and 3. `hold_out_*` also return the hidden readings, as the truth for predicted
readings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from raindrop.errors import DataError, check_seed, suggest
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans


def hide_sensors(table: EventTable, sensors: Sequence[str], *, values: ArrayLike | None = None) -> EventTable:
    """Setting 2: remove all readings of these sensors.

    With `values`, one per sensor of the table, the readings are overwritten with that value instead. The paper writes
    zeros over scaled readings; the means of the training readings have the same effect.
    """
    for name in sensors:
        if name not in table.sensors:
            raise DataError(f"There is no sensor '{name}' to hide; {suggest(name, table.sensors)}")
    hidden = np.isin(np.array(table.sensors), list(sensors))
    return _hide_readings(table, hidden[table.sensor[table.rows()]], values)


def hide_random_sensors(
    table: EventTable, share: float, *, seed: int = 0, values: ArrayLike | None = None
) -> EventTable:
    """Setting 3: in each sample remove, or overwrite with `values`, the readings of a random `share` of all sensors.

    Every sample draws its own sensors.
    """
    num_sensors = len(table.sensors)
    rank = np.random.default_rng(check_seed(seed)).random((len(table), num_sensors)).argsort(1).argsort(1)
    hidden = rank < num_hidden(share, num_sensors)
    sample = np.repeat(np.arange(len(table)), table.count)
    return _hide_readings(table, hidden[sample, table.sensor[table.rows()]], values)


def num_hidden(share: float, num_sensors: int) -> int:
    """The number of sensors in a share of them, rounded half to even as in the paper."""
    if not 0 <= share <= 1:
        raise DataError(f"The share of hidden sensors must be between 0 and 1, not {share}.")
    return round(share * num_sensors)


def hold_out_readings(table: EventTable, share: float, *, seed: int = 0) -> tuple[EventTable, pl.DataFrame]:
    """Hide a random share of all readings: the table without them, and the hidden readings as a frame."""
    table = _measured(table)
    _require_share(share)
    return _hold_out(table, np.random.default_rng(check_seed(seed)).random(table.num_readings) < share)


def hold_out_blocks(
    table: EventTable, length: float, *, share: float = 0.1, seed: int = 0
) -> tuple[EventTable, pl.DataFrame]:
    """Hide blocks of a given length in time: the table without these readings, and the hidden readings.

    Each sensor of each sample is hidden for `length`, once in every `length / share`, starting at a random time.
    """
    table = _measured(table)
    _require_share(share)
    if not 0 < length < np.inf:
        raise DataError(
            f"length={length!r}: how long a block is hidden must be a positive number of {table.time_unit}."
        )
    owner, sensor, time = _readings(table)
    period = length / share
    phase = np.random.default_rng(check_seed(seed)).uniform(0, period, (len(table), len(table.sensors)))
    return _hold_out(table, (time - spans(table)[0][owner] + phase[owner, sensor]) % period < length)


def hold_out_sensors(table: EventTable, share: float, *, seed: int = 0) -> tuple[EventTable, pl.DataFrame]:
    """Hide a random share of each sample's sensors, at least one: the remaining table, and the hidden readings."""
    table = _measured(table)
    _require_share(share)
    owner, sensor, _ = _readings(table)
    present = np.zeros((len(table), len(table.sensors)), dtype=bool)
    present[owner, sensor] = True
    order = np.where(present, np.random.default_rng(check_seed(seed)).random(present.shape), np.inf)
    number = np.maximum(np.round(share * present.sum(1)), 1)
    hidden = present & (order.argsort(1).argsort(1) < np.minimum(number, present.sum(1) - 1)[:, None])
    return _hold_out(table, hidden[owner, sensor])


def hold_out_future(
    table: EventTable, cutoff: ArrayLike, horizon: float | None = None
) -> tuple[EventTable, pl.DataFrame]:
    """Hide what follows a cutoff (one for all samples, or one each): the table up to it, and the readings after it.

    With a horizon, the truth ends that long after the cutoff; later readings are hidden too.
    """
    table = _measured(table)
    owner, _, time = _readings(table)
    limit = np.broadcast_to(np.asarray(cutoff, dtype=np.float64), (len(table),))[owner]
    end = np.inf if horizon is None else limit + horizon * (1 + 1e-9)
    return _hold_out(table, time > limit, (time > limit) & (time <= end))


def _measured(table: EventTable) -> EventTable:
    """The table without predicted readings: they are not ground truth, and may leak what is hidden."""
    return table if table.filled is None else table.where(~table.filled[table.rows()])


def _readings(table: EventTable) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float64]]:
    """(n,) sample, sensor and time of all readings."""
    rows = table.rows()
    return np.repeat(np.arange(len(table)), table.count), np.asarray(table.sensor[rows]), np.asarray(table.time[rows])


def _require_share(share: float) -> None:
    if not 0 < share < 1:
        raise DataError(f"The share of hidden readings or sensors must be above 0 and below 1, not {share}.")


def _hold_out(
    table: EventTable, hidden: NDArray[np.bool_], truth: NDArray[np.bool_] | None = None
) -> tuple[EventTable, pl.DataFrame]:
    chosen = hidden if truth is None else truth
    if not chosen.any():
        raise DataError(
            f"None of the {table.num_readings:,} readings would be hidden and compared. Hide more, or other readings."
        )
    readings = table.where(chosen).events().with_columns(pl.col("sensor").cast(pl.String))
    return table.where(~hidden), readings.select("sample", "time", "sensor", "value")


def _hide_readings(table: EventTable, hidden: NDArray[np.bool_], values: ArrayLike | None) -> EventTable:
    """Remove the readings where `hidden` (n,), or overwrite them with the value of their sensor."""
    if values is None:
        return table.where(~hidden)
    new_values = np.asarray(values, dtype=np.float64)
    if new_values.shape != (len(table.sensors),):
        raise DataError(
            f"There are {len(table.sensors)} sensors, but values of shape {new_values.shape} to write for them."
        )
    contiguous = table.where(np.ones(len(hidden), dtype=bool))  # readings in the order of `hidden`
    return replace(contiguous, value=np.where(hidden, new_values[contiguous.sensor], contiguous.value))

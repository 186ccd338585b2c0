"""Readings that arrive in random order, some of them wrong at first, some twice; and the same readings as a table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl

from raindrop import EventTable, Stream

START = datetime(2024, 1, 31, 8)


def readings_of(rng: np.random.Generator, sensors: tuple[str, ...], samples: int = 5, most: int = 12) -> pl.DataFrame:
    """Random readings on a coarse clock, so that sensors are often read at the same time; each (sample, time, sensor)
    once."""
    count = rng.integers(1, most, samples)
    frame = pl.DataFrame(
        {
            "sample": np.repeat([f"s{at}" for at in range(samples)], count),
            "time": rng.integers(0, 40, count.sum()) / 4,
            "sensor": rng.choice(sensors, count.sum()),
            "value": rng.normal(0, 2, count.sum()).round(3),
        }
    )
    return frame.unique(["sample", "time", "sensor"], keep="last", maintain_order=True)


def in_random_order(rng: np.random.Generator, readings: pl.DataFrame) -> pl.DataFrame:
    """All readings in random order; a third came before with a wrong value, a third comes again."""
    wrong = readings.filter(rng.random(len(readings)) < 0.3).with_columns(pl.col("value") + 7)
    again = readings.filter(rng.random(len(readings)) < 0.3)
    first = pl.concat([wrong, readings.join(wrong, on=["sample", "time", "sensor"], how="anti")])
    second = pl.concat([readings.join(wrong, on=["sample", "time", "sensor"], how="semi"), again])
    shuffled = [frame[rng.permutation(len(frame))] for frame in (first, second)]
    return pl.concat(shuffled)


def as_dates(frame: pl.DataFrame) -> pl.DataFrame:
    """The same with date times: hours since a day in January."""
    dates = [START + timedelta(hours=hours) for hours in frame["time"]]
    return frame.with_columns(pl.Series("time", dates))


def play(
    stream: Stream,
    arrivals: pl.DataFrame,
    statics: pl.DataFrame,
    rng: np.random.Generator,
    restart: Callable[[Stream], Stream] = lambda stream: stream,
) -> Stream:
    """Push arrivals in pieces of random size, the statics of each sample at some moment; score and restart at times.

    After a restart some of what is stored is pushed again, as a producer does that does not know how far it came.
    """
    bounds = np.unique(rng.integers(0, len(arrivals) + 1, 6))
    pieces = [arrivals[a:b] for a, b in zip([0, *bounds], [*bounds, len(arrivals)], strict=True)]
    steps: list[tuple[str, Any]] = [("push", piece) for piece in pieces]
    for row in range(len(statics)):
        steps.insert(int(rng.integers(0, len(steps) + 1)), ("set", statics[row]))
    at = 0
    while at < len(steps):
        kind, content = steps[at]
        take = stream.push if kind == "push" else stream.set_samples
        pushed = take(content, offset=at + 1)
        at += 1
        if rng.random() < 0.25 and not pushed.skipped:
            stream = restart(stream)
            assert stream.offset == at
            at = int(rng.integers(0, at + 1))
    return stream


def table_of(readings: pl.DataFrame, statics: pl.DataFrame, sensors: tuple[str, ...], **options: Any) -> EventTable:
    """The table of the readings as they are in the end."""
    names = [name for name in statics.columns if name != "sample"]
    return EventTable.from_frames(readings, statics, statics=names, sensors=sensors, **options)

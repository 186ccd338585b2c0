"""When forecasts are made: dates as well as numbers and columns, and cutoffs with no reading before them."""

from __future__ import annotations

import warnings
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from raindrop import ConfigError, DataError, EventTable, Forecaster, load
from raindrop.errors import RaindropWarning

START = datetime(2024, 1, 3, 6)
FIFTH = datetime(2024, 1, 5)


def dated(*, zone: Any = None, unit: Any = "hours", samples: Any = None) -> EventTable:
    """Ten samples, each two hours later than the one before, with hourly readings over four days."""
    rows = [
        (f"s{b}", START.replace(tzinfo=zone) + timedelta(hours=2 * b + at), "x", float(at))
        for b in range(10)
        for at in range(96)
    ]
    sample, time, sensor, value = zip(*rows, strict=True)
    return EventTable.from_columns(
        list(sample), pl.Series(time), list(sensor), list(value), samples, time_unit=unit, group=None
    )


def numbers() -> EventTable:
    table = dated()
    return replace(table, samples=table.samples.drop("time_zero"))


def fitted(cutoff: Any, table: EventTable) -> Forecaster:
    return Forecaster("last", horizon=24.0, cutoff=cutoff).fit(table)


HOURS = 42.0 - 2 * np.arange(10)  # from the first reading of each sample to the fifth of January


@pytest.mark.parametrize(
    "cutoff",
    [
        FIFTH,
        date(2024, 1, 5),
        np.datetime64(FIFTH),
        pd.Timestamp(FIFTH),
        "2024-01-05",
        "2024-01-05 00:00",
        "05.01.2024",
    ],
    ids=lambda cutoff: f"{type(cutoff).__name__} {cutoff}",
)
def test_a_cutoff_may_be_a_date(cutoff):
    table = dated()
    forecaster = fitted(cutoff, table)
    assert forecaster.cutoffs(table).tolist() == HOURS.tolist()
    assert forecaster.cutoffs(dated(unit="minutes")).tolist() == (60 * HOURS).tolist()
    readings = forecaster.readings_at(table, forecaster.grid(table, "12h")).with_dates().frame()
    assert set(readings["time"]) == {FIFTH + timedelta(hours=12), FIFTH + timedelta(hours=24)}
    assert readings["value"].to_list() == pytest.approx(np.repeat(HOURS, 2).tolist())  # the last value up to the cutoff


def test_a_date_with_a_time_zone_is_read_in_utc():
    table = dated(zone=UTC)
    in_berlin = FIFTH.replace(tzinfo=timezone(timedelta(hours=1)), hour=1)
    for cutoff in (FIFTH.replace(tzinfo=UTC), in_berlin, pd.Timestamp(in_berlin), "2024-01-05T01:00:00+01:00"):
        assert Forecaster("last", horizon=1.0, cutoff=cutoff).cutoffs(table).tolist() == HOURS.tolist()


@pytest.mark.parametrize("kind", ["dates", "date times", "text"])
def test_a_column_of_the_samples_may_hold_dates(kind):
    days = [date(2024, 1, 5), date(2024, 1, 6)] * 5
    column = {
        "dates": pl.Series(days),
        "date times": pl.Series([datetime.combine(day, datetime.min.time()) for day in days]),
        "text": pl.Series([f"{day} 00:00:00" for day in days]),
    }[kind]
    table = dated(samples=pl.DataFrame({"sample": [f"s{b}" for b in range(10)], "decided": column}))
    forecaster = fitted("decided", table)
    assert forecaster.cutoffs(table).tolist() == (HOURS + np.tile([0, 24], 5)).tolist()
    assert len(forecaster.readings_at(table, forecaster.grid(table, "6h"))) == 40
    unknown = replace(table, samples=table.samples.with_columns(decided=pl.Series([None, *days[1:]], dtype=pl.Date)))
    with pytest.raises(DataError, match=r"'decided' has no finite cutoff in row 1 \(sample 's0'\).*, or a date\."):
        forecaster.cutoffs(unknown)


def test_a_column_called_like_a_date_is_a_column():
    table = dated(samples={"sample": [f"s{b}" for b in range(10)], "2024-01-05": np.arange(10.0) + 30})
    assert fitted("2024-01-05", table).cutoffs(table).tolist() == (np.arange(10.0) + 30).tolist()


def test_samples_without_readings_have_no_date_to_count_from():
    ids = [f"s{b}" for b in range(10)]
    table = dated(samples={"sample": [*ids, "empty"]})
    assert fitted(FIFTH, table).cutoffs(table).tolist() == [*HOURS.tolist(), 0.0]
    without = replace(table, samples=table.samples.with_columns(time_zero=pl.lit(None, pl.Datetime("us"))))
    with pytest.raises(DataError, match=r"'time_zero' is missing in row 1 \(sample 's0'\)"):
        fitted(FIFTH, table).cutoffs(without)


@pytest.mark.parametrize(
    "cutoff",
    [FIFTH, FIFTH.replace(tzinfo=UTC), date(2024, 1, 5), np.datetime64(FIFTH), "2024-01-05", np.int64(40), 40.5],
    ids=str,
)
def test_a_saved_forecaster_keeps_its_cutoff(cutoff, tmp_path):
    table = dated(zone=getattr(cutoff, "tzinfo", None))
    forecaster = fitted(cutoff, table).fit(table, run=tmp_path / "run")
    again = load(tmp_path / "run")
    assert again.cutoff == cutoff
    assert again.cutoffs(table).tolist() == forecaster.cutoffs(table).tolist()
    with pytest.raises(ConfigError, match="other data, settings, seed or version"):
        fitted(None, table).fit(table, run=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    ("cutoff", "table", "message"),
    [
        (FIFTH, numbers(), "cutoff holds date times, but the times of the table are numbers. Times are hours"),
        ("2024-01-05", numbers(), "cutoff holds date times, but the times of the table are numbers"),
        (FIFTH.replace(tzinfo=UTC), dated(), "with a time zone, but the table was built from date times without"),
        (FIFTH, dated(zone=UTC), "one kind, here like 2024-01-31 08:15:00.00:00"),
        ("2024-13-45", dated(), "cutoff: 1 of 1 rows of column 'time' cannot be read as date times"),
        ([FIFTH], dated(), "must be a finite time, a date, the name of a column, or None"),
        (True, dated(), "cutoff=True: must be a finite time, a date"),
        (pd.NaT, dated(), "cutoff=NaT: must be a finite time, a date"),
        (np.datetime64("NaT"), dated(), "must be a finite time, a date"),
    ],
)
def test_a_cutoff_that_does_not_fit_the_table_is_one_sentence(cutoff, table, message):
    with pytest.raises((ConfigError, DataError), match=message):
        fitted(cutoff, table)


# ---------------------------------------------------------------- nothing before the cutoff, or long before


def test_nothing_to_learn_from_before_the_cutoff_is_one_sentence():
    with pytest.raises(DataError, match=r"None of 9 samples has a reading up to .*'s0', cutoff -5\).*Choose a later"):
        fitted(-5.0, numbers())
    with pytest.raises(DataError, match=r"None of 9 samples .*cutoff 2024-01-01 00:00:00\)"):
        fitted(datetime(2024, 1, 1), dated())


def test_nothing_to_forecast_from_is_an_error_and_in_some_samples_a_warning():
    table = dated()
    forecaster = fitted(FIFTH, table)
    forecaster.set_params(cutoff=datetime(2024, 1, 3, 10))  # after the first reading of three samples
    asked = forecaster.grid(table, "12h")
    message = r"7 of 10 samples have no reading up to the cutoff.*\(first: sample 's3', cutoff 2024-01-03 10:00:00\)"
    with pytest.warns(RaindropWarning, match=message) as caught:
        forecaster.readings_at(table, asked)
    assert caught[0].filename == __file__
    with pytest.warns(RaindropWarning, match=message):
        list(forecaster.grid_blocks(table, "12h"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(forecaster.readings_at(table, asked.filter(pl.col("sample").is_in(["s0", "s1", "s2"])))) == 6
    for ask in (
        lambda: forecaster.readings_at(table, asked.filter(pl.col("sample").is_in(["s8", "s9"]))),
        lambda: list(forecaster.grid_blocks(table[["s8", "s9"]], "12h")),
    ):
        with pytest.raises(DataError, match=r"None of 2 samples has a reading up to the cutoff \(first: sample 's8'"):
            ask()


def test_a_cutoff_long_after_the_last_reading_is_a_warning():
    table = numbers()
    forecaster = fitted(40.0, table)
    early = table.where(table.time[table.rows()] <= 10.0)
    message = r"1 of 1 samples have their last reading more than the horizon of 24 hours before the cutoff.*cutoff 40\)"
    with pytest.warns(RaindropWarning, match=message):
        forecaster.readings_at(early[["s4"]], {"sample": ["s4"], "time": [41.0], "sensor": ["x"]})
    just = table.where(table.time[table.rows()] <= 16.0)
    assert len(forecaster.readings_at(just[["s4"]], {"sample": ["s4"], "time": [41.0], "sensor": ["x"]})) == 1

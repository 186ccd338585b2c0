"""Predicted readings: written as files, put back into their table, and marked there wherever the table goes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from refusal import is_sound, refused

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.queries import QueryTable
from raindrop.table.readings import Readings


@pytest.fixture
def table(make_table) -> EventTable:
    return make_table(samples=7, sensors=4, times=9, observed=0.6)


@pytest.fixture
def readings(table) -> Readings:
    """New readings of several samples in no order: between, before and after its own, and at the time of others."""
    rng = np.random.default_rng(0)
    own = table.events().select("sample", "time", "sensor").rows()
    shared = [(sample, time, "sensor 3") for sample, time, _ in own[:6] if (sample, time, "sensor 3") not in own]
    rows = [(f"sample {b}", float(t), f"sensor {u}") for b in (5, 0, 6) for u in (2, 1) for t in rng.uniform(-5, 60, 3)]
    rows += sorted(set(shared))
    return predict(table, rows)


def predict(table: EventTable, rows: list[tuple[str, float, str]]) -> Readings:
    frame = pl.DataFrame(rows, schema=["sample", "time", "sensor"], orient="row")
    value = 1000.0 + np.arange(len(rows))
    return Readings(QueryTable.from_frame(table, frame), value, value - 1, value + 2, 0.9)


def marked(table: EventTable) -> set[tuple]:
    """The readings that are marked as filled."""
    return set(table.events().filter(pl.col("filled")).drop("filled").rows())


def new_rows(readings: Readings) -> set[tuple]:
    return set(readings.frame().select("sample", "time", "sensor", "value").rows())


def test_a_filled_table_has_its_own_readings_unchanged_and_the_new_ones_marked(table, readings):
    filled = readings.fill()
    assert is_sound(filled)  # sorted by sample, time and sensor, each reading once
    assert filled.num_readings == table.num_readings + len(readings)
    assert set(filled.events().filter(~pl.col("filled")).drop("filled").rows()) == set(table.events().rows())
    assert marked(filled) == new_rows(readings)
    assert (filled.sensors, filled.ids, filled.roles) == (table.sensors, table.ids, table.roles)
    assert filled.samples.equals(table.samples)
    assert table.filled is None
    assert "filled" not in table.events().columns


def test_a_reading_of_its_own_is_not_replaced_by_a_predicted_one(table):
    own = table.events().row(4)
    filled = predict(table, [(own[0], own[1], own[2]), ("sample 1", -3.0, "sensor 0")]).fill()
    assert filled.num_readings == table.num_readings + 1
    assert marked(filled) == {("sample 1", -3.0, "sensor 0", 1001.0)}
    assert own in filled.events().drop("filled").rows()


def test_filling_twice_marks_both(table, readings):
    once = readings.fill()
    twice = predict(once, [("sample 2", -9.0, "sensor 0"), ("sample 4", 99.0, "sensor 2")]).fill()
    assert len(marked(twice)) == len(readings) + 2
    assert marked(twice) > marked(once)
    again = predict(once, [row[:3] for row in sorted(marked(once))]).fill()
    assert marked(again) == marked(once)  # what was filled before stays


def test_nothing_to_fill_gives_the_same_readings(table):
    empty = QueryTable(table, *(np.zeros(0, dtype=kind) for kind in (np.int64, np.int64, np.float64)))
    filled = Readings(empty, np.zeros(0), np.zeros(0), np.zeros(0), 0.9).fill()
    assert filled.events().drop("filled").equals(table.events())
    assert not filled.filled.any()


def test_a_table_that_was_written_and_read_still_knows_what_was_filled(table, readings, tmp_path):
    filled = readings.fill()
    again = EventTable.read(filled.write(tmp_path / "table"))
    assert again.events().equals(filled.events())
    assert again.fingerprint == filled.fingerprint
    assert EventTable.read(table.write(tmp_path / "own")).filled is None


def test_a_table_read_from_its_parquet_files_alone_still_knows_what_was_filled(readings, tmp_path):
    filled = readings.fill()
    folder = filled.write(tmp_path / "table")
    for path in (folder / "readings").iterdir():
        path.unlink()
    (folder / "readings").rmdir()
    assert EventTable.read(folder).events().equals(filled.events())


def test_selecting_samples_and_readings_keeps_the_marks_aligned(readings, tmp_path):
    filled = readings.fill()
    for table in (filled, EventTable.read(filled.write(tmp_path / "table"))):
        turned = table[["sample 5", "sample 0"]]
        expected = {row for row in new_rows(readings) if row[0] in ("sample 5", "sample 0")}
        assert marked(turned) == expected
        late = turned.where(pl.col("time") > 20)
        assert marked(late) == {row for row in expected if row[1] > 20}
        assert marked(late[::-1]) == marked(late)
        assert not marked(table.where(~pl.col("filled")))
        assert table.where(~pl.col("filled")).num_readings == table.num_readings - len(readings)
        minutes = turned.in_unit("minutes")
        assert {(s, u, v) for s, _, u, v in marked(minutes)} == {(s, u, v) for s, _, u, v in expected}
        parts = [marked(part) for part in table.split((0.5, 0.5))]
        assert set.union(*parts) == new_rows(readings)


def test_a_selection_of_a_filled_table_can_be_written(readings, tmp_path):
    chosen = readings.fill()[["sample 6", "sample 0"]]
    assert EventTable.read(chosen.write(tmp_path / "table")).events().equals(chosen.events())


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["readings.parquet", "deep/readings.csv"])
def test_readings_are_written_with_their_intervals(readings, tmp_path, name):
    path = readings.write(tmp_path / name)
    frame = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
    assert frame.columns == ["sample", "time", "sensor", "value", "low", "high"]
    assert frame.rows() == readings.frame().rows()
    assert frame["value"].to_list() == readings.value.tolist()
    assert list(path.parent.iterdir()) == [path]  # no half-written file beside it


def test_readings_are_written_to_files_of_two_kinds_only(readings, tmp_path):
    assert "written as .parquet or .csv" in refused(readings.write, tmp_path / "readings.xlsx")
    assert not list(tmp_path.iterdir())


def test_readings_describe_themselves(readings):
    assert repr(readings) == f"Readings({len(readings)} readings, intervals with a coverage of 0.9)"
    with pytest.raises(DataError, match="repeat another one"):
        predict(readings.queries.table, [("sample 0", 1.0, "sensor 1")] * 2)

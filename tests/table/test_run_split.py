"""The split of a run: samples are recognised by their readings."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.run_split import RunSplit, readings_hash


def parts_of(table):
    return dict(zip(("train", "val", "test"), table.split((0.5, 0.25, 0.25), seed=1), strict=True))


def test_each_sample_is_found_in_its_part(make_table):
    table = make_table(samples=24)
    parts = parts_of(table)
    found = RunSplit.of(parts).find(table)
    for name, part in parts.items():
        assert [i for i, p in zip(table.ids, found.part, strict=True) if p == name] == part.ids
    assert (found.changed, found.renamed, found.same_ids) == (0, 0, 0)


@pytest.mark.parametrize("column", ["time", "value", "sensor"])
def test_the_hash_of_a_sample_depends_on_each_of_its_readings_and_on_no_other_sample(make_table, column):
    table = make_table(samples=8)
    before = readings_hash(table)
    for row in range(0, table.num_readings, 7):
        changed = getattr(table, column).copy()
        changed[row] = (changed[row] + 1) % 5 if column == "sensor" else np.nextafter(changed[row], 99)
        after = readings_hash(replace(table, **{column: changed}))
        owner = np.searchsorted(table.offsets, row, side="right") - 1
        assert np.flatnonzero(before != after).tolist() == [owner]


def test_the_hash_does_not_depend_on_the_order_of_sensors_or_samples_or_on_hidden_ones(make_table):
    table = make_table(samples=8)
    events, order = table.events(), sorted(table.sensors, reverse=True)
    other = EventTable.from_frames(events, table.samples, label="label", sensors=["never", *order])
    assert readings_hash(other).tolist() == readings_hash(table).tolist()
    assert readings_hash(table[::-1]).tolist() == readings_hash(table)[::-1].tolist()
    assert readings_hash(table[3:4]).tolist() == readings_hash(table)[3:4].tolist()
    assert len(set(readings_hash(table).tolist())) == len(table)


def test_edited_samples_of_a_known_table_count_as_themselves_and_those_of_another_do_not(make_table):
    table = make_table(samples=24, extremes=False)
    split = RunSplit.of(parts_of(table))
    value = table.value.copy()
    value[table.start[5]] += 1
    found = split.find(replace(table, value=value))
    assert (found.changed, found.same_ids) == (1, 0)
    assert found.part == split.find(table).part
    found = split.find(replace(table, value=table.value + 1))
    assert (found.changed, found.same_ids) == (0, 24)
    assert found.part == [None] * 24


def test_a_sample_with_few_readings_is_not_recognised_under_another_id():
    table = EventTable.from_columns(["a", "a", "b", "b", "b"], range(5), ["x"] * 5, [1.0] * 5)
    split = RunSplit.of({"train": table})
    renamed = replace(table, samples=pl.DataFrame({"sample": ["other", "another"]}))
    found = split.find(renamed)
    assert found.part == [None, "train"]
    assert found.renamed == 1


def test_a_split_is_read_back_only_with_its_checksum(tmp_path, make_table):
    split = RunSplit.of(parts_of(make_table(samples=24)))
    checksum = split.write(tmp_path / "split.parquet")
    assert RunSplit.read(tmp_path / "split.parquet", checksum).frame.equals(split.frame)
    with pytest.raises(DataError, match="not the split that the model was saved with"):
        RunSplit.read(tmp_path / "split.parquet", checksum[::-1])

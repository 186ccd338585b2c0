"""A table as files for other programs, and back."""

import numpy as np
import polars as pl
import pytest
from learnable import easy_table
from random_tables import random_table
from refusal import refused
from small_blocks import make_small

from raindrop.errors import OutputExistsError
from raindrop.table.event_table import EventTable
from raindrop.table.export import export, wide_frame


@pytest.mark.parametrize(("format", "name"), [("csv", "t.csv"), ("parquet", "t.parquet"), ("wide", "t.csv")])
def test_an_exported_table_comes_back_the_same(format, name, tmp_path):
    table = easy_table(20, classes=("ill", "well"), statics=("age", "ward"))
    readings, samples = export(table, tmp_path / name, format)
    again = EventTable.from_files(
        readings, samples=samples, wide=format == "wide", label="label", statics=["age", "ward"]
    )
    assert again.events().equals(table.events())
    assert again.samples.equals(table.samples)


def test_a_wide_frame_has_nothing_where_a_sensor_was_not_read():
    table = EventTable.from_columns(["a"] * 3, [0, 0, 1], ["y", "x", "y"], [1, 2, 3], sensors=["y", "never", "x"])
    assert wide_frame(table).rows() == [("a", 0.0, 1.0, None, 2.0), ("a", 1.0, 3.0, None, None)]
    clash = EventTable.from_columns(["a"], [0], ["time"], [1])
    assert "A sensor is called 'time'" in refused(wide_frame, clash)


def test_statics_and_names_survive_meds(tmp_path):
    table = easy_table(6, statics=("age", "ward"))
    (out,) = export(table, tmp_path / "meds", "meds")
    first = pl.read_parquet(out / "data" / "0.parquet").group_by("subject_id", maintain_order=True).first()
    assert first["time"].null_count() == 6  # what has no time comes before the readings of its subject
    with pytest.warns(UserWarning, match="2 codes without a time are columns of the samples"):
        again = EventTable.from_meds(out, out / "labels")
    assert pl.read_csv(out / "metadata" / "samples.csv")["sample"].to_list() == table.ids
    assert np.allclose(again.value, np.asarray(table.value, dtype=np.float32))
    assert again.samples["ward"].to_list() == table.samples["ward"].to_list()
    assert again.labels.tolist() == table.labels.tolist()


def test_times_that_meds_cannot_tell_apart_are_refused(tmp_path):
    table = EventTable.from_columns(["a"] * 2, [0.0, 1e-12], ["x", "x"], [1, 2])
    assert "Sample 'a' has several readings of 'x' within one microsecond" in refused(
        export, table, tmp_path / "m", "meds"
    )
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    table = easy_table(6)
    (tmp_path / "t.samples.csv").write_text("mine")
    with pytest.raises(OutputExistsError):
        export(table, tmp_path / "t.csv", "csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.samples.csv"]
    assert "must end in .parquet" in refused(export, table, tmp_path / "t.csv", "parquet")


def read_back(out, format):
    """What was written: text, or frames by name; a MEDS folder has other files, but the same rows."""
    if format == "meds":
        files = [path for path in out.rglob("*.parquet") if path.parent.name != "data"]
        found = {path.name: pl.read_parquet(path) for path in files}
        data = pl.concat([pl.read_parquet(path) for path in (out / "data").iterdir()])
        return found | {"data": data.sort("subject_id", "time", nulls_last=False, maintain_order=True)}
    return out.read_text() if out.suffix == ".csv" else pl.read_parquet(out)


@pytest.mark.parametrize("format", ["csv", "parquet", "wide", "meds"])
def test_a_large_table_is_exported_block_by_block_to_the_same_rows(format, tmp_path, monkeypatch):
    table = random_table(samples=30)[np.random.default_rng(0).permutation(30)]
    suffix = {"parquet": ".parquet", "meds": ""}.get(format, ".csv")
    export(table, tmp_path / f"whole{suffix}", format)
    make_small(monkeypatch)
    sizes, events = [], EventTable.events
    monkeypatch.setattr(EventTable, "events", lambda self: (sizes.append(self.num_readings), events(self))[1])
    export(table, tmp_path / f"blocks{suffix}", format)
    assert len(sizes) > 10
    assert max(sizes) <= 25
    whole, blocks = (read_back(tmp_path / f"{name}{suffix}", format) for name in ("whole", "blocks"))
    if isinstance(whole, dict):
        assert whole.keys() == blocks.keys()
        assert all(blocks[name].equals(frame) for name, frame in whole.items())
    else:
        assert blocks == whole if isinstance(whole, str) else blocks.equals(whole)

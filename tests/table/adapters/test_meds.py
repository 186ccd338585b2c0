"""MEDS: nothing after a prediction time is in the table; files fit the published schema in both directions."""

import datetime as dt
from pathlib import Path

import meds
import polars as pl
import pyarrow.parquet as pq
import pytest
from data_shapes import meds_folder
from refusal import refused

from raindrop.errors import RaindropWarning
from raindrop.table.event_table import EventTable
from raindrop.table.export import export

START = dt.datetime(2024, 1, 1)


def hours(number: float) -> dt.datetime:
    return START + dt.timedelta(hours=number)


def write_meds(
    folder: Path, rows: list[tuple], labels: list[tuple] | None = None, value: str = "boolean_value"
) -> Path:
    """rows: subject, hours or None, code, number, text; labels: subject, hours, value."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    frame = pl.DataFrame(
        [(s, None if h is None else hours(h), c, n, t) for s, h, c, n, t in rows],
        schema={"subject_id": pl.Int64, "time": pl.Datetime("us"), "code": pl.String, "numeric_value": pl.Float32,
                "text_value": pl.String},
        orient="row",
    )  # fmt: skip
    frame.write_parquet(folder / "data" / "0.parquet")
    meds.DataSchema.validate(pq.read_table(folder / "data" / "0.parquet", schema=meds.DataSchema.schema()))
    if labels is not None:
        columns = {"subject_id": [s for s, *_ in labels], "prediction_time": [hours(h) for _, h, _ in labels],
                   value: [v for *_, v in labels]}  # fmt: skip
        pl.DataFrame(columns).write_parquet(folder / "labels.parquet")
    return folder


ROWS = [
    (1, None, "GENDER//F", None, None),
    (1, None, "HEIGHT", 170.0, None),
    (1, -8766.0 * 50, "MEDS_BIRTH", None, None),
    (1, 0.0, "HR", 80.0, None),
    (1, 2.0, "HR", 90.0, None),
    (1, 2.0, "DIAGNOSIS//E11", None, None),
    (1, 3.0, "RHYTHM", None, "sinus"),
    (1, 5.0, "RHYTHM", None, "AF"),
    (1, 9.0, "MEDS_DEATH", None, None),
    (2, 1.0, "HR", 70.0, None),
]


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
def test_each_label_is_a_sample_that_ends_with_its_prediction_time(tmp_path):
    labels = [(1, 2.0, False), (1, 5.0, True), (2, 0.5, False)]
    folder = write_meds(tmp_path, ROWS, labels)
    table = EventTable.from_meds(folder, folder / "labels.parquet", statics=["HEIGHT", "GENDER", "age"])
    assert table.ids == ["1@2024-01-01T02:00:00", "1@2024-01-01T05:00:00", "2@2024-01-01T00:30:00"]
    assert table[0].events().drop("sample").rows() == [
        (0.0, "HR", 80.0), (2.0, "DIAGNOSIS//E11=present", 1.0), (2.0, "HR", 90.0),
    ]  # fmt: skip
    assert table[1].events().drop("sample").rows()[3:] == [
        (3.0, "RHYTHM=sinus", 1.0), (5.0, "RHYTHM=AF", 1.0), (5.0, "RHYTHM=sinus", 0.0),
    ]  # fmt: skip
    assert table.count.tolist() == [3, 6, 0]  # the second subject has nothing before its prediction
    assert table.labels.tolist() == [False, True, False]
    assert (table.roles.group, table.roles.cutoff) == ("subject_id", "cutoff")
    first = table.samples.row(0, named=True)
    assert (first["HEIGHT"], first["GENDER"], round(first["age"], 3)) == (170.0, "F", 50.0)


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
def test_what_happens_after_the_prediction_changes_nothing(tmp_path):
    labels = [(1, 3.0, True)]
    before = write_meds(tmp_path / "a", [row for row in ROWS if row[1] is None or row[1] <= 3.0], labels)
    after = write_meds(tmp_path / "b", [*ROWS, (1, 3.5, "HR", 1e6, None), (1, 4.0, "NEW", 1.0, None)], labels)
    one, two = (EventTable.from_meds(folder, folder / "labels.parquet") for folder in (before, after))
    assert one.fingerprint == two.fingerprint
    assert two.dropped == {}  # the adapter leaves nothing for the table's own cutoff to drop


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
def test_a_window_counts_from_its_start(tmp_path):
    folder = write_meds(tmp_path, ROWS, [(1, 4.0, True)])
    table = EventTable.from_meds(folder, folder / "labels.parquet", window=2.0)
    assert table.time.tolist() == [0.0, 0.0, 1.0]
    assert table.samples["cutoff"].to_list() == [2.0]


def test_without_labels_each_subject_is_a_sample(tmp_path):
    with pytest.warns(RaindropWarning):
        table = EventTable.read(write_meds(tmp_path, ROWS))
    assert table.ids == ["1", "2"]
    assert not any("DEATH" in name or "BIRTH" in name for name in table.sensors)


def test_codes_are_chosen(tmp_path):
    folder = write_meds(tmp_path, ROWS[3:])
    assert EventTable.from_meds(folder, codes=["HR"]).sensors == ("HR",)
    assert "no reading is left" in refused(EventTable.from_meds, folder, codes=["none"])


@pytest.mark.parametrize(
    ("column", "values"), [("integer_value", [3, 1]), ("float_value", [1.5, 2.5]), ("categorical_value", ["a", "b"])]
)
def test_labels_of_every_type_are_read(column, values, tmp_path):
    folder = write_meds(tmp_path, ROWS[3:5] + ROWS[9:], [(1, 4.0, values[0]), (2, 4.0, values[1])], column)
    assert EventTable.from_meds(folder, folder / "labels.parquet").samples["label"].to_list() == values


def test_a_mistake_is_named(tmp_path):
    folder = write_meds(tmp_path, ROWS, [(1, 4.0, True), (1, 4.0, False)])
    assert "2 of 2 labels differ for the same subject and time" in refused(
        EventTable.from_meds, folder, folder / "labels.parquet"
    )
    assert "there are no MEDS shards" in refused(EventTable.from_meds, folder / "data")
    assert "there is no Parquet file with labels" in refused(EventTable.from_meds, folder, tmp_path / "none.parquet")
    assert "it needs labels" in refused(EventTable.from_meds, folder, window=3.0)
    pl.DataFrame({"subject_id": [1], "prediction_time": [START]}).write_parquet(tmp_path / "labels.parquet")
    assert "must hold the labels, not 0" in refused(EventTable.from_meds, folder, folder / "labels.parquet")


def test_an_exported_folder_fits_the_schema_and_comes_back_the_same(tmp_path):
    root, _, labels = meds_folder(tmp_path)
    table = EventTable.from_meds(root, labels)
    (out,) = export(table, tmp_path / "out", "meds")
    meds.DataSchema.validate(pq.read_table(out / "data" / "0.parquet", schema=meds.DataSchema.schema()))
    meds.LabelSchema.validate(pq.read_table(out / "labels" / "labels.parquet"))
    meds.SubjectSplitSchema.validate(pq.read_table(out / "metadata" / "subject_splits.parquet"))
    meds.CodeMetadataSchema.validate(pq.read_table(out / "metadata" / "codes.parquet"))
    again = EventTable.from_meds(out, out / "labels")
    assert again.events().equals(table.events())
    assert again.samples.drop("sample").equals(table.samples.drop("sample"))

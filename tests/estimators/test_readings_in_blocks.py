"""An imputer and a forecaster work on a large table block by block: the same readings, files and filled table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from small_blocks import make_small
from waves import QUICK, wave_table

from raindrop import EventTable, Forecaster, Imputer
from raindrop.errors import OutputExistsError
from raindrop.estimators.readings import ReadingsEstimator
from raindrop.table.growing_table import write_filled
from raindrop.table.readings import Readings

BLOCK = 100


@pytest.fixture(scope="module")
def table() -> EventTable:
    """Samples with gaps, one that is longer than a block, one of a single reading, and a static attribute."""
    waves = wave_table(12, readings=12)
    rng = np.random.default_rng(0)
    events = waves.events().filter(pl.Series(rng.random(waves.num_readings) < 0.7))
    long = wave_table(1, readings=50, hours=96, seed=1).events().with_columns(sample=pl.lit("s50"))
    events = pl.concat([events, long, events[:1].with_columns(sample=pl.lit("s60"))])
    ids = events["sample"].unique().sort()
    return EventTable.from_frames(events, pl.DataFrame({"sample": ids, "age": np.arange(len(ids))}), statics=["age"])


@pytest.fixture(scope="module")
def linear(table: EventTable) -> Imputer:
    """Its answers depend on no batch, so they are the same to the last bit."""
    return Imputer("linear").fit(table)


@pytest.fixture(scope="module")
def forecaster(table: EventTable) -> Forecaster:
    return Forecaster("last", horizon=6.0, cutoff=12.0).fit(table)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Readings of each table that a model answers queries of."""
    seen: list[int] = []
    source = ReadingsEstimator._source

    def counting(self: ReadingsEstimator, queries, *rest):
        seen.append(len(queries.table.time))
        return source(self, queries, *rest)

    monkeypatch.setattr(ReadingsEstimator, "_source", counting)
    return seen


def blocks_were_used(sizes: list[int], table: EventTable) -> bool:
    longest = int(table.count.max())
    return len(sizes) > 2 and max(sizes) == longest > BLOCK and sorted(sizes)[-2] <= BLOCK


def joined(parts: Iterator[Readings]) -> pl.DataFrame:
    return pl.concat([part.frame() for part in parts])


def test_gaps_are_filled_block_by_block_to_the_same_readings(linear, table, sizes, monkeypatch, tmp_path):
    readings = linear.fill_readings(table)
    expected, filled = readings.frame(), readings.fill()
    assert len(expected) > 100
    make_small(monkeypatch, large=120, block=BLOCK)
    sizes.clear()
    assert joined(linear.gap_blocks(table)).equals(expected)
    assert blocks_were_used(sizes, table)
    number, added = write_filled(
        table, linear.gap_blocks(table), folder=tmp_path / "filled", readings=tmp_path / "rows.parquet"
    )
    assert (number, added) == (len(expected), filled.num_readings - table.num_readings)
    assert pl.read_parquet(tmp_path / "rows.parquet").equals(expected)
    again = EventTable.read(tmp_path / "filled", verify=True)
    assert again.events().equals(filled.events())
    assert again.fingerprint == filled.fingerprint
    assert len(list((tmp_path / "filled" / "events").iterdir())) > 2
    assert not (tmp_path / "filled" / "readings" / "filled.npy").exists()
    assert linear.fill(table, out=tmp_path / "again").events().equals(filled.events())


@pytest.mark.filterwarnings("ignore:1 of 14 samples have their last reading more than the horizon")  # the one of s60
def test_a_grid_is_answered_block_by_block(linear, forecaster, table, sizes, monkeypatch):
    expected = {model: model.readings_at(table, model.grid(table, 1.5)).frame() for model in (linear, forecaster)}
    make_small(monkeypatch, large=120, block=BLOCK)
    for model, least in ((linear, 10), (forecaster, 6)):  # blocks are smaller where more queries are answered
        sizes.clear()
        assert joined(model.grid_blocks(table, 1.5)).equals(expected[model])
        assert len(sizes) > least


@pytest.mark.filterwarnings("ignore:1 of 14 samples have their last reading more than the horizon")
def test_queries_in_any_order_are_answered_in_that_order(linear, forecaster, table, sizes, monkeypatch, tmp_path):
    queries = linear.grid(table, 3.0).sample(fraction=1.0, shuffle=True, seed=0)
    later = forecaster.grid(table, 2.0).sample(fraction=1.0, shuffle=True, seed=0)
    expected, filled = linear.readings_at(table, queries).frame(), linear.fill(table, queries)
    forecasts = forecaster.readings_at(table, later).frame()
    make_small(monkeypatch, large=120, block=BLOCK)
    sizes.clear()
    assert linear.readings_at(table, queries).frame().equals(expected)
    assert blocks_were_used(sizes, table)
    assert forecaster.readings_at(table, later).frame().equals(forecasts)
    assert linear.fill(table, queries, out=tmp_path / "filled").events().equals(filled.events())


def test_a_table_in_another_time_unit_is_answered_the_same(linear, table, monkeypatch):
    minutes = table.in_unit("minutes")
    expected = linear.fill_readings(minutes).frame()
    make_small(monkeypatch, large=120, block=BLOCK)
    assert joined(linear.gap_blocks(minutes)).equals(expected)


@pytest.mark.slow
def test_a_network_gives_the_same_readings_up_to_rounding(table, monkeypatch):
    imputer = Imputer(config=QUICK | {"train.min_steps": 1}).fit(table)
    expected = imputer.fill_readings(table).frame()
    make_small(monkeypatch, large=120, block=BLOCK)
    found = joined(imputer.gap_blocks(table))
    assert found.select("sample", "time", "sensor").equals(expected.select("sample", "time", "sensor"))
    for name in ("value", "low", "high"):
        assert_close(found[name].to_numpy(), expected[name].to_numpy(), dtype=np.float32)


def test_an_error_in_a_later_block_leaves_nothing(linear, table, monkeypatch, tmp_path):
    make_small(monkeypatch, large=120, block=BLOCK)

    def failing() -> Iterator[Readings]:
        yield next(iter(linear.gap_blocks(table)))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_filled(table, failing(), folder=tmp_path / "filled", readings=tmp_path / "rows.csv")
    assert not list(tmp_path.iterdir())


def test_a_part_of_a_large_filled_table_is_written_with_its_own_marks(linear, table, monkeypatch, tmp_path):
    part = linear.fill(table)[[7, 0, 12, 3]]
    expected = part.events()
    make_small(monkeypatch, large=40, block=30)
    part.write(tmp_path / "part")
    assert EventTable.read(tmp_path / "part").events().equals(expected)


def test_a_folder_that_exists_is_refused_before_anything_is_predicted(linear, table, tmp_path):
    (tmp_path / "filled").mkdir()
    (tmp_path / "filled" / "mine.txt").write_text("mine")

    def parts() -> Iterator[Readings]:
        raise AssertionError("predicted")
        yield

    with pytest.raises(OutputExistsError, match="filled"):
        write_filled(table, parts(), folder=tmp_path / "filled", readings=tmp_path / "readings.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["filled"]

"""Readings that are text become sensors that read 1 or 0, by a rule that looks at one sample's own past only."""

import polars as pl
import pytest
from refusal import refused

from raindrop.errors import RaindropWarning
from raindrop.table.categories import MAX_TEXTS
from raindrop.table.event_table import EventTable


def build(values, samples=None, sensors=None, times=None, **options):
    count = len(values)
    columns = (samples or ["a"] * count, times or list(range(count)), sensors or ["s"] * count, values)
    return EventTable.from_columns(*columns, **options)


def said(values, **options):
    with pytest.warns(RaindropWarning, match="are text"):
        return build(values, **options)


@pytest.mark.parametrize("pair", [("on", "off"), ("True", "False"), ("YES", "no"), ("open", "closed")])
def test_two_valued_words_are_one_and_zero(pair):
    table = said([pair[0], pair[1], pair[0]])
    assert table.sensors == ("s",)
    assert table.value.tolist() == [1.0, 0.0, 1.0]


def test_a_state_reads_one_when_it_is_entered_and_zero_when_another_follows():
    table = said(["idle", "idle", "run", "idle"])
    assert table.events().rows() == [
        ("a", 0.0, "s=idle", 1.0),
        ("a", 1.0, "s=idle", 1.0),
        ("a", 2.0, "s=idle", 0.0),
        ("a", 2.0, "s=run", 1.0),
        ("a", 3.0, "s=idle", 1.0),
        ("a", 3.0, "s=run", 0.0),
    ]


def test_a_state_that_is_left_by_a_word_for_yes_or_no_reads_zero():
    table = said(["standby", "on"])
    assert table.events().rows() == [("a", 0.0, "s=standby", 1.0), ("a", 1.0, "s", 1.0), ("a", 1.0, "s=standby", 0.0)]


def test_two_states_at_one_time_are_both_read():
    table = said(["p", "q", "p"], times=[0, 0, 1])
    assert table.where(pl.col("time") == 1).events().rows() == [("a", 1.0, "s=p", 1.0), ("a", 1.0, "s=q", 0.0)]


def test_what_a_sample_becomes_does_not_depend_on_other_samples_or_its_future():
    alone = said(["idle", "off", "run"])
    beside = said(["idle", "off", "run", "clean", "broken"], samples=["a"] * 3 + ["b"] * 2)
    later = said(["idle", "off", "run", "clean"])
    assert beside[["a"]].events().rows() == alone.events().rows()
    assert later.where(pl.col("time") < 3).events().rows() == alone.events().rows()


def test_numbers_and_text_of_different_sensors_live_together():
    table = said(["1.5", "on", "2.5"], sensors=["x", "pump", "x"])
    assert table.events().rows() == [("a", 0.0, "x", 1.5), ("a", 1.0, "pump", 1.0), ("a", 2.0, "x", 2.5)]


def test_text_among_the_numbers_of_one_sensor_is_an_error():
    assert "holds text where a value belongs in 1 of 2 rows (first: row 2, '<5')" in refused(build, ["6", "<5"])


def test_free_text_is_refused():
    message = refused(build, [f"note {at}" for at in range(MAX_TEXTS + 1)])
    assert "sensor 's' has 51 different texts as values (such as 'note " in message
    assert "--value NAME" in message


def test_duplicate_states_are_duplicates():
    assert "repeat the (sample, time, sensor)" in refused(build, ["idle", "idle"], times=[0, 0])
    assert said(["idle", "idle"], times=[0, 0], duplicates="last").num_readings == 1


def test_text_in_a_column_of_its_own():
    events = {"sample": ["a"] * 3, "time": [0, 1, 2], "sensor": ["s"] * 3, "value": [1.0, None, None],
              "note": ["kept as number", "high", None]}  # fmt: skip
    with pytest.warns(RaindropWarning) as caught:
        table = EventTable.from_frames(events, text="note", missing="drop")
    assert len(caught) == len(table.notices) == 2
    assert table.events().rows() == [("a", 0.0, "s", 1.0), ("a", 1.0, "s=high", 1.0)]
    assert table.dropped == {"without a value": 1}

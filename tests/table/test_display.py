"""A table in a notebook."""

import re

import pandas as pd
from awkward import awkward_table
from learnable import easy_table

from raindrop.table.event_table import EventTable
from raindrop.table.overview import overview


def test_the_html_summary_says_what_is_in_the_table():
    table = easy_table(30, statics=("age", "ward"))
    html = table._repr_html_()
    text = re.sub(r"<[^>]+>", " ", html)
    for words in (
        "30",
        f"{table.num_readings:,}",
        "heart rate, pressure, temperature",
        "label (2 values)",
        "age, ward",
    ):
        assert words in text
    assert text.count(table.ids[0]) == 5


def test_names_that_look_like_markup_are_escaped():
    html = awkward_table()._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_many_sensors_are_shortened():
    table = EventTable.from_columns(["a"] * 50, range(50), range(50), range(50))
    assert "0, 1, 2" in table._repr_html_()
    assert "... (50)" in table._repr_html_()
    assert len(table._repr_html_()) < 3000


def test_head_has_the_first_readings_even_behind_empty_samples():
    table = EventTable.from_columns(["b", "b", "c"], [0, 1, 0], ["x"] * 3, [1, 2, 3], {"sample": list("abc")})
    assert table.head(2).rows() == table.events().rows()[:2]
    assert table.head(99).rows() == table.events().rows()
    assert table.head(0).rows() == []
    assert table[[0]].head().rows() == []


def test_frames_of_polars_and_pandas_have_the_same_readings():
    table = easy_table(10)
    frame = table.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["sample"].tolist() == table.to_polars()["sample"].to_list()
    assert frame["sensor"].tolist() == table.to_polars()["sensor"].to_list()
    assert EventTable.from_frames(frame, table.samples).fingerprint == table.fingerprint


def test_an_overview_in_a_notebook_says_what_the_terminal_says() -> None:
    look = overview(awkward_table())
    html = look._repr_html_()
    assert (
        repr(look) == f"Overview({look.samples:,} samples, {len(look.sensors):,} sensors, {look.readings:,} readings)"
    )
    assert "readings per sample" in html
    assert "missingness alone" in html.lower()
    assert "<script" not in html

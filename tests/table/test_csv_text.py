"""CSV files that a spreadsheet opens: no text of the data is run as a formula, and numbers stay numbers."""

import csv

import polars as pl
import pytest

from raindrop.graphs.export import write_adjacency
from raindrop.table.csv_text import plain_text, write_csv


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
        ("-x", "'-x"),
        ("\t=1", "'\t=1"),
        ("-5", "-5"),
        ("+1.5e-3", "+1.5e-3"),
        ("a=1", "a=1"),
        ("", ""),
    ],
)
def test_text_that_starts_a_formula_is_marked_and_nothing_else_is(text, written, tmp_path):
    assert plain_text(text) == written
    frame = pl.DataFrame({text or "name": [1.0], "sample": [text], "code": pl.Series([text], dtype=pl.Categorical)})
    write_csv(frame, tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="") as file:
        header, row = list(csv.reader(file))
    assert header == [written or "name", "sample", "code"]
    assert row == ["1.0", written, written]


def test_the_matrix_of_a_graph_marks_them_too(tmp_path):
    write_adjacency(["=a", "b"], [[0.5, -1.0], [0.0, 1.0]], "", tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines() == ["sender,'=a,b", "'=a,0.5,-1.0", "b,0.0,1.0"]

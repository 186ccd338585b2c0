"""Mean ranks and the critical difference, compared with ranks counted by hand and published examples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raindrop.benchmark.figures import rank_diagram, to_svg
from raindrop.benchmark.parsing import read_experiments
from raindrop.benchmark.ranks import Block, Ranking, blocks_of, rank_rows
from raindrop.benchmark.text_store import JobRecord, SettingMetrics
from raindrop.errors import DataError

FIRST = Block("first", {"a": {1: 0.9, 2: 0.7}, "b": {1: 0.8, 2: 0.7}, "c": {1: 0.6, 2: 0.8}}, {1: 0.125, 2: 0.125})
SECOND = Block("second", {"c": {1: 3.0}, "b": {1: 2.0}, "a": {1: 1.0}}, {1: 0.125}, lower_is_better=True)


def test_ranks_are_averaged_over_splits_and_then_over_tables():
    # First table: a 1 and 2.5, b 2 and 2.5 (equal values share ranks), c 3 and 1. Second: a 1, b 2, c 3.
    ranking = rank_rows([FIRST, SECOND])
    assert ranking.ranks == (("a", (1.75 + 1) / 2), ("b", (2.25 + 2) / 2), ("c", (2 + 3) / 2))
    assert ranking.blocks == (("first", 2), ("second", 1))


def test_only_rows_and_splits_that_all_have_are_ranked():
    more = replace(FIRST, rows={**FIRST.rows, "only here": {1: 1.0, 2: 1.0}, "a": {2: 0.7, 3: 0.5}})
    ranking = rank_rows([more, SECOND])
    assert {row for row, _ in ranking.ranks} == {"a", "b", "c"}
    assert ranking.blocks == (("first", 1), ("second", 1))


@pytest.mark.parametrize(("rows", "tables", "expected"), [(4, 14, 1.25), (5, 30, 1.11), (10, 20, 3.03)])
def test_the_critical_difference_is_nemenyis(rows, tables, expected):
    """Demsar's example (2006) has four rows and 14 data sets; the others follow from his q of 2.728 and 3.164."""
    block = Block("", {str(row): {1: row} for row in range(rows)}, {1: 0.0})
    assert rank_rows([block] * tables).critical_difference == pytest.approx(expected, abs=0.006)


def test_splits_that_overlap_count_for_less_than_data_sets():
    values = {str(row): dict.fromkeys(range(1, 6), row) for row in range(4)}
    independent = rank_rows([Block("", values, dict.fromkeys(range(1, 6), 0.0))]).critical_difference
    overlapping = rank_rows([Block("", values, dict.fromkeys(range(1, 6), 0.125))]).critical_difference
    assert overlapping / independent == pytest.approx(((1 / 5 + 0.125) / (1 / 5)) ** 0.5)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([], "no table to rank"),
        ([FIRST, Block("other", {"a": {1: 1.0}}, {1: 0.1})], r"first, other share \['a'\]"),
        ([Block("t", {"a": {1: 1.0}, "b": {2: 1.0}}, {})], "t: there is no split that all of these rows have: a, b"),
    ],
)
def test_what_cannot_be_ranked_is_an_error(blocks, message):
    with pytest.raises(DataError, match=message):
        rank_rows(blocks)


def test_bars_join_the_longest_runs_within_the_critical_difference():
    ranks = tuple((str(rank), rank) for rank in (1.0, 1.5, 2.4, 4.0, 4.2))
    assert Ranking(ranks, (), 1.0).groups() == [(0, 1), (1, 2), (3, 4)]
    assert Ranking(ranks, (), 9.0).groups() == [(0, 4)]
    assert Ranking(ranks, (), 0.1).groups() == []


def test_the_diagram_shows_every_row_with_its_rank_and_is_the_same_each_time():
    ranking = rank_rows([FIRST, SECOND])
    drawn = to_svg(rank_diagram(ranking), "ranks")
    for text in ("a  1.4", "b  2.1", "2.5  c", "critical difference", "first, 2 splits; second"):
        assert text in drawn
    assert drawn == to_svg(rank_diagram(ranking), "ranks")


def record(row: str, split: int, auroc: float) -> JobRecord:
    results = (SettingMetrics(test={"auroc": auroc}, val={}),)
    return JobRecord(
        row=row, scenario="", split=split, seed=0, model="", preset="", label="", base_rate=None, train=80, test=10,
        key="", version="", source="", finished="", seconds=None, results=results,
    )  # fmt: skip


def test_each_label_is_ranked_once_with_all_sensors():
    names = ["table1_p12", "table1_p12_los", "table1_p19", "table1_p19_no_iculos", "table2_3_p12", "ablation_p12",
             "setting4_p19"]  # fmt: skip
    experiments = read_experiments(names)
    jobs = [record("Trees", split, 0.8) for split in (1, 2)] + [record("GRU-D", 1, 0.7)]
    blocks = blocks_of([(experiment, jobs) for experiment in experiments])
    assert [block.title for block in blocks] == [
        "Table 1: P12, mortality (AUROC)", "Table 1: P12, length of stay (AUROC)", "Table 1: P19, sepsis (AUROC)",
    ]  # fmt: skip
    assert blocks[0].rows == {"Trees": {1: 0.8, 2: 0.8}, "GRU-D": {1: 0.7}}
    assert blocks[0].size_ratios == {1: 0.125, 2: 0.125}
    assert blocks_of([(experiments[0], [])]) == []

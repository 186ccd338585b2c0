"""Comparing rows over their common splits, against numbers worked out by hand, and the verdicts in words."""

from __future__ import annotations

import pytest
from tiny import TOML, planned, prepare

from raindrop.benchmark.comparison import Comparison, best_row, format_metric, paired_comparison, verdicts

NET = {1: 0.90, 2: 0.80, 3: 0.85}
TREES = {1: 0.92, 2: 0.81, 3: 0.88}


def verdicts_of(tmp_path, text: str = TOML, metric: str = "auroc", **rows: dict[int, float]) -> list[str]:
    """The verdicts on a table with these values of one metric; `Two_words` is the row 'Two words'."""
    experiment, _, _ = planned(prepare(tmp_path, text))
    return verdicts(
        experiment,
        {(name.replace("_", " "), "", "all sensors", metric): by_split for name, by_split in rows.items()},
    )


def test_two_common_splits_or_equal_differences_allow_no_test():
    assert paired_comparison({1: 0.9, 2: 0.8}, {1: 0.8, 2: 0.9}, "auroc") == Comparison(pytest.approx(0.0), 2)
    constant = paired_comparison({1: 0.9, 2: 0.8, 3: 0.7}, {1: 0.8, 2: 0.7, 3: 0.6}, "auroc")
    assert constant == Comparison(pytest.approx(0.1), 3)
    assert paired_comparison({1: 0.9}, {2: 0.8}, "auroc") is None


def test_where_lower_is_better_the_lowest_is_best_and_the_others_are_behind():
    rows = {"a": {1: 0.3, 2: 0.3}, "b": {1: 0.2, 2: 0.3}}
    assert best_row(rows, "log_loss") == "b"
    assert best_row(rows, "auroc") == "a"
    assert paired_comparison(rows["b"], rows["a"], "log_loss").behind == pytest.approx(0.05)


def test_a_value_that_rounds_to_zero_has_no_sign():
    assert [format_metric(value, "auroc") for value in (-0.04, -0.06)] == ["0.0", "-0.1"]
    assert format_metric(-0.0004, "log_loss") == "0.000"


# ---------------------------------------------------------------- verdicts


def test_the_verdict_says_whether_the_trees_win(tmp_path):
    win = "all sensors, AUROC: the trees win; Net comes closest, 2.0 behind (3 common splits)."
    assert verdicts_of(tmp_path, Net=NET, Trees=TREES) == [win]
    lose = "all sensors, AUROC: Net is ahead of the trees by 10.0 (1 common split)."
    assert verdicts_of(tmp_path, Net=NET, Trees={1: 0.8}) == [lose]
    assert verdicts_of(tmp_path) == []


def test_a_network_with_fewer_splits_is_not_the_closest(tmp_path):
    text = TOML + '\n[[rows]]\nname = "Short"\nmodel = "grud"\n'
    closest = "Net comes closest, 2.0 behind (3 common splits, rows with fewer left out)"
    assert verdicts_of(tmp_path, text, Net=NET, Trees=TREES, Short={1: 0.99}) == [
        f"all sensors, AUROC: the trees win; {closest}."
    ]


def test_a_blend_does_not_count_as_a_network_that_beats_the_trees(tmp_path):
    text = TOML + '\n[[rows]]\nname = "Both"\nmodel = "blend"\n'

    def shifted(by: float) -> dict[int, float]:
        return {number: value + by for number, value in TREES.items()}

    win = "all sensors, AUROC: the trees win; Net comes closest, 2.0 behind (3 common splits)"
    ahead = "Both, which contains trees, is 1.0 ahead of them (3 common splits)"
    behind = "Both, which contains trees, is 2.0 behind them (3 common splits)"
    assert verdicts_of(tmp_path, text, Trees=TREES, Both=shifted(0.01), Net=NET) == [f"{win}; {ahead}."]
    assert verdicts_of(tmp_path, text, Trees=TREES, Both=shifted(-0.02), Net=NET) == [f"{win}; {behind}."]
    assert verdicts_of(tmp_path, text, Trees=TREES, Both=shifted(0.01)) == [f"all sensors, AUROC: {ahead}."]


def test_a_difference_of_log_losses_is_not_in_percent(tmp_path):
    text = TOML.replace("[data]", 'metrics = ["log_loss"]\n[data]')
    assert verdicts_of(tmp_path, text, "log_loss", Net={1: 0.521}, Trees={1: 0.5}) == [
        "all sensors, log loss: the trees win; Net comes closest, 0.021 behind (1 common split)."
    ]


def test_of_several_rows_of_trees_the_best_one_is_compared(tmp_path):
    text = TOML + '\n[[rows]]\nname = "Few trees"\nmodel = "trees"\n'
    few = {1: 0.1, 2: 0.1, 3: 0.1}
    assert verdicts_of(tmp_path, text, Net=NET, Trees=TREES, Few_trees=few) == [
        "all sensors, AUROC: the trees win; Net comes closest, 2.0 behind (3 common splits)."
    ]

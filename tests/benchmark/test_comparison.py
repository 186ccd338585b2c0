"""Comparing rows over their common splits, against numbers worked out by hand, and the verdicts in words."""

from __future__ import annotations

import math

import pytest
from scipy import stats
from tiny import TOML, planned, prepare

from raindrop.benchmark.comparison import Comparison, best_row, format_metric, paired_comparison, verdicts

NET = {1: 0.90, 2: 0.80, 3: 0.85}
TREES = {1: 0.92, 2: 0.81, 3: 0.88}
EIGHTH = dict.fromkeys(range(1, 6), 0.125)  # n_test / n_train of splits with 80 % training and 10 % test samples


def verdicts_of(
    tmp_path, text: str = TOML, metric: str = "auroc", ratios: dict[int, float] = EIGHTH, **rows: dict[int, float]
) -> list[str]:
    """The verdicts on a table with these values of one metric; `Two_words` is the row 'Two words'."""
    experiment, _, _ = planned(prepare(tmp_path, text))
    values = {(name.replace("_", " "), "", "all sensors", metric): by_split for name, by_split in rows.items()}
    return verdicts(experiment, values, {"": ratios})


# ---------------------------------------------------------------- the corrected resampled t-test


def test_the_test_is_nadeau_and_bengios_worked_out_by_hand():
    """Differences 1, 2, 3, 4, 5: mean 3, variance 2.5. With n_test / n_train = 10 / 80, t = 3 / sqrt(0.325 * 2.5)."""
    reference = {1: 0.81, 2: 0.82, 3: 0.83, 4: 0.84, 5: 0.85}
    comparison = paired_comparison(reference, dict.fromkeys(reference, 0.80), "auroc", EIGHTH)
    assert comparison.behind == pytest.approx(0.03)
    assert comparison.splits == 5
    t = 3 / math.sqrt((1 / 5 + 10 / 80) * 2.5)
    assert t == pytest.approx(3.32820, abs=1e-5)
    cdf = 0.5 + 3 / 8 * t / math.sqrt(1 + t**2 / 4) * (1 - t**2 / (12 * (1 + t**2 / 4)))  # 4 degrees of freedom
    assert comparison.p_value == pytest.approx(2 * (1 - cdf))
    reach = 2.7764451 * 0.01 * math.sqrt(0.325 * 2.5)  # 97.5 % quantile for 4 degrees of freedom
    assert comparison.interval == (pytest.approx(0.03 - reach), pytest.approx(0.03 + reach))
    assert comparison.p_value > stats.ttest_1samp([1, 2, 3, 4, 5], 0).pvalue, "the plain t-test is too confident"


def test_splits_of_different_size_enter_with_the_mean_of_their_ratios():
    ratios = {1: 0.5, 2: 0.25, 3: 0.15, 9: 77.0}
    comparison = paired_comparison(TREES, NET, "auroc", ratios)
    assert comparison.p_value == pytest.approx(
        paired_comparison(TREES, NET, "auroc", dict.fromkeys(TREES, 0.3)).p_value
    )


def test_the_sign_of_a_difference_does_not_change_its_p_value():
    ahead, behind = paired_comparison(NET, TREES, "auroc", EIGHTH), paired_comparison(TREES, NET, "auroc", EIGHTH)
    assert ahead.p_value == pytest.approx(behind.p_value)
    assert ahead.interval == (pytest.approx(-behind.interval[1]), pytest.approx(-behind.interval[0]))


def test_there_is_no_test_with_two_splits_or_without_their_sizes():
    assert paired_comparison({1: 0.9, 2: 0.8}, {1: 0.8, 2: 0.9}, "auroc", EIGHTH) == Comparison(pytest.approx(0.0), 2)
    assert paired_comparison(TREES, NET, "auroc", {1: 0.125, 2: 0.125}) == Comparison(pytest.approx(0.02), 3)
    assert paired_comparison({1: 0.9}, {2: 0.8}, "auroc", EIGHTH) is None


def test_equal_differences_have_an_interval_without_width_and_no_p_value():
    same = paired_comparison({1: 0.9, 2: 0.8, 3: 0.7}, {1: 0.8, 2: 0.7, 3: 0.6}, "auroc", EIGHTH)
    assert same == Comparison(pytest.approx(0.1), 3, (pytest.approx(0.1), pytest.approx(0.1)))
    assert not same.is_tie
    assert paired_comparison(NET, NET, "auroc", EIGHTH).is_tie


# ---------------------------------------------------------------- best row and numbers


def test_where_lower_is_better_the_lowest_is_best_and_the_others_are_behind():
    rows = {"a": {1: 0.3, 2: 0.3}, "b": {1: 0.2, 2: 0.3}}
    assert best_row(rows, "log_loss") == "b"
    assert best_row(rows, "auroc") == "a"
    assert paired_comparison(rows["b"], rows["a"], "log_loss", EIGHTH).behind == pytest.approx(0.05)


def test_a_value_that_rounds_to_zero_has_no_sign():
    assert [format_metric(value, "auroc") for value in (-0.04, -0.06)] == ["0.0", "-0.1"]
    assert format_metric(-0.0004, "log_loss") == "0.000"


# ---------------------------------------------------------------- verdicts


def test_a_difference_within_the_interval_is_a_tie_in_both_directions(tmp_path):
    """Differences 2, 1, 3: mean 2, reach 4.303 * sqrt((1/3 + 1/8) * 1) = 2.9 (2 degrees of freedom)."""
    assert verdicts_of(tmp_path, Net=NET, Trees=TREES) == [
        "all sensors, AUROC: the trees and Net, the best network, tie: "
        "Net is 2.0 behind (95 % interval -0.9 to 4.9, 3 common splits)."
    ]
    assert verdicts_of(tmp_path, Net=TREES, Trees=NET) == [
        "all sensors, AUROC: the trees and Net, the best network, tie: "
        "Net is 2.0 ahead (95 % interval -0.9 to 4.9, 3 common splits)."
    ]
    assert " tie: Net is 0.0 behind (95 % interval 0.0 to 0.0, " in verdicts_of(tmp_path, Net=NET, Trees=NET)[0]


def test_a_difference_outside_the_interval_is_a_win(tmp_path):
    """Differences 10, 9, 11: mean 10, reach 2.9."""
    better = {number: value + 0.08 for number, value in TREES.items()}
    interval = "(95 % interval 7.1 to 12.9, 3 common splits)."
    assert verdicts_of(tmp_path, Net=NET, Trees=better) == [
        f"all sensors, AUROC: the trees beat Net, the best network, by 10.0 {interval}"
    ]
    assert verdicts_of(tmp_path, Net=better, Trees=NET) == [
        f"all sensors, AUROC: Net, the best network, beats the trees by 10.0 {interval}"
    ]


def test_a_difference_without_a_test_is_neither_a_win_nor_a_tie(tmp_path):
    assert verdicts_of(tmp_path, Net=NET, Trees={1: 0.8}) == [
        "all sensors, AUROC: Net, the best network, is 10.0 ahead of the trees (1 common split, no test)."
    ]
    assert verdicts_of(tmp_path, Net=NET, Trees=TREES, ratios={}) == [
        "all sensors, AUROC: the trees are 2.0 ahead of Net, the best network (3 common splits, no test)."
    ]
    assert verdicts_of(tmp_path, Net={1: 0.8}, Trees={1: 0.8}) == [
        "all sensors, AUROC: the trees and Net, the best network, are level (1 common split, no test)."
    ]
    assert verdicts_of(tmp_path, Net=NET) == []
    assert verdicts_of(tmp_path) == []


def test_a_network_with_fewer_splits_is_not_the_best_one(tmp_path):
    text = TOML + '\n[[rows]]\nname = "Short"\nmodel = "grud"\n'
    (verdict,) = verdicts_of(tmp_path, text, Net=NET, Trees=TREES, Short={1: 0.99})
    assert "the trees and Net, the best network, tie" in verdict
    assert verdict.endswith("3 common splits, rows with fewer left out).")


def test_a_blend_does_not_count_as_a_network(tmp_path):
    text = TOML + '\n[[rows]]\nname = "Both"\nmodel = "blend"\n'

    def shifted(by: float) -> dict[int, float]:
        return {number: value + by for number, value in TREES.items()}

    network = "the trees and Net, the best network, tie: Net is 2.0 behind (95 % interval -0.9 to 4.9, 3 common splits)"
    ahead = "Both, which contains trees, beats the trees by 1.0 (95 % interval 1.0 to 1.0, 3 common splits)"
    behind = "the trees beat Both, which contains trees, by 2.0 (95 % interval 2.0 to 2.0, 3 common splits)"
    assert verdicts_of(tmp_path, text, Trees=TREES, Both=shifted(0.01), Net=NET) == [
        f"all sensors, AUROC: {network}; {ahead}."
    ]
    assert verdicts_of(tmp_path, text, Trees=TREES, Both=shifted(-0.02), Net=NET) == [
        f"all sensors, AUROC: {network}; {behind}."
    ]
    assert verdicts_of(tmp_path, text, Trees=TREES, Both=shifted(0.01)) == [f"all sensors, AUROC: {ahead}."]


def test_a_difference_of_log_losses_is_not_in_percent(tmp_path):
    text = TOML.replace("[data]", 'metrics = ["log_loss"]\n[data]')
    assert verdicts_of(tmp_path, text, "log_loss", Net={1: 0.521}, Trees={1: 0.5}) == [
        "all sensors, log loss: the trees are 0.021 ahead of Net, the best network (1 common split, no test)."
    ]


def test_of_several_rows_of_trees_the_best_one_is_compared(tmp_path):
    text = TOML + '\n[[rows]]\nname = "Few trees"\nmodel = "trees"\n'
    few = {1: 0.1, 2: 0.1, 3: 0.1}
    with_few = verdicts_of(tmp_path, text, Net=NET, Trees=TREES, Few_trees=few)
    assert with_few == verdicts_of(tmp_path, Net=NET, Trees=TREES)

"""From the metrics of jobs to those of a table: means, published values and comparisons, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from results import PUBLISHED, make_summary, p_value_by_hand
from tiny import TOML, planned, prepare

from raindrop.benchmark import Store, Summary, summarise_jobs


def result(summary: Summary, row: str, metric: str = "auroc", setting: str = "all sensors"):
    chosen = (pl.col("row") == row) & (pl.col("metric") == metric) & (pl.col("setting") == setting)
    return summary.results.row(by_predicate=chosen, named=True)


def test_means_deviations_and_differences_are_those_of_the_test_sets(tmp_path):
    net = result(make_summary(tmp_path), "Net")
    assert net["mean"] == pytest.approx(85.0)
    assert net["sd"] == pytest.approx(5.0)
    assert (net["published"], net["published_sd"]) == (80.0, 1.5)
    assert net["difference"] == pytest.approx(5.0)
    assert (net["splits"], net["split_numbers"]) == (3, "1 2 3")


def test_a_mean_of_zero_differs_from_the_published_one_too(tmp_path):
    assert result(make_summary(tmp_path, net={1: 0.0}), "Net")["difference"] == pytest.approx(-80.0)


def test_the_distance_from_the_best_row_is_paired_by_split(tmp_path):
    summary = make_summary(tmp_path)
    net, trees = result(summary, "Net"), result(summary, "Trees")
    assert (trees["best"], trees["behind"], trees["p_value"]) == (True, None, None)
    assert net["behind"] == pytest.approx(2.0)
    assert net["p_value"] == pytest.approx(p_value_by_hand(48, 6))


def test_the_sizes_of_the_splits_come_from_the_jobs(tmp_path):
    rotated = TOML.replace("random = true\nnumbers = [1, 2, 3]", 'rotate_by = "subject"')  # 5 subjects of 12 samples
    summary = make_summary(tmp_path, text=rotated)
    assert result(summary, "Net")["p_value"] == pytest.approx(p_value_by_hand(36, 12))
    low, high = result(summary, "Net")["behind_low"], result(summary, "Net")["behind_high"]
    reach = 4.3026527 * math.sqrt(1 / 3 + 12 / 36)
    assert (low, high) == (pytest.approx(2 - reach), pytest.approx(2 + reach))


def test_splits_that_share_one_training_set_have_no_p_value(tmp_path):
    summary = make_summary(tmp_path, text=TOML.replace("random = true", 'train_where = "age < 60"'))
    net = result(summary, "Net")
    assert net["behind"] == pytest.approx(2.0)
    assert (net["p_value"], net["behind_low"], net["behind_high"]) == (None, None, None)
    assert all(sentence.endswith("(3 common splits, no test).") for sentence in summary.verdicts)


def test_a_row_with_fewer_splits_is_not_the_best_but_is_compared_on_its_own_splits(tmp_path):
    summary = make_summary(tmp_path, net={1: 0.99})
    assert result(summary, "Trees")["best"]
    net = result(summary, "Net")
    assert (net["splits"], net["sd"], net["common_splits"], net["p_value"]) == (1, None, 1, None)
    assert net["behind"] == pytest.approx(-7.0)


def test_a_table_may_name_the_row_that_others_are_compared_with(tmp_path):
    summary = make_summary(tmp_path, text='reference = "Net"\n' + TOML + PUBLISHED)
    net, trees = result(summary, "Net"), result(summary, "Trees")
    assert (net["best"], net["behind"], net["p_value"]) == (False, None, None)
    assert trees["best"]
    assert trees["behind"] == pytest.approx(-2.0)
    assert trees["p_value"] == pytest.approx(p_value_by_hand(48, 6))


def test_a_metric_that_was_added_after_a_job_was_run_is_missing(tmp_path):
    summary = make_summary(tmp_path, text=TOML.replace("[data]", 'metrics = ["auroc", "brier"]\n[data]'))
    assert result(summary, "Net", "brier")["mean"] is None
    assert result(summary, "Net", "auroc")["splits"] == 3


def test_published_metrics_of_other_data_have_no_difference(tmp_path):
    summary = make_summary(tmp_path, text=TOML + PUBLISHED.replace("[published]", "[published]\nsame_data = false"))
    assert result(summary, "Net")["published"] == 80.0
    assert result(summary, "Net")["difference"] is None


def test_several_seeds_of_a_split_are_averaged_before_the_splits(tmp_path):
    file = prepare(tmp_path, TOML.replace("[data]", "seeds = [0, 10]\n[data]"))
    experiment, jobs, data = planned(file)
    store = Store(tmp_path / "out")
    for job in jobs:
        record = {"subset": "test", "hidden": "none", "share": 0.0, "replace_with": "nothing", "config": "{}"}
        store.append_metrics(job.key, [{**record, "auroc": 0.5 + job.split_number / 10 + job.seed / 100, "auprc": 0.5}])
    net = result(summarise_jobs(experiment, data, jobs, store), "Net")
    assert net["mean"] == pytest.approx(75.0)
    assert net["sd"] == pytest.approx(100 * np.std([0.65, 0.75, 0.85], ddof=1))
    assert net["splits"] == 3

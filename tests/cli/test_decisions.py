"""Decisions for a class on the command line: thresholds, and what `evaluate` says of each class."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import Ask
from learnable import easy_table

from raindrop import load

TREES = ("--model", "trees", "--set", "model.rounds=20", "model.min_samples=2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = easy_table(200, classes=("ill", "well"), seed=1)
    labels = np.array(table.labels)
    labels[::5] = "ill"  # overlapping classes
    return table.with_labels(labels).write(tmp_path_factory.mktemp("decisions") / "data")


@pytest.mark.slow
def test_a_sensitivity_is_kept_with_the_run_used_and_shown(ask: Ask, data: Path, tmp_path: Path) -> None:
    code, shown, errors = ask("train", data, "--out", tmp_path / "run", "--sensitivity", "0.95", *TREES)
    assert (code, errors) == (0, "")
    assert "predicts 'well' from a probability of" in shown
    assert "for a sensitivity of 0.95; there it finds" in shown
    threshold = load(tmp_path / "run").task_.threshold
    assert threshold.found >= 0.95 * threshold.positives
    code, shown, _ = ask("predict", tmp_path / "run", data, "--out", tmp_path / "p.csv")
    assert "predicts 'well' from a probability of" in shown
    predicted = pl.read_csv(tmp_path / "p.csv")
    flagged = predicted["probability_well"] >= threshold.value
    assert (flagged == (predicted["predicted"] == "well")).all()
    assert (flagged != (predicted["probability_well"] >= 0.5)).any()


def test_evaluate_shows_each_class_and_the_confusion_matrix(ask: Ask, data: Path, tmp_path: Path) -> None:
    ask("train", data, "--out", tmp_path / "run", "--cost-ratio", "10", *TREES)
    code, shown, _ = ask("evaluate", tmp_path / "run", data, "--part", "test", "--out", tmp_path / "m.json")
    assert code == 0
    assert "each class against the others" in shown
    assert "macro recall" in shown
    assert "a missed positive that costs 10 times as much as a false alarm" in shown
    written = json.loads((tmp_path / "m.json").read_text())
    counts, metrics = np.array(written["confusion"]["counts"]), written["results"][0]
    assert counts.sum() == written["samples"]
    assert metrics["recall/ill"] == pytest.approx(counts[0, 0] / counts[0].sum())
    assert metrics["accuracy"] == pytest.approx(np.trace(counts) / counts.sum())


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--sensitivity", "0.9", "--cost-ratio", "3"), "both choose the threshold; give one of them"),
        (("--sensitivity", "90"), "A sensitivity is a share above 0 and up to 1"),
        (("--cost-ratio", "0"), "A cost ratio is a number above 0"),
        (("--task", "regression", "--label", "age", "--sensitivity", "0.9"), "'threshold' has no effect"),
    ],
)
def test_an_impossible_threshold_is_one_message_and_leaves_nothing(
    ask: Ask, data: Path, tmp_path: Path, asked: tuple[str, ...], message: str
) -> None:
    code, _, errors = ask("train", data, "--out", tmp_path / "run", *asked, *TREES)
    assert code == 1
    assert message in errors
    assert not (tmp_path / "run").exists()

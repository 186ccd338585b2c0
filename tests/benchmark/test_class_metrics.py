"""Metrics of single classes in a results table."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import TOML, finish, planned, prepare

from raindrop import ConfigError

ROWS = TOML[: TOML.index("[settings]")] + TOML[TOML.index('[[rows]]\nname = "Trees"') :]


def with_metrics(*names: str) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return ROWS.replace('title = "Tiny"', f'title = "Tiny"\nmetrics = [{listed}]').replace("[1, 2, 3]", "[1]")


def test_a_table_shows_the_recall_of_one_class_beside_the_mean(tmp_path: Path) -> None:
    text = finish(prepare(tmp_path, with_metrics("recall/0", "recall/1", "recall")), tmp_path / "out")[".md"]
    assert "recall (0)" in text
    assert "macro recall |" in text
    row = next(line for line in text.splitlines() if line.startswith("| Trees |"))
    first, second, mean = (float(part.replace("*", "")) for part in row.split("|")[3::2][:3])
    assert mean == pytest.approx((first + second) / 2, abs=0.11)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("recall/ill", "no class 'ill'; there are: '0', '1'"),
        ("auroc/1", "of one class there are precision, recall, f1"),
    ],
)
def test_a_metric_of_a_class_that_is_not_there_is_an_error(tmp_path: Path, metric: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        planned(prepare(tmp_path, with_metrics(metric)))

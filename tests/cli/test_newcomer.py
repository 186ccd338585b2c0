"""A newcomer's walk: ten shapes of data to a first page with two commands, and the page "Start here" as written."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import Ask
from data_shapes import SHAPES

from raindrop import load

START = (Path(__file__).parents[2] / "docs" / "start.md").read_text()
SOON = ("--minutes", "0.02")  # the constant and the trees


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_each_shape_gets_to_a_first_page_with_two_commands(
    name: str, ask: Ask, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    shape = SHAPES[name]
    (tmp_path / "given").mkdir()
    asked = shape.write(tmp_path / "given")
    started = time.monotonic()
    code, _, errors = ask("import", *asked, "--out", tmp_path / "table")
    assert code == 0, errors
    code, shown, errors = ask("fit", tmp_path / "table", "--out", tmp_path / "run", *SOON)
    record_property("seconds", round(time.monotonic() - started, 1))
    assert code == 0, errors
    page = tmp_path / "run" / "report.html"
    assert f"wrote the page to {page}" in shown
    assert "next: raindrop" in shown
    text = page.read_text(encoding="utf-8")
    for sensor in shape.sensors:
        assert sensor in text
    task = "classification" if shape.labelled else "readings"
    assert f"task: {task}" in shown
    assert load(tmp_path / "run").model


def write_ward(path: Path, seed: int, *, labelled: bool = True) -> None:
    """A CSV with the columns of the page: stay, hour, item, result and died."""
    rng = np.random.default_rng(seed)
    rows = []
    for stay in range(1000 + 100 * seed, 1080 + 100 * seed):
        died = stay % 2
        for item, mean in (("HR", 80 + 30 * died), ("MAP", 75), ("Lactate", 1 + died)):
            for hour in np.sort(rng.uniform(0, 24, rng.integers(1, 6))):
                value = round(mean + rng.normal(0, mean / 10), 1)
                rows.append((stay, round(hour, 2), item, value, "yes" if died else "no"))
    frame = pl.DataFrame(rows, schema=["stay", "hour", "item", "result", "died"], orient="row")
    (frame if labelled else frame.drop("died")).write_csv(path)


@pytest.mark.slow
def test_the_commands_of_start_here_lead_from_a_file_to_a_page_and_to_predictions(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_ward(tmp_path / "readings.csv", 0)
    write_ward(tmp_path / "new.csv", 1, labelled=False)
    fit, predict, evaluate = re.findall(r"^raindrop (.+)$", START, re.M)
    assert (fit.split()[0], predict.split()[0], evaluate.split()[0]) == ("fit", "predict", "evaluate")
    assert fit.endswith("--minutes 10")
    code, shown, errors = ask(*shlex.split(fit.replace("--minutes 10", " ".join(SOON))))
    assert code == 0, errors
    assert "'died' taken" in errors  # what was guessed is said
    assert shown.index("│ trees") < shown.index("│ constant")
    assert (tmp_path / "first" / "report.html").exists()

    code, shown, errors = ask(*shlex.split(predict))
    assert code == 0, errors
    predicted = pl.read_csv(tmp_path / "predictions.csv")
    truth = np.where(predicted["sample"].to_numpy() % 2, "yes", "no")
    assert (predicted["predicted"].to_numpy() == truth).mean() > 0.8

    columns = ["--sample", "stay", "--time", "hour", "--sensor", "item", "--value", "result", "--label", "died"]
    assert ask("import", "readings.csv", *columns, "--out", "DATA")[0] == 0
    code, shown, errors = ask(*shlex.split(evaluate))
    assert code == 0, errors
    assert "50% hidden" in shown
    code, shown, errors = ask("inspect", "DATA")
    assert "Missingness alone" in shown
    code, shown, errors = ask("importances", "first", "DATA", "--repeats", "1", "--out", "sensors.csv")
    assert code == 0, errors
    assert pl.read_csv(tmp_path / "sensors.csv")["name"][0] in ("HR", "Lactate")


def test_importances_refuses_a_file_it_cannot_write_and_a_metric_it_does_not_have(ask: Ask, tmp_path: Path) -> None:
    code, _, errors = ask("importances", "RUN", "DATA", "--out", tmp_path / "sensors.txt")
    assert code == 1
    assert "cannot write files ending in '.txt'" in errors

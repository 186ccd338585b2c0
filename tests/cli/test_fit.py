"""`raindrop fit`: from a table to a model, a ranking and a page, with one command."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from command_line import Ask
from learnable import easy_table
from waves import wave_table

from raindrop import load

TREES = ("--minutes", "0.02")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return easy_table(80, classes=("ill", "well")).write(tmp_path_factory.mktemp("fit") / "data")


@pytest.mark.slow
def test_fit_ends_with_a_ranking_a_model_a_page_and_what_to_do_next(ask: Ask, data: Path, tmp_path: Path) -> None:
    code, shown, errors = ask("fit", data, "--out", tmp_path / "run", *TREES)
    assert (code, errors) == (0, "")
    assert "task: classification ('label' has 2 classes)" in shown
    assert shown.index("│ trees") < shown.index("│ constant")
    assert "judged on 16 samples held out" in shown
    assert "skipped for lack of time: raindrop, blend, transformer" in shown
    assert f"wrote the page to {tmp_path / 'run' / 'report.html'}" in shown
    assert "Decisions by class" in (tmp_path / "run" / "report.html").read_text()
    assert f"next: raindrop predict {tmp_path / 'run'} NEW_DATA" in shown
    assert load(tmp_path / "run").model == "trees"
    assert ask("predict", tmp_path / "run", data, "--out", tmp_path / "p.csv")[0] == 0
    assert "leaving out 64 samples" in ask("evaluate", tmp_path / "run", data)[1]


@pytest.mark.slow
def test_what_to_do_next_has_the_options_that_this_table_needs(ask: Ask, tmp_path: Path) -> None:
    table = easy_table(60, classes=("ill", "well"))
    labels = table.samples.select("sample", died="label")
    rows = table.events().join(labels, on="sample").rename({"sample": "stay id", "time": "hour", "value": "result"})
    readings = tmp_path / "my readings.csv"
    rows.write_csv(readings)
    columns = ("--sample", "stay id", "--time", "hour", "--value", "result")
    code, shown, errors = ask(
        "fit", readings, "--label", "died", "--out", tmp_path / "run", "--no-page", *TREES, *columns
    )
    assert code == 0, errors
    (predict,) = re.findall(r"next: raindrop (.*)", shown)
    (train,) = re.findall(r" raindrop (train .*)    # without a time limit", shown)
    for command, word, meant in ((predict, "NEW_DATA", readings), (train, "LONGER", tmp_path / "longer")):
        words = [str(meant) if each == word else each for each in shlex.split(command)]
        words = [str(tmp_path / "p.csv") if each == "predictions.csv" else each for each in words]
        code, _, errors = ask(*words)
        assert code == 0, (command, errors)
    assert load(tmp_path / "longer").model == "trees"


@pytest.mark.slow
def test_without_the_packages_for_a_page_a_sentence_says_so(
    ask: Ask, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    code, shown, errors = ask("fit", data, "--out", tmp_path / "run", *TREES)
    assert (code, errors) == (0, "")
    assert "no page: Writing a report needs the package" in shown
    assert load(tmp_path / "run").model == "trees"


@pytest.mark.slow
def test_gaps_are_filled_where_there_is_no_label(ask: Ask, tmp_path: Path) -> None:
    data = wave_table().write(tmp_path / "data")
    asked = ("--task", "readings", "--minutes", "0.001", "--no-page")
    code, shown, errors = ask("fit", data, "--out", tmp_path / "run", *asked)
    assert (code, errors) == (0, "")
    assert "MAE in standard deviations" in shown
    assert f"next: raindrop impute apply {tmp_path / 'run'} {data} --out FILLED" in shown
    assert ask("impute", "apply", tmp_path / "run", data, "--out", tmp_path / "filled")[0] == 0


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--task", "clasification"), "Unknown task 'clasification': did you mean 'classification'?"),
        (("--minutes", "0"), "the time budget must be a positive number of minutes"),
        (("--label", "wadr"), "ward"),
    ],
)
def test_a_mistake_is_one_message_and_leaves_nothing(
    ask: Ask, data: Path, tmp_path: Path, asked: tuple[str, ...], message: str
) -> None:
    code, _, errors = ask("fit", data, "--out", tmp_path / "run", *asked)
    assert code == 1
    assert message in errors
    assert not (tmp_path / "run").exists()

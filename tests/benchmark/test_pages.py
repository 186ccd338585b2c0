"""Pages of results: made from text by one command, without data, and those in the repository are what it makes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from results import make_summary
from tiny import TOML, planned

from raindrop.benchmark import Store
from raindrop.benchmark.pages import write_pages
from raindrop.benchmark.text_store import records_of, write_records
from raindrop.cli.app import main
from raindrop.errors import DataError

DOCS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def text(tmp_path):
    """A folder with results as text, written by the command from a store that has some; the data are gone."""
    make_summary(tmp_path)
    table, data, out = tmp_path / "tiny.toml", tmp_path / "data", tmp_path / "out"
    main(
        ["benchmark", str(table), "--data", str(data), "--out", str(out), "--status", "--text", str(tmp_path / "text")]
    )
    shutil.rmtree(data)
    return tmp_path / "text"


def refused(capsys, *arguments: object) -> str:
    with pytest.raises(SystemExit) as end:
        main(["benchmark", *map(str, arguments)])
    assert end.value.code != 0
    return " ".join(capsys.readouterr().err.split())


def test_the_command_makes_the_pages_from_text_alone(text, tmp_path):
    main(["benchmark", str(tmp_path / "tiny.toml"), "--text", str(text), "--out", str(tmp_path / "pages")])
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["tables.md", "tiny.md"]
    page, table = (tmp_path / "pages" / "tiny.md").read_text(), (tmp_path / "out" / "tiny.md").read_text()
    assert page.startswith("# Tiny\n")
    rows = [line for line in table.splitlines() if line.startswith(("|", "- "))]
    assert [line for line in page.splitlines() if line.startswith(("|", "- "))] == rows
    assert "6 jobs" in page
    assert "| [Tiny](tiny.md) | 2 | 6 |  |" in (tmp_path / "pages" / "tables.md").read_text()


def test_the_list_has_all_tables_also_where_one_is_named(text, tmp_path):
    shutil.copy(DOCS / "store" / "table1_p12.jsonl", text)
    write_pages(text, tmp_path / "pages", [str(tmp_path / "tiny.toml")])
    listed = (tmp_path / "pages" / "tables.md").read_text()
    assert "(tiny.md)" in listed
    assert "(table1_p12.md)" in listed


def test_rows_without_results_are_not_on_a_page(text, tmp_path):
    path = text / "tiny.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"row": "Net"' not in line))
    write_pages(text, tmp_path / "pages", [str(tmp_path / "tiny.toml")])
    page = (tmp_path / "pages" / "tiny.md").read_text()
    assert "| Trees | 3 |" in page
    assert "Net" not in page


def test_ranks_are_drawn_of_three_rows_and_splits_and_not_of_fewer(tmp_path):
    third = (
        TOML.replace("[settings]\nfixed = [0.34]\nrandom = [0.34]\n", "") + '[[rows]]\nname = "Mine"\nmodel = "grud"\n'
    )
    make_summary(tmp_path, text=third)
    experiment, jobs, data = planned(tmp_path / "tiny.toml")
    records = records_of(experiment, data, jobs, Store(tmp_path / "out"))
    path = write_records(tmp_path / "text", experiment, data, records)
    for shown in (True, False):
        write_pages(tmp_path / "text", tmp_path / "pages", [str(tmp_path / "tiny.toml")])
        assert (tmp_path / "pages" / "ranks.svg").exists() == shown
        assert ("![mean ranks" in (tmp_path / "pages" / "tables.md").read_text()) == shown
        path.write_text("".join(line for line in path.read_text().splitlines(True) if '"split": 3' not in line))


def test_what_cannot_be_done_is_an_error_that_says_what_to_do(text, tmp_path, capsys):
    assert "Give --data, the folder with the data, or --text" in refused(capsys, "table1")
    assert "--rows has no effect without --data" in refused(capsys, "--text", text, "--rows", "Trees")
    assert "--workers has no effect without --data" in refused(capsys, "--text", text, "--workers", 2)
    assert "'tiny' is not a shipped table; name its .toml file" in refused(capsys, "--text", text)
    assert "no results of the table 'table1_p12'" in refused(capsys, "table1_p12", "--text", text)
    with pytest.raises(DataError, match="there are no results as text in it"):
        write_pages(tmp_path / "nowhere", tmp_path)


def test_the_pages_in_the_repository_are_what_the_store_gives(tmp_path):
    made = {path.name: path for path in write_pages(DOCS / "store", tmp_path)}
    command = "run: raindrop benchmark --text docs/results/store --out docs/results"
    for name, path in made.items():
        assert (DOCS / name).exists(), command
        if path.suffix == ".md":
            assert (DOCS / name).read_text() == path.read_text(), command
    stored = {path.stem for path in (DOCS / "store").glob("*.jsonl")}
    assert {path.stem for path in DOCS.glob("*.md")} == stored | {"tables", "version_0.1"}

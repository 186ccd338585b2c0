"""The commands that make, write and look at tables, and the options of every command that reads DATA."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import polars as pl
import pytest
from command_line import Ask
from data_shapes import SHAPES, long_csv, outcomes, readings
from learnable import easy_table
from refusal import listing, write_csv

from raindrop import EventTable
from raindrop.cli.app import app
from raindrop.cli.table_options import ReadOptions, TableOptions
from raindrop.table.build import Duplicates, Missing, Unlisted
from raindrop.table.relative_time import BeforeReference
from raindrop.table.time_columns import TimeUnit

READERS = ["inspect", "import", "prepare", "export-table", "train", "evaluate", "predict", "explain", "report",
           "impute train", "impute apply", "forecast train", "forecast apply"]  # fmt: skip
COLUMNS = ["--sample", "machine", "--time", "hours", "--sensor", "name", "--value", "x"]


@pytest.mark.parametrize("command", READERS)
def test_every_command_that_reads_data_takes_the_same_options(command: str) -> None:
    target = app
    for word in command.split():
        target = target[word]
    names = {name for argument in target.assemble_argument_collection() for name in argument.names}
    wanted = {f"--{each.name.replace('_', '-')}" for each in fields(TableOptions)}
    assert wanted <= names


def test_the_choices_are_those_of_the_table() -> None:
    hints = get_type_hints(ReadOptions)
    expected = {"time_unit": TimeUnit, "duplicates": Duplicates, "missing": Missing, "unlisted": Unlisted,
                "before_reference": BeforeReference}  # fmt: skip
    for name, choices in expected.items():
        literal, _ = get_args(hints[name])
        assert get_args(literal) == get_args(choices)


def test_an_option_that_a_message_advises_is_taken(ask: Ask, tmp_path: Path) -> None:
    write_csv(tmp_path, "id,time,sensor,value\na,0,x,1\na,0,x,3\nb,0,x,\nb,1,x,2\n", "id,label,start\na,1,-1\n")
    given = ["--missing", "error"]
    for advice, option, choice in (
        ("--sample NAME", "--sample", "id"),
        ("--missing drop", "--missing", "drop"),
        ("--unlisted drop", "--unlisted", "drop"),
        ("--duplicates last", "--duplicates", "mean"),
    ):
        code, _, errors = ask("inspect", tmp_path, *given)
        assert code == 1
        assert advice in errors
        given = [*(given[2:] if given[0] == option else given), option, choice]
    code, shown, _ = ask("inspect", tmp_path, *given, "--reference", "start", "--time-unit", "days")
    assert code == 0
    assert "EventTable(1 samples, 1 sensors, 1 readings, label 'label')" in shown


@pytest.mark.slow
def test_a_model_is_trained_evaluated_and_applied_on_a_csv_with_other_names(ask: Ask, tmp_path: Path) -> None:
    file, samples, *columns = long_csv(tmp_path)
    given = [file, "--samples-file", samples, *columns[:-2]]
    code, _, errors = ask("train", *given, "--label", "state", "--out", tmp_path / "run", "--model", "trees",
                          "--set", "model.rounds=4", "model.min_samples=2")  # fmt: skip
    assert code == 0, errors
    code, shown, errors = ask("evaluate", tmp_path / "run", *given, "--part", "all")
    assert code == 0, errors
    assert "24 samples, label state" in shown
    code, _, errors = ask("predict", tmp_path / "run", *given, "--out", tmp_path / "p.csv")
    assert code == 0, errors
    assert pl.read_csv(tmp_path / "p.csv")["sample"].to_list() == outcomes()["machine"].to_list()


def test_an_imputer_is_trained_and_applied_on_a_wide_file(ask: Ask, tmp_path: Path) -> None:
    readings().pivot("name", index=["machine", "hours"], values="x").write_csv(tmp_path / "wide.csv")
    given = [tmp_path / "wide.csv", "--wide", "--sample", "machine", "--time", "hours"]
    code, _, errors = ask("impute", "train", *given, "--out", tmp_path / "run", "--model", "linear")
    assert code == 0, errors
    code, _, errors = ask("impute", "apply", tmp_path / "run", *given, "--every", 6.0, "--readings", tmp_path / "r.csv")
    assert code == 0, errors
    assert set(pl.read_csv(tmp_path / "r.csv")["sensor"]) == {"temp", "vib"}


@pytest.mark.slow
def test_the_cutoff_of_a_classifier_is_that_of_the_table(ask: Ask, tmp_path: Path) -> None:
    file, samples, *columns = long_csv(tmp_path)
    outcomes().with_columns(end=12.0).write_csv(samples)
    given = [file, "--samples-file", samples, *columns[:-2], "--cutoff", "end"]
    code, _, errors = ask("train", *given, "--label", "state", "--out", tmp_path / "run", "--model", "trees",
                          "--set", "model.rounds=2", "model.min_samples=2")  # fmt: skip
    assert code == 0, errors
    code, _, errors = ask("evaluate", tmp_path / "run", *given, "--part", "all")
    assert code == 0, errors
    code, _, errors = ask("evaluate", tmp_path / "run", *given[:-1], "ned", "--part", "all")
    assert (code, "there is no column 'ned' (needed as cutoff); did you mean 'end'?" in errors) == (1, True)


# ---------------------------------------------------------------- import


def test_an_imported_table_opens_with_the_roles_it_was_given(ask: Ask, tmp_path: Path) -> None:
    file, samples, *columns = long_csv(tmp_path)
    outcomes().with_columns(age=pl.int_range(24), site=pl.int_range(24) % 4).write_csv(samples)
    code, _, errors = ask(
        "import", file, samples, *columns, "--statics", "age", "--group", "site", "--out", tmp_path / "t"
    )
    assert code == 0, errors
    table = EventTable.read(tmp_path / "t")
    assert (table.roles.label, table.roles.statics, table.roles.group) == ("state", ("age",), "site")


def test_what_was_left_out_is_said(ask: Ask, tmp_path: Path) -> None:
    write_csv(tmp_path, "sample,time,sensor,value\na,0,x,1\na,0,x,2\na,1,x,NA\n")
    code, shown, notes = ask("import", tmp_path / "events.csv", "--out", tmp_path / "t", "--duplicates", "last")
    assert code == 0
    assert "left out 1 reading: duplicate readings (last)" in shown
    assert "1 of 3 rows have no value; left out." in notes


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "Which files?"),
        (("none.csv",), "there is no such file"),
        (("table.xlsx",), "files of this kind cannot be read"),
        (("log.csv", "--labels", "log.csv"), "about a MEDS folder"),
        (("log.csv", "other.csv", *COLUMNS), "there is no column 'x', which"),
        (("samples.csv",), "There must be files of readings"),
        (("log.csv", "--wide"), "needed as time"),
        (("log.csv",), "--sample NAME"),
        (("objects.npy",), "not a readable file of arrays"),
        (("unknown.npz",), "array 'weights' is not known"),
        (("log.csv", "array.npy"), "is read alone"),
    ],
)
def test_a_mistake_is_one_message_and_leaves_nothing_behind(
    given: tuple[str, ...], message: str, ask: Ask, tmp_path: Path
) -> None:
    long_csv(tmp_path)
    (tmp_path / "other.csv").write_text("machine,hours,name,y\na,0,x,1\n")
    (tmp_path / "table.xlsx").write_text("")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "array.npy", np.zeros((2, 2, 2)))
    np.savez(tmp_path / "unknown.npz", X=np.zeros((2, 2, 2)), weights=np.zeros(2))
    before = listing(tmp_path)
    words = [tmp_path / word if "." in word else word for word in given]
    code, _, errors = ask("import", *words, "--out", tmp_path / "table")
    assert code == 1
    assert message in errors
    assert listing(tmp_path) == before


def test_an_existing_table_is_not_overwritten(ask: Ask, tmp_path: Path) -> None:
    given = SHAPES["arrays"].write(tmp_path)
    assert ask("import", *given, "--out", tmp_path / "t")[0] == 0
    code, _, errors = ask("import", *given, "--out", tmp_path / "t")
    assert (code, "exists already" in errors) == (1, True)


# ---------------------------------------------------------------- export


@pytest.mark.parametrize(("format", "name"), [("csv", "t.csv"), ("wide", "t.csv"), ("parquet", "t.parquet")])
def test_an_exported_table_is_imported_again(format: str, name: str, ask: Ask, tmp_path: Path) -> None:
    table = easy_table(12, statics=("age",))
    table.write(tmp_path / "data")
    code, shown, errors = ask("export-table", tmp_path / "data", "--out", tmp_path / name, "--format", format)
    assert (code, errors) == (0, "")
    assert f"wrote {tmp_path / name}" in shown
    samples = tmp_path / name.replace(".", ".samples.")
    wide = ["--wide"] if format == "wide" else []
    code, _, errors = ask(
        "import", tmp_path / name, "--samples-file", samples, *wide, "--statics", "age", "--out", tmp_path / "t"
    )
    assert (code, errors) == (0, "")
    assert EventTable.read(tmp_path / "t").fingerprint == table.fingerprint


def test_export_checks_names_before_it_reads(ask: Ask, tmp_path: Path) -> None:
    code, _, errors = ask("export-table", tmp_path / "none", "--out", tmp_path / "t.txt")
    assert (code, "must end in .csv" in errors) == (1, True)


# ---------------------------------------------------------------- names that act on a terminal


def test_control_characters_never_reach_the_terminal(ask: Ask, tmp_path: Path) -> None:
    write_csv(tmp_path, "sample,time,sensor,value\na,0,x\x1b[2J,1\na,\x1b]0;t\x07,y,1\n")
    for change in ("", "a,0,"):
        code, shown, errors = ask("inspect", tmp_path)
        assert code == 1
        assert "\x1b" not in shown + errors
        assert "\\x1b" in errors
        write_csv(tmp_path, f"sample,time,sensor,value\n{change}x\x1b[2J,1\n")


def test_a_file_of_samples_under_another_name_is_pointed_to_its_option(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "machine.csv").write_text("sample,time,sensor,value\na,0,x,1\na,1,x,2\nb,0,x,3\n")
    (tmp_path / "units.csv").write_text("sample,failed\na,yes\nb,no\n")
    readings, units = tmp_path / "machine.csv", tmp_path / "units.csv"
    code, _, errors = ask("import", readings, units, "--out", tmp_path / "DATA")
    assert code == 1
    assert "--samples-file" in errors
    code, _, errors = ask("import", readings, "--samples-file", units, "--label", "failed", "--out", tmp_path / "DATA")
    assert code == 0, errors
    assert EventTable.read(tmp_path / "DATA").labels.tolist() == ["yes", "no"]


def test_prepare_writes_a_table_and_says_what_was_left_out(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("raindrop.table.prepare.BUCKET_ROWS", 10)
    rows = "".join(f"m{at % 5},{at},t,{'' if at == 7 else at}\n" for at in range(40))
    (tmp_path / "a.csv").write_text("machine,hours,name,x\n" + rows)
    code, shown, errors = ask("prepare", tmp_path / "a.csv", "--out", tmp_path / "out", *COLUMNS)
    assert code == 0, errors
    assert "left out 1 reading: without a value" in shown
    assert "EventTable(5 samples, 1 sensors, 39 readings)" in shown
    assert len(EventTable.read(tmp_path / "out", verify=True)) == 5


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Which files?"),
        (["x.csv", "--wide"], "files with a column per sensor are read whole; use 'raindrop import'"),
        (["."], "this is a folder; name the files in it"),
        (["none.csv"], "there is no such file"),
    ],
)
def test_prepare_refuses_what_it_cannot_read_in_pieces(
    ask: Ask, tmp_path: Path, words: list[str], sentence: str
) -> None:
    code, _, errors = ask("prepare", *words, "--out", tmp_path / "out")
    assert code != 0
    assert sentence in " ".join(errors.split())

"""The commands that bring data in, and the splits that the commands use."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from published_layout import pack, pam_subject, write

from raindrop.benchmark import plan_jobs, read_experiments
from raindrop.cli.app import app, main
from raindrop.cli.convert import make_app
from raindrop.cli.samples import drop_unlabelled, select_split_part, split_table
from raindrop.datasets import DATASETS, physionet2012
from raindrop.datasets import download as downloads
from raindrop.datasets.conversion import Conversion, Report, Source
from raindrop.datasets.publishers import Publication, Remote
from raindrop.errors import ConfigError, DataError
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import Split


def run(*words: object) -> int:
    """The exit code of a command."""
    try:
        main([str(word) for word in words])
    except SystemExit as exit:
        return int(exit.code or 0)
    return 0


def test_convert_writes_a_table_and_prints_what_was_left_out(
    p12_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("convert", "p12", p12_folder, "--out", tmp_path / "table", "--label", "length_of_stay_gt_3") == 0
    output = capsys.readouterr().out
    assert "2 rows      empty variable name" in output
    assert f"wrote the table to {tmp_path}/table" in output
    table = EventTable.read(tmp_path / "table")
    assert table.roles.label == "length_of_stay_gt_3"
    account = json.loads((tmp_path / "table/conversion.json").read_text())
    assert {"unit": "rows", "reason": "empty variable name", "count": 2} in account["changes"]


def test_several_sources_become_one_table(p19_folder: Path, tmp_path: Path) -> None:
    archive = pack(p19_folder / "training_setB", tmp_path / "training_setB.zip")
    assert run("convert", "p19", p19_folder / "training_setA", archive, "--out", tmp_path / "t", "--no-iculos") == 0
    table = EventTable.read(tmp_path / "t")
    assert len(table) == 5
    assert "ICULOS" not in table.roles.statics


@pytest.mark.slow
def test_the_published_splits_of_a_download_are_written_into_the_table_folder(
    p12_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("convert", "p12", p12_folder, "--out", tmp_path / "plain")
    ids = EventTable.read(tmp_path / "plain").ids
    assert not (tmp_path / "plain" / "splits.parquet").exists()
    (p12_folder / "splits").mkdir()
    for number in range(1, 6):
        parts = np.array([np.arange(2, len(ids)), np.array([0]), np.array([1]), None], dtype=object)[:3]
        np.save(p12_folder / "splits" / f"phy12_split{number}.npy", parts, allow_pickle=True)
    assert run("convert", "p12", p12_folder, "--out", tmp_path / "table") == 0
    split = Split.read(tmp_path / "table" / "splits.parquet", 5)
    assert split.ids == {"train": ids[2:], "val": ids[:1], "test": ids[1:2]}
    (p12_folder / "splits" / "phy12_split3.npy").unlink()
    capsys.readouterr()
    assert run("convert", "p12", p12_folder, "--out", tmp_path / "short") == 0
    assert "did not write the published splits" in capsys.readouterr().out


@pytest.mark.slow
def test_pam_also_writes_splits_that_keep_subjects_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(101, 106):
        write(tmp_path / "raw", {f"subject{number}.dat": pam_subject([(1, 200), (4, 200)], seed=number)})
    small = ("--steps", 60, "--min-windows", 5, "--min-seconds", 2)
    assert run("convert", "pam", tmp_path / "raw", "--out", tmp_path / "table", *small) == 0
    table = EventTable.read(tmp_path / "table")
    parts = split_table(table, f"{tmp_path}/table/splits_by_subject.parquet:3", seed=0)
    subjects = [set(part.samples["subject"]) for part in parts.values()]
    assert sum(len(names) for names in subjects) == 5
    (experiment,) = read_experiments(["pam"])
    jobs, data = plan_jobs(experiment, tmp_path / "table", experiment.rows, [])
    assert {job.split_number for job in jobs} == {1, 2, 3, 4, 5}
    assert (data.label, data.sensors, len(data.class_shares)) == ("activity", 17, 2)
    for number in (101, 102, 103):
        (tmp_path / f"raw/subject{number}.dat").unlink()
    (tmp_path / "raw/splits").mkdir()  # the published splits count the authors' own windows
    capsys.readouterr()
    assert run("convert", "pam", tmp_path / "raw", "--out", tmp_path / "two", *small) == 0
    assert "published splits" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("set-a/132541.txt", "Time,Parameter,Value\n00:00,RecordID,132541\n00:07,HR\n"),
        ("set-a.tar.gz", b"\x1f\x8b\x08\x00 cut"),
        ("set-b/132539.txt", "Time,Parameter,Value\n00:00,RecordID,132539\n"),
    ],
)
def test_a_failed_conversion_is_one_message_and_leaves_no_table(
    p12_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, wrong: str | bytes
) -> None:
    write(p12_folder, {name: wrong})
    assert run("convert", "p12", p12_folder, "--out", tmp_path / "table") == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: {p12_folder}/{name}")
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["raw"]


def test_an_existing_table_is_not_overwritten(p12_folder: Path, tmp_path: Path) -> None:
    assert run("convert", "p12", p12_folder, "--out", p12_folder) == 1


def test_download_prints_size_and_licence_first_and_checksums_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    publication = Publication(
        "A data set", (Remote("http://127.0.0.1:9/a", "a"),), "CC BY 4.0", "https://example.org", 42, "Somebody"
    )
    monkeypatch.setattr(physionet2012, "PUBLICATION", publication)

    def fetch(self: downloads.Fetcher, remote: Remote) -> Path:
        self.progress(remote.path, 1_000_000, 2_500_000)
        self.progress("training/", 3, 40_336)
        self.checksums[remote.path] = {"sha256": "abc123"}
        return self.folder / remote.path

    monkeypatch.setattr(downloads.Fetcher, "fetch", fetch)
    assert run("download", "p12", "--out", tmp_path / "raw") == 0
    output = capsys.readouterr().out
    assert output.startswith(f"A data set: about 42 MB, into {tmp_path}/raw\nFrom https://example.org\nLicence: CC BY")
    assert "1.0 of 2.5 MB" in output
    assert "3 of 40,336 files" in output
    assert "a  SHA-256 abc123" in output
    assert f"next: raindrop convert p12 {tmp_path}/raw --out DATA" in output


def test_a_failed_download_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    remote = Remote("http://127.0.0.1:9/a", "a")
    publication = Publication("A", (remote,), "MIT", "https://x.org", 1, "S")
    monkeypatch.setattr(physionet2012, "PUBLICATION", publication)
    monkeypatch.setattr(downloads.time, "sleep", lambda seconds: None)
    assert run("download", "p12", "--out", tmp_path) == 1
    assert "http://127.0.0.1:9/a: " in capsys.readouterr().err


@pytest.mark.slow
def test_inspect_prints_the_overview_and_draws_a_picture(
    p12_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    run("convert", "p12", p12_folder, "--out", tmp_path / "table")
    assert run("inspect", tmp_path / "table", "--picture", tmp_path / "about.png") == 0
    output = capsys.readouterr().out
    assert "Label 'mortality'" in output
    assert "empty variable name" in output
    assert (tmp_path / "about.png").stat().st_size > 10_000


@pytest.fixture
def table() -> EventTable:
    names = [str(n) for n in range(20)]
    events = {"sample": names, "time": [0.0] * 20, "sensor": ["a"] * 20, "value": range(20)}
    return EventTable.from_frames(events, {"sample": names, "died": [None, None, *[0, 1] * 9]}, label="died")


@pytest.fixture
def split_file(tmp_path: Path) -> Path:
    path = tmp_path / "s.parquet"
    parts = ["train"] * 14 + ["val"] * 3 + ["test"] * 3
    pl.DataFrame({"split": [1] * 20, "part": parts, "sample": np.arange(20)}).write_parquet(path)
    return path


def test_a_split_file_is_applied_before_unlabelled_samples_are_left_out(
    table: EventTable, split_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = drop_unlabelled(split_table(table, f"{split_file}:1", seed=0), [])
    assert {name: len(part) for name, part in parts.items()} == {"train": 12, "val": 3, "test": 3}
    assert "leaving out 2 samples without a label 'died'" in capsys.readouterr().out
    assert select_split_part(table, f"{split_file}:1", "auto").ids == ["17", "18", "19"]
    assert len(select_split_part(table, f"{split_file}:1", "all")) == 20


def test_an_unknown_value_of_split_is_refused(table: EventTable) -> None:
    with pytest.raises(ConfigError, match="--split is 'random', 'none' or FILE:1"):
        split_table(table, "rnadom", seed=0)
    with pytest.raises(DataError, match="there is no such split file"):
        split_table(table, "nowhere.parquet:1", seed=0)


@pytest.mark.slow
def test_train_and_evaluate_use_a_split_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    names = [str(n) for n in range(60)]
    label = [n % 2 for n in range(60)]
    events = pl.DataFrame(
        {
            "sample": np.repeat(names, 6),
            "time": np.tile(np.arange(6.0), 60),
            "sensor": np.tile(["a", "b"], 180),
            "value": rng.normal(size=360) + np.repeat(label, 6),
        }
    )
    EventTable.from_frames(events, {"sample": names, "died": label}, label="died").write(tmp_path / "data")
    pl.DataFrame(
        {"split": [1] * 60, "part": ["train"] * 40 + ["val"] * 10 + ["test"] * 10, "sample": names}
    ).write_parquet(tmp_path / "s.parquet")
    words = ("--split", f"{tmp_path}/s.parquet:1", "--set", "train.epochs=1")
    assert run("train", tmp_path / "data", "--out", tmp_path / "run", *words) == 0
    parts = pl.read_parquet(tmp_path / "run/split.parquet")
    assert parts.filter(pl.col("part") == "test")["sample"].to_list() == names[50:]
    capsys.readouterr()
    options = ("--split", f"{tmp_path}/s.parquet:1", "--part", "val")
    assert run("evaluate", tmp_path / "run", tmp_path / "data", *options) == 0
    assert "10 samples, label died" in capsys.readouterr().out


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (*(("convert", name) for name in DATASETS), ("download",), ("inspect",)):
        run(*command, "--help")
        output = capsys.readouterr().out
        assert "folder" in output


@pytest.mark.parametrize("name", DATASETS)
def test_the_command_of_a_data_set_has_the_options_and_help_of_its_converter(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    converter = DATASETS[name].convert
    _, *options = inspect.signature(converter).parameters
    command, bound, _ = app.parse_args(["convert", name, "raw", "--out", "t"], print_error=False, exit_on_error=False)
    assert bound.arguments == {"source": (Path("raw"),), "out": Path("t")}
    assert [*inspect.signature(command).parameters] == ["source", "out", *options]
    run("convert", name, "--help")
    help_page = " ".join(capsys.readouterr().out.replace("│", " ").split())
    texts = dict(re.findall(r"^ {8}(\w+): (.{20})", converter.__doc__ or "", re.MULTILINE))
    assert set(texts) == {"source", *options}
    assert "folder for the table; must not exist yet" in help_page
    for option, text in texts.items():
        assert text in help_page, option
    run("convert", "--help")
    assert str(converter.__doc__).split(":")[0] in capsys.readouterr().out


def test_a_data_set_is_one_module_and_one_entry_of_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`convert` and `download` of a data set that this package does not know."""

    def convert(source: Source, *, scale: float = 1.0, twice: bool = False) -> Conversion:
        """Stations: a small data set.

        Args:
            scale: what values are multiplied with.
            twice: double them.
        """
        rows = {"sample": ["a", "b"], "time": [0.0, 1.0], "sensor": ["x", "x"], "value": [scale * (1 + twice)] * 2}
        return Conversion.from_table(EventTable.from_frames(rows, {"sample": ["a", "b"]}), Report("Stations"))

    remote = Remote("http://127.0.0.1:9/a", "a")
    publication = Publication("Weather stations", (remote,), "MIT", "https://x.org", 1, "S")
    stations = SimpleNamespace(convert=convert, PUBLICATION=publication)
    monkeypatch.setitem(DATASETS, "stations", stations)
    words = ["stations", str(tmp_path), "--out", str(tmp_path / "t"), "--scale", "3", "--twice"]
    command, bound, _ = make_app(DATASETS).parse_args(words, print_error=False, exit_on_error=False)
    command(*bound.args, **bound.kwargs)
    assert EventTable.read(tmp_path / "t").value.tolist() == [6.0, 6.0]
    monkeypatch.setattr(downloads.Fetcher, "fetch", lambda self, remote: self.folder / remote.path)
    assert run("download", "stations", "--out", tmp_path / "raw") == 0
    assert "Weather stations" in capsys.readouterr().out
    assert run("download", "station", "--out", tmp_path / "raw") == 1
    assert "There is no data set 'station': did you mean 'stations'?" in capsys.readouterr().err


@pytest.mark.parametrize("page", sorted(Path(__file__).parents[2].glob("docs/data_*.md")), ids=lambda page: page.stem)
def test_the_commands_in_the_documentation_parse(page: Path) -> None:
    lines = [line.partition(" #")[0] for line in page.read_text().splitlines() if line.startswith("raindrop ")]
    commands = [line.split()[1:] for line in lines]
    assert commands
    for words in commands:
        command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
        assert callable(command)
        assert bound.arguments

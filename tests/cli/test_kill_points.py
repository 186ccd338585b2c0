"""Every command that writes, killed before each of its file operations: what it writes is old or new, never half."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from command_line import Ask, commands_of
from data_shapes import SHAPES
from followers import SMALL, followers
from kill_points import State, kill_before, overwrite_out, recorded, visible
from learnable import QUICK, easy_table, words
from tiny import TOML, prepare

from raindrop import EventTable, load
from raindrop.benchmark.store import Store
from raindrop.benchmark.workers import work
from raindrop.cli.app import app
from raindrop.config import read_toml
from raindrop.datasets import physionet2012
from raindrop.datasets.publishers import Publication, Remote
from raindrop.errors import RaindropError

TREES = "--model trees --set model.rounds=2 model.min_samples=2"
NETWORK = " ".join(words(train__epochs=2, train__checkpoint_minutes=0.0))
QUERIES = " ".join(f"{key}={value}" for key, value in (SMALL | {"train.checkpoint_minutes": 0.0}).items())


@dataclass(frozen=True)
class Case:
    """A command; names in capital letters are places, and OUT is what it writes."""

    words: str
    before: str = ""
    """What is in the place of the output before the command."""
    again: str = ""
    """What is added to run it again after a kill."""
    grows: Callable[[State, dict[str, str]], None] | None = None
    """Of an output that grows while the command runs: a check of what is there, given what is there at the end."""
    same: tuple[str, ...] = ()
    """Of such an output: the files that are equal at the end, killed or not; the others have times of the clock."""
    run_again: bool = True


def is_run(state: State, new: dict[str, str]) -> None:
    """A run has its whole model or none."""
    out = state.folder / "out"
    if "out/model.json" in state.visible:
        assert state.visible["out/model.safetensors"] == new["out/model.safetensors"]
        load(out)
    else:
        with pytest.raises(RaindropError):
            load(out)


def is_best_so_far(state: State, new: dict[str, str]) -> None:
    """The ranking is that of the model beside it."""
    if state.visible:
        ranking = json.loads((state.folder / "out" / "ranking.json").read_text())["ranking"]
        best = next(each["model"] for each in ranking if each["model"] != "constant")
        assert load(state.folder / "out").model == best


def is_search(state: State, new: dict[str, str]) -> None:
    """The best settings so far can be read, and every line of the journal but the last is whole."""
    out = state.folder / "out"
    if "out/best.toml" in state.visible:
        read_toml(out / "best.toml")
    if "out/journal.jsonl" in state.visible:
        for line in (out / "journal.jsonl").read_text().splitlines()[:-1]:
            json.loads(line)


def has_whole_files(state: State, new: dict[str, str]) -> None:
    """Every file that was downloaded is complete."""
    record = state.folder / "out" / "checksums.json"
    listed = json.loads(record.read_text()) if record.exists() else {}
    for name, checksum in state.visible.items():
        assert name == "out/checksums.json" or checksum == new[name]
    assert all(state.visible[f"out/{name}"] == about["sha256"] for name, about in listed.items())


def has_whole_results(state: State, new: dict[str, str]) -> None:
    """Every file of results can be read."""
    for path in (state.folder / "out" / "jobs").glob("*.parquet"):
        assert pl.read_parquet(path).height
    assert all(path.read_text() for path in (state.folder / "out").glob("tiny.*"))


CASES = {
    "fit": Case("fit DATA --out OUT --minutes 0.02", grows=is_best_so_far, run_again=False),
    "fit, gaps": Case("fit SERIES --out OUT --minutes 0.02 --no-page", grows=is_best_so_far),
    "train, trees": Case(
        f"train DATA --out OUT {TREES}", again="--resume", grows=is_run, same=("model.safetensors", "split.parquet")
    ),
    "train, network": Case(
        f"train DATA --out OUT --preset paper --set {NETWORK}",
        again="--resume",
        grows=is_run,
        same=("model.safetensors", "split.parquet"),
    ),
    "impute train": Case(
        f"impute train SERIES --out OUT --set {QUERIES}",
        again="--resume",
        grows=is_run,
        same=("model.safetensors", "split.parquet"),
    ),
    "forecast train": Case(
        f"forecast train SERIES --out OUT --horizon 6 --set {QUERIES}",
        again="--resume",
        grows=is_run,
        same=("model.safetensors", "split.parquet"),
    ),
    "tune": Case(
        f"tune DATA --out OUT --trials 1 {TREES}",
        grows=is_search,
        same=("best.toml",),
    ),
    "predict": Case("predict RUN DATA --out OUT.parquet"),
    "predict, in parts": Case("predict RUN DATA --out OUT.parquet --processes 1"),
    "evaluate": Case("evaluate RUN DATA --out OUT.json"),
    "evaluate, gaps": Case("evaluate IMPUTER SERIES --out OUT.json"),
    "impute apply": Case("impute apply IMPUTER SERIES --out OUT"),
    "impute apply, readings": Case("impute apply IMPUTER SERIES --readings OUT.parquet --every 1"),
    "forecast apply": Case("forecast apply FORECASTER SERIES --out OUT.csv --every 1"),
    "graph": Case("graph SERIES --out OUT"),
    "explain": Case("explain RUN DATA --out OUT.html"),
    "importances": Case("importances RUN DATA --out OUT.csv --repeats 1"),
    "monitor": Case("monitor RUN DATA --out OUT.html --part all"),
    "report": Case("report RUN --out OUT.html"),
    "export": Case("export NETWORK --out OUT --format pt2 --max-times 16"),
    "sign": Case("sign OUT --key KEY", before="RUN"),
    "token": Case("token OUT.json --name ward", run_again=False),
    "inspect": Case("inspect DATA --picture OUT.png"),
    "import": Case("import DATA/events.parquet DATA/samples.parquet --out OUT --label label"),
    "prepare": Case("prepare DATA/events.parquet DATA/samples.parquet --out OUT --label label"),
    "import, with a split": Case("import MEDS --labels LABELS --out OUT"),
    "convert": Case("convert p12 RAW --out OUT"),
    "download": Case("download p12 --out OUT", grows=has_whole_files, same=("a.txt", "b.txt", "checksums.json")),
    "benchmark": Case(
        "benchmark TOML --data TABLES --out OUT --rows Trees",
        grows=has_whole_results,
        same=("tiny.md", "tiny.tex", "tiny.csv"),
    ),
    "demo": Case("demo --out OUT"),
    "write a table over another": Case("write DATA OUT", before="OTHER"),
    "save a model": Case("save RUN OUT"),
}
TWO_FILES = {
    "export-table": ("export-table DATA --out OUT.csv", "out.samples.csv"),
    "impute apply, both": ("impute apply IMPUTER SERIES --out OUT --readings OUT.parquet", "out.parquet"),
}
"""Commands that write two things, with the one that has its name first."""
IN_PYTHON = ("write a table over another", "save a model")
ELSEWHERE = {
    "serve": "test_stream_state.py, which has what it writes: live samples",
}
READS_ONLY = {"models": "models", "settings": "settings raindrop"}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from raindrop.estimators import Classifier, Forecaster, Imputer

    folder = tmp_path_factory.mktemp("killed")
    table, series = easy_table(40, classes=("ill", "well")), followers(12)
    data = table.write(folder / "data")
    train, val, test = table.split(seed=0)
    trees = Classifier("trees", config={"model.rounds": 2, "model.min_samples": 2})
    trees.fit(train, validation=val, run=folder / "run", parts={"train": train, "val": val, "test": test})
    network = Classifier(preset="paper", config=QUICK | {"train.epochs": 1}).fit(train)
    (folder / "key").write_text("k" * 40)
    raw = folder / "raw" / "set-a"
    raw.mkdir(parents=True)
    for record in (132539, 132540):
        rows = f"00:00,RecordID,{record}\n00:00,Age,60\n00:00,Gender,1\n00:00,ICUType,2\n00:00,Weight,70\n"
        (raw / f"{record}.txt").write_text(f"Time,Parameter,Value\n{rows}00:07,HR,73\n00:37,HR,77\n")
    outcomes = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n132539,6,1,5,-1,0\n132540,16,8,3,-1,1\n"
    (folder / "raw" / "Outcomes-a.txt").write_text(outcomes)
    (folder / "tiny").mkdir()
    return {
        "DATA": data,
        "RUN": folder / "run",
        "NETWORK": network.save(folder / "network"),
        "KEY": folder / "key",
        "RAW": folder / "raw",
        "OTHER": easy_table(12, classes=("ill", "well"), seed=1).write(folder / "other"),
        "SERIES": series.write(folder / "series"),
        "IMPUTER": Imputer("linear").fit(series).save(folder / "imputer"),
        "FORECASTER": Forecaster("last", horizon=6.0).fit(series).save(folder / "forecaster"),
        "MEDS": Path(SHAPES["MEDS"].write(folder)[0]),
        "LABELS": folder / "labels.parquet",
        "TOML": prepare(
            folder / "tiny", re.sub(r"\[settings\][^[]*(\[0.34\][^[]*)*", "", TOML.replace("[1, 2, 3]", "[1]"))
        ),
        "TABLES": folder / "tiny" / "data",
    }


@pytest.fixture(autouse=True)
def near_and_small(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files to download on this machine, the worker of a benchmark in this process, and a short demo."""
    published = tmp_path_factory.mktemp("published")
    files = []
    for name in ("a.txt", "b.txt"):
        (published / name).write_text(name * 1000)
        checksum = hashlib.sha256((published / name).read_bytes()).hexdigest()
        files.append(Remote((published / name).as_uri(), name, checksum))
    publication = Publication("Two files", tuple(files), "none", "nowhere", 1, "nobody")
    monkeypatch.setattr(physionet2012, "PUBLICATION", publication)

    @contextmanager
    def work_here(jobs: Any, out: Path, number: int) -> Iterator[list[Any]]:
        work(jobs, Store(out))
        yield []

    monkeypatch.setattr("raindrop.benchmark.workers.local_workers", work_here)
    monkeypatch.setattr("raindrop.table.prepare.BUCKET_ROWS", 100)  # three buckets

    def fill_quickly(folder: Path, *_: Any) -> None:
        easy_table(8).write(folder / "data")
        (folder / "report.html").write_text("a report")

    monkeypatch.setattr("raindrop.cli.demo._fill", fill_quickly)  # test_demo.py has all of it


def filled(text: str, places: dict[str, Path], out: Path) -> list[str]:
    """The words of a command, with places for their names."""
    given = {**{name: str(path) for name, path in places.items()}, "OUT": str(out)}
    return ["/".join([given.get(head := word.split("/")[0], head.replace("OUT", str(out))), *word.split("/")[1:]])
            for word in text.split()]  # fmt: skip


def run(ask: Ask, given: list[str]) -> tuple[int, str]:
    """The exit code of a command and what it said of errors."""
    try:  # not commands, but what people do in Python
        if given[0] == "write":
            EventTable.read(given[1]).write(given[2], overwrite=True)
            return 0, ""
        if given[0] == "save":
            load(given[1]).save(given[2])
            return 0, ""
    except RaindropError as error:
        return 1, str(error)
    code, _, errors = ask(*given)
    return code, errors


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*") if ".partial-" in path.name]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_killed_at_every_file_operation(name: str, places: dict[str, Path], ask: Ask, tmp_path: Path) -> None:
    case, folder = CASES[name], tmp_path / "whole"
    folder.mkdir()
    if case.before:
        shutil.copytree(places[case.before], folder / "out")
    old = visible(folder)
    with recorded(folder, tmp_path / "states") as recording:
        assert run(ask, filled(case.words, places, folder / "out"))[0] == 0
    new = visible(folder)
    assert recording.operations >= 3
    assert recording.states[0].visible == old
    assert recording.states[-1].visible == new != old
    assert leftovers(folder) == []
    for state in recording.states:
        if case.grows is not None:
            case.grows(state, new)
        else:
            assert state.visible in (old, new), f"half of it: {sorted(state.visible)}"
    for state in recording.by_visible() if case.run_again else ():
        again = filled(f"{case.words} {case.again}", places, state.folder / "out")
        was_whole = state.visible.keys() == new.keys()
        code, errors = run(ask, again)
        found = visible(state.folder)
        if code:  # there is an answer already, and nothing is overwritten
            assert "exists already" in errors, errors
            assert was_whole or (case.grows is is_best_so_far and state.visible)
            assert found == state.visible
            continue
        assert found.keys() == new.keys()
        assert {each: found[f"out/{each}"] for each in case.same} == {each: new[f"out/{each}"] for each in case.same}
        assert leftovers(state.folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO_FILES)
def test_of_two_files_the_named_one_comes_last(name: str, places: dict[str, Path], ask: Ask, tmp_path: Path) -> None:
    """So that without it the command can be run again, and with it nothing is missing."""
    asked, first = TWO_FILES[name]
    (folder := tmp_path / "whole").mkdir()
    with recorded(folder, tmp_path / "states") as recording:
        assert run(ask, filled(asked, places, folder / "out")) == (0, "")
    new = visible(folder)
    allowed = [{}, {first: new[first]}, new]
    assert all(state.visible in allowed for state in recording.states)
    for state in recording.by_visible():
        code, errors = run(ask, filled(asked, places, state.folder / "out"))
        assert code == 0 or (state.visible == new and "exists already" in errors)
        assert visible(state.folder) == new
    (other := tmp_path / "other").mkdir()
    (other / first).write_text("of someone else")
    code, errors = run(ask, filled(asked, places, other / "out"))
    assert code == 1
    assert "exists already" in errors
    assert (other / first).read_text() == "of someone else"
    assert [path.name for path in other.iterdir()] == [first]


def test_every_command_is_killed_or_writes_nothing(places: dict[str, Path], ask: Ask, tmp_path: Path) -> None:
    killed = {name.split(",")[0] for name in [*CASES, *TWO_FILES] if name not in IN_PYTHON}
    assert killed | {*READS_ONLY, *ELSEWHERE} == set(commands_of(app)), "a command that writes needs a line in CASES"
    assert not killed & {*READS_ONLY, *ELSEWHERE}
    (tmp_path / "nothing").mkdir()
    for asked in READS_ONLY.values():
        with recorded(tmp_path / "nothing", tmp_path / "states") as recording:
            assert ask(*asked.split())[0] == 0
        assert recording.operations == 0
        shutil.rmtree(tmp_path / "states")


@pytest.mark.slow
def test_what_a_kill_leaves_is_what_is_recorded(places: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(places["DATA"], tmp_path / "data")
    shutil.copytree(places["OTHER"], tmp_path / "whole" / "out")
    with recorded(tmp_path / "whole", tmp_path / "states") as recording:
        overwrite_out(tmp_path / "whole")
    numbers = range(1, recording.operations + 1, 5)
    for number in numbers:
        shutil.copytree(places["OTHER"], tmp_path / str(number) / "out")
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=kill_before, args=(list(numbers), overwrite_out, tmp_path))
    process.start()
    process.join(120)
    assert process.exitcode == 0

    def content(folder: Path) -> tuple[tuple[str, bytes], ...]:
        """All files, hidden ones too, without the number of the process in their names."""
        files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
        return tuple(sorted((re.sub(r"partial-[^/]*", "partial", name), files[name].read_bytes()) for name in files))

    noted = {content(state.folder) for state in recording.states}
    left = {content(tmp_path / str(number)) for number in numbers}
    assert left <= noted
    assert len(left) > 3

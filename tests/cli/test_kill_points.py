"""Every command that writes, killed before each of its file operations: what it writes is old or new, never half."""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Ask
from kill_points import die_before, write_table
from learnable import easy_table

from raindrop.cli.app import main

TREES = ("--model", "trees", "--set", "model.rounds=2", "model.min_samples=2")
COMMANDS = {
    "train, trees": f"train DATA --out OUT {' '.join(TREES)}",
    "predict": "predict RUN DATA --out OUT.parquet",
    "evaluate": "evaluate RUN DATA --out OUT.json",
    "sign": "sign OUT --key KEY",
    "write a table over another": "write DATA OUT",
    "report": "report RUN --out OUT.html",
    "convert": "convert p12 RAW --out OUT",
}
BEFORE = {"sign": "RUN", "write a table over another": "OTHER"}
"""What is in the place of the output before the command."""
RESUMED = ("train, trees",)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("killed")
    data = easy_table(40, classes=("ill", "well")).write(folder / "data")
    main(["train", str(data), "--out", str(folder / "run"), *TREES])
    (folder / "key").write_text("k" * 40)
    raw = folder / "raw" / "set-a"
    raw.mkdir(parents=True)
    for record in (132539, 132540):
        rows = f"00:00,RecordID,{record}\n00:00,Age,60\n00:00,Gender,1\n00:00,ICUType,2\n00:00,Weight,70\n"
        (raw / f"{record}.txt").write_text(f"Time,Parameter,Value\n{rows}00:07,HR,73\n00:37,HR,77\n")
    outcomes = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n132539,6,1,5,-1,0\n132540,16,8,3,-1,1\n"
    (folder / "raw" / "Outcomes-a.txt").write_text(outcomes)
    other = easy_table(12, classes=("ill", "well"), seed=1).write(folder / "other")
    return {"OTHER": other, "DATA": data, "RUN": folder / "run", "KEY": folder / "key", "RAW": folder / "raw"}


@pytest.fixture(scope="module")
def fresh() -> Iterator[Any]:
    """Processes that have everything imported and nothing else done."""
    context = multiprocessing.get_context("forkserver")
    modules = ["raindrop.estimators", "raindrop.cli.app", "raindrop.cli.convert", "raindrop.report", "kill_points"]
    context.set_forkserver_preload([*modules, "sklearn.ensemble", "torch._dynamo"])
    return context


def visible(folder: Path) -> dict[str, str]:
    """The files that a person sees, with a hash of their content."""
    found = (path for path in folder.rglob("*") if path.is_file())
    own = {path: path.relative_to(folder) for path in found}
    return {
        str(name): hashlib.sha256(path.read_bytes()).hexdigest()
        for path, name in own.items()
        if not any(part.startswith(".") for part in name.parts)
    }


def run_again(given: list[str]) -> bool:
    """Run a command to its end."""
    write_table(*given[1:]) if given[0] == "write" else main(given)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_every_file_operation(
    name: str, places: dict[str, Path], fresh: Any, ask: Ask, tmp_path: Path
) -> None:
    def arguments(out: Path) -> list[str]:
        given = {**{key: str(path) for key, path in places.items()}, "OUT": str(out)}
        return [given.get(word, word.replace("OUT", str(out))) for word in COMMANDS[name].split()]

    def run(folder: Path, number: int) -> bool:
        """Whether the command came to its end."""
        folder.mkdir()
        if name in BEFORE:
            shutil.copytree(places[BEFORE[name]], folder / "out")
        process = fresh.Process(target=die_before, args=(arguments(folder / "out"), number, tmp_path / "counted"))
        process.start()
        process.join(120)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        return process.exitcode == 0

    assert run(tmp_path / "whole", 0)
    operations = int((tmp_path / "counted").read_text())
    assert operations >= 3
    new, old = visible(tmp_path / "whole"), {}
    if name in BEFORE:
        (tmp_path / "before").mkdir()
        shutil.copytree(places[BEFORE[name]], tmp_path / "before" / "out")
        old = visible(tmp_path / "before")
    for number in range(1, operations + 1):
        folder = tmp_path / f"killed {number}"
        assert not run(folder, number)
        found = visible(folder)
        is_new = found == new if name in BEFORE else set(found) == set(new)  # a run has times of the clock in it
        if name not in RESUMED:
            assert is_new or found == old, f"half of it before operation {number}: {sorted(found)}"
        if name in BEFORE:
            assert run_again(arguments(folder / "out"))
            assert visible(folder) == new
            continue
        code, _, errors = ask(*arguments(folder / "out"), *["--resume"] * (name in RESUMED))
        assert code == 0 or (is_new and "exists already" in errors), (number, errors)
        assert set(visible(folder)) == set(new)
        assert is_new or [path.name for path in folder.rglob(".*") if ".partial-" in path.name] == []

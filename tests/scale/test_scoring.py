"""A table scored by one process, by a pool and after an interruption has the same predictions, to the last bit."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from learnable import QUICK, easy_table

import raindrop as rd
from raindrop.errors import ConfigError, DataError, MissingExtraError, ModelFileError, OutputExistsError, RaindropError
from raindrop.estimators import Classifier, Imputer, Regressor
from raindrop.scale import scoring
from raindrop.scale.messages import LostPart
from raindrop.scale.scorer import Scorer

pytestmark = pytest.mark.slow

NUM_PARTS = 8


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 60 samples of the table are cut into eight parts."""
    monkeypatch.setattr("raindrop.scale.parts.PART_SAMPLES", NUM_PARTS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = easy_table(60, classes=("ill", "well"), statics=("age", "ward"))
    return table.write(tmp_path_factory.mktemp("scored") / "data")


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """A trained run; no test may change it."""
    Classifier(config=QUICK).fit(rd.EventTable.read(data), run=data.parent / "run")
    return data.parent / "run"


@pytest.fixture
def one_process(run: Path, data: Path) -> pl.DataFrame:
    return rd.scale.predict(run, data, processes=1, coverage=0.9)


def test_of_a_large_table_the_memory_of_each_part_is_given_back(
    run: Path, data: Path, one_process: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back: list[int] = []
    monkeypatch.setattr(rd.EventTable, "release", lambda self: given_back.append(len(self)))
    table = rd.EventTable.read(data)
    assert rd.scale.predict(run, table, processes=1, coverage=0.9).equals(one_process)
    assert not given_back
    monkeypatch.setattr("raindrop.scale.scorer.is_large", lambda array: True)
    assert rd.scale.predict(run, table, processes=1, coverage=0.9).equals(one_process)
    assert given_back == [60] * NUM_PARTS


def counted(monkeypatch: pytest.MonkeyPatch, *, fail_at: int | None = None) -> list[int]:
    """The numbers of the parts that this process scores from now on; `fail_at` is a part at which it is interrupted."""
    scored: list[int] = []
    original = Scorer.__call__

    def counting(self: Scorer, part: Any) -> None:
        if part.number == fail_at:
            raise KeyboardInterrupt
        original(self, part)
        scored.append(part.number)

    monkeypatch.setattr(Scorer, "__call__", counting)
    return scored


# ---------------------------------------------------------------- the same predictions


def test_one_process_scores_part_by_part_what_the_estimator_predicts(run, data, one_process):
    whole = rd.load(run).predict_table(rd.EventTable.read(data), coverage=0.9).frame()
    assert one_process.schema == whole.schema
    assert one_process["sample"].equals(whole["sample"])
    difference = (one_process["probability_ill"] - whole["probability_ill"]).abs().max()
    assert difference < 1e-6


def test_parts_that_are_whole_batches_give_the_bits_of_the_whole_table(run, data, monkeypatch):
    monkeypatch.setattr("raindrop.batch.collate.MAX_SAMPLES", NUM_PARTS // 2)
    whole = rd.load(run).predict_table(rd.EventTable.read(data)).frame()
    assert rd.scale.predict(run, data, processes=1).equals(whole)


def test_a_pool_with_a_killed_process_gives_the_same_bits(run, data, one_process, tmp_path):
    """The first process that has written a part is killed with SIGKILL, in the middle of its work."""
    killed: list[int] = []
    ended = threading.Event()

    def kill_a_worker() -> None:
        while not killed and not ended.is_set():
            if list(tmp_path.glob(".p.parquet.parts/part-*")):
                (worker, *_) = multiprocessing.active_children()
                assert worker.pid is not None
                os.kill(worker.pid, signal.SIGKILL)
                killed.append(worker.pid)
            time.sleep(0.001)

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    try:
        pooled = rd.scale.predict(run, data, processes=2, coverage=0.9, out=tmp_path / "p.parquet")
    finally:
        ended.set()
        killer.join()
    assert killed
    assert pooled.equals(one_process)
    assert pl.read_parquet(tmp_path / "p.parquet").equals(one_process)
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]
    assert multiprocessing.active_children() == []


def test_a_table_that_workers_cannot_open_is_written_for_them(run, data, one_process):
    table = rd.EventTable.read(data)
    assert rd.scale.predict(run, table, processes=2, coverage=0.9).equals(one_process)


# ---------------------------------------------------------------- interrupted


def interrupted(run: Path, data: Path, out: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        counted(patch, fail_at=5)
        with pytest.raises(KeyboardInterrupt):
            rd.scale.predict(run, data, processes=1, out=out)
    assert not out.exists()
    assert len(list(out.parent.glob(f".{out.name}.parts/part-*"))) == 5


def test_what_was_interrupted_goes_on_with_the_parts_that_are_missing(run, data, one_process, monkeypatch, tmp_path):
    interrupted(run, data, tmp_path / "p.csv")
    scored = counted(monkeypatch)
    found = rd.scale.predict(run, data, processes=1, out=tmp_path / "p.csv")
    assert scored == [5, 6, 7]
    assert found.equals(one_process.select(found.columns))
    assert pl.read_csv(tmp_path / "p.csv")["sample"].equals(found["sample"])
    assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]


def changed_options(run: Path, data: Path, folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    return run, data, {"coverage": 0.5}


def changed_table(run: Path, data: Path, folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    other = easy_table(60, classes=("ill", "well"), statics=("age", "ward"), seed=1)
    return run, other.write(folder / "other"), {}


def changed_model(run: Path, data: Path, folder: Path) -> tuple[Path, Path, dict[str, Any]]:
    Classifier(config=QUICK, seed=1).fit(rd.EventTable.read(data), run=folder / "run")
    return folder / "run", data, {}


@pytest.mark.parametrize("change", [changed_options, changed_table, changed_model])
def test_parts_of_other_work_are_not_taken(change, run, data, monkeypatch, tmp_path):
    interrupted(run, data, tmp_path / "p.parquet")
    run, data, options = change(run, data, tmp_path)
    fresh = rd.scale.predict(run, data, processes=1, **options)
    scored = counted(monkeypatch)
    found = rd.scale.predict(run, data, processes=1, out=tmp_path / "p.parquet", **options)
    assert scored == list(range(NUM_PARTS))
    assert found.equals(fresh)


def test_a_part_that_was_damaged_meanwhile_is_one_sentence(run, data, tmp_path):
    interrupted(run, data, tmp_path / "p.parquet")
    (tmp_path / ".p.parquet.parts" / "part-000002.parquet").write_text("not Parquet")
    with pytest.raises(DataError, match=r"part-000002\.parquet: cannot be read"):
        rd.scale.predict(run, data, processes=1, out=tmp_path / "p.parquet")


def test_predictions_of_other_samples_are_never_joined(run, data, tmp_path):
    interrupted(run, data, tmp_path / "p.parquet")
    folder = tmp_path / ".p.parquet.parts"
    shutil.copy(folder / "part-000001.parquet", folder / "part-000002.parquet")
    with pytest.raises(RaindropError, match="are not those of the table's samples"):
        rd.scale.predict(run, data, processes=1, out=tmp_path / "p.parquet")


def test_two_processes_cannot_score_into_one_file(run, data, monkeypatch, tmp_path):
    out = tmp_path / "p.parquet"

    def score_again(*_: Any) -> Iterator[Any]:
        monkeypatch.undo()
        with pytest.raises(RaindropError, match="another process is scoring there"):
            rd.scale.predict(run, data, processes=1, out=out)
        yield from ()

    monkeypatch.setattr(scoring, "_in_this_process", score_again)
    with pytest.raises(RaindropError, match="is not there"):
        rd.scale.predict(run, data, processes=1, out=out)


# ---------------------------------------------------------------- mistakes


MISTAKES = {
    "unknown engine": ({"engine": "spark"}, ConfigError, r"Unknown engine 'spark': there are: 'local', 'ray'\."),
    "similar engine": ({"engine": "rai"}, ConfigError, r"Unknown engine 'rai': did you mean 'ray'\?"),
    "no processes": ({"processes": 0}, ConfigError, "processes=0: at least 1"),
    "impossible coverage": ({"coverage": 90.0}, ConfigError, "above 0 and below 1"),
    "by class of nothing": ({"by_class": True}, ConfigError, "by_class needs a coverage"),
    "another kind of file": ({"out": "p.xlsx"}, ConfigError, "written as .parquet or .csv"),
    "no run": ({"run": "nowhere"}, ModelFileError, "there is no model.json"),
    "no table": ({"data": "nowhere"}, DataError, "there is no such folder"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing(name, run, data, monkeypatch, tmp_path):
    changed, error, message = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    given = {"run": run, "data": data, "out": "p.parquet"} | changed
    with pytest.raises(error, match=message):
        rd.scale.predict(given.pop("run"), given.pop("data"), **given)
    assert list(tmp_path.iterdir()) == []


def test_without_ray_its_engine_says_what_to_install(run, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"(?s)needs the package 'ray'.*pip install 'raindrop-ts\[ray\]'"):
        rd.scale.predict(run, data, engine="ray")


def test_a_run_that_is_damaged_is_refused_before_anything_starts(run, data, tmp_path):
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match="not the weights that"):
        rd.scale.predict(copy, data, processes=2)


def test_a_run_that_predicts_readings_is_refused(data, tmp_path):
    table = rd.EventTable.read(data)
    Imputer("linear").fit(table).save(tmp_path / "imputer")
    with pytest.raises(ConfigError, match="holds an imputer or a forecaster"):
        rd.scale.predict(tmp_path / "imputer", data)


def test_quantities_have_no_coverage_by_class(data, tmp_path):
    table = rd.EventTable.read(data).with_roles(statics=["ward"])
    trees = Regressor("trees", label="age", config={"model.rounds": 2, "model.min_samples": 2})
    trees.fit(table, run=tmp_path / "run")
    with pytest.raises(ConfigError, match="by_class has no effect with the task 'regression'"):
        rd.scale.predict(tmp_path / "run", data, coverage=0.9, by_class=True)
    frame = rd.scale.predict(tmp_path / "run", data, processes=1, coverage=0.8)
    assert frame.equals(trees.predict_table(table, coverage=0.8).frame())


def test_a_file_that_exists_is_not_overwritten(run, data, tmp_path):
    (tmp_path / "p.csv").write_text("mine")
    with pytest.raises(OutputExistsError, match="exists already"):
        rd.scale.predict(run, data, out=tmp_path / "p.csv")
    (tmp_path / ".q.csv.parts").mkdir()
    (tmp_path / ".q.csv.parts" / "mine").touch()
    with pytest.raises(OutputExistsError, match="exists already"):
        rd.scale.predict(run, data, processes=1, out=tmp_path / "q.csv")
    assert (tmp_path / ".q.csv.parts" / "mine").exists()


def test_an_error_in_the_first_part_leaves_nothing(run, tmp_path):
    table = easy_table(20, classes=("ill", "well"), statics=("age", "ward"))
    strange = table.events().with_columns(sensor=pl.col("sensor").cast(pl.String).str.replace("pressure", "lactate"))
    renamed = rd.EventTable.from_frames(strange, table.samples, statics=["age", "ward"])
    with pytest.raises(DataError, match="1 sensor was not read in training"):
        rd.scale.predict(run, renamed, processes=1, out=tmp_path / "p.csv")
    assert list(tmp_path.iterdir()) == []
    frame = rd.scale.predict(run, renamed, processes=1, unknown_sensors="ignore")
    assert frame["sample"].to_list() == table.ids


def test_samples_that_end_every_process_are_named(run, data, monkeypatch):
    def lost(open_scorer: Any, parts: Any, processes: int) -> Iterator[Any]:
        yield parts[0]
        raise LostPart(parts[2], "exit code -9")

    monkeypatch.setattr(scoring, "score_in_pool", lost)
    with pytest.raises(RaindropError, match=r"the 8 samples 's016' to 's023' was ended every time \(exit code -9\)"):
        rd.scale.predict(run, data, processes=2)


@pytest.mark.parametrize(("parts", "given", "number"), [(15, None, 1), (16, None, 5), (16, 3, 3), (1, 2, 2)])
def test_small_tables_have_one_process_and_large_ones_every_core(parts, given, number, monkeypatch):
    monkeypatch.setattr(scoring, "usable_cores", lambda: 5)
    assert scoring._num_processes(given, parts) == number

"""Parts and benchmark jobs on Ray: the same results as without it, workers killed or not, and nothing left running."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from learnable import QUICK, easy_table
from part_scorers import Writer, expected, parts_of, written
from tiny import TOML, finish, planned, prepare

import raindrop as rd
from raindrop.benchmark import Store
from raindrop.cli.app import main
from raindrop.errors import DataError, RaindropError
from raindrop.estimators import Classifier
from raindrop.scale.messages import LostPart
from raindrop.scale.ray_engine import score_on_ray
from raindrop.scale.ray_session import LOOPBACK, import_ray, ray_session

PATHS = os.pathsep.join(filter(None, sys.path))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed; pip install 'raindrop-ts[ray]'"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Two cores of this machine, for all tests of this file; starting takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setenv("PYTHONPATH", PATHS)  # for its workers
        ray = import_ray()
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=200_000_000,
            _node_ip_address=LOOPBACK,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        yield ray
        ray.shutdown()


# ---------------------------------------------------------------- parts


def test_it_can_be_reached_from_this_machine_only(ray):
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == [LOOPBACK]


def test_killed_actors_are_replaced_and_every_part_is_scored_once(ray, tmp_path):
    done = list(score_on_ray(Writer(tmp_path, deadly=(1, 4)).open, parts_of(6), 2, tmp_path))
    assert sorted(part.number for part in done) == list(range(6))
    assert written(tmp_path) == expected(6)
    assert {path.name for path in tmp_path.glob("died-*")} == {"died-1", "died-4"}
    assert list(tmp_path.glob("begun-*")) == []


def test_a_part_that_kills_every_actor_is_named_after_three_attempts(ray, tmp_path):
    with pytest.raises(LostPart) as caught:
        list(score_on_ray(Writer(tmp_path, deadly=(1,), always=True).open, parts_of(2), 1, tmp_path))
    assert caught.value.part.number == 1
    assert (tmp_path / "begun-000001").read_text() == "xxxx"  # the fourth was refused


def test_an_error_of_an_actor_is_raised_here_as_it_is(ray, tmp_path):
    with pytest.raises(DataError, match=r"^part 1 cannot be used$"):
        list(score_on_ray(Writer(tmp_path, refused=1).open, parts_of(2), 1, tmp_path))


def test_a_table_scored_on_ray_has_the_same_bits(ray, monkeypatch, tmp_path):
    monkeypatch.setattr("raindrop.scale.parts.PART_SAMPLES", 8)
    table = easy_table(60, classes=("ill", "well"), statics=("age", "ward"))
    Classifier(config=QUICK).fit(table, run=tmp_path / "run")
    data = table.write(tmp_path / "data")
    alone = rd.scale.predict(tmp_path / "run", data, processes=1, coverage=0.9)
    found = rd.scale.predict(tmp_path / "run", data, engine="ray", coverage=0.9, out=tmp_path / "p.parquet")
    assert found.equals(alone)
    assert pl.read_parquet(tmp_path / "p.parquet").equals(alone)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "p.parquet", "run"]


# ---------------------------------------------------------------- benchmark jobs


def test_a_benchmark_on_ray_with_a_killed_worker_ends_with_the_same_table(ray, tmp_path, capsys):
    file = prepare(tmp_path, TOML.replace("[1, 2, 3]", "[1]"))
    uninterrupted = finish(file, tmp_path / "local")
    jobs, store, killed = planned(file)[1], Store(tmp_path / "ray"), []
    ended = threading.Event()

    def kill_a_worker() -> None:
        while not killed and not ended.is_set():
            for job in jobs:
                owner = store.claimed_by(job.key)
                if owner and not killed:
                    os.kill(owner["pid"], signal.SIGKILL)
                    killed.append(job.name)
            time.sleep(0.005)

    killer = threading.Thread(target=kill_a_worker)
    killer.start()
    asked = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "ray"), "--workers", "2", "--engine", "ray"]
    try:
        main(["benchmark", str(file), *asked])
    finally:
        ended.set()
        killer.join()
    assert killed
    assert "2 done, 0 running, 0 to do" in capsys.readouterr().out
    assert {path.suffix: path.read_text() for path in (tmp_path / "ray").glob("tiny.*")} == uninterrupted


# ---------------------------------------------------------------- sessions


def test_the_command_starts_ray_and_leaves_nothing_running(tmp_path):
    table = easy_table(24)
    Classifier("trees", config={"model.rounds": 2, "model.min_samples": 2}).fit(table, run=tmp_path / "run")
    table.write(tmp_path / "data")
    mark = uuid.uuid4().hex
    environment = os.environ | {"PYTHONPATH": PATHS, "RAINDROP_TEST_MARK": mark}
    environment.pop("RAY_ADDRESS", None)
    asked = ["predict", "run", "data", "--out", "p.csv", "--engine", "ray", "--processes", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "raindrop", *asked], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "wrote 24 predictions to p.csv" in done.stdout
    assert pl.read_csv(tmp_path / "p.csv")["sample"].to_list() == table.ids
    until = time.monotonic() + 30
    while (running := processes_with(mark)) and time.monotonic() < until:
        time.sleep(0.2)
    assert running == []


def processes_with(mark: str) -> list[str]:
    """The processes, of any kind, that inherited a variable with this value."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_a_cluster_that_cannot_be_joined_is_one_sentence(monkeypatch):
    class Unreachable:
        """As the package, where no cluster answers."""

        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**options: Any) -> None:
            raise ConnectionError(f"no cluster at {options['address']}\nand much more")

    monkeypatch.setitem(sys.modules, "ray", Unreachable())
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    message = r"^The cluster at RAY_ADDRESS=10\.0\.0\.1:6379 cannot be joined \(no cluster at 10\.0\.0\.1:6379\)\.$"
    with pytest.raises(RaindropError, match=message), ray_session(2):
        pass

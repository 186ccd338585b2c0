"""A pool of processes scores every part once, whatever happens to its processes, and leaves none behind."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fork_server import BY_FORK
from part_scorers import Writer, expected, parts_of, written

from raindrop.errors import DataError
from raindrop.scale.messages import LostPart
from raindrop.scale.pool import score_in_pool

pytestmark = pytest.mark.slow


def test_every_part_is_scored_once_and_each_process_opens_its_model_once(tmp_path):
    done = list(score_in_pool(Writer(tmp_path).open, parts_of(7), 2))
    assert sorted(part.number for part in done) == list(range(7))
    assert written(tmp_path) == expected(7)
    assert 1 <= len(list(tmp_path.glob("opened-*"))) <= 2
    assert multiprocessing.active_children() == []


def test_a_process_that_is_killed_is_replaced_and_its_part_scored_again(tmp_path):
    done = list(score_in_pool(Writer(tmp_path, deadly=(1, 4)).open, parts_of(6), 2))
    assert sorted(part.number for part in done) == list(range(6))
    assert written(tmp_path) == expected(6)
    assert {path.name for path in tmp_path.glob("died-*")} == {"died-1", "died-4"}


def test_a_part_that_kills_every_process_is_named_after_three_attempts(tmp_path):
    with pytest.raises(LostPart, match="exit code -9") as caught:
        list(score_in_pool(Writer(tmp_path, deadly=(2,), always=True).open, parts_of(3), 1))
    assert caught.value.part.number == 2
    assert len(list(tmp_path.glob("opened-*"))) == 3
    assert list(written(tmp_path)) == ["part-000000.parquet", "part-000001.parquet"]
    assert multiprocessing.active_children() == []


def test_an_error_of_a_worker_is_raised_here_as_it_is(tmp_path):
    with pytest.raises(DataError, match=r"^part 1 cannot be used$"):
        list(score_in_pool(Writer(tmp_path, refused=1).open, parts_of(3), 1))
    assert multiprocessing.active_children() == []


def test_a_bug_in_a_worker_keeps_its_traceback(tmp_path):
    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug"):
        list(score_in_pool(Writer(tmp_path, broken=0).open, parts_of(1), 1))


def test_a_pool_that_is_left_early_ends_its_processes(tmp_path):
    done = score_in_pool(Writer(tmp_path).open, parts_of(50), 2)
    next(done)
    assert len(multiprocessing.active_children()) == 2
    done.close()
    assert multiprocessing.active_children() == []


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path):
    script = f"""
from pathlib import Path
from part_scorers import Writer, parts_of
from raindrop.scale.pool import score_in_pool
list(score_in_pool(Writer(Path({str(tmp_path)!r}), endless=0).open, parts_of(1), 1))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, "-c", BY_FORK + script], env=environment)
    until = time.monotonic() + 60
    while not (working := list(tmp_path.glob("endless-*"))) and time.monotonic() < until:
        time.sleep(0.05)
    worker = int(working[0].name.partition("-")[2])
    process.kill()
    process.wait()
    while is_running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(worker)


def is_running(process: int) -> bool:
    """Whether there is such a process that is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

"""Two trainings into one folder: one has it, the other is refused; a killed one does not keep it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from learnable import QUICK, easy_table

from raindrop.errors import RaindropError
from raindrop.estimators.classifier import Classifier
from raindrop.files import run_folder

HOLDER = """
import sys, time
from pathlib import Path
from raindrop.files import run_folder
with run_folder(Path(sys.argv[1])):
    (Path(sys.argv[1]) / "mine").touch()
    print("inside", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_a_folder_belongs_to_one_process_until_that_one_ends_in_whatever_way(tmp_path: Path) -> None:
    run = tmp_path / "run"
    table = easy_table(24)
    classifier = Classifier("raindrop", preset="paper", config=QUICK | {"train.epochs": 1})
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(run)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        with pytest.raises(RaindropError, match=r"run: another process is writing a run there\. Wait until it has"):
            classifier.fit(table, run=run, resume=True)
        assert [path.name for path in run.iterdir()] == ["mine"]
        process.send_signal(signal.SIGKILL)
    (run / "mine").unlink()
    classifier.fit(table, run=run, resume=True)
    assert (run / "model.json").exists()


def test_the_files_of_a_running_process_are_not_deleted_by_one_that_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (tmp_path / ".model.json.partial-1").touch()
        with pytest.raises(RaindropError, match="another process"):
            run_folder(tmp_path).__enter__()
        assert (tmp_path / ".model.json.partial-1").exists()
        process.kill()
    started = time.monotonic()
    with run_folder(tmp_path):
        assert not (tmp_path / ".model.json.partial-1").exists()
    assert time.monotonic() - started < 5
    with run_folder(tmp_path):  # released at the end of the block
        pass

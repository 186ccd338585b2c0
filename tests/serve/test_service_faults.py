"""What happens to a service when things break under it: no request of others is lost, and it goes on."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import shutil
import signal
import threading

import pytest
from asking import PATIENT, Asking, logged, wait_until
from learnable import QUICK, easy_table
from malformed import good_body, malformed
from served_models import request_of

import raindrop as rd
from raindrop.serve.logs import Log
from raindrop.serve.messages import Hello
from raindrop.serve.service import Options, Service
from raindrop.serve.worker_process import Worker, WorkerDied

pytestmark = pytest.mark.slow

CODES = {"bad_request": 400, "unusable_data": 422, "too_large": 413}


@pytest.fixture
def run(runs, tmp_path):
    """A copy of the classifier's run, to be changed."""
    return shutil.copytree(runs[0], tmp_path / "ward-risk")


@pytest.fixture
def running(run, tmp_path):
    with Asking(Service([run], limits=PATIENT, log=Log(tmp_path / "log.jsonl"))) as one:
        yield one


class Traffic:
    """Requests from several clients, one after the other, until it is stopped."""

    def __init__(self, running: Asking, clients: int = 3):
        self.running, self.statuses, self.stop = running, [], threading.Event()
        self.threads = [threading.Thread(target=self._ask, args=(seed,)) for seed in range(clients)]

    def _ask(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self.stop.is_set():
            self.statuses.append(self.running.post("/v1/predict", good_body(rng)).status)

    def __enter__(self) -> Traffic:
        for thread in self.threads:
            thread.start()
        wait_until(lambda: len(self.statuses) > 5)
        return self

    def __exit__(self, *details: object) -> None:
        done = len(self.statuses)
        wait_until(lambda: len(self.statuses) > done + 5, 600)
        self.stop.set()
        for thread in self.threads:
            thread.join()


def test_a_killed_worker_is_replaced_and_no_request_is_lost(running):
    (worker,) = running.service.pool.workers
    with Traffic(running) as traffic:
        os.kill(worker.process.pid, signal.SIGKILL)
        wait_until(lambda: running.service.pool.counts.restarts == 1)
        wait_until(lambda: running.service.pool.ready == 1, 600)
    assert set(traffic.statuses) == {200}
    assert logged(running, lambda line: line["event"] == "worker_restarted")["exit"] == -signal.SIGKILL


def test_a_model_that_is_written_anew_is_served_without_a_lost_request(running, run, tmp_path):
    table = easy_table(48, classes=("well", "ill"), statics=("age", "ward"))
    other = rd.Classifier(config=QUICK | {"train.epochs": 1}, positive="ill", seed=1).fit(table)
    other.save(tmp_path / "new")
    before = running.get("/v1/model").json()["models"][0]["run"]
    with Traffic(running) as traffic:
        for name in ("model.safetensors", "model.json", "split.parquet"):
            shutil.copy(tmp_path / "new" / name, run / name)
        assert running.reload().status == 200
    assert set(traffic.statuses) == {200}
    content = running.post("/v1/predict", request_of(table[:2])).json()
    assert content["run"] == other.identity_[:16] != before
    found = [row["probability_ill"] for row in content["predictions"]]
    assert found == pytest.approx(other.predict_proba(table[:2])[:, 1].tolist(), rel=1e-4)
    wait_until(lambda: len(running.service.pool.workers) == 1)  # the old worker has ended


def test_a_model_that_is_damaged_on_the_disk_changes_nothing_even_when_a_worker_dies(running, run):
    before = running.post("/v1/predict", good_body(random.Random(0))).json()
    (run / "model.safetensors").write_bytes(b"damaged")
    answer = running.reload()
    assert (answer.status, answer.code) == (503, "not_ready")
    assert str(run) not in answer.message
    assert "cannot be loaded" in running.get("/v1/model").json()["changed_on_disk"]
    shutil.rmtree(run)
    os.kill(running.service.pool.workers[0].process.pid, signal.SIGKILL)
    assert running.post("/v1/predict", good_body(random.Random(0))).json() == before
    assert running.get("/health/ready").status == 200


def test_a_watched_run_is_served_once_it_is_written(run, runs, tmp_path):
    table = easy_table(48, classes=("well", "ill"), statics=("age", "ward"))
    rd.Classifier(config=QUICK | {"train.epochs": 1}, positive="ill", seed=2).fit(table).save(tmp_path / "new")
    with Asking(Service([run], limits=PATIENT, log=Log(tmp_path / "log"), options=Options(watch=True))) as watched:
        shutil.copy(tmp_path / "new" / "model.json", run / "model.json")  # half written: its weights are the old ones
        wait_until(lambda: watched.service.pool.counts.failed_swaps > 0, 600)
        assert watched.post("/v1/predict", good_body(random.Random(0))).status == 200
        shutil.copy(tmp_path / "new" / "model.safetensors", run / "model.safetensors")
        os.utime(run / "model.json")
        wait_until(lambda: watched.service.pool.counts.swaps == 1, 600)
        assert watched.post("/v1/predict", good_body(random.Random(0))).status == 200


def test_a_log_on_a_full_disk_stops_nothing(service):
    if not os.path.exists("/dev/full"):
        pytest.skip("the system has no device that is always full")
    from pathlib import Path

    own = service.service.log
    path, lost = own.path, own.lost
    own.write_to(Path("/dev/full"))
    try:
        assert service.post("/v1/predict", good_body(random.Random(0))).status == 200
        wait_until(lambda: own.lost > lost)
    finally:
        own.write_to(path)
    assert b"raindrop_log_lines_lost_total" in service.get("/metrics").body


def test_malformed_bodies_get_their_codes_and_good_ones_their_answers(service):
    rng, seen = random.Random(1), set()
    for body in itertools.islice(malformed(0), 150):
        answer = service.post("/v1/predict", body)
        seen.add(answer.status)
        if answer.status != 200:
            assert CODES[answer.code] == answer.status, (body, answer.body)
    assert {400, 422} <= seen
    assert service.post("/v1/predict", good_body(rng)).status == 200
    assert service.service.pool.counts.restarts == 0


def test_a_worker_that_ended_by_itself_keeps_its_exit_code():
    class Ending:
        """A process that was killed a moment ago; a further kill before it is waited for would take its exit code."""

        stdin, returncode = None, None

        def __init__(self) -> None:
            self.stdout = asyncio.StreamReader()
            self.stdout.feed_eof()

        def kill(self) -> None:
            self.returncode = 255 if self.returncode is None else self.returncode

        async def wait(self) -> None:
            self.returncode = -signal.SIGKILL if self.returncode is None else self.returncode

    async def lose() -> int | None:
        worker = Worker(Ending(), [])
        with pytest.raises(WorkerDied):
            await worker._receive(Hello)
        await worker.kill()
        return worker.process.returncode

    assert asyncio.run(lose()) == -signal.SIGKILL

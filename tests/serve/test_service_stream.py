"""Live samples over HTTP: scores as of a table, and nothing lost when their worker dies."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from unittest.mock import Mock

import pytest
from asking import PATIENT, Asking, wait_until
from learnable import QUICK, easy_table
from served_models import columns_of, request_of

from raindrop import Classifier, load
from raindrop.serve.answers import Answers, Served
from raindrop.serve.limits import Limits
from raindrop.serve.live import LiveAnswers
from raindrop.serve.live_keeper import StreamOptions
from raindrop.serve.logs import Log
from raindrop.serve.messages import Columns, Job, Reply
from raindrop.serve.service import Service

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table():
    return easy_table(4, classes=("well", "ill"), statics=("age", "ward"), seed=3)


def parts(table, number: int = 2):
    """The readings of a table's first sample, in turns, the later ones first."""
    columns = columns_of(table[[0]])
    rows = list(zip(columns["time"], columns["sensor"], columns["value"], strict=True))[::-1]
    for at in range(number):
        time, sensor, value = zip(*rows[at::number], strict=True)
        yield {"time": list(time), "sensor": list(sensor), "value": list(value)}


def statics(table):
    return {name: table.samples[name][0] for name in ("age", "ward")}


def test_readings_that_came_in_parts_score_as_the_whole_sample(live_service, table):
    expected = live_service.post("/v1/predict", request_of(table[[0]])).json()["predictions"][0]
    first, second = parts(table)
    answer = live_service.post("/v1/stream/bed-1", {"readings": first, "statics": statics(table)})
    assert answer.status == 200, answer.body
    assert answer.json()["pushed"]["new"] == len(first["time"])
    content = live_service.post("/v1/stream/bed-1", {"readings": second}).json()
    assert content["readings"] == table.count[0]
    assert content["prediction"]["probability_ill"] == pytest.approx(expected["probability_ill"], rel=1e-5)
    assert live_service.get("/v1/stream/bed-1").json()["prediction"] == content["prediction"]


def test_a_corrected_reading_replaces_the_former_and_a_repeated_push_is_skipped(live_service):
    push = {"readings": {"time": [1.0], "sensor": ["pressure"], "value": [1.0]}, "source": "monitor", "offset": 1}
    live_service.post("/v1/stream/bed-2", push)
    corrected = push | {"readings": push["readings"] | {"value": [3.0]}}
    assert live_service.post("/v1/stream/bed-2", corrected).json()["pushed"]["skipped"] is True
    content = live_service.post("/v1/stream/bed-2", corrected | {"offset": 2}).json()
    assert content["pushed"]["corrected"] == 1
    assert content["readings"] == 1


def test_a_deleted_sample_is_gone(live_service):
    live_service.post("/v1/stream/bed-3", {"readings": {"time": [1.0], "sensor": ["pressure"], "value": [1.0]}})
    assert live_service.ask("DELETE", "/v1/stream/bed-3").status == 200
    for answer in (live_service.get("/v1/stream/bed-3"), live_service.ask("DELETE", "/v1/stream/bed-3")):
        assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "neither readings nor statics"),
        ({"readings": {"time": [1.0], "sensor": ["presure"], "value": [1.0]}}, 422, "presure"),
        ({"readings": {"time": [1.0], "sensor": ["pressure"], "value": [None]}}, 422, "value"),
        ({"readings": {"time": [], "sensor": [], "value": []}}, 422, "no readings"),
        (
            {"readings": {"time": [1.0], "sensor": ["pressure"], "value": [1.0]}, "source": "a"},
            400,
            "give 'offset'",
        ),
        ({"readings": {"time": [1.0], "sensor": ["pressure"], "value": [1.0]}, "offset": 0}, 400, "'offset'"),
    ],
)
def test_a_wrong_push_gets_a_sentence_and_stores_nothing(live_service, body, status, said):
    answer = live_service.post("/v1/stream/bed-4", body)
    assert answer.status == status, answer.body
    assert said in answer.message
    assert live_service.get("/v1/stream/bed-4").status == 404


def test_a_killed_worker_loses_no_push_and_counts_none_twice(runs, table, tmp_path):
    with Asking(Service([runs[0]], limits=PATIENT, log=Log(tmp_path / "log"))) as running:
        wait_until(lambda: running.get("/v1/stream/nobody").status == 404, 600)
        for at, part in enumerate(parts(table, 4)):
            running.post("/v1/stream/bed", {"readings": part, "statics": statics(table)})
            if at % 2:
                os.kill(running.service.live._worker.process.pid, signal.SIGKILL)
        content = running.get("/v1/stream/bed").json()
        expected = running.post("/v1/predict", request_of(table[[0]])).json()["predictions"][0]
    assert content["readings"] == table.count[0]
    assert content["prediction"]["probability_ill"] == pytest.approx(expected["probability_ill"], rel=1e-5)
    assert running.service.live.restarts == 2


def test_live_samples_outlive_the_service_and_go_on_with_another_model(runs, table, tmp_path):
    options = StreamOptions(state=tmp_path / "live")
    one, two = parts(table)
    run = shutil.copytree(runs[0], tmp_path / "ward-risk")
    with Asking(Service([run], limits=PATIENT, log=Log(tmp_path / "log"), stream=options)) as running:
        running.post("/v1/stream/bed", {"readings": one})
    other = Classifier(config=QUICK | {"train.epochs": 1}, positive="ill", seed=5)
    other.fit(easy_table(48, classes=("well", "ill"), statics=("age", "ward"))).save(tmp_path / "new")
    with Asking(Service([run], limits=PATIENT, log=Log(tmp_path / "log"), stream=options)) as running:
        assert running.get("/v1/stream/bed").json()["readings"] == len(one["time"])
        for name in ("model.safetensors", "model.json"):
            shutil.copy(tmp_path / "new" / name, run / name)
        assert running.reload().status == 200
        content = running.post("/v1/stream/bed", {"readings": two}).json()
        assert content["readings"] == table.count[0]
        assert content["run"] == other.identity_[:16]


def test_a_full_disk_is_told_and_nothing_is_stored(runs, tmp_path, monkeypatch):
    options = {"state": str(tmp_path / "live"), "sync": False, "max_samples": 3, "max_readings": 100,
               "lateness": None, "window": None}  # fmt: skip
    live = LiveAnswers(Answers([Served("ward-risk", load(runs[0]))], Limits(readings=4)), options)

    def push(offset: int, times: list[float]) -> Reply:
        columns = Columns(times, ["pressure"] * len(times), [1.0] * len(times))
        return live.of_batch([Job(offset, "stream", readings=columns, sample="a", action="push", edges=offset)])[0]

    assert push(1, [0.0, 1.0]).code == ""
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr("raindrop.serve.state_folder.StateFolder.append", Mock(side_effect=full))
        assert push(2, [2.0]).code == "no_space"
    assert push(3, [3.0]).code == ""
    (reply,) = live.of_batch([Job(4, "stream", sample="a", action="get")])
    assert json.loads(reply.body)["readings"] == 3
    assert push(5, [4.0, 5.0]).code == "too_large"
    live.close()

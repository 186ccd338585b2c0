"""What the service answers is what the library computes, in every format."""

from __future__ import annotations

import io
import json
import re
import threading

import numpy as np
import polars as pl
import pytest
from asking import logged, stopped, wait_until
from closeness import assert_close
from learnable import easy_table
from served_models import columns_of, request_of, statics_of

import raindrop as rd
from raindrop.explain.occlusion import sensor_contributions

pytestmark = pytest.mark.slow

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def table():
    return easy_table(6, classes=("well", "ill"), statics=("age", "ward"), seed=1)


@pytest.fixture(scope="module")
def classifier(runs):
    return rd.load(runs[0])


@pytest.fixture(scope="module")
def imputer(runs):
    return rd.load(runs[1])


def as_frame(rows) -> pl.DataFrame:
    return pl.DataFrame(rows)


def assert_same(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    assert found.columns == expected.columns
    for name in expected.columns:
        if expected[name].dtype.is_float():
            assert_close(np.array(found[name].cast(pl.Float32)), np.array(expected[name].cast(pl.Float32)))
        else:
            assert found[name].to_list() == expected[name].to_list()


def test_predictions_are_those_of_the_library(service, classifier, table):
    answer = service.post("/v1/predict", request_of(table, coverage=0.9))
    assert answer.status == 200
    content = answer.json()
    assert_same(as_frame(content["predictions"]), classifier.predict_table(table, coverage=0.9).frame())
    assert content["model"] == "ward-risk"
    assert content["run"] == classifier.identity_[:16]
    assert content["notes"] == []


def test_requests_that_are_scored_together_get_their_own_predictions(service, classifier, table):
    expected = classifier.predict_table(table).frame()
    (worker,) = service.service.pool.workers
    before = service.service.pool.counts.batches
    answers: dict[int, object] = {}

    def ask(at: int) -> None:
        answers[at] = service.post("/v1/predict", request_of(table[[at]]))

    with stopped(worker.process.pid):  # so that they wait, and are taken as one batch
        threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(table))]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(service.service.pool.queue) + service.service.pool.counts.working == len(table))
    for thread in threads:
        thread.join()
    rows = [answers[at].json()["predictions"][0] for at in range(len(table))]
    assert_same(as_frame(rows), expected)
    assert service.service.pool.counts.batches - before <= 3


def test_an_unknown_sensor_in_one_request_does_not_touch_the_others(service, classifier, table):
    wrong = request_of(table[[0]])
    wrong["readings"]["sensor"][0] = "hart rate"
    (worker,) = service.service.pool.workers
    answers = {}
    bodies = {"wrong": wrong, "right": request_of(table[[1]]), "other": request_of(table[[2]])}
    with stopped(worker.process.pid):
        threads = [
            threading.Thread(target=lambda n=name, b=body: answers.update({n: service.post("/v1/predict", b)}))
            for name, body in bodies.items()
        ]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(service.service.pool.queue) + service.service.pool.counts.working == 3)
    for thread in threads:
        thread.join()
    assert answers["wrong"].status == 422
    assert "'hart rate'" in answers["wrong"].message
    assert "not read in training" in answers["wrong"].message
    for name, at in (("right", 1), ("other", 2)):
        assert_same(as_frame(answers[name].json()["predictions"]), classifier.predict_table(table[[at]]).frame())


def test_arrow_in_and_out_is_the_same_as_json(service, classifier, table):
    body = io.BytesIO()
    table.events().with_columns(pl.col("sensor").cast(pl.String)).write_ipc_stream(body, compression="uncompressed")
    answer = service.ask("POST", "/v1/predict?coverage=0.9", body.getvalue(), {"Content-Type": ARROW, "Accept": ARROW})
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == ARROW
    bare = rd.EventTable.from_frames(table.events(), label="")
    with pytest.warns(rd.RaindropWarning, match="unknown for every sample"):
        expected = classifier.predict_table(bare, coverage=0.9).frame()
    assert_same(pl.read_ipc_stream(io.BytesIO(answer.body)), expected)


def test_what_moved_a_score_is_what_occlusion_says(service, classifier, table):
    content = service.post("/v1/predict", request_of(table[[0]], explain=True)).json()
    expected = sensor_contributions(classifier, table[[0]])
    assert content["effect"] == "log odds"
    assert [row["sensor"] for row in content["contributions"]] == expected["sensor"].to_list()
    found = np.array([row["contribution"] for row in content["contributions"]])
    np.testing.assert_allclose(found, expected["contribution"].to_numpy(), rtol=1e-3, atol=1e-5)


def test_gaps_are_filled_as_by_the_imputer(service, imputer, table):
    content = service.post("/v1/readings", {"readings": columns_of(table), "coverage": 0.8}).json()
    bare = rd.EventTable.from_frames(table.events(), label="")
    assert_same(as_frame(content["readings"]), imputer.fill_readings(bare, coverage=0.8).frame())


def test_readings_are_answered_at_asked_times(service, imputer, table):
    one = table[[0]]
    first = float(one.time[one.rows()][0])
    queries = {"sample": [one.ids[0]], "time": [first + 1.0], "sensor": ["pressure"]}
    content = service.post("/v1/readings", {"readings": columns_of(one), "task": "fill", "queries": queries}).json()
    bare = rd.EventTable.from_frames(one.events(), label="")
    assert_same(as_frame(content["readings"]), imputer.readings_at(bare, queries).frame())


def test_graphs_are_those_of_the_library(service, classifier, table):
    body = {"readings": columns_of(table[[0]]), "samples": statics_of(table[[0]]), "edges": 3}
    (found,) = service.post("/v1/graph", body).json()["graphs"]
    assert found["sample"] == table.ids[0]
    assert_same(as_frame(found["edges"]), classifier.graphs(table[[0]])[table.ids[0]].top(3))


def test_dates_are_read_as_times(service, classifier):
    readings = {
        "time": ["2026-01-01 08:00", "2026-01-01 09:30"],
        "sensor": ["pressure", "heart rate"],
        "value": [1.0, 2.0],
    }
    hours = {"time": [0.0, 1.5], "sensor": ["pressure", "heart rate"], "value": [1.0, 2.0]}
    by_date = service.post("/v1/predict", {"readings": readings}).json()["predictions"]
    by_hour = service.post("/v1/predict", {"readings": hours}).json()["predictions"]
    assert by_date[0]["probability_ill"] == pytest.approx(by_hour[0]["probability_ill"], rel=1e-5)


def test_a_static_that_is_not_given_is_noted(service, table):
    content = service.post("/v1/predict", {"readings": columns_of(table[[0]])}).json()
    assert len(content["notes"]) == 1
    assert "'age'" in content["notes"][0]


# ---------------------------------------------------------------- the V2 protocol


def tensors(table, **more):
    columns = columns_of(table)
    kinds = {"sample": "BYTES", "time": "FP64", "sensor": "BYTES", "value": "FP64"}
    inputs = [{"name": n, "shape": [len(columns[n])], "datatype": k, "data": columns[n]} for n, k in kinds.items()]
    statics = statics_of(table)
    inputs.append({"name": "age", "shape": [len(table)], "datatype": "FP64", "data": statics["age"]})
    inputs.append({"name": "ward", "shape": [len(table)], "datatype": "BYTES", "data": statics["ward"]})
    return {"inputs": inputs, **more}


def test_the_v2_protocol_gives_the_same_predictions_as_tensors(service, classifier, table):
    answer = service.post("/v2/models/ward-risk/infer", tensors(table, id="abc", parameters={"coverage": 0.9}))
    assert answer.status == 200, answer.body
    content = answer.json()
    assert (content["model_name"], content["id"]) == ("ward-risk", "abc")
    expected = classifier.predict_table(table, coverage=0.9).frame()
    assert all(tensor["shape"] == [len(table)] for tensor in content["outputs"])
    assert_same(pl.DataFrame({tensor["name"]: tensor["data"] for tensor in content["outputs"]}), expected)
    kinds = {tensor["name"]: tensor["datatype"] for tensor in content["outputs"]}
    assert (kinds["sample"], kinds["probability_ill"], kinds["abstain"]) == ("BYTES", "FP32", "BOOL")


def test_the_v2_protocol_fills_gaps_with_an_imputer_and_gives_only_asked_tensors(service, table):
    body = tensors(table, outputs=[{"name": "value"}])
    body["inputs"] = body["inputs"][:4]
    (tensor,) = service.post("/v2/models/gaps/infer", body).json()["outputs"]
    assert tensor["name"] == "value"
    assert tensor["shape"] == [len(tensor["data"])]


def test_the_v2_protocol_describes_models_and_health(service):
    assert service.get("/v2").json()["name"] == "raindrop"
    assert service.get("/v2/health/ready").status == 200
    about = service.get("/v2/models/ward-risk").json()
    assert [tensor["name"] for tensor in about["inputs"]] == ["sample", "time", "sensor", "value", "age", "ward"]
    assert service.get("/v2/models/ward-risk/ready").json() == {"name": "ward-risk", "ready": True}
    assert isinstance(service.get("/v2/models/other").json()["error"], str)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: body["inputs"].pop(0), "'sample' is missing"),
        (lambda body: body["inputs"][1].update(datatype="BYTES"), "of type BYTES"),
        (lambda body: body["inputs"][1].update(shape=[1]), "says the shape"),
        (lambda body: body["inputs"][1]["data"].__setitem__(0, "x"), "not a number"),
        (lambda body: body["inputs"][0]["data"].__setitem__(0, 5), "not text"),
        (lambda body: body["inputs"].append(body["inputs"][0]), "same name"),
        (lambda body: body.update(outputs=[{"name": "nothing"}]), "no output 'nothing'"),
        (lambda body: body.update(parameters={"coverage": "x"}), "'coverage' is a number"),
        (lambda body: body.update(inputs="x"), "not a request of the V2 protocol"),
    ],
)
def test_wrong_tensors_are_told_in_a_sentence(service, table, change, said):
    body = tensors(table[[0]])
    change(body)
    answer = service.post("/v2/models/ward-risk/infer", body)
    assert answer.status == 400
    assert said in answer.message


# ---------------------------------------------------------------- what it tells of itself


def test_every_example_of_the_description_works(live_service):
    service = live_service
    description = service.get("/openapi.json").json()
    tried = 0
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            examples = (
                operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})
            )
            for example in examples.values():
                place = path.replace("{name}", "ward-risk").replace("{sample}", "example")
                answer = service.ask(method.upper(), place, json.dumps(example["value"]).encode(),
                                     {"Content-Type": "application/json"})  # fmt: skip
                assert answer.status == 200, (path, answer.body)
                tried += 1
    assert tried >= 6
    expected = ["predict", "readings", "graph", "stream/{sample}", "model"]
    assert {f"/v1/{name}" for name in expected} | {"/metrics", "/health/live", "/health/ready"} <= set(
        description["paths"]
    )


def test_the_card_tells_what_is_served(service, classifier):
    content = service.get("/v1/model").json()
    cards = {card["kind"]: card for card in content["models"]}
    assert set(cards) == {"samples", "imputer"}
    card = cards["samples"]
    assert card["classes"] == ["well", "ill"]
    assert card["positive"] == "ill"
    assert card["sensors"] == list(classifier.scaler_.observed_sensors)
    assert card["trained_on"]["samples"] == 48
    assert content["limits"]["readings"] == 100_000


def test_metrics_count_requests_samples_and_readings(service, table):
    def value(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", service.get("/metrics").body.decode(), re.M)
        return float(found[1]) if found else 0.0

    name = 'raindrop_requests_total{route="/v1/predict",status="200"}'
    before, samples = value(name), value("raindrop_samples_total")
    service.post("/v1/predict", request_of(table))
    assert value(name) == before + 1
    assert value("raindrop_samples_total") == samples + len(table)
    assert value("raindrop_ready") == 1
    assert value("raindrop_worker_memory_bytes") > 1e6
    assert 'raindrop_model_info{kind="samples",name="ward-risk"' in service.get("/metrics").body.decode()


def test_the_log_has_no_values_ids_or_addresses(service, table):
    service.post("/v1/predict", request_of(table))
    service.get("/v1/stream/secret-sample")
    last = logged(service, lambda line: (line.get("method"), line.get("route")) == ("GET", "/v1/stream/{sample}"))
    assert set(last) <= {"time", "level", "event", "id", "method", "route", "status", "ms", "bytes_out", "code", "at"}
    text = service.service.log.path.read_text()
    assert not [word for word in (*table.ids, "secret-sample", "127.0.0.1", "heart rate") if word in text]


def test_the_process_that_answers_http_does_not_load_torch():
    import subprocess
    import sys

    script = "import sys, raindrop.serve.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == 0


# ---------------------------------------------------------------- what is wrong with a request

READINGS = {"time": [0.0, 1.0], "sensor": ["pressure", "pressure"], "value": [1.0, 2.0]}


def changed(**columns):
    return {"readings": READINGS | columns}


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "said"),
    [
        ("/v1/predict", b"", 400, "bad_request", "not what this address takes"),
        ("/v1/predict", b"\xff\xfe\x00", 400, "bad_request", "not what this address takes"),
        ("/v1/predict", b"[" * 100_000, 400, "bad_request", "not what this address takes"),
        ("/v1/predict", b'{"readings":' * 10_000, 400, "bad_request", "not what this address takes"),
        ("/v1/predict", b'{"readings": {"time": [NaN], "sensor": ["a"], "value": [1]}}', 400, "bad_request", "invalid"),
        ("/v1/predict", b'{"readings": {"time": [1e999], "sensor": ["a"], "value": [1]}}', 400, "bad_request", "range"),
        ("/v1/predict", {"readings": READINGS, "model": "/etc/passwd"}, 400, "bad_request", "unknown field `model`"),
        ("/v1/predict", changed(time=[0.0]), 400, "bad_request", "equally long"),
        ("/v1/predict", changed(time=[], sensor=[], value=[]), 422, "unusable_data", "no readings"),
        ("/v1/predict", changed(value=[1.0, None]), 422, "unusable_data", "have no value"),
        ("/v1/predict", changed(value=[1.0, 1e39]), 422, "unusable_data", "infinite value"),
        ("/v1/predict", changed(value=[1.0, "high"]), 422, "unusable_data", "value"),
        ("/v1/predict", changed(time=[0.0, "soon"]), 422, "unusable_data", "time"),
        ("/v1/predict", changed(time=[0.0, 0.0]), 422, "unusable_data", "repeat"),
        ("/v1/predict", changed(sensor=["pressure", "presure"]), 422, "unusable_data", "'presure'"),
        ("/v1/predict", changed(sensor=["pressure", "a\u0000b"]), 422, "unusable_data", "control characters"),
        ("/v1/predict", {"readings": READINGS, "coverage": 1.5}, 400, "bad_request", "coverage"),
        ("/v1/predict", {"readings": READINGS, "samples": {"age": [1]}}, 422, "unusable_data", "sample"),
        ("/v1/predict", {"readings": READINGS, "samples": {"sample": ["sample"], "age": ["old"]}}, 422,
         "unusable_data", "was a number in training"),
        ("/v1/readings", {"readings": READINGS, "task": "forecast"}, 409, "not_served", "No forecaster is served"),
        ("/v1/readings", {"readings": READINGS, "task": "guess"}, 400, "bad_request", "guess"),
        ("/v1/readings", changed(time=[0.0, 1e30]), 413, "too_large", "would be asked for"),
        ("/v1/readings", {"readings": READINGS, "every": 1e-9}, 413, "too_large", "would be asked for"),
        ("/v1/readings", {"readings": READINGS, "every": -1}, 422, "unusable_data", "every"),
        ("/v1/readings", {"readings": READINGS, "queries": {"time": [9.0], "sensor": ["pressure"]}}, 422,
         "unusable_data", "lie after the last reading"),
        ("/v1/graph", {"readings": READINGS, "edges": 0}, 400, "bad_request", "'edges'"),
        ("/v2/models/nothing/infer", {"inputs": []}, 404, "not_found", "no model of this name"),
    ],
)  # fmt: skip
def test_a_wrong_request_gets_a_code_and_a_sentence(service, path, body, status, code, said):
    answer = service.post(path, body)
    assert (answer.status, answer.code) == (status, code), answer.body
    assert said in answer.message
    assert "Traceback" not in answer.message
    assert '.py"' not in answer.message


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("GET", "/nothing", 404, "not_found"), ("GET", "/v1/predict", 405, "method_not_allowed"),
     ("POST", "/", 405, "method_not_allowed"), ("GET", "/page/../service.py", 404, "not_found"),
     ("GET", "/page/%2e%2e%2fservice.py", 404, "not_found"), ("GET", "/docs", 404, "not_found")],
)  # fmt: skip
def test_other_addresses_and_methods_are_refused(service, method, path, status, code):
    answer = service.ask(method, path)
    assert (answer.status, answer.code) == (status, code)


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "multipart/form-data", ""])
def test_other_types_of_bodies_are_refused(service, kind):
    answer = service.post("/v1/predict", changed(), **{"Content-Type": kind})
    assert (answer.status, answer.code) == (415, "unsupported_format")


def test_compressed_bodies_are_refused(service):
    answer = service.post("/v1/predict", changed(), **{"Content-Encoding": "gzip"})
    assert (answer.status, answer.code) == (415, "unsupported_format")
    body = io.BytesIO()
    pl.DataFrame({"time": [0.0] * 1000, "sensor": ["pressure"] * 1000, "value": [1.0] * 1000}).write_ipc_stream(
        body, compression="zstd"
    )
    answer = service.ask("POST", "/v1/predict", body.getvalue(), {"Content-Type": ARROW})
    assert (answer.status, answer.code) == (415, "unsupported_format")


def test_damaged_arrow_streams_are_refused_and_the_service_goes_on(service):
    body = io.BytesIO()
    pl.DataFrame({"time": [0.0, 1.0], "sensor": ["pressure"] * 2, "value": [1.0, 2.0]}).write_ipc_stream(body)
    whole = bytearray(body.getvalue())
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(60):
        damaged = whole.copy()
        for place in rng.integers(0, len(damaged), 4):
            damaged[place] = rng.integers(256)
        answer = service.ask(
            "POST", "/v1/predict", bytes(damaged[: rng.integers(8, len(damaged) + 1)]), {"Content-Type": ARROW}
        )
        seen.add(answer.status)
        assert answer.status in (200, 400, 413, 415, 422, 500), answer.body
    assert 400 in seen
    assert service.post("/v1/predict", changed()).status == 200

"""Limits, tokens and clients that misbehave, at a service with small limits and tokens."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from asking import Asking, logged, stopped, wait_until

from raindrop.serve.limits import Limits
from raindrop.serve.logs import Log
from raindrop.serve.service import Service
from raindrop.serve.tokens import Tokens, add_token

pytestmark = pytest.mark.slow

LIMITS = Limits(
    body_bytes=20_000,
    readings=100,
    samples=3,
    sensors=4,
    explained=1,
    seconds=20.0,
    body_seconds=1.0,
    header_seconds=1.0,
    connections=40,
    waiting=2,
)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    file = tmp_path_factory.mktemp("tokens") / "tokens.json"
    made = {name: add_token(file, name, [name]) for name in ("predict", "stream", "model", "metrics", "admin")}
    return file, made


@pytest.fixture(scope="module")
def small(runs, secrets, tmp_path_factory):
    log = Log(tmp_path_factory.mktemp("small") / "log.jsonl")
    with Asking(Service([runs[0]], limits=LIMITS, tokens=Tokens.read(secrets[0]), log=log)) as running:
        yield running


@pytest.fixture
def bearer(secrets):
    return lambda name: {"Authorization": f"Bearer {secrets[1][name]}"}


def readings(number: int = 2, samples: int = 1, sensors: int = 1):
    names = ("pressure", "heart rate", "temperature", "a", "b", "c")
    return {
        "readings": {
            "sample": [str(at % samples) for at in range(number)],
            "time": [float(at) for at in range(number)],
            "sensor": [names[at % sensors] for at in range(number)],
            "value": [1.0] * number,
        }
    }


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    "given",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", "Basic cmQ6cmQ=", "bearer rd_" + "a" * 43, "Bearer " + "x" * 9000],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/predict"), ("POST", "/v1/stream/a"), ("GET", "/v1/model"), ("GET", "/metrics"), ("GET", "/nothing"),
     ("POST", "/v1/model/reload"), ("POST", "/v2/models/ward-risk/infer"), ("PUT", "/v1/predict")],
)  # fmt: skip
def test_a_wrong_or_missing_token_is_always_401(small, method, path, given):
    answer = small.ask(method, path, b"{}", {} if given is None else {"Authorization": given})
    assert (answer.status, answer.code) == (401, "unauthorised")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_token_opens_what_its_scope_says_and_nothing_else(small, bearer):
    assert small.post("/v1/predict", readings(), **bearer("predict")).status == 200
    assert small.get("/v1/model", **bearer("model")).status == 200
    assert small.get("/metrics", **bearer("metrics")).status == 200
    for name, path in (("model", "/v1/predict"), ("predict", "/v1/model/reload"), ("predict", "/v1/stream/a")):
        answer = small.post(path, readings(), **bearer(name))
        assert (answer.status, answer.code) == (403, "forbidden")


def test_health_and_the_page_need_no_token(small):
    for path in ("/", "/page/page.css", "/health/live", "/health/ready", "/openapi.json"):
        assert small.get(path).status == 200


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("body", "said"),
    [(readings(101), "101 readings"), (readings(8, samples=4), "4 samples"),
     (readings(10, sensors=5), "different sensors"), (readings(2, samples=2) | {"explain": True}, "at most 1")],
)  # fmt: skip
def test_too_much_in_a_request_is_413(small, bearer, body, said):
    answer = small.post("/v1/predict", body, **bearer("predict"))
    assert (answer.status, answer.code) == (413, "too_large")
    assert said in answer.message


def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(small, bearer):
    head = f"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{line(bearer)}"
    answer = raw(small, (head + "Content-Length: 999999999999\r\n\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_say_its_size_is_cut_off_at_the_limit(small, bearer):
    head = f"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{line(bearer)}"
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    answer = raw(small, (head + "Transfer-Encoding: chunked\r\n\r\n").encode(), *([chunk] * 6))
    assert answer.startswith(b"HTTP/1.1 413")


def test_headers_that_are_too_large_are_refused(small):
    answer = raw(small, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))  # whether they came at once, or in pieces
    assert b"too large" in answer or b"larger than" in answer


def test_a_megabyte_of_garbage_is_refused_and_others_are_answered(small, bearer):
    import random

    garbage = random.Random(0).randbytes(1 << 20)
    answer = raw(small, garbage)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
    head = f"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{line(bearer)}"
    answer = raw(small, (head + f"Content-Length: {len(garbage)}\r\n\r\n").encode() + garbage)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
    assert small.post("/v1/predict", readings(), **bearer("predict")).status == 200


# ---------------------------------------------------------------- slow clients and crowds


def test_a_client_that_never_ends_its_headers_is_cut_off(small):
    with socket.create_connection(("127.0.0.1", small.port), timeout=30) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")
        started = time.monotonic()
        assert receive(slow) == b""
        assert time.monotonic() - started < 20


def test_a_client_that_never_ends_its_body_gets_408(small, bearer):
    with socket.create_connection(("127.0.0.1", small.port), timeout=30) as slow:
        head = f"POST /v1/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{line(bearer)}"
        slow.sendall((head + "Content-Length: 100\r\n\r\n{").encode())
        answer = receive(slow)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"slow_client" in answer


def test_more_connections_than_allowed_are_closed_and_the_rest_lives(small, bearer):
    held = [socket.create_connection(("127.0.0.1", small.port), timeout=30) for _ in range(LIMITS.connections + 20)]
    try:
        assert receive(held[-1]) == b""
    finally:
        for one in held:
            one.close()
    wait_until(lambda: len(small.server.server_state.connections) < 5)
    assert small.post("/v1/predict", readings(), **bearer("predict")).status == 200


def test_a_full_queue_is_429_with_a_time_to_retry_and_nothing_is_lost(small, bearer):
    pool = small.service.pool
    (worker,) = pool.workers
    answers = []

    def ask(body) -> None:
        answers.append(small.post("/v1/predict", body, **bearer("predict")))

    with stopped(worker.process.pid):
        threads = [threading.Thread(target=ask, args=(readings(),)) for _ in range(8)]
        for at, thread in enumerate(threads):
            thread.start()
            if not at:
                wait_until(lambda: pool.counts.working == 1)
        wait_until(lambda: len(answers) == 5)
        assert len(pool.queue) == LIMITS.waiting
    for thread in threads:
        thread.join()
    busy = [answer for answer in answers if answer.status == 429]
    assert sorted(answer.status for answer in answers) == [200] * 3 + [429] * 5
    assert all(answer.code == "busy" and int(answer.headers["retry-after"]) >= 1 for answer in busy)


def test_a_request_that_takes_too_long_is_504_and_its_worker_is_replaced(runs, tmp_path):
    limits = Limits(seconds=1.5)
    with Asking(Service([runs[0]], limits=limits, log=Log(tmp_path / "log"))) as quick:
        (worker,) = quick.service.pool.workers
        with stopped(worker.process.pid):
            answer = quick.post("/v1/predict", readings())
            assert (answer.status, answer.code) == (504, "too_slow")
            wait_until(lambda: quick.service.pool.counts.restarts == 1)
        wait_until(lambda: quick.service.pool.ready == 1, 600)
        quick.service.pool.limits = Limits()
        assert quick.post("/v1/predict", readings()).status in (200, 504)


# ---------------------------------------------------------------- browsers and headers


def test_a_website_that_pretends_to_be_this_machine_is_refused(service):
    for host in ("evil.example", f"evil.example:{service.port}", "127.0.0.1.evil.example", ""):
        answer = service.get("/v1/model", Host=host)
        assert (answer.status, answer.code) == (403, "forbidden")
    for host in (f"localhost:{service.port}", "127.0.0.1", f"[::1]:{service.port}"):
        assert service.get("/v1/model", Host=host).status == 200


def test_the_page_allows_no_outside_address_and_no_inline_code(small):
    answer = small.get("/")
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert set(re.findall(r"(?:https?:)?//[a-z][\w.]+", answer.body.decode())) == set()
    for header in ("x-content-type-options", "referrer-policy", "cross-origin-resource-policy"):
        assert header in answer.headers
    assert not re.search(rb"<script[^>]*>[^<]|\son\w+=|style=", answer.body)
    folder = Path(__file__).parents[2] / "src" / "raindrop" / "serve" / "page"
    for file in folder.iterdir():
        found = set(re.findall(r"https?://[^\"'\s]+", file.read_text()))
        assert found <= {"http://www.w3.org/2000/svg"}, file.name  # the name of SVG elements, never fetched


def line(bearer) -> str:
    return f"Authorization: {bearer('predict')['Authorization']}\r\n"


def raw(running: Asking, *parts: bytes) -> bytes:
    """What comes back for these bytes."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except OSError:
            pass
        return receive(connection)


def receive(connection: socket.socket) -> bytes:
    """One whole answer, or what there is of it where the connection ends."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while not complete(answer) and (part := connection.recv(65_536)):
            answer += part
    return answer


def complete(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    return bool(end) and length is not None and len(body) >= int(length[1])


def test_the_log_of_refused_requests_has_their_codes(small):
    small.post("/v1/predict", readings())
    assert logged(small, lambda line: line.get("code") == "unauthorised")["status"] == 401

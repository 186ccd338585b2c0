"""The command `raindrop serve` as a process of its own: it starts, answers, reloads, and stops gracefully."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from malformed import good_body

SRC = str(Path(__file__).parents[2] / "src")


class Process:
    """A running `raindrop serve`."""

    def __init__(self, *words: object):
        environment = os.environ | {"PYTHONPATH": SRC, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "raindrop", "serve", *map(str, words), "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.search(r"(https?)://127\.0\.0\.1:(\d+)/", said)
        assert found, said
        self.scheme, self.port = found[1], int(found[2])

    def ask(self, method: str, path: str, content: object = None) -> tuple[int, bytes]:
        if self.scheme == "https":
            trusting = ssl._create_unverified_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=120, context=trusting
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(120)
        self.last_words = self.process.stdout.read()
        self.process.stdout.close()
        return code


@pytest.mark.slow
def test_the_command_serves_reloads_and_stops_after_the_last_answer(runs, tmp_path):
    import random

    log = tmp_path / "log.jsonl"
    serving = Process(runs[0], runs[1], "--log", log)
    try:
        assert serving.ask("GET", "/health/ready") == (200, b'{"ready":true}')
        status, body = serving.ask("POST", "/v1/predict", good_body(random.Random(0)))
        assert status == 200
        serving.process.send_signal(signal.SIGHUP)
        events = set()
        while "models_swapped" not in events:
            assert serving.ask("POST", "/v1/predict", good_body(random.Random(0))) == (200, body)
            events = {json.loads(line)["event"] for line in log.read_text().splitlines()}
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(
                serving.ask("POST", "/v1/predict", {**good_body(random.Random(1)), "explain": True})
            )
        )
        asking.start()
        asking.join(0.05)
    finally:
        code = serving.stop()
    asking.join()
    assert code == 0
    assert [status for status, _ in answers] == [200]
    last = json.loads(log.read_text().splitlines()[-1])
    assert last["event"] == "stopped"
    assert "stopped" in serving.last_words


@pytest.mark.slow
def test_tls_by_files(runs, tmp_path):
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"], capture_output=True,
    ) if _has_openssl() else None  # fmt: skip
    if made is None or made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    serving = Process(runs[1], "--tls-certificate", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem")
    try:
        assert serving.scheme == "https"
        assert serving.ask("GET", "/health/live")[0] == 200
    finally:
        assert serving.stop() == 0


def _has_openssl() -> bool:
    import shutil

    return shutil.which("openssl") is not None

"""The service under load, and under attack, on this machine's loopback.

    python benchmarks/service.py load [--seconds 30] [--requests 100000] [--workers 1] [--minutes 9]
    python benchmarks/service.py malformed [--bodies 100000]
    python benchmarks/service.py tokens [--asks 2000]

`load` trains a model (preset "tuned", random events in the shape of P12), measures the plain library, starts `raindrop
serve` as a process of its own, and asks with 1, 8 and 64 clients; then it sends so many requests that a leak of memory
would show. The clients run on the same cores as the service, so both share what there is.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from shapes import SHAPES, random_events

from raindrop import Classifier, EventTable

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "serve")]


# ---------------------------------------------------------------- the service as a process


class Serving:
    """A running `raindrop serve`, and the memory of it and its workers."""

    def __init__(self, run: Path, *words: str):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "raindrop", "serve", str(run), "--port", "0", *words],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.search(r":(\d+)/", said)
        if found is None:
            raise SystemExit(f"the service did not start: {said}")
        self.port = int(found[1])

    def memory(self) -> dict[str, float]:
        """Resident MB of the process that answers HTTP, and of its workers together."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {"front": _resident(self.process.pid), "workers": sum(_resident(int(child)) for child in children)}

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


def _resident(process: int) -> float:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


# ---------------------------------------------------------------- clients


class Client:
    """One connection that is kept open; a request goes out when the answer to the last one is there."""

    def __init__(self, port: int):
        self.port = port

    async def open(self) -> Client:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.I)
        body = await self.reader.readexactly(int(length[1])) if length else b""
        status = int(head[9:12])
        if b"connection: close" in head.lower():
            await self.close()
            await self.open()
        return status, body

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


def as_request(body: bytes, path: str = "/v1/predict", **headers: str) -> bytes:
    """The bytes of a POST."""
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def mixed_requests(
    table: EventTable, number: int = 300, *, small: bool = False, seed: int = 0
) -> list[tuple[bytes, int]]:
    """Requests and their numbers of samples: of ten, six have 10 to 60 readings, three P12's size, one 4 samples."""
    rng, made = random.Random(seed), []
    columns = [part.events().to_dict(as_series=False) for part in (table[[at]] for at in range(100))]
    for _ in range(number):
        kind = 0 if small else rng.choice((0, 0, 0, 0, 0, 0, 1, 1, 1, 2))
        chosen = rng.sample(columns, 4 if kind == 2 else 1)
        most = rng.randint(10, 60) if kind == 0 else 10_000
        readings = {
            name: [entry for one in chosen for entry in list(one[name])[:most]]
            for name in ("sample", "time", "sensor", "value")
        }
        made.append((as_request(json.dumps({"readings": readings}).encode()), len(chosen)))
    return made


async def load(
    port: int, clients: int, requests: list[tuple[bytes, int]], until: Callable[[int], bool]
) -> dict[str, float]:
    """Ask with so many clients until `until` (given the number of requests so far) says so."""
    seconds: list[float] = []
    statuses: Counter[int] = Counter()
    samples = 0
    sent = 0

    async def work(seed: int) -> None:
        nonlocal samples, sent
        rng = random.Random(seed)
        client = await Client(port).open()
        while not until(sent):
            sent += 1
            request, number = rng.choice(requests)
            started = time.perf_counter()
            status, _ = await client.ask(request)
            seconds.append(time.perf_counter() - started)
            statuses[status] += 1
            samples += number
        await client.close()

    started = time.perf_counter()
    await asyncio.gather(*(work(seed) for seed in range(clients)))
    taken = time.perf_counter() - started
    ms = np.array(seconds) * 1000
    return {
        "requests": len(ms),
        "per second": len(ms) / taken,
        "samples per second": samples / taken,
        "p50 ms": float(np.percentile(ms, 50)),
        "p99 ms": float(np.percentile(ms, 99)),
        "errors": len(ms) - statuses[200],
    }


# ---------------------------------------------------------------- the three commands


def train(folder: Path) -> tuple[Path, EventTable]:
    """A classifier with the preset "tuned" of random events in P12's shape, and the events."""
    table = random_events(400, *SHAPES["P12"])
    classifier = Classifier(config={"train.epochs": 1, "train.soft_targets": 0.0}, threads=1).fit(table)
    classifier.save(folder / "p12-shaped")
    return folder / "p12-shaped", table


def library_rates(run: Path, table: EventTable) -> dict[str, float]:
    """Samples per second of `predict_table` with one thread: one by one, and 64 at a time."""
    from raindrop import load as load_run

    classifier, rates = load_run(run).set_params(threads=1), {}
    for size in (1, 64):
        pieces = [table[at : at + size] for at in range(0, 64 if size == 1 else 384, size)]
        classifier.predict_table(pieces[0])
        started = time.perf_counter()
        for piece in pieces:
            classifier.predict_table(piece)
        rates[f"{size} at a time"] = sum(map(len, pieces)) / (time.perf_counter() - started)
    return rates


def run_load(options: argparse.Namespace, folder: Path) -> None:
    end = time.monotonic() + 60 * options.minutes
    run, table = train(folder)
    print("machine load at the start:", _load(), flush=True)
    print("library, one thread, samples per second:", _rounded(library_rates(run, table)), flush=True)
    serving = Serving(run, "--workers", str(options.workers), "--log", str(folder / "log"))
    try:
        requests, small = mixed_requests(table), mixed_requests(table, small=True)
        asyncio.run(load(serving.port, 8, requests, lambda sent: sent >= 200))
        for clients in (1, 8, 64):
            stop = time.monotonic() + options.seconds
            found = asyncio.run(load(serving.port, clients, requests, lambda _: time.monotonic() > stop))  # noqa: B023
            print(f"{clients:3} clients, mixed sizes:", _rounded(found), "load", _load(), flush=True)
        warm = asyncio.run(load(serving.port, 64, small, lambda sent: sent >= 5_000))
        before = serving.memory()
        print("memory after 5,000 further requests, MB:", _rounded(before), _rounded(warm), flush=True)
        found = asyncio.run(
            load(serving.port, 64, small, lambda sent: sent >= options.requests or time.monotonic() > end)
        )
        after = serving.memory()
        growth = {name: f"{100 * (after[name] / before[name] - 1):+.1f} %" for name in before}
        print("64 clients, small requests:", _rounded(found), "load", _load())
        print("memory at the end, MB:", _rounded(after), growth, flush=True)
        print("library again:", _rounded(library_rates(run, table)), "load", _load())
    finally:
        serving.stop()


def run_malformed(options: argparse.Namespace, folder: Path) -> None:
    """Malformed bodies from four clients, while another one sends good ones; all answers are counted."""
    from malformed import good_body, malformed
    from served_models import train_runs

    run, _ = train_runs(folder)
    serving = Serving(run, "--log", str(folder / "log"))
    statuses: Counter[tuple[int, str]] = Counter()
    good: Counter[int] = Counter()
    left = options.bodies

    async def attack(bodies: Iterator[bytes]) -> None:
        nonlocal left
        client = await Client(serving.port).open()
        while left > 0:
            left -= 1
            status, body = await client.ask(as_request(next(bodies)))
            code = "" if status == 200 else json.loads(body)["error"]["code"]
            statuses[status, code] += 1
        await client.close()

    async def behave() -> None:
        client, rng = await Client(serving.port).open(), random.Random(7)
        while left > 0:
            status, _ = await client.ask(as_request(json.dumps(good_body(rng)).encode()))
            good[status] += 1
        await client.close()

    async def both() -> None:
        await asyncio.gather(behave(), *(attack(malformed(seed)) for seed in range(4)))

    started = time.perf_counter()
    try:
        before = serving.memory()
        asyncio.run(both())
        print(f"{options.bodies:,} bodies in {time.perf_counter() - started:.0f} s, load {_load()}")
        for (status, code), number in sorted(statuses.items()):
            print(f"  {status} {code or 'answered'}: {number:,}")
        print("good requests beside them:", dict(good))
        print(
            "process alive:", serving.process.poll() is None, "memory MB:", _rounded(before), _rounded(serving.memory())
        )
        restarts = sum("worker_restarted" in line for line in (folder / "log").read_text().splitlines())
        print("worker restarts:", restarts)
    finally:
        serving.stop()


def run_tokens(options: argparse.Namespace, folder: Path) -> None:
    """How long a refusal takes, by what is wrong with the token; asked in turns, so that all see the same machine."""
    from served_models import train_runs

    from raindrop.serve.tokens import Tokens, add_token

    file = folder / "tokens.json"
    secret = add_token(file, "first", ["model"])
    for at in range(9):
        add_token(file, f"other {at}", ["model"])
    given = {
        "no token": None,
        "wrong from its first letter": "xx_" + secret[3:],
        "wrong in its last letter": secret[:-1] + ("a" if secret[-1] != "a" else "b"),
        "of another length": secret[:10],
        "right, but without the scope": secret,
    }
    tokens = Tokens.read(file)
    alone: dict[str, list[float]] = {name: [] for name in given}
    for _ in range(20 * options.asks):
        for name, token in given.items():
            started = time.perf_counter_ns()
            tokens.scopes(None if token is None else token.encode())
            alone[name].append((time.perf_counter_ns() - started) / 1000)
    run, _ = train_runs(folder)
    serving = Serving(run, "--tokens", str(file), "--log", str(folder / "log"))
    taken: dict[str, list[float]] = {name: [] for name in given}
    seen: dict[str, set[int]] = {name: set() for name in given}

    async def ask() -> None:
        client = await Client(serving.port).open()
        for _ in range(options.asks):
            for name, token in given.items():
                headers = {} if token is None else {"Authorization": f"Bearer {token}"}
                request = as_request(b"{}", **headers)
                started = time.perf_counter_ns()
                status, _ = await client.ask(request)
                taken[name].append((time.perf_counter_ns() - started) / 1000)
                seen[name].add(status)
        await client.close()

    try:
        asyncio.run(ask())
        print(f"{options.asks:,} requests each, 10 tokens, load {_load()}; microseconds, median and 99th percentile")
        for name in given:
            check, request = alone[name], taken[name]
            print(f"  {name:30} {sorted(seen[name])} comparing {_two(check)}, request {_two(request)}")
    finally:
        serving.stop()


def _two(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} / {np.percentile(values, 99):.1f}"


def _load() -> str:
    return f"{os.getloadavg()[0]:.2f}"


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 1) for name, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("load", "malformed", "tokens"))
    parser.add_argument("--seconds", type=float, default=30.0, help="of each number of clients")
    parser.add_argument("--requests", type=int, default=100_000, help="over which memory is watched")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no further requests are sent")
    parser.add_argument("--bodies", type=int, default=100_000)
    parser.add_argument("--asks", type=int, default=2_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        {"load": run_load, "malformed": run_malformed, "tokens": run_tokens}[options.what](options, Path(folder))


if __name__ == "__main__":
    main()

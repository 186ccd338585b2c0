"""The long run: `python tests/fuzz/run.py --minutes 60` tries hostile inputs and prints a table of what came of them.

The inputs are tried in a process of its own, which is replaced when it dies, hangs (30 s) or takes more than 4 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
COLUMNS = ("right", "refused", "traceback", "hang", "memory", "died", "wrong")
SECONDS, KIBIBYTES = 30, 4 << 20


def work() -> None:
    """The process that tries: reads (entry, seed) lines and answers with what came of each."""
    sys.path[:0] = [str(TESTS), str(TESTS / "fuzz")]
    from entries import Home, attempt

    warnings.simplefilter("ignore")
    answers = sys.stdout
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        for line in sys.stdin:
            name, seed = json.loads(line)
            outcome, why = attempt(name, seed, home)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            answers.write(json.dumps([outcome, why[:300], most]) + "\n")
            answers.flush()


class Worker:
    """A process that runs `work`."""

    def __init__(self) -> None:
        asked = [sys.executable, __file__, "--work"]
        self.process = subprocess.Popen(
            asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def ask(self, name: str, seed: int, seconds: float) -> tuple[str, str, int]:
        """What came of an input."""
        assert self.process.stdin is not None
        before = self.seconds()
        try:
            self.process.stdin.write(json.dumps([name, seed]) + "\n")
            self.process.stdin.flush()
            line = self._answer(before, seconds)
        except queue.Empty:
            return "hang", f"more than {SECONDS} s", 0
        except BrokenPipeError:
            line = ""
        if not line:
            return "died", f"exit code {self.process.wait()}", 0
        outcome, why, most = json.loads(line)
        return ("memory", f"{most >> 10:,} MiB", most) if most > KIBIBYTES else (outcome, why, most)

    def _answer(self, before: float, seconds: float) -> str:
        """The next line. On a busy machine only the seconds count in which the process worked, or waited."""
        while True:
            try:
                return self.lines.get(timeout=seconds)
            except queue.Empty:
                if self.seconds() - before >= seconds or not self._wants_to_run():
                    raise

    def _wants_to_run(self) -> bool:
        """Whether a thread of the process runs or waits for a core or a disk, not for something that never comes."""
        for _ in range(10):
            try:
                tasks = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
                if any(task.read_text().rpartition(")")[2].split()[0] in "RD" for task in tasks):
                    return True
            except OSError:
                return False
            time.sleep(0.1)
        return False

    def seconds(self) -> float:
        """Seconds of a core that the process has taken; 0 where the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def fuzz(minutes: float, first: int, inputs: int | None) -> int:
    """Try inputs for so long, or so many; print the table; returns how many were not answered well."""
    sys.path[:0] = [str(TESTS), str(TESTS / "fuzz")]
    from entries import ENTRIES, SHARES

    counts: dict[str, Counter[str]] = {name: Counter() for name in ENTRIES}
    worker, until, bad, seed, done, most = Worker(), time.monotonic() + 60 * minutes, [], first, 0, 0
    started = True
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # Ctrl-C and SIGTERM end the run with its table
        while time.monotonic() < until and (inputs is None or done < inputs):
            for name in ENTRIES:
                share = SHARES.get(name, 1.0)
                if share < 1 and seed % round(1 / share):
                    continue
                outcome, why, memory = worker.ask(name, seed, SECONDS + 600 * started)  # a new one has to import first
                started, most, done = False, max(most, memory), done + 1
                counts[name][outcome] += 1
                if outcome not in ("right", "refused"):
                    bad.append((name, seed, outcome, why))
                    sys.stderr.write(f"{outcome}: {name}, seed {seed}: {why}\n")
                if outcome in ("hang", "memory", "died"):
                    worker.end()
                    worker, started = Worker(), True
            seed += 1
    worker.end()
    _print(counts, bad, done, most)
    return len(bad)


def _print(counts: dict[str, Counter[str]], bad: list[tuple[Any, ...]], done: int, most: int) -> None:
    show = sys.stdout.write
    show(f"| entry point | tried | {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * (len(COLUMNS) + 1)}\n")
    total: Counter[str] = sum(counts.values(), Counter())
    for name, counted in [*counts.items(), ("all", total)]:
        show(f"| {name} | {counted.total():,} | {' | '.join(f'{counted[column]:,}' for column in COLUMNS)} |\n")
    show(f"\n{done:,} inputs; the process took at most {most >> 10:,} MiB\n")
    for name, seed, outcome, why in bad[:200]:
        show(f"{outcome}: {name}, seed {seed}: {why}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--inputs", type=int, help="stop after this many")
    parser.add_argument("--work", action="store_true", help="be the process that tries")
    chosen = parser.parse_args()
    if chosen.work:
        work()
    else:
        sys.exit(1 if fuzz(chosen.minutes, chosen.first, chosen.inputs) else 0)

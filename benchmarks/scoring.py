"""One process, a pool and Ray on the same parts: samples per second, what starting costs, rows compared bit for bit.

    python benchmarks/scoring.py [--samples 6000] [--processes 2] [--engines one pool pool-killed ray ray-killed]

A random table in the shape of P12 and the preset `tuned`, trained for one step: weights do not matter for speed. Each
engine scores the whole table. `-killed` ends one of its workers with SIGKILL once a quarter of the parts is done.
"first part" is the time until a part is there: starting workers, loading the model, and scoring one part. CPU seconds
are those of the process and of its children that have ended, which Ray's actors are not; other work on the machine
changes wall times only.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import polars as pl
from shapes import SHAPES, random_events

import raindrop as rd
from raindrop.scale.parts import cut_table

STEPS = {"train.epochs": 1, "train.min_steps": 1, "train.batch_size": 64, "train.soft_targets": 0.0}
RAY_WORKER = b"ray::MapWorker"


def scoring_workers() -> list[int]:
    """The processes that score: children that this script has spawned, or Ray's actors."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        spawned = int(status[1]) == os.getpid() and b"spawn_main" in command
        if spawned or command.startswith(RAY_WORKER):
            found.append(int(folder.name))
    return found


class Watch(threading.Thread):
    """Notes when the first part is there, and ends a worker with SIGKILL once `kill_after` of them are, if above 0."""

    def __init__(self, folder: Path, kill_after: int):
        super().__init__(daemon=True)
        self.folder, self.kill_after, self.killed = folder, kill_after, 0
        self.started, self.first = time.perf_counter(), 0.0

    def run(self) -> None:
        while not self.first or (self.kill_after and not self.killed):
            done = len(list(self.folder.glob("part-*.parquet")))
            if done and not self.first:
                self.first = time.perf_counter() - self.started
            workers = scoring_workers() if 0 < self.kill_after <= done else []
            if workers:
                os.kill(workers[0], signal.SIGKILL)
                self.killed = workers[0]
            time.sleep(0.02)


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=6000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--engines", nargs="+", default=["one", "pool", "pool-killed", "ray", "ray-killed"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = random_events(options.samples, *SHAPES["P12"])
        data = table.write(folder / "data")
        rd.Classifier(config=STEPS).fit(table[:64], run=folder / "run")
        num_parts = len(cut_table(table))
        print(f"{table}, {num_parts} parts, {options.processes} processes")
        print("engine        wall s   samples/s   first part s   CPU s   rows equal   killed")
        expected: pl.DataFrame | None = None
        for engine in options.engines:
            out = folder / f"{engine}.parquet"
            watch = Watch(folder / f".{out.name}.parts", -(-num_parts // 4) if engine.endswith("-killed") else 0)
            used = cpu_seconds()
            watch.start()
            found = rd.scale.predict(
                folder / "run",
                data,
                out=out,
                engine="ray" if engine.startswith("ray") else "local",
                processes=1 if engine == "one" else options.processes,
            )
            wall = time.perf_counter() - watch.started
            expected = found if expected is None else expected
            same = "yes" if found.equals(expected) and pl.read_parquet(out).equals(expected) else "NO"
            killed = f"process {watch.killed}" if watch.killed else "-"
            print(
                f"{engine:12} {wall:7.1f} {len(table) / wall:11.1f} {watch.first:14.1f} {cpu_seconds() - used:7.1f}"
                f" {same:>12}   {killed}",
                flush=True,
            )
    sys.stdout.flush()


if __name__ == "__main__":
    main()

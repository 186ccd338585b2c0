"""Training and scoring with 1 thread, with 2, and with more threads than cores: samples per second, and their ratio.

    python benchmarks/threads.py [--samples 512] [--rounds 3]

Each number of threads runs in a process of its own; rounds alternate, so that all see the same machine. `library` is
what an estimator chooses by itself when OMP_NUM_THREADS is not set.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from shapes import SHAPES

WORK = """
import sys, time
import numpy as np, torch
sys.path.insert(0, {folder!r})
from shapes import SHAPES, random_events
from raindrop import Classifier
threads = {threads}
table = random_events({samples}, *SHAPES[{shape!r}])
config = {{"train.epochs": 1, "train.soft_targets": 0.0, "train.holdout": 0.0}}
clf = Classifier(config=config, threads=threads)
started = time.perf_counter(); clf.fit(table); fitted = time.perf_counter(); clf.predict_proba(table)
print(len(table) / (fitted - started), len(table) / (time.perf_counter() - fitted))
"""


def rates(shape: str, samples: int, threads: int | None) -> tuple[float, float]:
    """Samples per second of training and of scoring."""
    code = WORK.format(folder=os.path.dirname(__file__), shape=shape, samples=samples, threads=threads)
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    train, score = map(float, done.stdout.split())
    return train, score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    numbers: list[int | None] = [1, cores, 4 * cores, None]
    for shape in SHAPES:
        found: dict[int | None, list[tuple[float, float]]] = {number: [] for number in numbers}
        for _ in range(arguments.rounds):
            for number in numbers:
                found[number].append(rates(shape, arguments.samples, number))
        for number in numbers:
            train, score = (statistics.median(pair[at] for pair in found[number]) for at in (0, 1))
            one = [statistics.median(pair[at] for pair in found[1]) for at in (0, 1)]
            name = "library" if number is None else f"{number} threads"
            print(f"{shape}, {name}: train {train:.0f}/s ({train / one[0]:.2f}), ", end="")
            print(f"score {score:.0f}/s ({score / one[1]:.2f})")


if __name__ == "__main__":
    main()

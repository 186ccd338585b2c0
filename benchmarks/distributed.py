"""Training with 1, 2 and 4 processes and the same batches: steps per second, speed-up, and how far the weights differ.

    python benchmarks/distributed.py [--samples 1024] [--epochs 2] [--rounds 2]

Random events in the shape of P12. Every run trains the same steps from the same first weights, without anything random
in a step (dropout, readings left out) and without extra losses, so that weights differ by the order of sums alone. Runs
alternate, so that all see the same machine. The time is that of the steps, without start and validation. "Adding" is
the share of it that the first process spends in adding up gradients, which includes waiting for the others. The CPU
time of a step says what the speed-up would be where every process has a core for itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from shapes import SHAPES, random_events

WORKER = """
import json, os, sys, time
from raindrop import Classifier, EventTable
from raindrop.training import distributed, loop

spent = {"adding": 0.0, "steps": 0, "seconds": 0.0, "cpu": 0.0}
add, step = distributed.add_gradients, loop._step

def timed_add(*given):
    started = time.perf_counter()
    try:
        return add(*given)
    finally:
        spent["adding"] += time.perf_counter() - started

def counted_step(*given):
    started, used = time.perf_counter(), time.process_time()
    try:
        return step(*given)
    finally:
        spent["steps"] += 1
        spent["seconds"] += time.perf_counter() - started
        spent["cpu"] += time.process_time() - used

distributed.add_gradients, loop._step = timed_add, counted_step
data, out, epochs = sys.argv[1:]
config = {"train.epochs": int(epochs), "train.batch_size": 128, "train.soft_targets": 0.0, "train.holdout": 0.0,
          "train.drop_readings": 0.0, "train.drop_sensors": 0.0, "train.half_precision": False,
          "train.sampling": "natural", "model.slots.dropout": 0.0, "model.head.dropout": 0.0,
          "model.graph.reconstruction": 0.0, "model.slots.reconstruction": 0.0}
model = Classifier(config=config, threads=1).fit(EventTable.read(data))
if distributed.rank() == 0:
    model.save(out)
    with open(out + ".json", "w") as file:
        json.dump(spent, file)
distributed.leave()
"""


def train(data: Path, out: Path, processes: int, epochs: int) -> dict[str, float]:
    """Train with so many processes; seconds of all steps, their number, and the seconds of adding up gradients."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    script = out.with_suffix(".py")
    script.write_text(WORKER)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words = [sys.executable, *(torchrun if processes > 1 else []), str(script), str(data), str(out), str(epochs)]
    subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL)
    return dict(json.loads(out.with_name(out.name + ".json").read_text()))


def largest_difference(one: Path, other: Path) -> tuple[float, float]:
    """Of any weight, and of any weight relative to the size of its tensor."""
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    pairs = [(first[name], second[name]) for name in first if first[name].dtype.kind == "f" and first[name].size]
    absolute = [float(np.abs(a - b).max()) for a, b in pairs]
    relative = [gap / max(float(np.abs(a).max()), 1e-12) for gap, (a, _) in zip(absolute, pairs, strict=True)]
    return max(absolute), max(relative)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = random_events(given.samples, *SHAPES["P12"]).write(Path(folder) / "data")
        seconds: dict[int, list[float]] = {number: [] for number in given.processes}
        adding: dict[int, list[float]] = {number: [] for number in given.processes}
        cpu: dict[int, list[float]] = {number: [] for number in given.processes}
        steps = 0.0
        for at in range(given.rounds):
            for number in given.processes:
                spent = train(data, Path(folder) / f"{number}-{at}", number, given.epochs)
                seconds[number].append(spent["seconds"])
                adding[number].append(spent["adding"] / spent["seconds"])
                cpu[number].append(spent["cpu"])
                steps = spent["steps"]
        base = statistics.median(seconds[given.processes[0]])
        print(f"{given.samples:,} samples, {steps:.0f} steps of 128 samples, {os.cpu_count()} cores")
        for number in given.processes:
            middle = statistics.median(seconds[number])
            absolute, relative = largest_difference(
                Path(folder) / f"{given.processes[0]}-0", Path(folder) / f"{number}-{given.rounds - 1}"
            )
            alone, used = (statistics.median(cpu[each]) / steps for each in (given.processes[0], number))
            print(
                f"{number} processes: {steps / middle:.2f} steps/s (speed-up {base / middle:.2f}), CPU time per step "
                f"and process {1000 * used:.0f} ms ({alone / used:.2f} times less), adding up gradients "
                f"{statistics.median(adding[number]):.0%} of the time, largest difference of a weight {absolute:.1e} "
                f"({relative:.1e} of the largest of its tensor)"
            )


if __name__ == "__main__":
    main()

"""Samples per second of Raindrop, ours and PyPOTS's, in one run on the same random events; and how cost grows.

    python benchmarks/speed.py [--pypots PYTHON] [--samples 512] [--pypots-samples 128] [--rounds 3]

PYTHON is the interpreter of an environment with pypots 1.5, torch_geometric and torch_scatter. Rounds alternate
between the two, so that both see the same machine; ratios are of medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from shapes import SHAPES, random_events
from torch.nn import functional as F

from raindrop import EventTable
from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.config import make
from raindrop.models.base import DataSpec, Model
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.registry import MODELS
from raindrop.tasks.classification import Classification

VARIANTS = {
    "paper": {},
    "paper, senders embedded": {"graph.senders": "embedded"},
    "tuned": MODELS["raindrop"].presets["tuned"]["model"],
}


def build(table: EventTable, variant: str) -> tuple[Model, Collator]:
    torch.manual_seed(0)
    config = make(RaindropConfig, VARIANTS[variant])
    model = MODELS["raindrop"].model(config, DataSpec(table.sensors, Classification("label", np.arange(2))))
    return model, Collator(table, Scaler.fit(table), truth=table.labels)


def rates(table: EventTable, variant: str, batch: int = 128) -> tuple[float, float]:
    """Training and prediction, samples per second, batch making included."""
    model, data = build(table, variant)
    optimiser = torch.optim.Adam(model.parameters(), 1e-4)
    pieces = np.array_split(np.arange(len(table)), -(-len(table) // batch))

    def step(positions: np.ndarray) -> None:
        held = data.batch(positions)
        output = model(held)
        optimiser.zero_grad()
        (F.cross_entropy(output.scores, held.target) + output.penalty).backward()
        optimiser.step()

    step(pieces[0])
    started = time.perf_counter()
    for positions in pieces:
        step(positions)
    trained = time.perf_counter()
    with torch.inference_mode():
        for positions in pieces:
            model(data.batch(positions))
    predicted = time.perf_counter()
    return len(table) / (trained - started), len(table) / (predicted - trained)


def pypots_rates(python: str, table: EventTable, steps: int) -> tuple[float, float]:
    grid = Collator(table, Scaler.fit(table)).batch(np.arange(len(table))).grid()
    X = np.where(grid.observed.numpy(), grid.value.numpy(), np.nan)
    X = np.pad(X, ((0, 0), (0, steps - X.shape[1]), (0, 0)), constant_values=np.nan)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / "data.npz", X=X.astype(np.float32), y=np.asarray(table.labels))
        script = Path(__file__).with_name("pypots_raindrop.py")
        done = subprocess.run(
            [python, str(script), str(Path(folder) / "data.npz")], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise SystemExit(f"PyPOTS failed:\n{done.stderr[-2000:]}")
    trained, predicted = done.stdout.split()[-2:]
    return float(trained), float(predicted)


def compare(arguments: argparse.Namespace) -> None:
    for name, (sensors, times, most, readings) in SHAPES.items():
        table = random_events(arguments.samples, sensors, times, most, readings)
        few = table[: arguments.pypots_samples]
        found: dict[str, list[tuple[float, float]]] = {}
        for _ in range(arguments.rounds):
            for variant in VARIANTS:
                found.setdefault(variant, []).append(rates(table, variant))
            if arguments.pypots:
                found.setdefault("PyPOTS 1.5", []).append(pypots_rates(arguments.pypots, few, most))
        middle = {who: [statistics.median(column) for column in zip(*runs, strict=True)] for who, runs in found.items()}
        print(f"\n{name} shape: {table.num_readings / len(table):.0f} readings a sample")
        print(f"{'':28}{'train/s':>10}{'predict/s':>11}{'train x':>9}{'predict x':>10}")
        for who, (trained, predicted) in middle.items():
            ratio = ""
            if arguments.pypots and who != "PyPOTS 1.5":
                pypots = middle["PyPOTS 1.5"]
                ratio = f"{trained / pypots[0]:9.0f}{predicted / pypots[1]:10.0f}"
            print(f"{who:28}{trained:10.1f}{predicted:11.1f}{ratio}")


def growth() -> None:
    """Time and memory of one training step with twice the readings, and with one sample of 100,000 timestamps."""
    print("\none training step on 64 samples of 250, 500 and 1,000 timestamps (each in a process of its own)")
    for variant in VARIANTS:
        runs = [measure(variant, 64, times) for times in (250, 500, 1000)]
        for what, unit, column in (("time", "s", 0), ("memory above the start", "MB", 1)):
            held = [run[column] for run in runs]
            told = ", ".join(f"{x:.2f}" if unit == "s" else f"{x:.0f}" for x in held)
            print(f"{variant:28} {what} x{held[1] / held[0]:.2f}, x{held[2] / held[1]:.2f} ({told} {unit})")
    print("\none sample of 100,000 timestamps, 36 sensors, about 570,000 readings: one training step")
    for variant in VARIANTS:
        seconds, _, total = measure(variant, 1, 100_000)
        print(f"{variant:28} {seconds:.1f} s, peak {total:.0f} MB in all")


def measure(variant: str, samples: int, times: int) -> tuple[float, float, float]:
    """Seconds, megabytes above the start, and peak megabytes of one step in a fresh process."""
    command = [sys.executable, __file__, "--measure", variant, str(samples), str(times)]
    seconds, above, total = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-3:]
    return float(seconds), float(above), float(total)


def one_step(variant: str, samples: int, times: int) -> None:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(samples), times)
    observed = rng.random((len(owner), 36)) < 400 / (70 * 36)
    at, sensor = np.nonzero(observed)
    time_of = np.sort(rng.uniform(0, 48, (samples, times)), axis=1).ravel()
    count = np.bincount(owner[at], minlength=samples)
    shape = random_events(samples, 36, 2, 3, 10).samples
    table = EventTable(
        time_of[at], sensor.astype(np.int32), rng.standard_normal(len(at)).astype(np.float32),
        np.cumsum(count) - count, count, tuple(f"s{n}" for n in range(36)), shape,
    ).with_roles(label="label")  # fmt: skip
    model, data = build(table, variant)
    batch = data.batch(np.arange(samples))
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak starts again from here
    seconds = []
    for _ in range(3 if times < 10_000 else 1):
        started = time.perf_counter()
        output = model(batch)
        (F.cross_entropy(output.scores, batch.target) + output.penalty).backward()
        seconds.append(time.perf_counter() - started)
        model.zero_grad()
    peak = memory("VmHWM")
    print(min(seconds), peak - before, peak)


def memory(field: str) -> float:
    """Megabytes of this process: VmRSS now, VmHWM at its peak."""
    status = Path("/proc/self/status").read_text()
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith(field))) / 1024


if __name__ == "__main__":
    torch.set_num_threads(2)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pypots", help="python of an environment with pypots")
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--pypots-samples", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skip-growth", action="store_true")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        one_step(chosen.measure[0], int(chosen.measure[1]), int(chosen.measure[2]))
    else:
        compare(chosen)
        if not chosen.skip_growth:
            growth()

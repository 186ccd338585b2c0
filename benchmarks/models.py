"""Samples a second that each model trains on, at the shape of P12, and beside it PyPOTS's version of the same model.

    python benchmarks/models.py [MODEL ...] [--pypots PYTHON] [--samples 512] [--threads 1] [--preset paper]

Made-up readings: 36 sensors, about 70 timestamps a sample (up to 215) and about 400 readings. PYTHON is an interpreter
that has pypots 1.5 (or $RAINDROP_PYPOTS); it gets the same readings as a dense array and the same batch size, in the
same run. The figure is that of an epoch once all is set up: for PyPOTS the time of three epochs less that of one. For
trees it is the whole fit.

PyPOTS's SeFT pads every sample to 215 x 36 elements of which each attends to each, about 1 GB a sample and layer with
one head; so it gets a few samples, one at a time, and the smallest network: one layer, one head.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # PyPOTS's interpreter has no raindrop
    from raindrop import EventTable

SENSORS, LONGEST, BATCH = 36, 215, 128


@dataclass(frozen=True)
class PyPotsModel:
    """PyPOTS's class and its settings, equal to ours in size where that can be; and how much of the data it gets."""

    name: str
    settings: dict[str, Any]
    batch: int = BATCH
    samples: int | None = None


PYPOTS_MODELS = {
    "grud": PyPotsModel("GRUD", {"rnn_hidden_size": 49}),
    "seft": PyPotsModel("SeFT", {"n_layers": 1, "n_heads": 1, "d_model": 32, "d_ffn": 128}, batch=1, samples=4),
}


def ours(model: str, preset: str, table: EventTable) -> float:
    """Seconds per epoch, the faster of two; of a whole fit where there are no epochs."""
    from raindrop.estimators.classifier import Classifier
    from raindrop.models.base import DirectModel
    from raindrop.models.registry import MODELS

    direct = issubclass(MODELS[model].model, DirectModel)
    changes = {} if direct else {"train.epochs": 2, "train.batch_size": BATCH, "train.patience": 0}
    started = time.perf_counter()
    clf = Classifier(model, preset=preset, config={"train.holdout": 0.0, **changes}).fit(table)
    took = time.perf_counter() - started
    return took if direct else min(record["seconds"] for record in clf.history_)


def dense(table: EventTable) -> np.ndarray:
    """(sample, rank of the timestamp, sensor), NaN where nothing was read."""
    from raindrop.batch.collate import Collator
    from raindrop.batch.scaling import Scaler

    grid = Collator(table, Scaler.fit(table)).batch(np.arange(len(table))).grid()
    X = np.where(grid.observed, grid.value, np.nan).astype(np.float32)
    return np.pad(X, ((0, 0), (0, LONGEST - X.shape[1]), (0, 0)), constant_values=np.nan)


def run_pypots(baseline: PyPotsModel, path: Path, threads: int) -> None:
    """Runs in PyPOTS's interpreter; prints samples per second."""
    import pypots.classification
    import torch

    torch.set_num_threads(threads)
    held = np.load(path)
    took = {}
    for epochs in (1, 3):
        size = {"n_steps": LONGEST, "n_features": SENSORS, "n_classes": 2, "batch_size": baseline.batch}
        model = getattr(pypots.classification, baseline.name)(**size, epochs=epochs, verbose=False, **baseline.settings)
        started = time.perf_counter()
        model.fit({"X": held["X"], "y": held["y"]})
        took[epochs] = time.perf_counter() - started
    print(2 * len(held["y"]) / (took[3] - took[1]))


def pypots_rate(python: str, model: str, table: EventTable, threads: int) -> float:
    """Samples per second of PyPOTS's version of `model`."""
    table = table[: PYPOTS_MODELS[model].samples]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "readings.npz"
        np.savez(path, X=dense(table), y=np.asarray(table.labels))
        command = [python, __file__, "--in-pypots", model, str(path), "--threads", str(threads)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{python} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="all of the registry where none is named")
    parser.add_argument("--pypots", default=os.environ.get("RAINDROP_PYPOTS"), metavar="PYTHON")
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--in-pypots", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.in_pypots:
        model, path = asked.in_pypots
        run_pypots(PYPOTS_MODELS[model], Path(path), asked.threads)
        return
    import torch
    from shapes import SHAPES, random_events

    from raindrop.models.registry import MODELS

    torch.set_num_threads(asked.threads)
    table = random_events(asked.samples, *SHAPES["P12"])
    print(f"{table}, {asked.threads} thread(s), preset {asked.preset}: samples per second in training")
    for model in asked.models or list(MODELS):
        rate = asked.samples / ours(model, asked.preset, table)
        line = f"{model:<12} {rate:>8,.0f}"
        if asked.pypots and model in PYPOTS_MODELS:
            other = pypots_rate(asked.pypots, model, table, asked.threads)
            line += f"   PyPOTS {other:>8,.1f}   {rate / other:.1f} times as fast"
        print(line, flush=True)


if __name__ == "__main__":
    main()

"""The default preset of Raindrop on tables in which only messages between sensors, or only summaries, know the label.

    python benchmarks/default_preset.py                                    # all tables, presets tuned and graph
    python benchmarks/default_preset.py --tables machines --messages "same time"      # as in version 0.1
    python benchmarks/default_preset.py --tables demo --on test            # once, for the documentation

Tables, each drawn anew from its seed and split 80/10/10:

- demo: `delayed_samples`, the data of `raindrop demo`: own clocks, one follows another up to two hours later;
- planted: `planted_graph`: sensors of a pair are mostly read at the same time;
- shifted: the same, with the times of each sensor shifted by its number in seconds, so that no two readings share one;
- machines: 2,000 machines with 40 sensors on clocks of their own and three classes. "wear" (30 %) shifts the levels of
  six sensors and makes four noisier; in "leak" (6 %) three sensors stop following three others. Nothing else differs.

Messages cross time, or pass between readings of the identical time only, as in version 0.1.
AUROC (one class against the others, mean) and AUPRC on the validation samples, or on the test samples.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from raindrop import Classifier, EventTable
from raindrop.datasets.asynchronous import delayed_samples
from raindrop.datasets.synthetic import planted_graph

MESSAGES: dict[str, dict[str, Any]] = {"across time": {}, "same time": {"model.graph.senders": "observed"}}
CLASSES = ("normal", "wear", "leak")
SHARES = (0.64, 0.30, 0.06)
HOURS, INTERVAL = 24.0, 1.5  # of a machine's record, and between readings of a sensor


def shifted(seed: int) -> EventTable:
    """The planted table with the clock of every sensor a few seconds away from the others'."""
    table = planted_graph(2000, seed=seed).table
    number = {name: at for at, name in enumerate(table.sensors)}
    seconds = pl.col("sensor").cast(pl.String).replace_strict(number, return_dtype=pl.Float64)
    events = table.to_polars().with_columns(time=pl.col("time") + seconds / 3600)
    statics = list(table.roles.statics)
    return EventTable.from_frames(events, table.samples, label="label", statics=statics, sensors=table.sensors)


def machines(seed: int, number: int = 2000, sensors: int = 40) -> EventTable:
    """Machines whose sensors have clocks of their own; two faults, one to be seen in levels, one in pairs only."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(3, number, p=SHARES)
    place = rng.permutation(sensors)
    worn, noisy, pairs = place[:6], place[6:10], place[10:16].reshape(3, 2)
    follows = {int(v): int(u) for u, v in pairs}
    shift = np.zeros(sensors)
    shift[worn] = 0.4 * rng.choice([-1.0, 1.0], len(worn))
    noise = np.full((3, sensors), 0.3)
    noise[1, noisy] = 0.45
    waves, hidden = (_waves(rng, number, sensors) for _ in range(2))
    frames = []
    ids = pl.Series([f"machine {at:04d}" for at in range(number)])
    for v in range(sensors):
        count = rng.poisson(HOURS / INTERVAL, number)
        owner = np.repeat(np.arange(number), count)
        at = rng.uniform(0, HOURS, len(owner)).round(4)
        sender = follows.get(v)
        signal = _at(waves, owner, v, at)
        if sender is not None:
            followed = np.where(kind[owner] == 2, _at(hidden, owner, v, at - 1.0), _at(waves, owner, sender, at - 1.0))
            signal = (np.abs(followed + 0.3) - 0.834) / 0.628
        value = signal + (kind[owner] == 1) * shift[v] + noise[kind[owner], v] * rng.standard_normal(len(at))
        frames.append(pl.DataFrame({"sample": ids.gather(owner), "time": at, "sensor": f"s{v:02d}", "value": value}))
    samples = pl.DataFrame({"sample": ids, "state": [CLASSES[k] for k in kind]})
    return EventTable.from_frames(pl.concat(frames), samples, label="state", duplicates="last")


def _waves(rng: np.random.Generator, number: int, sensors: int) -> np.ndarray:
    """(machine, sensor, wave, 2) frequency and phase of four slow waves."""
    shape = (number, sensors, 4)
    return np.stack([2 * np.pi / rng.uniform(4.0, 16.0, shape), rng.uniform(0, 2 * np.pi, shape)], axis=-1)


def _at(waves: np.ndarray, owner: np.ndarray, sensor: int, time: np.ndarray) -> np.ndarray:
    """(readings,) the signal of a sensor, with variance 1."""
    frequency, phase = np.moveaxis(waves[owner, sensor], -1, 0)
    signal: np.ndarray = np.sin(frequency * time[:, None] + phase).sum(1) / np.sqrt(2)
    return signal


TABLES = {
    "demo": lambda seed: delayed_samples(1500, seed=seed).table,
    "planted": lambda seed: planted_graph(2000, seed=seed).table,
    "shifted": shifted,
    "machines": machines,
}


def run(name: str, preset: str, messages: str, seed: int, on: str) -> dict[str, Any]:
    """Fit one preset on one table."""
    table = TABLES[name](seed)
    train, validation, test = table.split(seed=seed)
    started = time.process_time()
    model = Classifier(preset=preset, seed=seed, config=MESSAGES[messages])
    model.fit(train, validation=validation)
    metrics = model.evaluate(test if on == "test" else validation)
    return {
        "table": name,
        "preset": preset,
        "messages": messages,
        "seed": seed,
        "on": on,
        **{metric: round(float(metrics[metric]), 4) for metric in ("auroc", "auprc")},
        "processor_seconds": round(time.process_time() - started, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--presets", nargs="+", default=["tuned", "graph"])
    parser.add_argument("--messages", nargs="+", choices=list(MESSAGES), default=["across time"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--on", choices=["validation", "test"], default="validation")
    parser.add_argument("--out", type=Path, default=Path("default_preset.jsonl"))
    options = parser.parse_args()
    for seed in options.seeds:
        for name in options.tables:
            for preset in options.presets:
                for messages in options.messages:
                    row = run(name, preset, messages, seed, options.on)
                    with options.out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(row, flush=True)


if __name__ == "__main__":
    main()

"""From your own frames to predictions: date times, a label, statics, groups, a cutoff."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl

import raindrop as rd

# Two hundred machines, each with a few sensors read at odd moments after it was switched on.
rng = np.random.default_rng(0)
machines = [f"machine {n}" for n in range(200)]
switched_on = [datetime(2026, 1, 1) + timedelta(hours=int(h)) for h in rng.integers(0, 500, 200)]
fails = rng.random(200) < 0.3
rows = [
    (machine, start + timedelta(hours=float(hour)), sensor, float(rng.normal(70 + 6 * hot * (sensor == "heat"), 5)))
    for machine, start, hot in zip(machines, switched_on, fails, strict=True)
    for sensor in ("heat", "load", "noise")
    for hour in rng.uniform(0, 48, rng.integers(2, 9))
]
events = pl.DataFrame(rows, schema=["machine", "when", "sensor", "value"], orient="row")
samples = pl.DataFrame(
    {
        "machine": machines,
        "reference": switched_on,
        "cutoff": [start + timedelta(hours=36) for start in switched_on],  # what comes later must not be known
        "failed": fails,
        "maker": rng.choice(["A", "B"], 200),
        "plant": rng.integers(0, 20, 200),
    }
)

table = rd.EventTable.from_frames(
    events, samples, sample="machine", time="when", label="failed", statics=["maker"], group="plant"
)
print(table, dict(table.dropped))
train, val, test = table.split(seed=1)  # machines of one plant stay together
clf = rd.Classifier(config={"train.epochs": 5}).fit(train, validation=val)
print(clf.predict_table(test).frame().head())

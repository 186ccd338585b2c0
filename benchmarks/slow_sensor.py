"""How well a slow sensor among fast ones is filled in, in one long series.

    python benchmarks/slow_sensor.py --models linear raindrop

Two sensors are read every quarter of an hour, one every 48 hours, for 300 days; 10 % of the readings are hidden. The
slow sensor follows a curve of its own, or with `--shared` that of the others. Printed are the mean absolute error of
each sensor and the share of hidden readings in their 90 % intervals.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import polars as pl

import raindrop as rd

EVERY = {"fast": 0.25, "other": 0.25, "slow": 48.0}


def readings(shared: bool, seed: int, days: int = 300) -> pl.DataFrame:
    rng, parts = np.random.default_rng(seed), []
    for sensor, interval in EVERY.items():
        hours = np.arange(0, days * 24, interval)
        curve = np.sin(hours / 230 + 1) if sensor == "slow" and not shared else np.sin(hours / 300)
        value = 10 * curve + 0.1 * rng.standard_normal(len(hours))
        parts.append(pl.DataFrame({"sample": "plant", "time": hours, "sensor": sensor, "value": value}))
    frame = pl.concat(parts)
    return frame.with_columns(hidden=pl.Series(rng.random(len(frame)) < 0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["linear", "raindrop"])
    parser.add_argument("--shared", action="store_true", help="all sensors follow the same curve")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    frame = readings(options.shared, options.seed)
    table = rd.EventTable.from_frames(frame.filter(~pl.col("hidden")).drop("hidden"))
    hidden = frame.filter("hidden").drop("hidden")
    for model in options.models:
        started = time.process_time()
        imputer = rd.Imputer(model, seed=options.seed).fit(table)
        seconds = time.process_time() - started
        answers = imputer.readings_at(table, hidden.drop("value")).frame().rename({"value": "filled"})
        scores = (
            hidden.join(answers, on=["sample", "time", "sensor"])
            .group_by("sensor", maintain_order=True)
            .agg(
                number=pl.len(),
                mae=(pl.col("filled") - pl.col("value")).abs().mean(),
                covered=pl.col("value").is_between("low", "high").mean(),
            )
        )
        rows = (f"{name} {mae:.3f} ({share:.0%} of {number:,})" for name, number, mae, share in scores.iter_rows())
        print(f"{model}: {', '.join(rows)}; trained in {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()

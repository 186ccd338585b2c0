"""Filling gaps of AQI-36 by GRIN's protocol (ICLR 2022): March, June, September and December are the test months.

    python benchmarks/imputation.py AQI36_FOLDER --models raindrop no-messages linear nearest trees --seeds 0 1 2 3 4
    python benchmarks/imputation.py AQI36_FOLDER --models SAITS BRITS ImputeFormer --pypots PYTHON
    python benchmarks/imputation.py AQI36_FOLDER --silent --models raindrop trees      # whole stations silent
    python benchmarks/imputation.py AQI36_FOLDER --picture gaps.svg                    # from the finished rows

Models see `pm25_missing.txt` alone and are trained on the other months. Scored are the readings of the test months
that are in `pm25_ground.txt` and not in `pm25_missing.txt`: mean absolute error, also by the length of the gap (hours
between the station's readings before and after). "coverage" is the share of them inside their intervals, "calibrated"
the same after `Imputer.calibrate` on the visible readings of the test months. With --silent every station in turn has
no reading at all in the test months; "inverse-distance" and "nearest-station" then know the stations' positions, the
models do not. A model of that task is fitted once for each of two folds of stations: in training whole stations are
hidden, but not those of the fold. With --load, a fitted imputer is used; with --silent, any station was hidden now and
then in its training. "knn" and "iterative" are scikit-learn's KNNImputer and IterativeImputer on the hours x stations
matrix; "SAITS", "BRITS" and "ImputeFormer" are PyPOTS's, run by the given interpreter. Finished rows are not run again.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from stations import (
    MATRIX_MODELS,
    POSITION_MODELS,
    PYPOTS_MODELS,
    Stations,
    by_position,
    fill_by_pypots,
    fill_matrix,
    gap_lengths,
)

from raindrop.batch.gaps import Gaps
from raindrop.estimators import Imputer, load
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans

EDGES = (0, 2, 4, 8, 16, 32, 64, 10_000)  # hours, of the gap's length
FOLDS = 2  # of stations, with --silent
LABELS = {
    "raindrop": "Raindrop",
    "no-messages": "Raindrop without messages",
    "trees": "boosted trees",
    "linear": "linear interpolation",
    "nearest": "nearest sensors (correlation)",
    "last": "last value",
    "knn": "k nearest hours (scikit-learn)",
    "iterative": "iterative (scikit-learn)",
    "grud": "GRU-D",
    "mtand": "mTAND",
    "ipnet": "IP-Net",
    "brits": "BRITS",
    "grin": "GRIN",
    "SAITS": "SAITS (PyPOTS)",
    "BRITS": "BRITS (PyPOTS)",
    "ImputeFormer": "ImputeFormer (PyPOTS)",
}
NOT_PICTURED = ("mean",)  # far above the others


class SomeNeverSilent(Imputer):
    """An imputer in whose training some sensors are never hidden whole."""

    never_silent: frozenset[str] = frozenset()

    def _gaps(self, table: EventTable) -> Gaps:
        return replace(
            super()._gaps(table), may_be_silent=np.array([n not in self.never_silent for n in table.sensors])
        )


def make(model: str, seed: int, config: dict[str, Any], kind: type[Imputer] = Imputer) -> Imputer:
    if model == "no-messages":
        model, config = "raindrop", config | {"model.messages": False}
    return kind(model, seed=seed, config=config)


def run_gaps(stations: Stations, model: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One model on the published gaps."""
    config = options.config
    visible = np.isfinite(stations.visible)
    asked = np.isfinite(stations.truth) & ~visible & stations.test[:, None]
    truth = stations.truth[asked]
    started = time.monotonic()
    extra: dict[str, Any] = {}
    if model in MATRIX_MODELS:
        predicted, seconds = fill_matrix(model, stations, visible)[asked], time.monotonic() - started
    elif model in PYPOTS_MODELS:
        filled, extra = fill_by_pypots(
            options.pypots, model, stations, visible, seed=seed, epochs=options.pypots_epochs
        )
        predicted, seconds = filled[asked], extra["training_seconds"]
    else:
        imputer = load(options.load) if options.load else make(model, seed, config).fit(stations.training_table())
        seconds = time.monotonic() - started
        started = time.monotonic()
        queries, table = stations.queries(asked), stations.whole_table()
        predicted = imputer.readings_at(table, queries).value
        extra["answering_seconds"] = round(time.monotonic() - started, 2)
        if options.save is not None:
            imputer.save(options.save)
        long = gap_lengths(visible, asked) > 24
        extra |= covered(imputer, table, queries, truth, long, "coverage")
        imputer.calibrate(stations.test_table())
        extra |= covered(imputer, table, queries, truth, long, "calibrated")
        if model == "raindrop":
            extra["three_nearest_auroc"] = nearest_auroc(stations, imputer, table, queries)
    error, length = np.abs(predicted - truth), gap_lengths(visible, asked)
    bins = [error[(length > low) & (length <= high)] for low, high in pairwise(EDGES)]
    return {
        "task": "gaps",
        "model": model,
        "seed": seed,
        "config": config,
        "mae": round(float(error.mean()), 3),
        "mse": round(float((error**2).mean()), 1),
        "readings": len(error),
        "by_gap": [[round(float(part.mean()), 3) if len(part) else None, len(part)] for part in bins],
        "training_seconds": round(seconds, 1),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        **extra,
    }


def covered(
    imputer: Imputer, table: EventTable, queries: pl.DataFrame, truth: np.ndarray, long: np.ndarray, name: str
) -> dict[str, float]:
    """The share of true readings inside their 80 % and 95 % intervals, of all gaps and of the `long` ones."""
    shares = {}
    for percent in (80, 95):
        readings = imputer.readings_at(table, queries, coverage=percent / 100)
        inside = (readings.low <= truth) & (truth <= readings.high)
        shares[f"{name}_{percent}"] = round(float(inside.mean()), 4)
        shares[f"{name}_{percent}_long_gaps"] = round(float(inside[long].mean()), 4)
    return shares


def nearest_auroc(stations: Stations, imputer: Imputer, table: EventTable, queries: pl.DataFrame) -> float:
    """How well mean attention finds each station's three nearest: AUROC over ordered pairs."""
    from sklearn.metrics import roc_auc_score

    some = queries.sample(min(len(queries), 5000), seed=0)
    mean = imputer.senders(table, some).group_by("sensor", "sender").agg(pl.col("weight").mean())
    at = {name: i for i, name in enumerate(stations.names)}
    weight = np.zeros_like(stations.distance)
    for sensor, sender, value in mean.iter_rows():
        weight[at[sender], at[sensor]] = value
    off = ~np.eye(len(weight), dtype=bool)
    distance = np.where(off, stations.distance, np.inf)
    truth = distance <= np.sort(distance, axis=0)[2]
    return round(float(roc_auc_score(truth[off], weight[off])), 4)


def run_silent(stations: Stations, model: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Each station in turn has no reading in the test months; one fit per fold of stations."""
    config, loaded = options.config, None if options.load is None else load(options.load)
    fitted = loaded is None and model not in MATRIX_MODELS + POSITION_MODELS
    started, seconds = time.monotonic(), 0.0
    each = []
    for fold in range(FOLDS if fitted else 1):
        of_fold = range(fold, len(stations.names), FOLDS if fitted else 1)
        imputer = loaded
        if fitted:
            started = time.monotonic()
            imputer = make(model, seed, config, SomeNeverSilent)
            imputer.never_silent = frozenset(stations.names[v] for v in of_fold)
            imputer.fit(stations.training_table())
            seconds += time.monotonic() - started
        each += [silent_error(stations, model, imputer, v) for v in of_fold]
    return {
        "task": "silent",
        "model": model,
        "seed": seed,
        "config": config,
        "mae": round(float(np.mean(each)), 3),
        "worst": round(max(each), 3),
        "training_seconds": round(seconds, 1),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "folds": FOLDS if fitted else 0,
    }


def silent_error(stations: Stations, model: str, imputer: Imputer | None, v: int) -> float:
    """The mean absolute error at station v, which has no reading in the test months."""
    visible = np.isfinite(stations.visible)
    visible[stations.test, v] = False
    asked = np.zeros_like(visible)
    asked[:, v] = np.isfinite(stations.truth[:, v]) & stations.test
    if imputer is not None:
        table = stations.whole_table(visible)
        first, last = spans(table)
        hours = np.arange(len(asked))
        asked &= ((hours >= first[0]) & (hours <= last[0]))[:, None]
        predicted = imputer.readings_at(table, stations.queries(asked)).value
    elif model in POSITION_MODELS:
        predicted = by_position(model, stations, visible, v)[asked[:, v]]
    else:
        predicted = fill_matrix(model, stations, visible)[asked]
    return float(np.nanmean(np.abs(predicted - stations.truth[asked])))


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Error against the length of the gap, mean over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    matplotlib.rcParams["svg.hashsalt"] = "raindrop"
    import matplotlib.pyplot as plt

    names = [f"{a + 1}–{b}" if b < 1000 else f"over {a}" for a, b in pairwise(EDGES)]
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    by_model: dict[str, list[list[list[float]]]] = {}
    for row in rows:
        if row["task"] == "gaps" and row["model"] not in NOT_PICTURED:
            by_model.setdefault(row["model"], []).append(row["by_gap"])
    listed = [model for model in LABELS if model in by_model]
    for at, model in enumerate([*listed, *sorted(set(by_model) - set(LABELS))]):
        parts = [[part[0] if part[0] is not None else np.nan for part in row] for row in by_model[model]]
        style = {"raindrop": "o-", "no-messages": "s--"}.get(model, "." + (":", "-.")[at % 2])
        width = 2.0 if model in ("raindrop", "no-messages") else 1.0
        label = LABELS.get(model, model) + (f" ({len(parts)} seeds)" if len(parts) > 1 else "")
        axes.plot(names, np.mean(parts, axis=0, dtype=float), style, linewidth=width, label=label)
    axes.set_xlabel("hours between the readings before and after")
    axes.set_ylabel("mean absolute error of PM2.5")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    axes.set_title("Air quality, 36 stations: filling the published gaps")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--config", type=json.loads, default={}, help="settings of the networks, as JSON")
    parser.add_argument("--pypots", metavar="PYTHON", help="an interpreter that has PyPOTS")
    parser.add_argument("--pypots-epochs", type=int, default=100, help="at most; it stops after 10 without a gain")
    parser.add_argument("--silent", action="store_true", help="whole stations silent instead of the published gaps")
    parser.add_argument("--out", type=Path, default=Path("imputation.jsonl"))
    parser.add_argument("--save", type=Path, default=None, help="folder for the fitted imputer")
    parser.add_argument("--load", type=Path, default=None, help="a fitted imputer instead of fitting one")
    parser.add_argument("--picture", type=Path, default=None)
    options = parser.parse_args()
    if options.pypots is None and set(options.models) & set(PYPOTS_MODELS):
        parser.error("SAITS, BRITS and ImputeFormer need --pypots PYTHON, an interpreter that has PyPOTS.")
    stations = Stations.read(options.folder)
    task = "silent" if options.silent else "gaps"

    def rows() -> list[dict[str, Any]]:
        return [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []

    for model in options.models:
        for seed in options.seeds:
            wanted = (task, model, seed, options.config)
            if wanted in [(row["task"], row["model"], row["seed"], row["config"]) for row in rows()]:
                continue
            if options.silent:
                row = run_silent(stations, model, seed, options)
            else:
                row = run_gaps(stations, model, seed, options)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)
    if options.picture is not None:
        picture(rows(), options.picture)


if __name__ == "__main__":
    main()

"""Filling gaps of AQI-36 by GRIN's protocol (ICLR 2022): March, June, September and December are the test months.

    python benchmarks/imputation.py AQI36_FOLDER --models raindrop no-messages linear nearest trees --seeds 0 1 2 3 4
    python benchmarks/imputation.py AQI36_FOLDER --silent --models raindrop trees      # whole stations silent
    python benchmarks/imputation.py AQI36_FOLDER --picture gaps.svg                    # from the finished rows

Models see `pm25_missing.txt` alone and are trained on the other months. Scored are the readings of the test months
that are in `pm25_ground.txt` and not in `pm25_missing.txt`: mean absolute error, also by the length of the gap (hours
between the station's readings before and after). With --silent every station in turn has no reading at all in the test
months; "inverse-distance" and "nearest-station" then know the stations' positions, the models do not. "knn" and
"iterative" are scikit-learn's KNNImputer and IterativeImputer on the hours x stations matrix. Finished rows are not run
again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.estimators import Imputer
from raindrop.table.event_table import EventTable
from raindrop.table.queries import spans

TEST_MONTHS = (3, 6, 9, 12)
EDGES = (0, 2, 4, 8, 16, 32, 64, 10_000)  # hours, of the gap's length
MATRIX_MODELS = ("knn", "iterative")
POSITION_MODELS = ("nearest-station", "inverse-distance")
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Stations:
    """The readings as (hour, station); NaN where there is none."""

    names: list[str]
    truth: Matrix
    visible: Matrix
    test: NDArray[np.bool_]  # (hour,)
    distance: Matrix  # (station, station) km

    @classmethod
    def read(cls, folder: Path) -> Stations:
        ground, missing = (pl.read_csv(folder / f"pm25_{name}.txt") for name in ("ground", "missing"))
        names = missing.columns[1:]
        month = missing["datetime"].str.to_datetime("%Y/%m/%d %H:%M:%S").dt.month().to_numpy()
        truth, visible = (f.select(pl.col(names).cast(pl.Float64)).to_numpy() for f in (ground, missing))
        place = pl.read_csv(folder / "pm25_latlng.txt").select("latitude", "longitude").to_numpy()
        km = place * np.array([111.0, 85.0])
        distance = np.sqrt(((km[:, None] - km[None]) ** 2).sum(-1))
        return cls(names, truth, visible, np.isin(month, TEST_MONTHS), distance)

    def training_table(self) -> EventTable:
        """The other months: a sample for each run of them."""
        run = np.cumsum(np.diff(self.test, prepend=self.test[0]) != 0)
        return self._table(np.isfinite(self.visible) & ~self.test[:, None], np.char.add("run ", run.astype(str)))

    def whole_table(self, visible: NDArray[np.bool_] | None = None) -> EventTable:
        """The year as one sample."""
        present = np.isfinite(self.visible) if visible is None else visible
        return self._table(present, np.full(len(self.visible), "year"))

    def _table(self, present: NDArray[np.bool_], sample: NDArray[Any]) -> EventTable:
        hour, station = np.nonzero(present)
        names = np.array(self.names)[station]
        return EventTable.from_columns(
            sample[hour], hour.astype(float), names, self.visible[hour, station], sensors=self.names
        )

    def queries(self, asked: NDArray[np.bool_]) -> pl.DataFrame:
        hour, station = np.nonzero(asked)
        return pl.DataFrame(
            {"sample": "year", "time": hour.astype(float), "sensor": np.array(self.names)[station]},
            schema_overrides={"sample": pl.String},
        )


def gap_lengths(visible: NDArray[np.bool_], asked: NDArray[np.bool_]) -> Matrix:
    """Hours between the station's visible readings before and after each asked one."""
    hours = np.arange(len(visible))[:, None]
    before = np.maximum.accumulate(np.where(visible, hours, -100_000), 0)
    after = np.minimum.accumulate(np.where(visible, hours, 100_000)[::-1], 0)[::-1]
    return (after - before)[asked]


def make(model: str, seed: int, config: dict[str, Any]) -> Imputer:
    if model == "no-messages":
        return Imputer("raindrop", seed=seed, config=config | {"model.messages": False}, progress=True)
    return Imputer(model, seed=seed, config=config if model == "raindrop" else {}, progress=True)


def fill_matrix(model: str, stations: Stations, visible: NDArray[np.bool_]) -> Matrix:
    """Every hour and station by an imputer of scikit-learn that was fitted on the training months."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer

    imputer = KNNImputer(n_neighbors=10) if model == "knn" else IterativeImputer(random_state=0)
    imputer.fit(np.where(np.isfinite(stations.visible), stations.visible, np.nan)[~stations.test])
    filled: Matrix = imputer.transform(np.where(visible, stations.visible, np.nan))
    return filled


def by_position(model: str, stations: Stations, visible: NDArray[np.bool_], v: int) -> Matrix:
    """(hour,) station v from the others' readings of the same hour, by their distances."""
    power = 2.0
    weight = 1 / stations.distance[:, v] ** power
    weight[v] = 0
    present = visible.copy()
    present[:, v] = False
    value = np.where(present, stations.visible, 0.0)
    if model == "inverse-distance":
        total = present @ weight
        with np.errstate(invalid="ignore"):
            return np.where(total > 0, value @ weight / total, np.nan)
    order = np.argsort(-weight)
    first = np.argmax(present[:, order], axis=1)
    hours = np.arange(len(value))
    return np.where(present.any(1), value[hours, order[first]], np.nan)


def run_gaps(stations: Stations, model: str, seed: int, config: dict[str, Any], save: Path | None) -> dict[str, Any]:
    """One model on the published gaps."""
    visible = np.isfinite(stations.visible)
    asked = np.isfinite(stations.truth) & ~visible & stations.test[:, None]
    truth = stations.truth[asked]
    started = time.monotonic()
    extra: dict[str, Any] = {}
    if model in MATRIX_MODELS:
        predicted, seconds = fill_matrix(model, stations, visible)[asked], time.monotonic() - started
    else:
        imputer = make(model, seed, config).fit(stations.training_table())
        seconds = time.monotonic() - started
        started = time.monotonic()
        queries, table = stations.queries(asked), stations.whole_table()
        readings = imputer.readings_at(table, queries, coverage=0.8)
        extra["answering_seconds"] = round(time.monotonic() - started, 2)
        wide = imputer.readings_at(table, queries, coverage=0.95)
        predicted = readings.value
        length = gap_lengths(visible, asked)
        for name, r in (("80", readings), ("95", wide)):
            inside = (r.low <= truth) & (truth <= r.high)
            extra[f"coverage_{name}"] = round(float(inside.mean()), 4)
            extra[f"coverage_{name}_long_gaps"] = round(float(inside[length > 24].mean()), 4)
        if model == "raindrop":
            extra["three_nearest_auroc"] = nearest_auroc(stations, imputer, table, queries)
        if save is not None:
            imputer.save(save)
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
        **extra,
    }


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


def run_silent(stations: Stations, model: str, seed: int, config: dict[str, Any]) -> dict[str, Any]:
    """Each station in turn has no reading in the test months; one model for all, trained with stations hidden."""
    started = time.monotonic()
    imputer = None
    if model not in MATRIX_MODELS + POSITION_MODELS:
        imputer = make(model, seed, config).fit(stations.training_table())
    seconds = time.monotonic() - started
    each = []
    for v in range(len(stations.names)):
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
        error = np.abs(predicted - stations.truth[asked])
        each.append(float(np.nanmean(error)))
    return {
        "task": "silent",
        "model": model,
        "seed": seed,
        "config": config,
        "mae": round(float(np.mean(each)), 3),
        "worst": round(max(each), 3),
        "training_seconds": round(seconds, 1),
    }


def picture(rows: list[dict[str, Any]], path: Path) -> None:
    """Error against the length of the gap, mean over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
    matplotlib.rcParams["svg.hashsalt"] = "raindrop"
    import matplotlib.pyplot as plt

    labels = {"raindrop": "Raindrop", "no-messages": "Raindrop without messages", "linear": "linear interpolation"}
    labels |= {"nearest": "nearest sensors (correlation)", "trees": "boosted trees"}
    names = [f"{a + 1}–{b}" if b < 1000 else f"over {a}" for a, b in pairwise(EDGES)]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for model, label in labels.items():
        chosen = [row["by_gap"] for row in rows if row["task"] == "gaps" and row["model"] == model]
        if not chosen:
            continue
        error = np.array([[part[0] if part[0] is not None else np.nan for part in row] for row in chosen], dtype=float)
        style = {"raindrop": "o-", "no-messages": "s--"}.get(model, ".:")
        axes.plot(names, error.mean(0), style, label=f"{label} ({len(chosen)} seeds)" if len(chosen) > 1 else label)
    axes.set_xlabel("hours between the readings before and after")
    axes.set_ylabel("mean absolute error of PM2.5")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.set_title("Air quality, 36 stations: filling the published gaps")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--config", type=json.loads, default={}, help="settings of raindrop, as JSON")
    parser.add_argument("--silent", action="store_true", help="whole stations silent instead of the published gaps")
    parser.add_argument("--out", type=Path, default=Path("imputation.jsonl"))
    parser.add_argument("--save", type=Path, default=None, help="folder for the fitted imputer")
    parser.add_argument("--picture", type=Path, default=None)
    options = parser.parse_args()
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
                row = run_silent(stations, model, seed, options.config)
            else:
                row = run_gaps(stations, model, seed, options.config, options.save)
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)
    if options.picture is not None:
        picture(rows(), options.picture)


if __name__ == "__main__":
    main()

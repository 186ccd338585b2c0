"""The air quality of AQI-36 as (hour, station) matrices, and the baselines that work on them.

GRIN's protocol: March, June, September and December are the test months; `pm25_ground.txt` has the readings that
`pm25_missing.txt` lacks in the pattern of real outages.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from raindrop.table.event_table import EventTable

TEST_MONTHS = (3, 6, 9, 12)
MATRIX_MODELS = ("knn", "iterative")
POSITION_MODELS = ("nearest-station", "inverse-distance")
PYPOTS_MODELS = ("SAITS", "BRITS", "ImputeFormer")
HOURS, STRIDE = 36, 9  # of PyPOTS's windows
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Stations:
    """The readings as (hour, station); NaN where there is none."""

    names: list[str]
    truth: Matrix
    visible: Matrix
    test: NDArray[np.bool_]  # (hour,)
    start: datetime  # hours count from it
    place: Matrix  # (station, 2) latitude and longitude
    distance: Matrix  # (station, station) km

    @classmethod
    def read(cls, folder: Path) -> Stations:
        ground, missing = (pl.read_csv(folder / f"pm25_{name}.txt") for name in ("ground", "missing"))
        names = missing.columns[1:]
        times = missing["datetime"].str.to_datetime("%Y/%m/%d %H:%M:%S")
        truth, visible = (f.select(pl.col(names).cast(pl.Float64)).to_numpy() for f in (ground, missing))
        place = pl.read_csv(folder / "pm25_latlng.txt").select("latitude", "longitude").to_numpy()
        km = place * np.array([111.0, 85.0])
        distance = np.sqrt(((km[:, None] - km[None]) ** 2).sum(-1))
        return cls(names, truth, visible, times.dt.month().is_in(TEST_MONTHS).to_numpy(), times[0], place, distance)

    def training_table(self) -> EventTable:
        """The visible readings of the other months: a sample for each run of them."""
        return self._runs(~self.test)

    def test_table(self) -> EventTable:
        """The visible readings of the test months: a sample for each run of them."""
        return self._runs(self.test)

    def _runs(self, hours: NDArray[np.bool_]) -> EventTable:
        run = np.cumsum(np.diff(self.test, prepend=self.test[0]) != 0)
        return self._table(np.isfinite(self.visible) & hours[:, None], np.char.add("run ", run.astype(str)))

    def whole_table(self, visible: NDArray[np.bool_] | None = None) -> EventTable:
        """The year as one sample."""
        present = np.isfinite(self.visible) if visible is None else visible
        return self._table(present, np.full(len(self.visible), "year"))

    def _table(self, present: NDArray[np.bool_], sample: NDArray[Any]) -> EventTable:
        hour, station = np.nonzero(present)
        names = np.array(self.names)[station]
        ids = np.unique(sample[hour])
        samples = {"sample": ids, "time_zero": [self.start] * len(ids)}  # so the time of day is known
        return EventTable.from_columns(
            sample[hour], hour.astype(float), names, self.visible[hour, station], samples, sensors=self.names
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
    others = np.arange(len(stations.names)) != v
    weight = np.zeros(len(others))
    weight[others] = 1 / stations.distance[others, v] ** power
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


def fill_by_pypots(
    python: str, model: str, stations: Stations, visible: NDArray[np.bool_], *, seed: int, epochs: int
) -> tuple[Matrix, dict[str, float]]:
    """Every hour and station by an imputer of PyPOTS in its own environment, and what it cost.

    Trained on windows of the training months, of which a tenth validates with readings hidden in blocks; the whole year
    is filled in overlapping windows, whose answers are averaged.
    """
    rng = np.random.default_rng(seed)
    months = np.where(stations.test[:, None], np.nan, stations.visible)
    mean, scale = np.nanmean(months, 0), np.nanstd(months, 0)
    months = (months - mean) / scale
    starts = np.arange(0, len(months) - HOURS + 1, STRIDE)
    training = starts[[not stations.test[at : at + HOURS].any() for at in starts]]
    held_out = np.zeros(len(training), dtype=bool)
    held_out[rng.choice(len(training) // 20, len(training) // 200, replace=False)[:, None] * 20 + np.arange(20)] = True
    inside = np.arange(HOURS)
    truth = months[training[held_out][:, None] + inside]
    hidden = rng.random(truth.shape) < 0.05
    for _ in range(3):
        length = rng.integers(1, 25, truth.shape[::2])[:, None]
        first = rng.integers(-24, HOURS, truth.shape[::2])[:, None]
        hidden |= (inside[:, None] >= first) & (inside[:, None] < first + length) & (rng.random(first.shape) < 0.2)
    every = np.append(starts, len(months) - HOURS)
    year = np.where(visible, (stations.visible - mean) / scale, np.nan)
    arrays = {
        "train": months[training[~held_out][:, None] + inside],
        "validation": np.where(hidden, np.nan, truth),
        "validation_truth": truth,
        "asked": year[every[:, None] + inside],
    }
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/arrays.npz", **{name: array.astype(np.float32) for name, array in arrays.items()})
        script = str(Path(__file__).with_name("pypots_imputation.py"))
        paths = [f"{folder}/arrays.npz", f"{folder}/filled.npy"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [python, script, model, *paths, str(seed), str(epochs)],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        windows = np.load(paths[1])
    total, count = np.zeros_like(months), np.zeros((len(months), 1))
    for at, filled in zip(every, windows, strict=True):
        total[at : at + HOURS] += filled
        count[at : at + HOURS] += 1
    return total / count * scale + mean, json.loads(done.stdout.splitlines()[-1])

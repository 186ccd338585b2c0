"""Score event tables with an exported raindrop model: NumPy, and ONNX Runtime for the model itself.

This file is part of every export and needs nothing else of raindrop, neither torch nor polars.

    python reader.py events.csv --samples samples.csv --out predictions.csv

    from reader import ExportedModel
    model = ExportedModel("FOLDER")
    ids, predicted = model.predict(events, samples)      # columns by name; see `predict`

Times are numbers in the model's unit (model.json, "time_unit"), on the clock of training; each (sample, time, sensor)
occurs once. An imputer answers queries instead (sample, time, sensor): `model.readings_at(events, queries)`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, Any]
"""The columns of a table by name: lists or arrays."""
Array = NDArray[Any]

MAX_CELLS = 1 << 19  # samples x timestamps x sensors in one call of the model
MAX_QUERIES = 2048  # in one call
LENGTH, MARGIN = 128.0, 96.0  # windows of long series, in typical intervals between readings
NEAREST = 4  # readings of a slow sensor beyond a margin, on each side
SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}


class ReaderError(ValueError):
    """A table that cannot be scored, or an export that is damaged; the message says what to do."""


class ExportedModel:
    """An exported model: its description and the session that runs it."""

    def __init__(self, folder: str | os.PathLike[str], *, threads: int = 1):
        with open(os.path.join(folder, "model.json"), encoding="utf-8") as file:
            self.about: dict[str, Any] = json.load(file)
        path = os.path.join(folder, "model.onnx")
        if not os.path.exists(path):
            raise ReaderError(f"{folder}: there is no model.onnx. Export the model with --format onnx.")
        with open(path, "rb") as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != self.about["sha256"]:
            raise ReaderError(f"{path}: not the file that model.json describes. Export the model again.")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._inputs = {given.name for given in self._session.get_inputs()}

    def core(self, **arrays: Array) -> Array:
        """The model's output for these inputs."""
        used = {name: array for name, array in arrays.items() if name in self._inputs}
        predicted: Array = self._session.run(None, used)[0]
        return predicted

    # ---------------------------------------------------------------- samples

    def predict(
        self, events: Columns, samples: Columns | None = None, *, batch_size: int = 16
    ) -> tuple[list[str], Array]:
        """Sample ids, and what is predicted of each: (samples, classes), or (samples, quantities, levels).

        events: columns sample, time, sensor and value, as a mapping of names to arrays. samples: likewise sample and
        the static attributes, unknown where a cell is empty, NaN or None; by default all samples of the events, without
        attributes.
        """
        self._require("samples")
        readings = Readings(self.about, events, samples)
        statics = encode_statics(self.about, samples, len(readings.ids))
        rows, parts = [], []
        for some in readings.batches(batch_size):
            value, observed, time = readings.grid(some, self.about["max_times"])
            parts.append(self.core(value=value, observed=observed, time=time, statics=statics[some]))
            rows.append(some)
        if not parts:
            raise ReaderError("There are no samples to score.")
        predicted = np.concatenate(parts)[np.argsort(np.concatenate(rows))]
        return readings.ids, calibrate(self.about["calibration"], predicted)

    # ---------------------------------------------------------------- queries

    def readings_at(
        self, events: Columns, queries: Columns, samples: Columns | None = None, *, batch_size: int = 8
    ) -> Array:
        """(queries, levels): the quantiles `about["levels"]` of each asked reading, in the sensor's unit.

        queries: columns sample, time and sensor. A reading at the very time of a query is not used for its answer.
        If the samples have a column time_zero, the date time that their times count from, the model knows the time of
        day, if it was trained on dates.
        """
        self._require("queries")
        readings = Readings(self.about, events, samples)
        statics = encode_statics(self.about, samples, len(readings.ids))
        sample, sensor = readings.codes_of(queries["sample"]), self._sensors(queries["sensor"])
        time = np.asarray(queries["time"], dtype=np.float64)
        if not np.isfinite(time).all():
            raise ReaderError("queries: every query needs a finite time.")
        days = time * SECONDS[self.about["time_unit"]] / SECONDS["days"]
        wants_time_of_day = "query_time_of_day" in self._inputs
        day = time_of_day(samples, sample, days) if wants_time_of_day else np.zeros((len(time), 0))
        windows = Windows(readings, self.about["window_interval"], self.about["slow_sensors"])
        window = windows.of(sample, time)
        order = np.argsort(window, kind="stable")
        answers = np.zeros((len(time), len(self.about["levels"])))
        used, counts = np.unique(window, return_counts=True)
        ends = np.cumsum(counts)
        for first in range(0, len(used), batch_size):
            chosen = used[first : first + batch_size]
            value, observed, times = windows.grid(chosen, self.about["max_times"])
            asked = order[ends[first] - counts[first] : ends[min(first + batch_size, len(used)) - 1]]
            for some in np.array_split(asked, max(1, -(-len(asked) // MAX_QUERIES))):
                answers[some] = self.core(
                    value=value,
                    observed=observed,
                    time=times,
                    statics=statics[windows.sample[chosen]],
                    query_sample=np.searchsorted(chosen, window[some]),
                    query_sensor=sensor[some],
                    query_time=time[some],
                    query_time_of_day=day[some],
                )
        mean, scale = (np.array(self.about["scaler"][name])[sensor][:, None] for name in ("mean", "scale"))
        in_units: Array = answers * scale + mean
        return in_units

    def _sensors(self, names: Sequence[Any]) -> Array:
        known = self.about["scaler"]["observed"]
        code = {name: at for at, name in enumerate(self.about["scaler"]["sensors"]) if known[at]}
        names = [str(name) for name in names]
        wrong = next((name for name in names if name not in code), None)
        if wrong is not None:
            raise ReaderError(f"queries: the model has never seen the sensor '{wrong}'; it knows {', '.join(code)}.")
        return np.array([code[name] for name in names], dtype=np.int64)

    def _require(self, kind: str) -> None:
        if self.about["kind"] != kind:
            method = "readings_at(events, queries)" if self.about["kind"] == "queries" else "predict(events, samples)"
            raise ReaderError(f"This model answers {self.about['kind']}; call {method}.")


class Readings:
    """The readings of a table, sorted by sample and time, with codes for names and scaled values."""

    def __init__(self, about: Mapping[str, Any], events: Columns, samples: Columns | None = None):
        for name in ("sample", "time", "sensor", "value"):
            if name not in events:
                raise ReaderError(f"events: there is no column '{name}'. Needed are sample, time, sensor and value.")
        scaler = about["scaler"]
        owner = np.asarray(events["sample"]).astype(str)
        time, value = (np.asarray(events[name], dtype=np.float64) for name in ("time", "value"))
        if not (np.isfinite(time).all() and np.isfinite(value).all()):
            row = int(np.argmin(np.isfinite(time) & np.isfinite(value)))
            raise ReaderError(f"events: row {row + 1:,} has no finite time and value. Leave such rows out.")
        self.ids = list(
            dict.fromkeys((owner if samples is None else np.asarray(samples["sample"]).astype(str)).tolist())
        )
        if samples is not None and len(self.ids) != len(samples["sample"]):
            raise ReaderError("samples: a sample is listed twice. List each once.")
        self.place = {name: at for at, name in enumerate(self.ids)}
        names, inverse = np.unique(owner, return_inverse=True)
        unlisted = [name for name in names.tolist() if name not in self.place]
        if unlisted:
            raise ReaderError(f"events: sample '{unlisted[0]}' is not among the samples. Add it, or drop its rows.")
        sample = np.array([self.place[name] for name in names.tolist()], dtype=np.int64)[inverse]
        code = {name: at for at, name in enumerate(scaler["sensors"]) if scaler["observed"][at]}
        names, inverse = np.unique(np.asarray(events["sensor"]).astype(str), return_inverse=True)
        unknown = [name for name in names.tolist() if name not in code]
        if unknown:
            raise ReaderError(
                f"events: the model has never seen the sensor '{unknown[0]}'. Rename it, or drop its rows; the model "
                f"knows {', '.join(code)}."
            )
        sensor = np.array([code[name] for name in names.tolist()], dtype=np.int64)[inverse]
        order = np.lexsort([sensor, time, sample])
        self.sample, self.time, self.sensor = sample[order], time[order], sensor[order]
        same = (np.diff(self.sample) == 0) & (np.diff(self.time) == 0) & (np.diff(self.sensor) == 0)
        if same.any():
            at = int(np.argmax(same))
            raise ReaderError(
                f"events: {int(same.sum()):,} rows repeat another one (first: sample '{self.ids[self.sample[at]]}', "
                f"time {self.time[at]:g}, sensor '{scaler['sensors'][self.sensor[at]]}'). Keep one of each."
            )
        scaled = (value[order] - np.array(scaler["mean"])[self.sensor]) / np.array(scaler["scale"])[self.sensor]
        largest = float(np.finfo(np.float32).max)
        self.value = np.clip(scaled, -largest, largest).astype(np.float32)
        self.width = len(scaler["sensors"])
        self.offsets = np.searchsorted(self.sample, np.arange(len(self.ids) + 1))
        new = np.ones(len(self.time), dtype=bool)
        new[1:] = (np.diff(self.time) != 0) | (np.diff(self.sample) != 0)
        self.steps = np.bincount(self.sample[new], minlength=len(self.ids))

    def codes_of(self, ids: Sequence[Any]) -> Array:
        """The positions of samples by their ids."""
        ids = np.asarray(ids).astype(str).tolist()
        wrong = next((name for name in ids if name not in self.place), None)
        if wrong is not None:
            raise ReaderError(f"queries: sample '{wrong}' has no readings. Ask for others.")
        return np.array([self.place[name] for name in ids], dtype=np.int64)

    def batches(self, size: int) -> Iterator[Array]:
        """Positions of some samples at a time, short series first, so that little is padded."""
        order = np.argsort(self.steps, kind="stable")
        at = 0
        while at < len(order):
            some = order[at : at + size]
            cells = self.steps[some] * np.arange(1, len(some) + 1) * self.width
            some = some[: max(1, int(np.searchsorted(cells, MAX_CELLS, side="right")))]
            yield some
            at += len(some)

    def grid(self, samples: Array, max_times: int) -> tuple[Array, Array, Array]:
        """Value and observed (b, t, u) and time (b, t) of these samples."""
        return self.grid_of([np.arange(self.offsets[at], self.offsets[at + 1]) for at in samples], max_times)

    def grid_of(self, parts: Sequence[Array], max_times: int) -> tuple[Array, Array, Array]:
        """The same of some rows each."""
        rows = np.concatenate([*parts, np.zeros(0, dtype=np.int64)])
        owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        time = self.time[rows]
        new = np.ones(len(rows), dtype=bool)
        new[1:] = (np.diff(time) != 0) | (np.diff(owner) != 0)
        count = np.bincount(owner[new], minlength=len(parts))
        longest = max(1, int(count.max(initial=0)))
        if longest > max_times:
            raise ReaderError(
                f"A series has {longest:,} timestamps, and this model was exported for at most {max_times:,}. "
                f"Export it again with --max-times {longest}."
            )
        step = np.cumsum(new) - 1 - (np.cumsum(count) - count)[owner]
        value = np.zeros((len(parts), longest, self.width), dtype=np.float32)
        observed = np.zeros(value.shape, dtype=bool)
        times = np.zeros(value.shape[:2])
        value[owner, step, self.sensor[rows]] = self.value[rows]
        observed[owner, step, self.sensor[rows]] = True
        times[owner, step] = time
        return value, observed, times


class Windows:
    """Long series cut into windows, with the readings around each; a short sample is one window.

    `slow` sensors also show their nearest readings further away.
    """

    def __init__(self, readings: Readings, interval: float, slow: Sequence[int]):
        self.readings = readings
        self.slow = [np.flatnonzero(readings.sensor == code) for code in slow]
        length, margin = LENGTH * interval, MARGIN * interval
        first, last = readings.offsets[:-1], readings.offsets[1:]
        time = np.append(readings.time, 0.0)
        begin = np.where(last > first, time[first], 0.0)
        span = np.where(last > first, time[last - 1], 0.0) - begin
        number = np.maximum(1, np.round(span / length)).astype(np.int64)
        number[span <= 1.5 * length] = 1
        self.sample = np.repeat(np.arange(len(number)), number)
        rank = np.arange(len(self.sample)) - np.repeat(np.cumsum(number) - number, number)
        width = (span / number)[self.sample]
        start = np.where(rank == 0, -np.inf, begin[self.sample] + rank * width)
        self.stop = np.where(rank == number[self.sample] - 1, np.inf, begin[self.sample] + (rank + 1) * width)
        self.first = np.cumsum(number) - number
        self.number = number
        self.ranges = [
            tuple(first[at] + np.searchsorted(readings.time[first[at] : last[at]], [low - margin, high + margin]))
            for at, low, high in zip(self.sample, start, self.stop, strict=True)
        ]

    def of(self, sample: Array, time: Array) -> Array:
        """The window in which each time of a sample lies."""
        window = np.zeros(len(sample), dtype=np.int64)
        for at in np.unique(sample):
            own = sample == at
            stop = self.stop[self.first[at] : self.first[at] + self.number[at]]
            window[own] = self.first[at] + np.searchsorted(stop[:-1], time[own], side="right")
        return window

    def grid(self, windows: Array, max_times: int) -> tuple[Array, Array, Array]:
        """Value and observed (b, t, u) and time (b, t) of these windows."""
        return self.readings.grid_of([self.rows(at) for at in windows], max_times)

    def rows(self, window: int) -> Array:
        """The visible rows of a window."""
        begin, end = self.ranges[window]
        first, last = self.readings.offsets[self.sample[window] : self.sample[window] + 2]
        parts = [np.arange(begin, end)]
        for own in self.slow:
            low, here, beyond, high = np.searchsorted(own, [first, begin, end, last])
            parts += [own[max(low, here - NEAREST) : here], own[beyond : min(high, beyond + NEAREST)]]
        return np.sort(np.concatenate(parts))


def encode_statics(about: Mapping[str, Any], samples: Columns | None, count: int) -> Array:
    """(samples, width): z-scores and one-hot columns; zeros where unknown."""
    columns = [np.zeros((count, 0), dtype=np.float32)]
    for column in about["scaler"]["statics"]:
        cells = None if samples is None else samples.get(column["name"])
        cells = [None] * count if cells is None else list(cells)
        unknown = [cell is None or cell == "" or cell != cell for cell in cells]
        if column["categories"] is not None:
            text = np.array(["" if no else str(cell) for cell, no in zip(cells, unknown, strict=True)], dtype=object)
            known = np.array(column["categories"], dtype=object)
            columns.append(((text[:, None] == known) & ~np.array(unknown)[:, None]).astype(np.float32))
        else:
            number = np.array([column["mean"] if no else float(cell) for cell, no in zip(cells, unknown, strict=True)])
            columns.append(((number - column["mean"]) / column["scale"]).astype(np.float32)[:, None])
    return np.concatenate(columns, axis=1)


def time_of_day(samples: Columns | None, sample: Array, days: Array) -> Array:
    """(queries, 2): sine and cosine of the time of day, `days` after a sample's time_zero; 0 where it is unknown."""
    if samples is None or "time_zero" not in samples:
        return np.zeros((len(sample), 2), dtype=np.float32)
    zero = np.array([utc(cell) for cell in samples["time_zero"]], dtype="datetime64[us]")
    since_midnight = (zero - zero.astype("datetime64[D]")) / np.timedelta64(1, "D")
    angle = 2 * np.pi * (since_midnight[sample] + days)
    waves = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return np.where(np.isfinite(waves), waves, 0.0).astype(np.float32)


def utc(cell: Any) -> datetime | None:
    """A cell of `time_zero` without its time zone, in UTC if it has one; None where it is unknown."""
    if cell is None or cell == "" or cell != cell:
        return None
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    try:
        moment = datetime.fromisoformat(cell) if isinstance(cell, str) else cell
        return moment.replace(tzinfo=None) - (moment.utcoffset() or timedelta(0))
    except (ValueError, TypeError, AttributeError):
        raise ReaderError(f"samples: 'time_zero' needs date times such as 2014-05-01T06:30:00, not {cell!r}.") from None


def calibrate(about: Mapping[str, Any] | None, probability: Array) -> Array:
    """Probabilities (samples, classes or labels) as they were fitted to the validation samples of the model."""
    if about is None or about["method"] == "none":
        return probability
    p = probability.astype(np.float64)
    if about["method"] == "labels":  # each is a problem of two classes
        both = [calibrate(each, np.stack([1 - p[:, at], p[:, at]], 1)) for at, each in enumerate(about["labels"])]
        return np.stack([each[:, 1] for each in both], axis=1)
    if about["method"] == "temperature":
        log = np.log(np.maximum(p, 1e-45)) / about["temperature"]
        p = np.exp(log - log.max(1, keepdims=True))
    else:
        curves = [np.array(curve) for curve in about["curves"]]
        if len(curves) == 1:
            second = np.interp(p[:, 1], *curves[0])
            p = np.stack([1 - second, second], axis=1)
        else:
            p = np.stack([np.interp(p[:, at], *curve) for at, curve in enumerate(curves)], axis=1)
    calibrated: Array = (p / p.sum(1, keepdims=True)).astype(np.float32)
    return calibrated


def read_csv(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """The columns of a CSV file by name, as lists of text."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    if not rows:
        raise ReaderError(f"{path}: the file is empty.")
    return {name: [row[at] for row in rows[1:]] for at, name in enumerate(rows[0])}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Score a CSV file of readings with an exported raindrop model.")
    parser.add_argument("events", help="CSV with the columns sample, time, sensor and value")
    parser.add_argument("--samples", help="CSV with sample, the static attributes, and time_zero (imputers of dates)")
    parser.add_argument("--queries", help="CSV with the columns sample, time and sensor (imputers)")
    parser.add_argument("--model", default=os.path.dirname(os.path.abspath(__file__)), help="the export's folder")
    parser.add_argument("--out", help="CSV to write; by default standard output")
    options = parser.parse_args()
    try:
        model = ExportedModel(options.model)
        events = read_csv(options.events)
        samples = read_csv(options.samples) if options.samples else None
        if model.about["kind"] == "queries":
            if not options.queries:
                raise ReaderError("This model answers queries; give --queries FILE with sample, time and sensor.")
            queries = read_csv(options.queries)
            answers = model.readings_at(events, queries, samples)
            header = ["sample", "time", "sensor", *(f"q{level:g}" for level in model.about["levels"])]
            keys: Any = zip(queries["sample"], queries["time"], queries["sensor"], strict=True)
        else:
            ids, answers = model.predict(events, samples)
            header, keys = ["sample", *model.about["columns"]], ((name,) for name in ids)
        lines = [[*key, *row] for key, row in zip(keys, answers.reshape(len(answers), -1).tolist(), strict=True)]
        with open(options.out, "w", newline="", encoding="utf-8") if options.out else sys.stdout as file:
            csv.writer(file).writerows([header, *lines])
    except (ReaderError, OSError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

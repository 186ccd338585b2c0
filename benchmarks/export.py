"""Exported models beside the library: the largest difference, and samples or answers per second.

    python benchmarks/export.py RUN EXPORT DATA                    # the test part of the run's split
    python benchmarks/export.py RUN EXPORT AQI36_FOLDER --aqi      # the hidden readings of the test months

EXPORT is what `raindrop export RUN --out EXPORT` wrote. Every batch size is run over all samples with one thread, and
one of them with two. The reader is the one in EXPORT. Of an imputer, values are divided by the sensor's standard
deviation.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

import numpy as np
from stations import Stations

import raindrop as rd
from raindrop.table.event_table import EventTable

BATCH_SIZES = (1, 16, 64)
WINDOW_BATCHES = (1, 3, 8)


def load_reader(folder: Path) -> Any:
    """The module `reader.py` of an export."""
    found = importlib.util.spec_from_file_location("reader", folder / "reader.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def columns_of(table: EventTable) -> tuple[dict[str, Any], dict[str, Any]]:
    """Events and samples as columns by name."""
    events, samples = table.events(), table.samples
    return (
        {name: events[name].to_numpy() for name in ("sample", "time", "sensor", "value")},
        {name: samples[name].to_list() for name in samples.columns},
    )


def compare_samples(run: Path, export: Path, data: Path) -> None:
    """Differences and speed on the test part of a run's split."""
    model, table = rd.load(run), rd.EventTable.read(data)
    test = table if model.split_ is None else table[model.split_.find(table).is_in("test")]
    start = time.perf_counter()
    expected = model.predictions(test)
    print(f"{len(test):,} samples; library {len(test) / (time.perf_counter() - start):,.0f} samples/s, one thread")
    print(f"predictions from {expected[..., -1].min():.3g} to {expected[..., -1].max():.3g}")
    events, samples = columns_of(test)
    for threads, sizes in ((1, BATCH_SIZES), (2, BATCH_SIZES[1:2])):
        exported = load_reader(export).ExportedModel(export, threads=threads)
        for size in sizes:
            start = time.perf_counter()
            _, predicted = exported.predict(events, samples, batch_size=size)
            rate = len(test) / (time.perf_counter() - start)
            worst = np.abs(predicted - expected).max()
            print(f"threads {threads}, batch {size}: largest difference {worst:.1e}, {rate:,.0f} samples/s")


def compare_queries(run: Path, export: Path, data: Path) -> None:
    """Differences and speed on the readings of AQI-36 that are hidden in the test months."""
    model, stations = rd.load(run), Stations.read(data)
    asked = np.isfinite(stations.truth) & ~np.isfinite(stations.visible) & stations.test[:, None]
    table, queries = stations.whole_table(), stations.queries(asked)
    start = time.perf_counter()
    answers = model.readings_at(table, queries)
    print(
        f"{len(queries):,} answers; library {len(queries) / (time.perf_counter() - start):,.0f} answers/s, one thread"
    )
    codes = np.array([model.scaler_.sensors.index(name) for name in queries["sensor"]])
    events, samples = columns_of(table)
    columns = {name: queries[name].to_numpy() for name in ("sample", "time", "sensor")}
    for threads, sizes in ((1, WINDOW_BATCHES), (2, WINDOW_BATCHES[1:2])):
        exported = load_reader(export).ExportedModel(export, threads=threads)
        for size in sizes:
            start = time.perf_counter()
            predicted = exported.readings_at(events, columns, samples, batch_size=size)
            rate = len(queries) / (time.perf_counter() - start)
            middle = predicted[:, predicted.shape[1] // 2]
            worst = np.abs((middle - answers.value) / model.scaler_.scale[codes]).max()
            print(f"threads {threads}, {size} windows at once: largest difference {worst:.1e}, {rate:,.0f} answers/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("export", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--aqi", action="store_true")
    options = parser.parse_args()
    (compare_queries if options.aqi else compare_samples)(options.run, options.export, options.data)

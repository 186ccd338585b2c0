"""How well known graphs are found, by `raindrop.sensor_graph` and by four baselines.

    python benchmarks/graph_recovery.py lorenz 0.3 --data ../shared/data/known_graphs --seeds 0 1 2 3 4
    python benchmarks/graph_recovery.py netsim 0.1 --data ../shared/data/known_graphs --seeds 0
    python benchmarks/graph_recovery.py delayed --seeds 0 1 2 3 4 5 6 7 8 9
    python benchmarks/graph_recovery.py stations --data AQI36_FOLDER --without-baselines      # three nearest stations
    python benchmarks/graph_recovery.py alarms --seeds $(seq 0 99)
    python benchmarks/graph_recovery.py sample-alarms --seeds $(seq 0 99)

Prints one JSON line for each graph and method, then means over all of them.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
from sklearn.covariance import graphical_lasso
from sklearn.ensemble import HistGradientBoostingRegressor
from stations import Stations

from raindrop import EventTable, sensor_graph
from raindrop.datasets.asynchronous import delayed_sensors
from raindrop.datasets.dynamics import lorenz96
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.past import Past
from raindrop.graphs.recovery import lagged_correlation, recovery

Case = tuple[str, EventTable, np.ndarray]


def regular(series: np.ndarray, missing: float, seed: int) -> EventTable:
    """A table of (steps, sensors), each reading dropped with the probability `missing`."""
    step, sensor = np.nonzero(np.random.default_rng(seed).random(series.shape) >= missing)
    return as_table(step.astype(float), sensor, series[step, sensor], series.shape[1])


def as_table(time: np.ndarray, sensor: np.ndarray, value: np.ndarray, number: int) -> EventTable:
    names = [f"s{at:02d}" for at in range(number)]
    events = {"sample": "series", "time": time, "sensor": [names[at] for at in sensor], "value": value}
    return EventTable.from_frames(pl.DataFrame(events), sensors=names)


def known(path: Path) -> tuple[np.ndarray, np.ndarray]:
    content = np.load(path)
    truth = content["Gref"].astype(bool).T.copy()
    np.fill_diagonal(truth, False)
    return content["X_np"].T.astype(float), truth


def cases(options: argparse.Namespace) -> Iterator[Case]:
    for seed in options.seeds:
        if options.task == "lorenz":
            for number in (1, 2):
                series, truth = known(options.data / f"lorenz96_f10_t1000_{number}.npz")
                yield f"{number}/{seed}", regular(series, options.missing, 10 * seed + number), truth
        elif options.task == "irregular":  # Lorenz-96 read at times of each sensor's own, about every second step
            truth, step = lorenz96(10, force=10.0, dt=0.0125)
            rng = np.random.default_rng(seed)
            state = rng.normal(size=(1, 10))
            path = []
            for at in range(3000):
                state = step(state)
                path.append(state[0])
                del at
            series = np.array(path[1000:])  # a step of 0.025
            sensor, time = np.nonzero(rng.random((10, 2000)) < 0.3)
            yield str(seed), as_table(time.astype(float), sensor, series[time, sensor], 10), truth
        elif options.task == "netsim":
            for subject in range(25):
                series, truth = known(options.data / f"netsim_sim3_subject_{subject}.npz")
                yield f"{subject}/{seed}", regular(series, options.missing, 100 * seed + subject), truth
        elif options.task == "stations":
            stations = Stations.read(options.data)
            distance = np.where(np.eye(len(stations.names)) > 0, np.inf, stations.distance)
            yield "AQI-36", stations.whole_table(), distance <= np.sort(distance, axis=0)[2]
        elif options.task == "delayed":
            planted = delayed_sensors(seed=seed)
            yield str(seed), planted.table, planted.adjacency()


def unrelated(rng: np.random.Generator, readings: int, *, kept: float) -> tuple[np.ndarray, np.ndarray]:
    """Times at random and values: a random walk (kept = 1) or autoregressive, by this factor in an interval."""
    time = np.cumsum(rng.exponential(1.0, readings))
    noise = rng.normal(size=readings)
    value = np.empty(readings)
    value[0] = noise[0]
    for i in range(1, readings):
        gap = time[i] - time[i - 1]
        spread = np.sqrt(gap) if kept == 1 else np.sqrt(1 - kept ** (2 * gap))
        value[i] = kept**gap * value[i - 1] + spread * noise[i]
    return time, value


def independent(seed: int) -> EventTable:
    """Six unrelated sensors with clocks of their own: random walks (odd seeds) or autoregressive, 0.95 an interval."""
    rng = np.random.default_rng([seed, 17])
    times, values = zip(*(unrelated(rng, 300, kept=1.0 if seed % 2 else 0.95) for _ in range(6)), strict=True)
    return as_table(np.concatenate(times), np.repeat(np.arange(6), 300), np.concatenate(values), 6)


def independent_samples(seed: int) -> EventTable:
    """Sixty short samples of five such sensors; odd seeds: all read at the same times."""
    rng = np.random.default_rng([seed, 18])
    frames = []
    for sample in range(60):
        common, _ = unrelated(rng, 20, kept=0.9)
        for at in range(5):
            time, value = unrelated(rng, 20, kept=0.9)
            time = common if seed % 2 else time
            frames.append(pl.DataFrame({"sample": f"{sample:02d}", "time": time, "sensor": f"s{at}", "value": value}))
    return EventTable.from_frames(pl.concat(frames))


# ---------------------------------------------------------------- baselines


def filled_steps(table: EventTable) -> np.ndarray:
    """(step, sensor) of a regular grid with gaps filled by straight lines, standardised."""
    past = Past.of(table)
    grid = np.arange(past.first[0], past.last[0], past.interval)
    columns = []
    for at in range(len(table.sensors)):
        rows, value = past.readings_of(at)
        columns.append(np.interp(grid, rows.time, value))
    steps = np.stack(columns, axis=1)
    return (steps - steps.mean(0)) / steps.std(0)


def correlation(table: EventTable) -> np.ndarray:
    return np.abs(np.corrcoef(filled_steps(table).T))


def partial_correlation(table: EventTable) -> np.ndarray:
    covariance = np.corrcoef(filled_steps(table).T) + 1e-3 * np.eye(len(table.sensors))
    precision = graphical_lasso(covariance, 0.05)[1]
    spread = np.sqrt(np.diag(precision))
    return np.abs(precision / np.outer(spread, spread))


def granger_trees(table: EventTable) -> np.ndarray:
    """How much the error of boosted trees grows on the last third when a sender's past is shuffled."""
    past, M = Past.of(table), len(table.sensors)
    weights = np.zeros((M, M))
    for v in range(M):
        rows, value = past.readings_of(v)
        x = np.concatenate([past.values(u, rows) for u in range(M)], axis=1)
        cut = len(x) * 2 // 3
        trees = HistGradientBoostingRegressor(max_iter=100, random_state=0).fit(x[:cut], value[:cut])
        base = np.mean((value[cut:] - trees.predict(x[cut:])) ** 2)
        rng = np.random.default_rng(v)
        width = x.shape[1] // M
        for u in range(M):
            shuffled = x[cut:].copy()
            block = slice(u * width, (u + 1) * width)
            shuffled[:, block] = shuffled[rng.permutation(len(shuffled)), block]
            weights[u, v] = np.mean((value[cut:] - trees.predict(shuffled)) ** 2) - base
    return weights


BASELINES: dict[str, Callable[[EventTable], np.ndarray]] = {
    "correlation": correlation,
    "lagged correlation": lambda table: lagged_correlation(table).weights,
    "partial correlation": partial_correlation,
    "Granger, trees": granger_trees,
}


ALARMS = {"alarms": independent, "sample-alarms": independent_samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["lorenz", "irregular", "netsim", "delayed", "stations", *ALARMS])
    parser.add_argument("missing", type=float, nargs="?", default=0.3)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--without-baselines", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.task in ALARMS:
        return false_alarms(ALARMS[options.task], options.seeds)
    scores: dict[str, list[tuple[float, ...]]] = {}
    for name, table, truth in cases(options):
        started = time.monotonic()
        graph = sensor_graph(table)
        seconds = time.monotonic() - started
        edges = graph.weights > 0
        methods = {"sensor_graph": graph.ranking(), "sensor_graph, lagged": graph.ranking("lagged")}
        if not options.without_baselines:
            for title, method in BASELINES.items():
                methods[title] = SensorGraph(table.sensors, np.asarray(method(table), dtype=np.float32))
        for title, each in methods.items():
            found = recovery(each, truth)
            row = (found.auroc, found.auprc, found.direction)
            scores.setdefault(title, []).append(row)
            line = {"case": name, "method": title, "auroc": row[0], "auprc": row[1], "direction": row[2]}
            if title == "sensor_graph":
                line |= {"seconds": seconds, "edges": int(edges.sum()), "true": int((edges & truth).sum())}
                line |= {"reversed": int((edges & truth.T & ~truth).sum()), "planted": int(truth.sum())}
            print(json.dumps({key: round(x, 4) if isinstance(x, float) else x for key, x in line.items()}), flush=True)
    for title, rows in scores.items():
        mean = np.nanmean(rows, axis=0)
        print(f"{title}: AUROC {mean[0]:.4f}, AUPRC {mean[1]:.3f}, direction {mean[2]:.3f}, {len(rows)} graphs")
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def false_alarms(draw: Callable[[int], EventTable], seeds: list[int]) -> None:
    with_edge = 0
    for done, seed in enumerate(seeds, 1):
        graph = sensor_graph(draw(seed))
        with_edge += not graph.is_empty
        lowest = float(graph.evidence["q"].min())
        print(json.dumps({"seed": seed, "edges": len(graph.edges()), "lowest_q": round(lowest, 4)}), flush=True)
        if done % 20 == 0:
            print(f"{with_edge} of {done} graphs of independent sensors have an edge", flush=True)
    print(f"{with_edge} of {len(seeds)} graphs of independent sensors have an edge at q = 0.05")


if __name__ == "__main__":
    main()

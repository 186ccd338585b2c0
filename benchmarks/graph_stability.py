"""Whether graphs recur: with other seeds, and on other samples (or the other half of a long series).

    python benchmarks/graph_stability.py TABLE --seeds 0 1 2 3 4            # a folder with events, such as P12's
    python benchmarks/graph_stability.py TABLE --classes --seeds 0 1        # how the classes differ
    python benchmarks/graph_stability.py AQI36_FOLDER --stations --seeds 0 1 2 3 4
    python benchmarks/graph_stability.py --planted 400 --seeds 0 1 2 3 4

Compared are, for every two graphs, each receiver's three strongest senders and the 50 strongest pairs; what two random
rankings would share is printed beside it. One JSON line for each comparison, then the cost.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from itertools import combinations
from pathlib import Path

import numpy as np
from stations import Stations

from raindrop import EventTable, class_graphs, sensor_graph
from raindrop.datasets.asynchronous import delayed_sensors
from raindrop.graphs.informed import InformedGraph

STRONGEST, SENDERS = 50, 3


def strongest_pairs(weights: np.ndarray, number: int) -> set[int]:
    """The positions of the largest weights above 0, without the diagonal."""
    weights = np.where(np.eye(len(weights), dtype=bool), 0.0, weights)
    order = np.argsort(-weights, axis=None)[:number]
    return {int(at) for at in order if weights.flat[at] > 0}


def shared_senders(a: np.ndarray, b: np.ndarray) -> tuple[float, int]:
    """Of each receiver's three strongest senders in a, the share that b has too; and of how many receivers."""
    shares = []
    for v in range(len(a)):
        one, other = (set(np.argsort(-np.delete(w[:, v], v))[:SENDERS].tolist()) for w in (a, b))
        if np.sort(np.delete(a[:, v], v))[-SENDERS:].min() > 0:
            shares.append(len(one & other) / SENDERS)
    return (float(np.mean(shares)) if shares else float("nan")), len(shares)


def compare(title: str, graphs: list[InformedGraph]) -> None:
    """Print what every two of the graphs share, in the mean."""
    M = len(graphs[0].sensors)
    rows = []
    for a, b in combinations(graphs, 2):
        edges = [set(map(tuple, g.edges().select("sender", "receiver").rows())) for g in (a, b)]
        top = [strongest_pairs(g.scores, STRONGEST) for g in (a, b)]
        senders, receivers = shared_senders(a.scores, b.scores)
        rows.append(
            {
                "edges": [len(each) for each in edges],
                "edges_in_common": len(edges[0] & edges[1]),
                "top_50_in_common": len(top[0] & top[1]) / max(map(len, top)),
                "three_senders_in_common": senders,
                "receivers": receivers,
            }
        )
    mean = {
        name: round(float(np.nanmean([row[name] for row in rows])), 3)
        for name in ("edges_in_common", "top_50_in_common", "three_senders_in_common", "receivers")
    }
    chance = {"top_50": round(STRONGEST / (M * (M - 1)), 3), "three_senders": round(SENDERS / (M - 1), 3)}
    edges = [len(graph.edges()) for graph in graphs]
    print(json.dumps({"compared": title, "sensors": M, "edges": edges} | mean | {"by_chance": chance}), flush=True)


def halves(table: EventTable, seed: int) -> list[EventTable]:
    """The samples in two random halves; a single long series is cut in the middle of its time."""
    if len(table) > 1:
        order = np.random.default_rng(seed).permutation(len(table))
        return [table[np.sort(order[part::2])] for part in (0, 1)]
    times = table.events()["time"]
    middle = times.median()
    return [table.where(lambda e: e["time"] <= middle), table.where(lambda e: e["time"] > middle)]


def compare_classes(table: EventTable, seeds: list[int]) -> None:
    """How the classes' graphs differ, with each seed and in two halves of the samples."""

    def differences(part: EventTable, seed: int) -> tuple[set[tuple[str, str]], dict[tuple[str, str], float]]:
        classes = class_graphs(part, seed=seed)
        found = classes.evidence.filter("found")
        every = classes.evidence.select("sender", "receiver", "in_class", "in_others").rows()
        strength = {(u, v): inside - outside for u, v, inside, outside in every}
        return set(map(tuple, found.select("sender", "receiver").rows())), strength

    M = len(table.sensors)
    for title, made in (
        ("seeds", [differences(table, seed) for seed in seeds]),
        ("halves", [differences(part, 0) for part in halves(table, 0)]),
    ):
        for (found_a, a), (found_b, b) in combinations(made, 2):
            top = [set(sorted(each, key=lambda pair: -abs(each[pair]))[:STRONGEST]) for each in (a, b)]
            both = found_a & found_b
            line = {
                "compared": f"class differences, {title}",
                "found": [len(found_a), len(found_b)],
                "found_in_both": len(both),
                "found_in_both_by_chance": round(len(found_a) * len(found_b) / (M * (M - 1)), 2),
                "same_sign": sum(a[pair] * b[pair] > 0 for pair in both),
                "top_50_in_common": len(top[0] & top[1]) / STRONGEST,
                "top_50_by_chance": round(STRONGEST / (M * (M - 1)), 3),
            }
            print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--stations", action="store_true", help="the folder is that of AQI-36")
    parser.add_argument("--planted", type=int, help="the seed of a planted series, instead of a table")
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--label", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options = parser.parse_args()
    if options.planted is not None:
        table = delayed_sensors(seed=options.planted).table
    elif options.stations:
        table = Stations.read(options.table).whole_table()
    else:
        table = EventTable.read(options.table, **({} if options.label is None else {"label": options.label}))
    if options.classes:
        compare_classes(table, options.seeds)
    else:
        started, used = time.monotonic(), time.process_time()
        graphs = [sensor_graph(table, seed=options.seeds[0])]
        cost = {"seconds": round(time.monotonic() - started, 1), "cpu_seconds": round(time.process_time() - used, 1)}
        graphs += [sensor_graph(table, seed=seed) for seed in options.seeds[1:]]
        print(json.dumps({"one graph": cost, "strongest": graphs[0].top(8).rows()}), flush=True)
        compare(f"{len(graphs)} seeds", graphs)
        compare("two halves", [sensor_graph(part) for part in halves(table, 0)])
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most")


if __name__ == "__main__":
    main()

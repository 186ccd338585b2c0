"""Whether graphs recur: with other seeds, and on other samples (or the other half of a long series).

    python benchmarks/graph_stability.py TABLE --seeds 0 1 2 3 4            # a folder with events, such as P12's
    python benchmarks/graph_stability.py TABLE --classes --seeds 0 1        # how the classes differ
    python benchmarks/graph_stability.py AQI36_FOLDER --stations --seeds 0 1 2 3 4
    python benchmarks/graph_stability.py --planted 400 --seeds 0 1 2 3 4
    python benchmarks/graph_stability.py LORENZ.npz --known 0.3 --seeds 0 1 2 3 4

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
from graph_recovery import known, regular
from stations import Stations

from raindrop import EventTable, class_graphs, sensor_graph
from raindrop.datasets.asynchronous import delayed_sensors
from raindrop.graphs.evidence import stability
from raindrop.graphs.graph import SensorGraph
from raindrop.graphs.informed import InformedGraph

STRONGEST, SENDERS = 50, 3
PAIR = ["sender", "receiver"]


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
    found = [set(graph.edges().select("sender", "receiver").rows()) for graph in graphs]
    senders = [shared_senders(a.scores, b.scores) for a, b in combinations(graphs, 2)]
    strongest = stability([graph.ranking() for graph in graphs], top=STRONGEST)
    line = {
        "compared": title,
        "sensors": M,
        "edges": [len(each) for each in found],
        "edges_in_common": float(np.mean([len(a & b) for a, b in combinations(found, 2)])),
        "top_50_in_common": round(strongest.overlap, 3),
        "three_senders_in_common": round(float(np.nanmean([share for share, _ in senders])), 3),
        "receivers": float(np.mean([number for _, number in senders])),
        "by_chance": {"top_50": round(strongest.expected_overlap, 3), "three_senders": round(SENDERS / (M - 1), 3)},
    }
    print(json.dumps(line), flush=True)


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

    def differences(part: EventTable, seed: int) -> tuple[set[tuple[str, ...]], SensorGraph]:
        evidence = class_graphs(part, seed=seed).evidence
        weights = np.zeros((len(part.sensors),) * 2, dtype=np.float32)
        place = {name: at for at, name in enumerate(part.sensors)}
        for sender, receiver, inside, outside in evidence.select(*PAIR, "in_class", "in_others").iter_rows():
            weights[place[sender], place[receiver]] = inside - outside
        return set(evidence.filter("found").select(PAIR).rows()), SensorGraph(part.sensors, weights)

    M = len(table.sensors)
    for title, made in (
        ("seeds", [differences(table, seed) for seed in seeds]),
        ("halves", [differences(part, 0) for part in halves(table, 0)]),
    ):
        for (found_a, a), (found_b, b) in combinations(made, 2):
            strongest, both = stability([a, b], top=STRONGEST), found_a & found_b
            line = {
                "compared": f"class differences, {title}",
                "found": [len(found_a), len(found_b)],
                "found_in_both": len(both),
                "found_in_both_by_chance": round(len(found_a) * len(found_b) / (M * (M - 1)), 2),
                "same_sign": sum(a[pair] * b[pair] > 0 for pair in both),
                "top_50_in_common": round(strongest.overlap, 3),
                "top_50_by_chance": round(strongest.expected_overlap, 3),
            }
            print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--stations", action="store_true", help="the folder is that of AQI-36")
    parser.add_argument("--known", type=float, metavar="MISSING", help="the file is one of known_graphs; share to drop")
    parser.add_argument("--planted", type=int, help="the seed of a planted series, instead of a table")
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    options = parser.parse_args()
    if options.planted is not None:
        table = delayed_sensors(seed=options.planted).table
    elif options.known is not None:
        table = regular(known(options.table)[0], options.known, seed=0)
    elif options.stations:
        table = Stations.read(options.table).whole_table()
    else:
        table = EventTable.read(options.table)
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

"""How often `raindrop.class_graphs` finds a planted difference, and any where labels say nothing.

    python benchmarks/class_graphs.py planted --draws 20
    python benchmarks/class_graphs.py permuted --draws 200

Samples belong to persons, two each. Prints one JSON line for each draw, then a summary.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from raindrop import class_graphs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from class_plants import one_class_edge


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("planted", "permuted"))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--samples", type=int, default=60)
    options = parser.parse_args()
    right = other = 0
    for seed in range(options.draws):
        table = one_class_edge(options.samples, seed=seed)
        if options.task == "permuted":
            persons = np.random.default_rng(seed).permutation(options.samples // 2) % 2
            table = table.with_labels(np.repeat(persons, 2))
        edges = class_graphs(table, seed=seed).difference.edges().select("sender", "receiver").rows()
        right += ("drive", "follows") in edges
        other += bool(set(edges) - {("drive", "follows")})
        print(json.dumps({"seed": seed, "edges": edges}), flush=True)
    print(json.dumps({"draws": options.draws, "with the planted edge": right, "with another edge": other}))


if __name__ == "__main__":
    main()

"""Training that streams a table from disk against training in memory: the same batches, weights and validation metrics.

    python benchmarks/streamed_training.py DATA --split DATA/splits.parquet:1 --epochs 2

Trains three times with the same seed: on the table in memory; on the table on disk, block by block, with all samples in
one pool (the same plan of batches); and with many small pools (another plan).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from raindrop import Classifier, EventTable
from raindrop.batch import collate
from raindrop.table import blocks
from raindrop.table.split_files import Split


def trained(parts: tuple[EventTable, ...], epochs: int, preset: str) -> tuple[Classifier, dict[str, Any]]:
    """A network of these settings, and how it went."""
    config = {"train.epochs": epochs, "train.min_steps": 0, "train.soft_targets": 0.0}
    started = time.monotonic()
    network = Classifier(preset=preset, config=config, seed=0).fit(parts[0], validation=parts[1])
    metrics = network.history_[-1]["validation"]
    return network, {"auroc": metrics["auroc"], "auprc": metrics["auprc"], "seconds": time.monotonic() - started}


def largest_difference(one: Classifier, other: Classifier) -> float:
    """Between two networks' weights."""
    pairs = zip(one.model_.state_dict().values(), other.model_.state_dict().values(), strict=True)
    return max(float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--split", required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--preset", default="paper")
    given = parser.parse_args()
    torch.set_num_threads(1)
    on_disk = EventTable.read(given.data)
    in_memory = replace(on_disk, **{name: np.array(getattr(on_disk, name)) for name in ("time", "sensor", "value")})
    split = Split.parse(given.split)
    whole, about = trained(split.apply(in_memory), given.epochs, given.preset)
    print("in memory:", about, flush=True)
    blocks.LARGE, blocks.BLOCK = len(on_disk.time) - 1, 1 << 17
    several, one = blocks.pools, lambda array, start, count, rng: [np.arange(len(count))]
    for name, chosen, large in (("one pool", one, blocks.LARGE), ("many pools", several, len(on_disk.time) // 8)):
        collate.pools, blocks.LARGE = chosen, large  # type: ignore[assignment]
        streamed, about = trained(split.apply(on_disk), given.epochs, given.preset)
        print(
            f"streamed, {name}:",
            about,
            "largest difference of weights:",
            largest_difference(whole, streamed),
            flush=True,
        )


if __name__ == "__main__":
    main()

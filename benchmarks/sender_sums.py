"""Messages that cross time: the two ways to sum over senders, in one run, for more and more shared timestamps.

    python benchmarks/sender_sums.py

64 samples of 40 sensors with 16 readings each, at timestamps that 1, 2, ... sensors share. Processor seconds of the
sums with their gradient, one thread, the best of five: by matrix products over all timestamps x sensors, and by
readings. "cells" are timestamps x sensors for each reading; products are used up to PRODUCT_GAIN of them.
"""

from __future__ import annotations

import time
from unittest.mock import PropertyMock, patch

import numpy as np
import polars as pl
import torch

from raindrop.batch.collate import Collator
from raindrop.batch.nearby import Neighbours
from raindrop.batch.scaling import Scaler
from raindrop.models.raindrop.nearby_sums import PRODUCT_GAIN, SenderSums
from raindrop.table.event_table import EventTable

SAMPLES, SENSORS, READINGS, HEADS, LINES, RANK, ROUNDS = 64, 40, 16, 4, 2, 4, 5


def table(sharing: int) -> EventTable:
    """Samples in which groups of `sharing` sensors are read at the same times."""
    rng = np.random.default_rng(0)
    clocks = -(-SENSORS // sharing)
    times = rng.uniform(0, 24, (SAMPLES, clocks, READINGS)).repeat(sharing, axis=1)[:, :SENSORS]
    sample, sensor, _ = np.indices(times.shape)
    events = {"sample": sample.ravel(), "time": times.ravel(), "sensor": sensor.ravel()}
    frame = pl.DataFrame(events).with_columns(pl.col("sample", "sensor").cast(pl.String))
    return EventTable.from_frames(frame.with_columns(value=pl.Series(rng.standard_normal(times.size))))


def seconds(sums: SenderSums, number: int, *, products: bool) -> float:
    """Processor seconds of the sums and their gradient."""
    torch.manual_seed(0)
    inputs = [torch.randn(number, HEADS, RANK), torch.rand(SENSORS, HEADS), torch.rand(SENSORS, SENSORS, HEADS)]
    inputs = [x.requires_grad_() for x in inputs]
    taken = []
    with patch.object(SenderSums, "products_are_cheaper", new_callable=PropertyMock, return_value=products):
        for _ in range(ROUNDS):
            started = time.process_time()
            numerator, total = sums(*inputs)
            (numerator.sum() + total.sum()).backward()
            taken.append(time.process_time() - started)
    return min(taken)


def main() -> None:
    torch.set_num_threads(1)
    print("sensors that share times   cells   by products   by readings   readings / products   used")
    for sharing in (40, 20, 10, 5, 4, 3, 2, 1):
        data = table(sharing)
        batch = Collator(data, Scaler.fit(data)).batch(np.arange(len(data)))
        sums = SenderSums(batch, Neighbours(batch, torch.full((SENSORS,), 1.5, dtype=torch.float64)), lines=LINES)
        number, cells = len(batch.value), batch.num_steps * batch.num_sensors / len(batch.value)
        products, readings = (seconds(sums, number, products=of_all) for of_all in (True, False))
        used = "products" if sums.products_are_cheaper else "readings"
        print(f"{sharing:24d} {cells:7.1f} {products:12.3f}s {readings:12.3f}s {readings / products:20.2f}   {used}")
    print(f"PRODUCT_GAIN = {PRODUCT_GAIN}")


if __name__ == "__main__":
    main()

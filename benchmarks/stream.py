"""One sample at a time, and readings per second of a stream, on P12-sized samples with the preset `tuned`.

    python benchmarks/stream.py [--beds 64] [--batch 2000] [--seconds 10] [--repeats 300]

Random samples of 430 readings of 36 sensors at 73 times; weights do not matter for speed, so the model is trained for
one step. Wall and CPU time of each call: medians, and the least of all. A product of matrices that takes the same work
in every run stands beside them: its median over its least says how much other work disturbed the run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

import raindrop as rd

SENSORS, TIMES, READINGS = 36, 73, 430


def random_table(samples: int, seed: int = 0) -> rd.EventTable:
    """Samples of the size of P12's, with five statics and a label."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[np.ndarray]] = {"sample": [], "time": [], "sensor": [], "value": []}
    for at in range(samples):
        times = np.sort(rng.uniform(0, 48, TIMES).round(3))
        cells = np.sort(rng.choice(TIMES * SENSORS, READINGS, replace=False))
        columns["sample"].append(np.full(READINGS, f"bed {at}"))
        columns["time"].append(times[cells // SENSORS])
        columns["sensor"].append(np.array([f"sensor {cell % SENSORS:02d}" for cell in cells]))
        columns["value"].append(rng.normal(size=READINGS))
    statics = {f"static {number}": rng.normal(size=samples) for number in range(5)}
    about = {"sample": [f"bed {at}" for at in range(samples)], "label": np.arange(samples) % 2, **statics}
    events = {name: np.concatenate(parts) for name, parts in columns.items()}
    return rd.EventTable.from_frames(events, about, statics=list(statics), duplicates="last")


def timed(call: Callable[[], object], repeats: int) -> str:
    """Medians and least wall and CPU time in milliseconds."""
    call()
    wall, cpu = [], []
    for _ in range(repeats):
        start, used = time.perf_counter(), time.process_time()
        call()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - used)
    parts = [f"{1e3 * statistic(x):7.2f}" for x in (wall, cpu) for statistic in (np.median, np.min)]
    return " ".join(parts)


def rate(model: rd.Classifier, table: rd.EventTable, batch: int, seconds: float) -> tuple[float, float, float]:
    """Readings per second of wall time and of CPU time, and scores per second of CPU time, until `seconds` of CPU."""
    events = table.events().with_columns(order=np.random.default_rng(1).permutation(table.num_readings))
    events = events.sort("time", "order").drop("order")
    stream = rd.Stream(model)
    stream.set_samples(table.samples)
    pushed = scored = round_ = 0
    start, used = time.perf_counter(), time.process_time()
    while time.process_time() - used < seconds:
        for readings in events.iter_slices(batch):
            stream.push(readings)
            scored += len(stream.scores())
            pushed += len(readings)
            if time.process_time() - used >= seconds:
                break
        round_ += 1
        stream = rd.Stream(model)  # the next patients
        stream.set_samples(table.samples)
    wall, cpu = time.perf_counter() - start, time.process_time() - used
    return pushed / wall, pushed / cpu, scored / cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beds", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeats", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    table = random_table(arguments.beds)
    short = {"train.epochs": 1, "train.min_steps": 1, "train.soft_targets": 0.0}
    model = rd.Classifier(config=short).fit(table, validation=table[:8])
    one, x = table[:1], torch.randn(256, 256)
    stream = rd.Stream(model)
    stream.set_samples(one.samples)
    stream.push(one.events())
    clock = iter(range(1, 1_000_000))

    def push_and_score() -> None:
        late = 48 + next(clock) * 1e-6
        stream.push({"sample": ["bed 0"], "time": [late], "sensor": ["sensor 00"], "value": [0.1]})
        stream.scores()

    def score() -> None:
        stream.scores(["bed 0"])

    print("milliseconds                    wall: median  least  CPU: median  least")
    print(f"product of matrices (the peer)        {timed(lambda: x @ x, arguments.repeats)}")
    print(f"predict_proba of one sample           {timed(lambda: model.predict_proba(one), arguments.repeats)}")
    print(f"scores of one live sample             {timed(score, arguments.repeats)}")
    print(f"push one reading, then scores         {timed(push_and_score, min(arguments.repeats, 100))}")
    wall, cpu, scored = rate(model, table, arguments.batch, arguments.seconds)
    print(
        f"{arguments.beds} samples, {arguments.batch:,} readings per push, scores after each: {wall:,.0f} readings/s "
        f"(wall), {cpu:,.0f} readings per CPU second, {scored:,.0f} scores per CPU second"
    )


if __name__ == "__main__":
    main()

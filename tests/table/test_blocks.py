"""A large table is worked on block by block: the same results, and memory that is given back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import random_table
from small_blocks import make_small

from raindrop.batch.collate import Collator, in_order, plan_batches
from raindrop.batch.gaps import typical_intervals
from raindrop.batch.scaling import Scaler
from raindrop.estimators.inputs import time_window
from raindrop.graphs.empty import no_shared_times_reason
from raindrop.table import blocks
from raindrop.table.event_table import EventTable
from raindrop.table.overview import overview
from raindrop.table.queries import spans
from raindrop.table.run_split import readings_hash


@pytest.fixture
def table() -> EventTable:
    return random_table(samples=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=30), st.lists(st.integers(0, 3), min_size=30), st.data())
def test_ranges_hold_every_sample_once_and_read_at_most_the_limit(count, between, data):
    count = np.array(count)
    gap = np.array(between[: len(count)])
    start = np.cumsum(count + gap) - count
    limit = data.draw(st.integers(1, 40))
    ranges = blocks.sample_ranges(start, count, limit)
    assert [at for part in ranges for at in range(part.start, part.stop)] == list(range(len(count)))
    for part in ranges:
        read = start[part.stop - 1] + count[part.stop - 1] - start[part.start]
        assert part.stop - part.start == 1 or read <= limit


def test_a_table_that_is_not_large_is_one_block_and_one_pool(table: EventTable) -> None:
    assert [block is table for block in table.blocks()] == [True]
    (pool,) = blocks.pools(table.time, table.start, table.count, np.random.default_rng(0))
    assert pool.tolist() == list(range(40))


def test_blocks_are_bounded_and_hold_the_whole_table(table: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)
    parts = list(table.blocks())
    assert len(parts) > 10
    assert all(part.num_readings <= 25 or len(part) == 1 for part in parts)
    assert pl.concat([part.events() for part in parts]).equals(table.events())


def test_every_pass_gives_the_same_in_blocks(table: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    part = table[np.random.default_rng(0).permutation(40)[:30]]
    expected = _results(part)
    make_small(monkeypatch)
    assert len(list(part.blocks())) > 10
    for name, found in _results(part).items():
        if isinstance(found, np.ndarray):
            assert_close(found, expected[name])
        else:
            assert found == expected[name], name


def _results(table: EventTable) -> dict[str, object]:
    scaler, about = Scaler.fit(table), overview(table)
    return {
        "mean": scaler.mean,
        "scale": scaler.scale,
        "observed": scaler.observed.tolist(),
        "window": time_window(table),
        "shared": no_shared_times_reason(table),
        "intervals": typical_intervals(table),
        "spans": np.stack(spans(table)),
        "hashes": readings_hash(table).tolist(),
        "fingerprint": table.fingerprint,
        "times": Collator(table, scaler).num_times.tolist(),
        "values": np.concatenate([batch.value.numpy() for batch in in_order(Collator(table, scaler))]),
        "overview": about.sensors.to_dict(as_series=False),
        "share": about.simultaneous_share,
        "last": about.last_times,
        "in memory": table.in_memory().events().to_dict(as_series=False),
    }


def test_a_constant_sensor_stays_constant_over_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch, large=5, block=4)
    at = np.arange(40)
    table = EventTable.from_columns(at // 2, at % 2, ["x"] * 40, np.full(40, 120000000.1))
    scaler = Scaler.fit(table)
    assert scaler.scale.tolist() == [1.0]
    assert_close(scaler.mean, np.array([120000000.1]))


# ---------------------------------------------------------------- batches


def test_pools_mix_ranges_that_lie_together_and_differ_between_epochs(
    table: EventTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch, large=120, ranges=4)
    order = np.random.default_rng(1).permutation(40)
    shuffled = table[order]
    plans = [
        blocks.pools(shuffled.time, shuffled.start, shuffled.count, np.random.default_rng(seed)) for seed in (0, 0, 1)
    ]
    for pools in plans:
        assert len(pools) > 3
        assert sorted(np.concatenate(pools).tolist()) == list(range(40))
        assert max(int(shuffled.count[pool].sum()) for pool in pools) <= 2 * 120
    assert [pool.tolist() for pool in plans[0]] == [pool.tolist() for pool in plans[1]]
    assert [set(pool) for pool in plans[0]] != [set(pool) for pool in plans[2]]


@pytest.mark.parametrize("kind", ["natural", "balanced", "bucketed"])
def test_an_epoch_goes_through_one_pool_after_another(kind: str) -> None:
    strata, lengths = np.arange(60) % 3, np.arange(60) + 1
    pools = [np.arange(40, 60), np.arange(0, 40)]
    chosen = {} if kind == "natural" else {kind: True}
    plan = plan_batches(10, np.random.default_rng(0), strata=strata, lengths=lengths, pools=pools, **chosen)
    assert [set(batch) <= set(range(40, 60)) for batch in plan] == [True] * 2 + [False] * 4
    assert all(set(batch) <= set(range(40)) for batch in plan[2:])
    if kind != "balanced":
        assert sorted(np.concatenate(plan).tolist()) == list(range(60))


def test_one_pool_gives_the_plan_without_pools() -> None:
    strata, lengths = np.arange(50) % 2, np.ones(50, dtype=np.int64)
    plans = [
        plan_batches(8, np.random.default_rng(3), strata=strata, lengths=lengths, pools=pools)
        for pools in (None, [np.arange(50)])
    ]
    assert all(np.array_equal(one, other) for one, other in zip(*plans, strict=True))


# ---------------------------------------------------------------- memory

PASSES = """
import re, sys
from pathlib import Path
import numpy as np
from raindrop.table import blocks
from raindrop.batch.collate import Collator, in_order
from raindrop.batch.scaling import Scaler
from raindrop.table.event_table import EventTable
from raindrop.table.overview import overview
large = int(sys.argv[2])
blocks.LARGE, blocks.BLOCK = large, min(large, 1 << 18)
table = EventTable.read(sys.argv[1])
def peak():  # of this program alone; that of getrusage begins with its parent's
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak()
for _ in range(2):
    scaler = Scaler.fit(table)
    for batch in in_order(Collator(table, scaler)):
        pass
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is counted as Linux does")
def test_passes_over_a_large_table_keep_its_pages_out_of_memory(tmp_path: Path) -> None:
    samples, length = 20_000, 200
    rng = np.random.default_rng(0)
    count = np.full(samples, length)
    table = EventTable(
        time=np.tile(np.arange(length, dtype=np.float64), samples),
        sensor=rng.integers(0, 3, samples * length).astype(np.int32),
        value=rng.normal(size=samples * length),
        start=np.cumsum(count) - count,
        count=count,
        sensors=("a", "b", "c"),
        samples=pl.DataFrame({"sample": np.arange(samples).astype(str)}),
    )
    table.write(tmp_path / "data")
    peak = {}
    for large in (1 << 30, 1 << 19):
        words = [sys.executable, "-c", PASSES, str(tmp_path / "data"), str(large)]
        peak[large] = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert peak[1 << 19] < 0.5 * peak[1 << 30]

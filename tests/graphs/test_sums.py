"""Regressions from sums over blocks of rows are those on the rows themselves, in one chunk or in many."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from closeness import assert_close

import raindrop as rd
from raindrop.graphs import design, lagged
from raindrop.graphs.lagged import Lagged, compare_senders
from raindrop.graphs.past import Past, Rows
from raindrop.graphs.receiver import Receiver
from raindrop.graphs.ridge import Regression
from raindrop.graphs.same_time import same_time
from raindrop.graphs.sums import Sums

CONDITION = 1e4  # of the systems that are solved: by so much rounding grows
ROWS, FOLD = 60, np.array([0, 1, 2, 0])  # of each block


@pytest.fixture
def drawn() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Raw columns, weights, target and blocks; the third column is constant."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(ROWS, 5)) @ rng.normal(size=(5, 5)) + 2
    columns[:, 2] = 0.3
    weight = rng.uniform(0.5, 2, ROWS)
    weight /= np.sqrt((weight**2).mean())
    return columns, weight, columns @ rng.normal(size=5) + rng.normal(size=ROWS), np.repeat(np.arange(4), ROWS // 4)


def sums_of(columns, weight, target, block) -> Sums:
    whole = np.column_stack([columns * weight[:, None], weight, target])
    products = np.stack([whole[block == at].T @ whole[block == at] for at in range(4)])
    return Sums.of(products, np.bincount(block).astype(float), FOLD)


def regression_of(columns, weight, target, block) -> tuple[Regression, np.ndarray]:
    """The same on standardised rows, in the order of folds; and that order."""
    mean = np.average(columns, axis=0, weights=weight**2)
    spread = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=weight**2))
    scaled = (columns - mean) / np.where(spread > 1e-9, spread, 1) * weight[:, None]
    order = np.argsort(FOLD[block], kind="stable")
    bounds = np.searchsorted(FOLD[block][order], np.arange(4)).tolist()
    folds = [slice(start, stop) for start, stop in itertools.pairwise(bounds)]
    return Regression.of(scaled[order], target[order], folds), order


def test_sums_by_block_give_the_errors_of_the_rows(drawn):
    sums, (rows, order) = sums_of(*drawn), regression_of(*drawn)
    expected = np.bincount(drawn[3][order], rows.squares(0.1))
    assert_close(sums.losses(sums.system.solve(0.1)[None])[0], expected, magnitude=CONDITION)
    raw = sums.raw(sums.system.solve(0.1))[FOLD[drawn[3]]]
    predicted = (np.column_stack([drawn[0] * drawn[1][:, None], drawn[1]]) * raw).sum(1)
    assert_close(predicted[order], rows.predicted(rows.solve(0.1)), magnitude=CONDITION)


def test_the_best_penalty_has_the_lowest_error(drawn):
    sums, (rows, _) = sums_of(*drawn), regression_of(*drawn)
    penalty, losses, _ = sums.best(np.array([1e-3, 0.1, 10.0]))
    errors = {each: rows.squares(each).sum() for each in (1e-3, 0.1, 10.0)}
    assert penalty == min(errors, key=errors.get)
    assert_close(losses.sum(), errors[penalty], magnitude=CONDITION)


# ---------------------------------------------------------------- more rows than are held at once


def many_samples(seed: int = 0) -> rd.EventTable:
    """v follows u, and w moves with v at the same time; 40 samples."""
    rng, frames = np.random.default_rng(seed), []
    for number in range(40):
        u, noise = rng.normal(size=31), rng.normal(size=31)
        v = np.concatenate([[0.0], 0.8 * u[:-1]]) + 0.5 * noise
        for name, x in (("u", u), ("v", v), ("w", noise + 0.5 * rng.normal(size=31))):
            columns = {"sample": f"{number:02d}", "time": np.arange(31.0), "sensor": name, "value": x}
            frames.append(pl.DataFrame(columns))
    return rd.EventTable.from_frames(pl.concat(frames))


@pytest.fixture(scope="module")
def past() -> Past:
    return Past.of(many_samples())


@pytest.fixture(scope="module")
def found(past) -> list[Lagged]:
    return [compare_senders(Receiver(past, v, np.arange(40), 0), by_sample=True) for v in range(3)]


def test_chunks_of_rows_give_the_results_of_one(monkeypatch, past, found):
    monkeypatch.setattr(design, "CHUNK", 400)
    monkeypatch.setattr(lagged, "FEW_ROWS", 400)
    monkeypatch.setattr(lagged, "LAG_ROWS", 400)
    parts = [compare_senders(Receiver(past, v, np.arange(40), 0), by_sample=True) for v in range(3)]
    single = float(np.finfo(np.float32).eps)
    for one, other in zip(found, parts, strict=True):
        for name in ("gain", "error"):
            assert_close(getattr(one, name), getattr(other, name), magnitude=CONDITION)
        for name in ("residual", "gain_sums"):  # columns are kept in single precision
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=CONDITION * single)


def test_times_in_chunks_give_the_same_edges_at_the_same_time(monkeypatch, found):
    whole = same_time(found, np.random.default_rng(0))
    monkeypatch.setattr("raindrop.graphs.same_time.CHUNK", 100)
    parts = same_time(found, np.random.default_rng(0))
    assert_close(parts.gain, whole.gain, magnitude=CONDITION)
    assert_close(parts.statistic, whole.statistic, magnitude=CONDITION)
    assert len(parts.by_chance) == len(whole.by_chance)  # these are dealt within a block, and so are other numbers


def test_what_is_left_of_a_pair_is_what_a_regression_on_all_others_leaves(monkeypatch, found):
    monkeypatch.setattr("raindrop.graphs.same_time.SHRINKAGE", 0.0)
    statistic = same_time(found, np.random.default_rng(0)).statistic
    residual = np.stack([each.residual[np.lexsort([each.rows.time, each.rows.sample])] for each in found], axis=1)
    residual = np.clip(residual / residual.std(0), -5, 5)
    correlation = residual.T @ residual / np.sqrt(np.outer((residual**2).sum(0), (residual**2).sum(0)))
    slope = correlation[0, 1:]
    left = residual[:, 1:] - residual[:, :1] * slope
    block = np.arange(len(residual)) * 30 // len(residual)
    sums = np.bincount(block, left.prod(1))
    assert_close(statistic[1, 2], abs(sums.sum()) / (sums.std(ddof=1) * np.sqrt(30)), magnitude=CONDITION)


def test_rows_above_the_limit_are_drawn_alike_for_all_sensors(past):
    few = [Receiver(past, v, np.arange(40), 3, limit=200) for v in range(3)]
    moments = [set(zip(each.rows.sample.tolist(), each.rows.time.tolist(), strict=True)) for each in few]
    assert all(len(each) == 200 for each in moments)
    assert moments[0] == moments[1] == moments[2]
    other = Receiver(past, 0, np.arange(40), 4, limit=200)
    assert set(zip(other.rows.sample.tolist(), other.rows.time.tolist(), strict=True)) != moments[0]
    assert len({int(x) for x in past.random_order(Rows(np.arange(40), np.ones(40)), 0)}) == 40


@pytest.mark.slow
def test_a_graph_from_some_of_the_rows_has_the_edges_of_all(monkeypatch):
    table = many_samples()
    whole = {(u, v) for u, v, _ in rd.sensor_graph(table).edges().iter_rows()}
    monkeypatch.setattr(lagged, "FEW_ROWS", 400)
    monkeypatch.setattr(lagged, "LAG_ROWS", 400)
    monkeypatch.setattr(design, "CHUNK", 400)
    assert {(u, v) for u, v, _ in rd.sensor_graph(table).edges().iter_rows()} == whole
    assert ("u", "v") in whole


def test_a_sensor_that_hardly_ever_changes_is_tested_with_all_its_rows(monkeypatch):
    monkeypatch.setattr(lagged, "FEW_ROWS", 100)
    monkeypatch.setattr(lagged, "LAG_ROWS", 80)
    value = np.zeros(2000)
    value[1000] = 1.0  # once, and not among the rows that are drawn
    time = np.arange(2000.0)
    walk = np.random.default_rng(0).normal(size=2000).cumsum()
    table = rd.EventTable.from_columns(
        ["a"] * 4000, np.concatenate([time, time + 0.5]), ["valve"] * 2000 + ["walk"] * 2000, np.append(value, walk)
    )
    rows = Receiver(Past.of(table), 0, np.zeros(1, dtype=np.int64), 0)
    assert rows.testable
    assert rows.smaller(100) is rows
    assert rd.sensor_graph(table).is_empty


def test_a_group_with_nearly_all_rows_is_cut_into_stretches_of_time():
    rng = np.random.default_rng(0)
    sample = np.concatenate([np.repeat([f"short {at:02d}" for at in range(29)], 2), np.full(900, "z")])
    time = np.concatenate([np.tile([0.0, 1.0], 29), np.arange(900.0)])
    columns = [(sample, time + shift, np.full(len(time), name), rng.normal(size=len(time)))
               for name, shift in (("one", 0.0), ("two", 0.3))]  # fmt: skip
    table = rd.EventTable.from_columns(*(np.concatenate(column) for column in zip(*columns, strict=True)))
    assert rd.sensor_graph(table).is_empty

"""Scores against known edges, and the plain statistic beside which they stand."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import tolerance

from raindrop import DataError, EventTable, SensorGraph
from raindrop.graphs.recovery import lagged_correlation, recovery

NAMES = ("a", "b", "c")
TRUTH = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)


def graph(*rows: list[float]) -> SensorGraph:
    return SensorGraph(NAMES, np.array(rows, dtype=np.float32))


def test_the_truth_itself_scores_1_and_its_opposite_0():
    right = recovery(graph(*TRUTH.astype(float)), TRUTH)
    assert (right.auroc, right.auprc, right.direction) == (1, 1, 1)
    assert right.base_rate == pytest.approx(1 / 3)
    wrong = recovery(graph(*1 - TRUTH.astype(float)), TRUTH)
    assert (wrong.auroc, wrong.direction) == (0, 0)


def test_edges_to_itself_do_not_count():
    loops = TRUTH + 9.0 * np.eye(3)
    assert recovery(graph(*loops), TRUTH).auroc == 1


def test_right_pairs_in_the_wrong_direction_are_told_apart_from_right_edges():
    both_ways = (TRUTH | TRUTH.T).astype(float)
    found = recovery(graph(*both_ways), TRUTH)
    assert found.direction == 0.5
    assert found.auroc == pytest.approx(0.75)


@pytest.mark.parametrize("truth", [np.eye(3, dtype=bool), np.ones((3, 3), dtype=bool)])
def test_a_truth_without_edges_or_without_gaps_is_refused(truth):
    with pytest.raises(DataError, match="at least one edge"):
        recovery(graph(*TRUTH.astype(float)), truth)


def test_a_truth_of_another_shape_is_refused():
    with pytest.raises(DataError, match=r"\(3, 3\), not \(2, 2\)"):
        recovery(graph(*TRUTH.astype(float)), np.eye(2, dtype=bool))


# ------------------------------------------------------------------ lagged correlation


def last_before(events, sample, sensor, time, same_time):
    rows = [
        (t, x) for s, t, name, x in events if s == sample and name == sensor and (t < time or (same_time and t == time))
    ]
    return max(rows)[1] if rows else None


@pytest.mark.parametrize("same_time", [False, True])
def test_it_is_the_correlation_with_the_last_reading_before(make_table, same_time):
    table = make_table(samples=8)
    events = list(table.events().iter_rows())
    found = lagged_correlation(table, same_time=same_time)
    for sender in table.sensors:
        for receiver in table.sensors:
            pairs = [
                (before, x)
                for s, t, name, x in events
                if name == receiver and (before := last_before(events, s, sender, t, same_time)) is not None
            ]
            expected = abs(np.corrcoef(np.array(pairs).T)[0, 1]) if len(pairs) > 2 else 0.0
            assert found[sender, receiver] == pytest.approx(expected, abs=tolerance())


def test_who_follows_another_by_a_step_is_found_in_that_direction():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(50, 20))
    b = np.roll(a, 1, axis=1)
    sample, time = np.indices(a.shape).reshape(2, -1)
    table = EventTable.from_columns(
        np.tile(sample.astype(str), 2), np.tile(time, 2), ["a"] * a.size + ["b"] * a.size, np.append(a, b)
    )
    found = lagged_correlation(table)
    assert found["a", "b"] > 0.9
    assert found["b", "a"] < 0.1


def test_a_table_without_readings_has_a_graph_without_edges(make_table):
    empty = make_table().where(lambda events: np.zeros(len(events), dtype=bool))
    assert not lagged_correlation(empty).weights.any()

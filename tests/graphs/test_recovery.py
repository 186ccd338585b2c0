"""Recovery of known edges, and the correlation graph to compare with."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_self_edges_are_ignored():
    loops = TRUTH + 9.0 * np.eye(3)
    assert recovery(graph(*loops), TRUTH).auroc == 1


def test_the_right_pairs_without_direction_score_less_than_the_right_edges():
    both_ways = (TRUTH | TRUTH.T).astype(float)
    result = recovery(graph(*both_ways), TRUTH)
    assert result.direction == 0.5
    assert result.auroc == pytest.approx(0.75)


@pytest.mark.parametrize("truth", [np.eye(3, dtype=bool), np.ones((3, 3), dtype=bool)])
def test_a_truth_with_no_edges_or_with_all_edges_is_refused(truth):
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
def test_weights_are_correlations_with_the_latest_earlier_reading(make_table, same_time):
    table = make_table(samples=8)
    events = list(table.events().iter_rows())
    result = lagged_correlation(table, same_time=same_time)
    for sender in table.sensors:
        for receiver in table.sensors:
            pairs = [
                (before, x)
                for s, t, name, x in events
                if name == receiver and (before := last_before(events, s, sender, t, same_time)) is not None
            ]
            expected = abs(np.corrcoef(np.array(pairs).T)[0, 1]) if len(pairs) > 2 else 0.0
            assert result[sender, receiver] == pytest.approx(expected, abs=1e-5)


def test_a_sensor_that_lags_another_has_an_edge_from_it_and_none_back():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(50, 20))
    b = np.roll(a, 1, axis=1)
    sample, time = np.indices(a.shape).reshape(2, -1)
    table = EventTable.from_columns(
        np.tile(sample.astype(str), 2), np.tile(time, 2), ["a"] * a.size + ["b"] * a.size, np.append(a, b)
    )
    result = lagged_correlation(table)
    assert result["a", "b"] > 0.9
    assert result["b", "a"] < 0.1


def test_a_table_without_readings_has_a_graph_without_edges(make_table):
    empty = make_table().where(lambda events: np.zeros(len(events), dtype=bool))
    assert "no two sensors have three pairs" in lagged_correlation(empty).describe_empty()

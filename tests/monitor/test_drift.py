"""Tests against the reference: planted changes are found by name, and untouched samples raise few alarms."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from scipy import stats

from raindrop import EventTable
from raindrop.monitor import Findings, Monitor, Reference, findings_by_group
from raindrop.monitor.drift import Drift, adjust, homogeneity, psi, share_tests
from raindrop.monitor.pieces import Pieces
from raindrop.monitor.reference import Counts, edges
from raindrop.monitor.unit_changes import CHANGES, find_unit_change
from raindrop.tasks.base import Watched

SENSORS = ("glucose", "rare", "temperature")


def ward(samples: int, seed: int, *, rate: float = 6.0) -> EventTable:
    """Two sensors that every sample has, and one of half of them; samples have levels of their own."""
    rng = np.random.default_rng(seed)
    rows = []
    for at in range(samples):
        level = {"temperature": rng.normal(37, 0.6), "glucose": rng.lognormal(4.8, 0.3), "rare": rng.normal(5, 1)}
        for name, usual in level.items():
            if name == "rare" and rng.random() < 0.5:
                continue
            for time in np.unique(rng.uniform(0, 48, 1 + rng.poisson(rate))):
                rows.append((f"s{at}", float(time), name, usual + rng.normal(0, 0.02 * usual)))
    sample, time, sensor, value = zip(*rows, strict=True)
    return EventTable.from_columns(sample, time, sensor, value, sensors=list(SENSORS))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference.learn(ward(800, 0), SENSORS)


@pytest.fixture(scope="module")
def new() -> EventTable:
    return ward(200, 1)


def found(reference: Reference, table: EventTable) -> Findings:
    monitor = Monitor(reference)
    monitor.update(table)
    return monitor.findings()


def changed(table: EventTable, sensor: str, factor: float, offset: float = 0.0) -> EventTable:
    own = np.asarray(table.sensor[table.rows()]) == table.sensors.index(sensor)
    value = np.asarray(table.value[table.rows()])
    events = table.events().with_columns(value=np.where(own, factor * value + offset, value))
    return EventTable.from_frames(events, sensors=list(table.sensors))


def test_untouched_samples_raise_no_alarm(reference: Reference, new: EventTable) -> None:
    assert found(reference, new).sentences() == []


def test_a_dead_sensor_is_named(reference: Reference, new: EventTable) -> None:
    alive = new.where(np.asarray(new.sensor[new.rows()]) != SENSORS.index("temperature"))
    (alarm,) = found(reference, alive).alarms
    assert (alarm.name, alarm.kind, alarm.is_dead) == ("temperature", "missing", True)
    assert alarm.sentence().startswith("temperature: dead: read in 0.0% of samples, 100.0% in training")


@pytest.mark.parametrize(
    ("sensor", "factor", "offset", "note"),
    [
        ("glucose", 10.0, 0.0, "10 times"),
        ("glucose", 0.001, 0.0, "1/1000 of"),
        ("temperature", 1.8, 32.0, "Fahrenheit instead of Celsius"),
        ("glucose", 1 / 18.016, 0.0, "mg/dL and mmol/L"),
    ],
)
def test_a_change_of_unit_is_recognised(
    reference: Reference, new: EventTable, sensor: str, factor: float, offset: float, note: str
) -> None:
    (alarm,) = found(reference, changed(new, sensor, factor, offset)).alarms
    assert (alarm.name, alarm.kind) == (sensor, "level")
    assert note in alarm.note


def test_a_shift_that_is_no_unit_is_a_shift(reference: Reference, new: EventTable) -> None:
    (alarm,) = found(reference, changed(new, "temperature", 1.0, 1.0)).alarms
    assert (alarm.name, alarm.kind, alarm.note) == ("temperature", "level", "")


def test_a_constant_sensor_is_named(reference: Reference, new: EventTable) -> None:
    alarms = found(reference, changed(new, "glucose", 0.0, 120.0)).alarms
    assert ("glucose", "constant") in {(alarm.name, alarm.kind) for alarm in alarms}


def test_another_rate_at_one_site_is_named_with_the_site(reference: Reference) -> None:
    both = [ward(200, 2), ward(200, 3, rate=3.0)]
    events = [table.events().with_columns(sample=f"{site} " + table.events()["sample"]) for table, site in
              zip(both, ("north", "south"), strict=True)]  # fmt: skip
    import polars as pl

    rows = pl.concat(events)
    samples = rows.select("sample").unique(maintain_order=True).with_columns(site=pl.col("sample").str.slice(0, 5))
    table = EventTable.from_frames(rows, samples, sensors=list(SENSORS))
    alarms = findings_by_group(reference, table, "site").alarms
    rates = {(alarm.name, alarm.group) for alarm in alarms if alarm.kind == "rate"}
    assert rates == {(name, "site south") for name in SENSORS}
    assert {alarm.group for alarm in alarms} == {"site south"}


@pytest.mark.slow
def test_few_untouched_draws_raise_an_alarm() -> None:
    pieces = Pieces.of(ward(1500, 5), SENSORS)
    draws, alarms = 60, 0
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(pieces.count)
        reference = Reference.of_pieces(pieces[order[:1200]], SENSORS, [], "hours")
        monitor = Monitor(reference)
        monitor.count(pieces[order[1200:]])
        alarms += bool(monitor.findings().alarms)
    assert alarms <= stats.binom.ppf(0.999, draws, 0.05)


def test_samples_counted_one_by_one_are_as_all_at_once(reference: Reference, new: EventTable) -> None:
    at_once, one_by_one = Monitor(reference), Monitor(reference)
    at_once.update(new)
    for at in range(len(new)):
        one_by_one.update(new[at : at + 1])
    for field in fields(Counts):
        assert np.allclose(getattr(at_once.counts, field.name), getattr(one_by_one.counts, field.name))
    assert [test.q for test in at_once.findings().tests] == [test.q for test in one_by_one.findings().tests]


def test_with_a_window_old_samples_are_forgotten_and_memory_stays(reference: Reference, new: EventTable) -> None:
    monitor = Monitor(reference, window=100)
    monitor.update(changed(new, "glucose", 10.0))
    assert monitor.findings().alarms
    for start in range(0, 200, 20):
        monitor.update(new[start : start + 20])
    assert int(monitor.counts.pieces) <= 120
    assert monitor.findings().alarms == ()
    assert len(monitor._blocks) == 2


def test_kept_levels_are_drawn_from_all_samples(reference: Reference) -> None:
    pieces = Pieces.of(ward(900, 7), SENSORS)
    monitor = Monitor(reference)
    for part in np.array_split(np.arange(900), 30):
        monitor.count(pieces[part])
    kept = monitor.levels()[SENSORS.index("temperature")]
    place = {level: at for at, level in enumerate(pieces.level[pieces.sensor == SENSORS.index("temperature")])}
    assert len(kept) == 256
    assert stats.kstest([place[level] for level in kept], stats.uniform(0, 900).cdf).pvalue > 1e-4


def test_metrics_for_prometheus_have_names_labels_and_numbers(reference: Reference, new: EventTable) -> None:
    monitor = Monitor(reference)
    monitor.update(changed(new, "glucose", 10.0))
    gauges = {(name, *labels.values()): value for name, labels, value in monitor.metrics()}
    assert gauges["raindrop_drift_samples",] == 200
    assert gauges["raindrop_drift_alarms",] == 1
    assert gauges["raindrop_drift_alarm", "glucose", "level"] == 1
    assert gauges["raindrop_drift_alarm", "temperature", "level"] == 0


def test_calibration_is_compared_with_that_of_validation(new: EventTable) -> None:
    rng = np.random.default_rng(0)

    def scores(n: int, bias: float) -> list[Watched]:
        p = rng.uniform(0.05, 0.9, n)
        return [Watched("died=1", p, (rng.random(n) < np.clip(p + bias, 0, 1)).astype(float))]

    for validation_bias in (0.0, 0.1):  # a model that was off in validation, too
        reference = Reference.learn(ward(300, 0), SENSORS, scores(1500, validation_bias))
        holds, fails = Monitor(reference), Monitor(reference)
        holds.update(new, scores(600, validation_bias))
        fails.update(new, scores(600, validation_bias - 0.2))
        assert holds.findings().alarms == ()
        (alarm,) = fails.findings().alarms
        assert (alarm.name, alarm.kind) == ("died=1", "calibration")


def test_errors_of_quantities_are_compared_with_those_of_validation(new: EventTable) -> None:
    rng = np.random.default_rng(0)

    def days(n: int, wider: float) -> list[Watched]:
        predicted = rng.normal(10, 2, n)
        return [Watched("days", predicted, predicted + rng.normal(0, wider, n), is_probability=False)]

    reference = Reference.learn(ward(300, 0), SENSORS, days(800, 1.0))
    holds, fails = Monitor(reference), Monitor(reference)
    holds.update(new, days(400, 1.0))
    fails.update(new, days(400, 2.5))
    assert holds.findings().alarms == ()
    assert [alarm.kind for alarm in fails.findings().alarms] == ["calibration"]


def test_sensors_that_the_model_does_not_know_are_listed(reference: Reference, new: EventTable) -> None:
    events = new.events().with_columns(sensor=new.events()["sensor"].cast(str).str.replace("rare", "rarer"))
    assert found(reference, EventTable.from_frames(events)).new_sensors == ("rarer",)


def test_pieces_have_medians_numbers_of_readings_and_constants() -> None:
    table = EventTable.from_columns(
        ["a"] * 6 + ["b"], [0.0, 1, 2, 4, 0, 4, 3], ["x", "x", "x", "x", "y", "y", "x"], [1.0, 9, 2, 3, 5, 5, 7]
    )
    pieces = Pieces.of(table, ("y", "x"))
    assert pieces.count == 2
    assert list(zip(pieces.piece, pieces.sensor, pieces.level, strict=True)) == [(0, 0, 5.0), (0, 1, 2.5), (1, 1, 7.0)]
    assert pieces.readings.tolist() == [2, 4, 1]
    assert pieces.repeated.tolist() == [False, True, False]
    assert Pieces.of(table, ("y", "x"), 2.0).count == 4  # a: 0 to 2, 2 to 4, 4; b


def test_holms_method_and_the_size_of_a_change_decide() -> None:
    tests = [Drift(name, "level", size, p, 1.0, 0, 0) for name, size, p in
             (("a", 0.5, 0.001), ("b", 0.01, 0.001), ("c", 0.5, 0.02), ("d", 0.5, 0.9))]  # fmt: skip
    adjusted = adjust(tests)
    assert [test.q for test in adjusted] == pytest.approx([0.004, 0.004, 0.04, 0.9])
    assert [test.is_alarm for test in adjusted] == [True, False, True, False]


def test_homogeneity_is_the_chi_squared_test_of_scipy() -> None:
    old, new = np.array([90, 110, 100, 80]), np.array([20, 30, 15, 25])
    assert homogeneity(old, new) == pytest.approx(stats.chi2_contingency([old, new], correction=False).pvalue)


def test_sparse_bins_are_merged_before_the_test() -> None:
    old, new = np.array([1000, 1, 1, 1, 997]), np.array([10, 0, 0, 0, 11])
    merged = stats.chi2_contingency([[1001, 999], [10, 11]], correction=False).pvalue
    assert homogeneity(old, new) == pytest.approx(merged, rel=0.05)
    assert homogeneity(np.array([5, 0]), np.array([4, 0])) == 1.0


def test_shares_are_compared_exactly() -> None:
    p = share_tests(np.array([50, 10]), np.array([100, 100]), np.array([5, 1]), np.array([10, 10]))
    assert p[0] > 0.9
    below = stats.hypergeom.cdf(0, 110, 50, 10)
    assert share_tests(np.array([50]), np.array([100]), np.array([0]), np.array([10])) == pytest.approx(2 * below)


def test_the_index_of_equal_histograms_is_0_and_grows_with_the_change() -> None:
    assert psi(np.array([10, 20]), np.array([10, 20])) == 0
    assert psi(np.array([10, 20]), np.array([20, 10])) > psi(np.array([10, 20]), np.array([13, 17])) > 0


def test_bins_of_few_distinct_values_are_those_values() -> None:
    found_edges = edges(np.array([1.0] * 50 + [2.0] * 50))
    assert found_edges[np.isfinite(found_edges)].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.factor:.4g}x+{change.offset:g}")
def test_every_change_of_unit_is_found_in_narrow_values(change: object) -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(100, 4, (2, 2000))
    note = find_unit_change(np.quantile(old, np.linspace(0, 1, 101)), change.factor * new + change.offset)
    assert note == change.describe()


def test_stretches_are_of_one_sample_and_one_length_however_many_there_could_be():
    columns = {
        "sample": ["a"] * 5 + ["b"] * 2,
        "time": [0.0, 9.0, 10.0, 25.0, 1e12, 3.0, 12.9],
        "sensor": ["x"] * 7,
        "value": [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0],
    }
    table = EventTable.from_frames(columns)
    assert Pieces.of(table, ["x"], length=1e-9).count == 7  # 1e21 stretches apart
    pieces = Pieces.of(table, ["x"], length=10.0)
    assert pieces.count == 5
    assert pieces.level.tolist() == [2.0, 5.0, 7.0, 9.0, 12.0]

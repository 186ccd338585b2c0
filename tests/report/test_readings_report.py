"""What the report on an imputer or a forecaster contains: its numbers are those of the estimator."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from waves import QUICK, wave_table

from raindrop import ConfigError, EventTable, Forecaster, Imputer
from raindrop.estimators.hidden_readings import compare, hide_future, hide_in_gaps, with_cutoffs
from raindrop.estimators.simple_baselines import baseline_names, simple_baseline
from raindrop.report import ReadingsReport, report_on_readings
from raindrop.report.readings import content, scores
from raindrop.report.readings.cases import MAX_READINGS, MAX_SENSORS, MAX_VALUES
from raindrop.report.readings.content import at_several_cutoffs
from raindrop.report.readings.scores import BASELINES
from raindrop.table.hide import hold_out_future
from raindrop.table.queries import spans


def table_with_gaps() -> EventTable:
    """Waves in which sensor u1 is silent for ten hours, and u2 is missing in one sample."""
    table = wave_table(8, readings=30, seed=5)
    owner = np.repeat(np.arange(len(table)), table.count)
    silent = (table.sensor == 1) & (table.time > 6) & (table.time < 16)
    return table.where(~silent & ~((table.sensor == 2) & (owner == 3)))


@pytest.fixture(scope="module")
def imputer() -> Imputer:
    return Imputer(config=QUICK).fit(wave_table(readings=30), validation=wave_table(6, readings=30, seed=9))


@pytest.fixture(scope="module")
def forecaster() -> Forecaster:
    return Forecaster(horizon=6.0, config=QUICK).fit(wave_table(), validation=wave_table(6, seed=9))


@pytest.fixture(scope="module")
def table() -> EventTable:
    return table_with_gaps()


@pytest.fixture(scope="module")
def report(imputer: Imputer, table: EventTable) -> ReadingsReport:
    return report_on_readings(imputer, table, cases=12)


# ---------------------------------------------------------------- errors


@pytest.mark.slow
def test_the_errors_are_those_that_evaluate_gives_on_the_same_hidden_readings(report, imputer, table):
    scenarios = list(hide_in_gaps(imputer, table))
    assert [score.title for score in report.scores] == [scenario.title for scenario in scenarios]
    for score, scenario in zip(report.scores, scenarios, strict=True):
        assert list(score.metrics) == ["Raindrop", *(BASELINES[name] for name in baseline_names(imputer))]
        assert score.metrics["Raindrop"] == pytest.approx(imputer.evaluate(scenario.visible, scenario.truth), rel=1e-5)
        for name in baseline_names(imputer):
            expected = simple_baseline(imputer, name).evaluate(scenario.visible, scenario.truth)
            assert score.metrics[BASELINES[name]] == pytest.approx(expected, rel=1e-5)


def test_the_nearest_sensors_are_compared_where_sensors_are_read_together():
    events = wave_table(readings=30).events().with_columns(pl.col("time").round())
    together = EventTable.from_frames(events, duplicates="last")
    fitted = Imputer("linear").fit(together)
    for score in report_on_readings(fitted, together, cases=1).scores:
        assert list(score.metrics)[-1] == "nearest sensors"
        assert score.metrics["nearest sensors"]["mae"] > 0


def test_errors_by_sensor_add_up_to_those_of_all_readings(report):
    for score in report.scores:
        errors, all_readings = score.by_sensor, score.metrics["Raindrop"]
        assert errors.count.sum() == score.compared == score.hidden
        assert np.average(errors.mae, weights=errors.count) == pytest.approx(all_readings["mae"])
        assert errors.scaled_mae.mean() == pytest.approx(all_readings["standardised_mae"], rel=1e-5)
        assert errors.baseline.mean() == pytest.approx(score.metrics[score.best_baseline]["standardised_mae"], rel=1e-5)
        for share, covered in errors.coverage.items():
            expected = all_readings[f"coverage_{100 * share:.0f}"]
            assert np.average(covered, weights=errors.count) == pytest.approx(expected)


def test_the_unit_of_the_table_does_not_change_the_errors(report, imputer, table):
    minutes = report_on_readings(imputer, table.in_unit("minutes"), cases=3)
    assert minutes.time_unit == "minutes"
    for at in (0, 2):  # the length of a block is rounded in the table's unit
        score, other = report.scores[at], minutes.scores[at]
        assert other.metrics["Raindrop"] == pytest.approx(score.metrics["Raindrop"], rel=1e-4)


def test_of_very_many_hidden_readings_some_are_compared(imputer, table, monkeypatch):
    monkeypatch.setattr(scores, "MAX_CELLS", 1)
    monkeypatch.setattr(scores, "MIN_COMPARED", 20)
    limited = report_on_readings(imputer, table, cases=3)
    assert all(score.compared == 20 < score.hidden for score in limited.scores)


def test_of_a_very_large_table_some_stretches_are_looked_at(imputer, monkeypatch):
    for name, value in {"MAX_CELLS": 1, "MIN_COMPARED": 100, "MIN_STRETCHES": 3, "MAX_SEEN": 1}.items():
        monkeypatch.setattr(scores, name, value)
    long = wave_table(1, readings=4000, hours=4000.0, seed=4)
    scenario = next(hide_in_gaps(imputer, long))
    few = scores.limited(scenario, 3, 1.0, seed=0)
    assert len(few.truth) == 100
    assert few.truth.join(scenario.truth, on=few.truth.columns, how="semi").height == 100
    assert few.visible is scenario.visible
    assert (few.truth["time"] / scores.STRETCH).floor().n_unique() == 3


def test_a_model_without_validation_has_no_coverage(table):
    with pytest.warns(UserWarning, match="No validation"):
        unvalidated = Imputer("linear").fit(wave_table(1, readings=10))
    report = report_on_readings(unvalidated, table, cases=3)
    assert all(score.by_sensor.coverage == {} for score in report.scores)
    assert all(np.isnan(each.low).all() for case in report.cases for each in case.filled)


def test_filled_readings_are_not_taken_for_the_truth(report, imputer, table):
    again = report_on_readings(imputer, imputer.fill(table), cases=3)
    assert [score.metrics for score in again.scores] == [score.metrics for score in report.scores]
    assert not again.cases[0].kind  # its gaps are still gaps


def test_what_cannot_be_hidden_is_a_sentence(imputer, table):
    one = table.where(pl.col("sensor") == "u0")
    report = report_on_readings(imputer, one, cases=3)
    assert len(report.scores) == 2
    assert any(note.startswith("Hiding sensors was not possible. None of the") for note in report.notes)


# ---------------------------------------------------------------- cases


def test_gaps_of_the_table_have_the_values_that_fill_gives(report, imputer, table):
    expected = imputer.fill_readings(table).frame()
    cases = [case for case in report.cases if not case.kind]
    assert cases
    for case in cases:
        for each in case.filled:
            name = imputer.scaler_.sensors[each.sensor]
            rows = expected.filter((pl.col("sample") == case.sample) & (pl.col("sensor") == name)).sort("time")
            np.testing.assert_allclose(each.time, rows["time"])
            for column in ("value", "low", "high"):
                np.testing.assert_allclose(getattr(each, column), rows[column], rtol=1e-5, atol=1e-5)
            assert np.isnan(each.truth).all()


def test_the_longest_gap_comes_first(report, imputer):
    first = report.cases[0]
    assert (first.kind, first.reason) == ("", "long gap")
    assert imputer.scaler_.sensors[first.filled[0].sensor] == "u2"  # silent in a whole sample
    assert first.sample == "s03"
    gap = first.filled[0].gaps[first.filled[0].listed[0]]
    assert gap.stop - gap.start > 20


def test_the_senders_of_a_gap_are_the_mean_weights_of_its_values(report, imputer, table):
    case = report.cases[0]
    each = case.filled[0]
    gap = each.gaps[each.listed[0]]
    name = imputer.scaler_.sensors[each.sensor]
    queries = {"sample": [case.sample] * len(each.time), "time": each.time, "sensor": [name] * len(each.time)}
    frame = imputer.senders(table, queries).filter(pl.col("time").is_in(each.time[gap.values].tolist()))
    means = dict(frame.group_by("sender").agg(pl.col("weight").mean()).iter_rows())
    assert {imputer.scaler_.sensors[code]: weight for code, weight in gap.senders} == pytest.approx(means, rel=1e-5)
    weights = [weight for _, weight in gap.senders]
    assert weights == sorted(weights, reverse=True)
    assert each.sensor not in each.senders[each.weights > 0]


def test_hidden_readings_are_shown_as_the_truth_and_not_as_readings(report, imputer, table):
    events = table.events().with_columns(pl.col("sensor").cast(pl.String))
    known = {row[:3]: row[3] for row in events.iter_rows()}
    hidden = [case for case in report.cases if case.kind.startswith("Hidden: ")]
    assert {case.kind for case in hidden} == {f"Hidden: {score.title}" for score in report.scores[1:]}
    compared = 0
    for case in hidden:
        for each in case.filled:
            name = imputer.scaler_.sensors[each.sensor]
            at = np.isfinite(each.truth)
            compared += at.sum()
            assert [known[case.sample, time, name] for time in each.time[at]] == pytest.approx(each.truth[at])
            assert not set(each.time[at]) & set(case.readings[each.sensor][0])
    assert compared > 10


def test_cases_with_the_largest_errors_are_chosen(report, imputer, table):
    scenario = list(hide_in_gaps(imputer, table))[1]
    comparison = compare(imputer, scenario.visible, scenario.truth)
    case = next(case for case in report.cases if case.reason == "large error")
    error = np.abs(comparison.error) / comparison.scale
    ids = np.array(table.ids)[comparison.queries.sample]
    by_series: dict[tuple[str, int], list[float]] = {}
    for name, sensor, each in zip(ids, comparison.sensor, error, strict=True):
        by_series.setdefault((str(name), int(sensor)), []).append(float(each))
    worst = max(by_series, key=lambda key: sum(by_series[key]) / max(len(by_series[key]), 3))
    assert (case.sample, case.filled[0].sensor) == worst


def test_a_table_without_gaps_says_so():
    time = np.tile(np.arange(40.0), 12)
    sample, sensor = np.repeat(np.arange(6), 80), np.tile(np.repeat(np.arange(2), 40), 6)
    names = [f"s{at}" for at in sample], [f"u{at}" for at in sensor]
    regular = EventTable.from_columns(names[0], time, names[1], np.sin(time) + sensor)
    report = report_on_readings(Imputer("linear").fit(regular, validation=regular), regular, cases=4)
    assert any(note.startswith("The table has no gaps") for note in report.notes)
    assert all(case.kind for case in report.cases)
    assert report.cases


@pytest.mark.slow
def test_a_model_without_messages_has_no_senders(table):
    silent = Imputer(config=QUICK | {"model.messages": False}).fit(wave_table(), validation=wave_table(6, seed=9))
    for model in (silent, Imputer("nearest").fit(wave_table())):
        report = report_on_readings(model, table, cases=3)
        assert not report.passes_messages
        assert all(gap.senders == [] for case in report.cases for each in case.filled for gap in each.gaps)


@pytest.mark.slow
def test_a_long_series_is_shown_in_windows_and_thinned(imputer):
    long = wave_table(1, readings=4000, hours=4000.0, seed=4)
    long = long.where(~((long.sensor == 1) & (long.time > 1000) & (long.time < 1900)))
    report = report_on_readings(imputer, long, cases=9)
    assert len(report.cases) == 9
    own = [case for case in report.cases if not case.kind]
    assert own[0].filled[0].gaps[own[0].filled[0].listed[0]].stop > 1890
    for case in report.cases:
        assert case.stop - case.start < 1200
        assert len(case.filled) <= MAX_SENSORS
        assert all(len(each.time) <= 2 * MAX_VALUES for each in case.filled)
        assert all(len(time) <= MAX_READINGS for time, _ in case.readings.values())
    for kind in {case.kind for case in report.cases}:
        shown = sorted((case.start, case.stop) for case in report.cases if case.kind == kind)
        assert all(before[1] < after[0] for before, after in pairwise(shown))


# ---------------------------------------------------------------- forecasts


def test_errors_of_a_forecaster_are_those_of_evaluate_up_to_each_horizon(forecaster):
    table = wave_table(12, seed=5)
    report = report_on_readings(forecaster, table, cases=4)
    chosen, cutoff = with_cutoffs(forecaster, table)
    expected = list(hide_future(forecaster, chosen, cutoff, (1.5, 3.0, 6.0)))
    assert [score.title for score in report.scores] == [scenario.title for scenario in expected]
    for score, scenario in zip(report.scores, expected, strict=True):
        assert score.hidden == len(scenario.truth)
        assert score.metrics["Raindrop"] == pytest.approx(
            forecaster.evaluate(scenario.visible, scenario.truth), rel=1e-5
        )


def test_a_forecast_case_shows_nothing_after_the_cutoff_but_the_truth(forecaster):
    table = wave_table(12, seed=5)
    report = report_on_readings(forecaster, table, cases=4)
    last = dict(zip(table.ids, spans(table)[1], strict=True))
    assert len(report.cases) == len({case.sample for case in report.cases}) == 4
    for case in report.cases:
        cutoff = last[case.sample] - 6.0
        assert case.stop == pytest.approx(last[case.sample])
        assert all((time <= cutoff).all() for time, _ in case.readings.values())
        for each in case.filled:
            assert (each.time > cutoff).all()
            assert [(gap.start, gap.stop) for gap in each.gaps] == [pytest.approx((cutoff, case.stop))]
    fixed = replace(table, samples=table.samples.with_columns(pl.Series("end", spans(table)[1] - 6)))
    model = forecaster.set_params(cutoff="end")
    try:
        case = report.cases[0]
        each = case.filled[0]
        name = forecaster.scaler_.sensors[each.sensor]
        queries = {"sample": [case.sample] * len(each.time), "time": each.time, "sensor": [name] * len(each.time)}
        np.testing.assert_allclose(model.readings_at(fixed, queries).value, each.value, rtol=1e-5)
    finally:
        forecaster.set_params(cutoff=None)


def test_a_long_series_is_forecast_at_several_times(forecaster):
    long = wave_table(1, readings=600, hours=600.0, seed=4)
    several, number = at_several_cutoffs(long, 6.0)
    assert number == len(several) == content.CUTOFFS
    first, last = spans(several)
    assert (first == spans(long)[0]).all()
    assert last[-1] == spans(long)[1][0]
    assert np.diff(last).min() > 6.0
    report = report_on_readings(forecaster, long, cases=5)
    assert len(report.cases) == 5
    assert "20 in all" in report.notes[0]
    chosen, cutoff = with_cutoffs(forecaster, several)
    visible, truth = hold_out_future(chosen, cutoff, 6.0)
    assert report.scores[-1].metrics["Raindrop"] == pytest.approx(forecaster.evaluate(visible, truth), rel=1e-5)


# ---------------------------------------------------------------- card and mistakes


def test_the_card_says_what_was_learned_from_what(report, imputer, forecaster, table):
    model, data = dict(report.card.model), dict(report.card.data)
    assert model["Intervals"] == "calibrated on validation readings"
    assert data["Trained on"] == "20 samples with 1,800 readings"
    assert data["Reported on"] == f"8 samples with {table.num_readings:,} readings"
    assert data["Sensors"] == "3: u0, u1, u2"
    assert ("train.epochs", "1") in report.card.settings
    alone = report_on_readings(forecaster)
    assert dict(alone.card.model)["Horizon"] == "6 hours"
    assert not alone.scores
    assert alone.epoch_metric == "mae"


def test_a_report_on_the_training_table_says_so(imputer):
    report = report_on_readings(imputer, wave_table(readings=30), cases=3)
    assert report.notes[0].startswith("The model was trained on this table")


def test_a_report_without_cases_is_refused(imputer, table):
    with pytest.raises(ConfigError, match="cases=0"):
        report_on_readings(imputer, table, cases=0)

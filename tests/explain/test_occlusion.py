"""Occlusion against leaving out sensors and readings one at a time by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from closeness import tolerance
from learnable import QUICK, easy_table

from raindrop import Classifier, ConfigError, DataError
from raindrop.explain import occlusion
from raindrop.explain.occlusion import reading_contributions, sensor_contributions


@pytest.fixture(scope="module")
def fitted():
    table = easy_table(9)
    return Classifier(config=QUICK | {"train.holdout": 0.0}).fit(table), table


def log_odds(p: float) -> float:
    return float(np.log(p / (1 - p)))


def test_a_sensors_contribution_is_the_score_minus_that_without_its_readings(fitted):
    classifier, table = fitted
    result = sensor_contributions(classifier, table)
    whole = classifier.predict_proba(table)[:, 1]
    events = table.events()
    present = events.group_by("sample", "sensor").len()
    assert len(result) == len(present)
    for sample, sensor, readings, contribution, probability, without in result.iter_rows():
        alone = table.where(~((pl.col("sample") == sample) & (pl.col("sensor") == sensor)))
        at = table.ids.index(sample)
        expected = classifier.predict_proba(alone[[at]])[0, 1]
        assert without == pytest.approx(expected, abs=tolerance())
        assert probability == pytest.approx(whole[at], abs=tolerance())
        slope = max(1 / (p * (1 - p)) for p in (float(whole[at]), float(expected)))  # of the log-odds
        assert contribution == pytest.approx(log_odds(whole[at]) - log_odds(expected), abs=tolerance(magnitude=slope))
        assert readings == len(events.filter(sample=sample).filter(pl.col("sensor") == sensor))


def test_a_readings_contribution_is_the_score_minus_that_without_it(fitted):
    classifier, table = fitted
    few = table[:3]
    result = reading_contributions(classifier, few, target=0)
    events = few.events()
    assert len(result) == few.num_readings
    for at in range(0, few.num_readings, 3):
        row = events.row(at, named=True)
        mask = np.ones(few.num_readings, dtype=bool)
        mask[at] = False
        expected = classifier.predict_proba(few.where(mask))[few.ids.index(row["sample"]), 0]
        same = result.filter(sample=row["sample"]).filter(
            (pl.col("time") == row["time"]) & (pl.col("sensor") == row["sensor"])
        )
        assert same["without"].item() == pytest.approx(expected, abs=tolerance())
        assert same["value"].item() == pytest.approx(row["value"])


def test_the_chunk_size_changes_nothing(fitted, monkeypatch):
    classifier, table = fitted
    before = sensor_contributions(classifier, table), reading_contributions(classifier, table)
    monkeypatch.setattr(occlusion, "MAX_READINGS", 50)
    after = sensor_contributions(classifier, table), reading_contributions(classifier, table)
    for one, two in zip(before, after, strict=True):
        joined = one.join(two, on=one.columns[:3], suffix=" again")
        assert len(joined) == len(one) == len(two)
        assert (joined["without"] - joined["without again"]).abs().max() < 1e-5


def test_the_largest_contributions_come_first_within_each_sample(fitted):
    classifier, table = fitted
    result = sensor_contributions(classifier, table)
    for _, part in result.group_by("sample", maintain_order=True):
        assert part["contribution"].abs().is_sorted(descending=True)


def test_it_works_for_trees():
    table = easy_table(24)
    trees = Classifier("trees").fit(table)
    assert sensor_contributions(trees, table)["contribution"].is_finite().all()


@pytest.mark.slow
def test_the_sensors_that_determine_the_label_contribute_most():
    table = easy_table(120)  # the first two sensors are higher in class 1, the third is noise
    result = sensor_contributions(Classifier("trees", preset="paper").fit(table), table)
    label = dict(zip(table.ids, (2 * table.labels - 1).tolist(), strict=True))
    towards = result.with_columns(result["contribution"] * result["sample"].replace_strict(label))
    mean = {name: part["contribution"].mean() for (name,), part in towards.group_by("sensor")}
    assert min(mean["heart rate"], mean["pressure"]) > 3 * abs(mean["temperature"])


def test_a_sample_without_readings_has_no_contributions_and_an_unknown_class_is_refused(fitted):
    classifier, table = fitted
    last = table[[0]].where(lambda events: np.zeros(len(events), dtype=bool))
    assert sensor_contributions(classifier, last).is_empty()
    assert reading_contributions(classifier, last).is_empty()
    with pytest.raises(DataError, match="no class '7'"):
        sensor_contributions(classifier, table, target=7)


def test_with_more_than_two_classes_the_class_must_be_chosen():
    table = easy_table(24, classes=("a", "b", "c"))
    trees = Classifier("trees", preset="paper").fit(table)
    with pytest.raises(ConfigError, match="3 classes; choose one with target=CLASS: a, b, c"):
        sensor_contributions(trees, table)
    assert len(sensor_contributions(trees, table, target="b"))

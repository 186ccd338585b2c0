"""The service watches the readings it answers for: gauges of drift, computed now and then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from learnable import QUICK, easy_table

import raindrop as rd
from raindrop.serve.answers import Answers, Served
from raindrop.serve.drift import GROUP, SECONDS, DriftGauges
from raindrop.serve.limits import Limits
from raindrop.serve.messages import Columns, Job


@pytest.fixture(scope="module")
def model() -> rd.Classifier:
    table = easy_table(160)
    config = {name: value for name, value in QUICK.items() if name != "train.soft_targets"}
    return rd.Classifier(preset="paper", config=config | {"train.epochs": 1}).fit(table[:110], validation=table[110:])


def requests(model: rd.Classifier, *, factor: float = 1.0) -> list[rd.EventTable]:
    """80 samples, each in a table of its own, as a worker makes them."""
    table = easy_table(80, seed=5, prefix="n")
    scaled = np.where(table.events()["sensor"] == "pressure", factor, 1.0) * table.events()["value"].to_numpy()
    table = rd.EventTable.from_frames(table.events().with_columns(value=scaled), sensors=list(model.scaler_.sensors))
    return [replace(table[at : at + 1], sensors=model.scaler_.sensors) for at in range(len(table))]


@pytest.mark.slow
def test_samples_of_single_requests_are_counted_in_groups(model: rd.Classifier) -> None:
    now = [0.0]
    drift = DriftGauges(model, clock=lambda: now[0])
    for at, table in enumerate(requests(model, factor=100.0)):
        drift.add(replace(table[:1], time=table.time[table.rows()], sensor=table.sensor[table.rows()],
                          value=table.value[table.rows()], start=np.zeros(1, dtype=np.int64)))  # fmt: skip
        assert bool(drift.gauges()) == (at + 1 == GROUP)
    gauges = {(name, *labels.values()): value for name, labels, value in drift.monitor.metrics()}
    assert gauges["raindrop_drift_samples",] == GROUP
    assert gauges["raindrop_drift_alarm", "pressure", "level"] == 1


def test_gauges_come_only_with_news_and_not_too_often(model: rd.Classifier) -> None:
    now = [0.0]
    drift = DriftGauges(model, clock=lambda: now[0])
    other = easy_table(30, seed=5)  # with its own list of sensors, so it is counted at once
    assert drift.gauges() == []
    drift.add(other)
    assert drift.gauges() != []
    drift.add(other)
    assert drift.gauges() == []
    now[0] = SECONDS
    assert drift.gauges() != []
    assert drift.gauges() == []


def test_a_model_without_reference_statistics_is_served_unwatched(model: rd.Classifier) -> None:
    model.reference_, kept = None, model.reference_
    try:
        drift = DriftGauges(model)
        drift.add(easy_table(30))
        assert drift.gauges() == []
    finally:
        model.reference_ = kept


def test_answered_predictions_are_watched_and_the_first_example_is_not(model: rd.Classifier) -> None:
    answers = Answers([Served("ward", model)], Limits())
    answers.warm_up()
    table = easy_table(GROUP, seed=7)
    events = table.events()
    columns = Columns(
        sample=events["sample"].cast(str).to_list(), time=events["time"].to_list(),
        sensor=events["sensor"].cast(str).to_list(), value=events["value"].to_list(),
    )  # fmt: skip
    (reply,) = answers.of_batch([Job(1, "predict", readings=columns, model="ward")])
    assert reply.samples == GROUP
    gauges = {(name, *labels.values()): value for name, labels, value in answers.gauges()}
    assert gauges["raindrop_drift_samples",] == GROUP

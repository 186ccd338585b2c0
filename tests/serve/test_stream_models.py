"""Every model in a stream: predictions, filled readings and forecasts are those of a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from learnable import QUICK, easy_table

import raindrop as rd
from raindrop.models.registry import MODELS

pytestmark = pytest.mark.slow

SHORT = {"train.epochs": 1, "train.min_steps": 1, "train.soft_targets": 0.0}
TREES = {"rounds": 5, "min_samples": 4}
SETTINGS = {
    "raindrop": SHORT,
    "trees": {f"model.{name}": value for name, value in TREES.items()},
    "blend": SHORT | {f"model.trees.{name}": value for name, value in TREES.items()},
}


@pytest.fixture(scope="module")
def table():
    made = easy_table(40, statics=("age",))
    one, other = np.arange(40) % 2 == 0, np.arange(40) % 3 == 0
    samples = made.samples.with_columns(days=np.arange(40.0), one=one, other=other)
    return replace(made, samples=samples)


def streamed(model, table, **settings) -> rd.Stream:
    """A stream that received the readings of a table in a random order."""
    stream = rd.Stream(model, **settings)
    stream.set_samples(table.samples)
    events = table.events()
    order = np.random.default_rng(0).permutation(len(events))
    for piece in np.array_split(order, 3):
        stream.push(events[piece])
    return stream


@pytest.mark.parametrize("name", MODELS)
def test_every_classifier_scores_a_stream_as_a_table(name, table):
    settings = SETTINGS.get(name, {"train.epochs": 1})
    model = rd.Classifier(name, config=settings).fit(table, validation=table[:10])
    found = streamed(model, table[:6]).scores(table.ids[:6])
    np.testing.assert_allclose(found.probabilities, model.predict_proba(table[:6]), rtol=0, atol=1e-6)


def test_regression_and_several_labels_are_scored_with_their_intervals(table):
    regressor = rd.Regressor(label="days", config=QUICK | {"train.epochs": 1, "train.metric": "mae"}).fit(table)
    found = streamed(regressor, table[:6]).scores(table.ids[:6], coverage=0.8)
    expected = regressor.predict_table(table[:6], coverage=0.8)
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-6)
    np.testing.assert_allclose(found.intervals, expected.intervals, rtol=1e-6)
    labels = rd.MultiLabelClassifier(labels=["one", "other"], config=QUICK | {"train.epochs": 1}).fit(table)
    found = streamed(labels, table[:6]).scores(table.ids[:6])
    np.testing.assert_allclose(found.probabilities, labels.predict_proba(table[:6]), rtol=0, atol=1e-6)


def test_an_imputer_answers_and_fills_live_samples(table):
    imputer = rd.Imputer("linear").fit(table)
    stream = streamed(imputer, table)
    queries = imputer.grid(table, every=1.0)
    np.testing.assert_allclose(stream.readings_at(queries).value, imputer.readings_at(table, queries).value, rtol=1e-6)
    some = table.ids[:3]
    filled, expected = stream.fill(some), imputer.fill_readings(table[:3])
    assert filled.frame().drop("value", "low", "high").equals(expected.frame().drop("value", "low", "high"))
    np.testing.assert_allclose(filled.value, expected.value, rtol=1e-6)
    with pytest.raises(rd.ConfigError, match=r"\(Imputer\) predicts readings"):
        stream.scores()


def test_a_forecaster_answers_for_live_samples(table):
    forecaster = rd.Forecaster("last", horizon=3.0).fit(table)
    stream = streamed(forecaster, table)
    queries = forecaster.grid(table[:5], every=1.0)
    expected = forecaster.readings_at(table[:5], queries)
    np.testing.assert_allclose(stream.readings_at(queries).value, expected.value, rtol=1e-6)
    with pytest.raises(rd.ConfigError, match="fills no gaps"):
        stream.fill()


def test_a_classifier_predicts_no_readings(table):
    model = rd.Classifier("trees", config=SETTINGS["trees"]).fit(table)
    with pytest.raises(rd.ConfigError, match="predicts no readings"):
        rd.Stream(model).readings_at({"sample": ["a"], "time": [1], "sensor": ["pressure"]})

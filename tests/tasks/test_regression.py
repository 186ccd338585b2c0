"""Regression: unknown quantities, scaling, the three losses, intervals, and the estimator around them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from closeness import assert_close
from learnable import QUICK, easy_table
from sklearn.base import clone

from raindrop import Regressor, load
from raindrop.errors import ConfigError, DataError
from raindrop.tasks import regression
from raindrop.tasks.metrics import LEVELS, METRICS, REGRESSION, Metric
from raindrop.tasks.regression import Regression

CONFIG = {name: value for name, value in QUICK.items() if name != "train.metric"} | {"train.epochs": 12}


def stays(samples: int = 90, seed: int = 0, *, unknown: float = 0.0):
    """A skewed quantity that depends on the readings' level, and another one in other units."""
    table = easy_table(samples, seed=seed)
    rng = np.random.default_rng(seed)
    days = np.exp(0.5 + 1.5 * table.labels + rng.normal(0, 0.3, samples))
    grams = 1000 * (1 - table.labels) + rng.normal(0, 50, samples)
    days[rng.random(samples) < unknown] = np.nan
    return replace(table, samples=table.samples.with_columns(days=days, grams=grams))


def test_a_metric_without_a_weighted_form_is_of_the_point_prediction_too(monkeypatch):
    monkeypatch.setitem(METRICS, "worst", Metric("worst", lambda truth, predicted: float(max(abs(truth - predicted)))))
    monkeypatch.setattr(regression, "REGRESSION", (*REGRESSION, "worst"))
    table = stays(20)
    task = Regression.learn(table, ["days"])
    truth, constant = task.encode(table), task.constant_prediction(task.encode(table))
    assert task.evaluate(truth, constant)["worst"] == pytest.approx(np.abs(truth - constant[:, :, 2]).max())
    assert "worst" not in task.bootstrap(truth, constant, draws=2)


@pytest.mark.parametrize("loss", ["quantile", "absolute", "squared"])
def test_the_loss_is_what_loops_over_known_quantities_give(loss):
    table = stays(12, unknown=0.4)
    task = Regression.learn(table, ["days", "grams"], loss)
    truth = task.encode(table)
    scores = torch.randn(12, task.num_outputs)
    weight = torch.rand(12)
    total = count = 0.0
    for b in range(12):
        for q in range(2):
            if np.isnan(truth[b, q]):
                continue
            target = (truth[b, q] - task.centre[q]) / task.scale[q]
            losses = []
            for at, level in enumerate(task.levels):
                error = target - float(scores[b, q * len(task.levels) + at])
                losses.append(error**2 if loss == "squared" else max(level * error, (level - 1) * error))
            total += float(weight[b]) * np.mean(losses)
            count += float(weight[b])
    found = task.loss(scores, torch.from_numpy(task.targets(truth)), weight)
    assert float(found) == pytest.approx(total / count, rel=1e-5)


def test_an_unknown_quantity_changes_neither_loss_nor_metric():
    table = stays(20)
    task = Regression.learn(table, ["days", "grams"])
    truth = task.encode(table)
    truth[3, 0] = np.nan
    scores = torch.randn(20, task.num_outputs)
    changed = scores.clone()
    changed[3, :5] += 100
    targets = torch.from_numpy(task.targets(truth))
    assert torch.equal(task.loss(scores, targets), task.loss(changed, targets))
    assert task.evaluate(truth, task.predict(scores)) == task.evaluate(truth, task.predict(changed))


def test_predictions_are_in_the_quantity_s_own_unit_with_quantiles_in_order():
    table = stays(40)
    task = Regression.learn(table, ["days", "grams"])
    predicted = task.predict(torch.randn(7, task.num_outputs))
    assert predicted.shape == (7, 2, len(LEVELS))
    assert (np.diff(predicted, axis=-1) >= 0).all()
    zero = task.point(task.predict(torch.zeros(1, task.num_outputs)))
    assert_close(zero[0], np.median(task.encode(table), axis=0))


def test_large_offsets_keep_their_precision():
    table = stays(40)
    shifted = replace(table, samples=table.samples.with_columns(days=pl.col("days") + 1e9))
    one, other = (Regression.learn(t, ["days"]) for t in (table, shifted))
    assert_close(other.targets(other.encode(shifted)), one.targets(one.encode(table)))


def test_several_quantities_are_averaged_in_standard_units_and_shown_in_their_own():
    table = stays(30)
    task = Regression.learn(table, ["days", "grams"])
    truth = task.encode(table)
    values = task.evaluate(truth, task.constant_prediction(truth))
    own = [values["mae/days"], values["mae/grams"]]
    assert values["mae"] == pytest.approx(np.mean(np.array(own) / np.array(task.scale)))
    assert task.title("mae/grams") == "MAE (grams)"
    assert "standardised" in task.title("mae")
    drawn = task.bootstrap(truth, task.constant_prediction(truth), draws=50)
    assert drawn["mae"].low < values["mae"] < drawn["mae"].high
    assert drawn["mae"].value == values["mae"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["raindrop", "trees", "blend"])
@pytest.mark.parametrize("loss", ["quantile", "squared"])
def test_a_regressor_learns_saves_and_loads(model, loss, tmp_path):
    training, test = stays(120, unknown=0.1), stays(60, seed=1)
    config = {"trees": {"model.rounds": 30}, "blend": {"model.trees.rounds": 30, "train.epochs": 4}}.get(model, CONFIG)
    fitted = Regressor(model, label="days", loss=loss, config=config, preset="paper").fit(training)
    constant = fitted.task_.evaluate(fitted.truth(test), fitted.task_.constant_prediction(fitted.truth(test)))
    assert fitted.evaluate(test)["mae"] < 0.9 * constant["mae"]
    assert fitted.predict(test).shape == (60,)
    again = load(fitted.save(tmp_path / "run"))
    assert isinstance(again, Regressor)
    assert (again.label, again.loss) == ("days", loss)
    np.testing.assert_array_equal(again.predict(test), fitted.predict(test))
    np.testing.assert_array_equal(again.predict_interval(test, 0.8), fitted.predict_interval(test, 0.8))
    low, high = fitted.predict_interval(test, 0.8).T
    assert (low <= high).all()
    frame = fitted.predict_table(test, coverage=0.8).frame()
    assert frame.columns == ["sample", "days", "days_low", "days_high"]
    if model == "blend":  # quantities have no log-odds
        assert fitted.notes_["average_of"] == again.notes_["average_of"] == "predictions"


def test_soft_targets_are_used_for_the_squared_loss_alone():
    table = stays(60)
    scores = torch.zeros(60, 1)
    squared = Regression.learn(table, ["days"], "squared")
    mixed = squared.soft_targets(scores, squared.encode(table), 0.7)
    assert_close(mixed, 0.3 * squared.targets(squared.encode(table)))
    assert Regression.learn(table, ["days"], "absolute").soft_targets(scores, table.labels[:, None], 0.7) is None


@pytest.mark.slow
def test_scikit_learn_clones_a_regressor_and_scores_it_by_r2():
    table = stays(60)
    fitted = clone(Regressor(label="days", loss="squared", config=CONFIG, preset="paper")).fit(table)
    assert fitted.score(table) == pytest.approx(fitted.evaluate(table)["r2"], abs=1e-6)
    y = fitted.truth(table)[:, 0]
    by_y = Regressor(label="days", loss="squared", config=CONFIG, preset="paper").fit(easy_table(60), y)
    assert_close(by_y.predict(table), fitted.predict(table))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["x"] * 20, "quantity 'days' is of type String, not a number"),
        ([1.0] * 20, "Quantity 'days' has 1 different known values in 20 training samples"),
        ([None] * 20, "Quantity 'days' has 0 different known values"),
        ([1.0, np.inf] * 10, "quantity 'days' is infinite in 10 of 20 rows"),
    ],
)
def test_an_unusable_quantity_is_one_sentence(column, message):
    table = easy_table(20)
    table = replace(table, samples=table.samples.with_columns(pl.Series("days", column, strict=False)))
    with pytest.raises(DataError, match=message):
        Regressor(label="days").fit(table)


def test_impossible_arguments_are_named():
    table = stays(20)
    with pytest.raises(ConfigError, match="loss='huber' is not known"):
        Regressor(label="days", loss="huber").fit(table)
    with pytest.raises(DataError, match=r"there is no column 'day' .*did you mean 'days'"):
        Regressor(label="day").fit(table)
    with pytest.raises(ConfigError, match="names a column twice"):
        Regressor(label=["days", "days"]).fit(table)
    with pytest.raises(ConfigError, match="Unknown metric 'auroc'"):
        Regressor(label="days", config={"train.metric": "auroc"}).fit(table)


@pytest.mark.slow
def test_an_empty_table_has_no_predictions():
    table = stays(20)
    model = Regressor("trees", label=["days", "grams"]).fit(table)
    assert model.predict(table[:0]).shape == (0, 2)
    assert model.predict_quantiles(table[:0]).shape == (0, 2, 5)

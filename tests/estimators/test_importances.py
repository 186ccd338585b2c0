"""Global importances: what a sensor or a static is worth to a model, by permutation and by occlusion."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from learnable import easy_table

from raindrop import Classifier, DataError, EventTable, RaindropError
from raindrop.estimators.importances import exchange_readings, importances
from raindrop.tasks.classification import Classification
from raindrop.tasks.regression import Regression


class MeanOfOne:
    """Predicts class 1 from the mean of the sensor `pressure` alone, and from whether `age` is known."""

    task_: Any = Classification("label", np.arange(2))

    def truth(self, X: EventTable) -> np.ndarray:
        return self.task_.encode(X)

    def predictions(self, X: EventTable) -> np.ndarray:
        means = X.events().filter(pl.col("sensor").cast(pl.String) == "pressure").group_by("sample")
        by_sample = dict(means.agg(pl.col("value").mean()).iter_rows())
        known = X.samples["age"].is_not_null().to_numpy()
        score = np.array([by_sample.get(name, 2.0) for name in X.ids])
        high = np.where(known, 1 / (1 + np.exp(2 - score)), 0.5)
        return np.stack([1 - high, high], 1).astype(np.float32)


class MeanOfOneAsQuantity(MeanOfOne):
    task_ = Regression(("label",), "squared", (0.0,), (1.0,))

    def predictions(self, X: EventTable) -> np.ndarray:
        return MeanOfOne.predictions(self, X)[:, 1:].reshape(len(X), 1, 1)


@pytest.fixture
def table() -> EventTable:
    return easy_table(200, statics=("age", "ward"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["permutation", "occlusion"])
def test_only_what_the_model_uses_is_important(table: EventTable, method: Any) -> None:
    frame = importances(MeanOfOne(), table, method=method)
    rows = {row["name"]: row for row in frame.iter_rows(named=True)}
    assert set(rows) == {*table.sensors, "age", "ward"}
    assert frame["metric"].unique().to_list() == ["auroc"]
    pressure = rows["pressure"]
    assert pressure["low"] > 0.1
    assert pressure["low"] < pressure["importance"] < pressure["high"]
    for name in ("heart rate", "temperature", "ward"):
        assert (rows[name]["importance"], rows[name]["low"], rows[name]["high"]) == (0, 0, 0)
    assert rows["age"]["kind"] == "static"
    if method == "occlusion":  # an unknown age makes every prediction 0.5
        assert rows["age"]["without"] == 0.5
    else:
        assert rows["age"]["importance"] == 0
        assert frame["name"][0] == "pressure"


def test_where_lower_is_better_a_larger_error_is_a_positive_importance(table: EventTable) -> None:
    frame = importances(MeanOfOne(), table, metric="log_loss", method="occlusion")
    top = frame.filter(name="pressure").row(0, named=True)
    whole = MeanOfOne.task_.evaluate(MeanOfOne().truth(table), MeanOfOne().predictions(table))["log_loss"]
    assert top["importance"] == pytest.approx(top["without"] - whole)
    assert top["importance"] > 0


def test_a_quantity_has_importances_too(table: EventTable) -> None:
    frame = importances(MeanOfOneAsQuantity(), table, method="occlusion")
    assert frame.filter(name="pressure")["importance"].item() > 0


@pytest.mark.slow
def test_more_permutations_make_the_same_mean_and_a_seed_repeats_it(table: EventTable) -> None:
    few, again = (importances(MeanOfOne(), table, repeats=2, seed=3) for _ in range(2))
    assert few.equals(again)
    assert not few.equals(importances(MeanOfOne(), table, repeats=2, seed=4))


def test_readings_are_exchanged_whole_and_stay_in_order(table: EventTable) -> None:
    mine = np.array(table.sensors)[table.sensor[table.rows()]] == "pressure"
    order = np.random.default_rng(0).permutation(len(table))
    exchanged = exchange_readings(table, mine, order)
    assert exchanged.num_readings == table.num_readings

    def of(which: EventTable, position: int, name: str) -> list[tuple[float, float]]:
        events = which[position : position + 1].events().filter(pl.col("sensor").cast(pl.String) == name)
        return events.select("time", "value").rows()

    for at in range(20):
        assert of(exchanged, at, "pressure") == of(table, int(order[at]), "pressure")
        assert of(exchanged, at, "heart rate") == of(table, at, "heart rate")
        assert exchanged[at : at + 1].events()["time"].is_sorted()


def test_a_fitted_classifier_has_them_as_a_method() -> None:
    table = easy_table(80)
    trees = Classifier("trees", config={"model.rounds": 10}).fit(table, validation=table)
    frame = trees.importances(table, repeats=1)
    assert frame["name"][0] in ("heart rate", "pressure")
    assert frame.columns == ["name", "kind", "metric", "importance", "low", "high", "without"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"method": "shapley"}, "method"),
        ({"metric": "auroq"}, "auroc"),
        ({"repeats": 0}, "at least once"),
    ],
)
def test_a_mistake_is_one_sentence(table: EventTable, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(RaindropError, match=message):
        importances(MeanOfOne(), table, **asked)


def test_one_sample_cannot_be_permuted(table: EventTable) -> None:
    with pytest.raises(DataError, match="at least two are needed; use method='occlusion'"):
        importances(MeanOfOne(), table[:1])

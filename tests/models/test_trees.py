"""Trees: the summaries, the walk down exported trees against the engines' own, and the interface of every model."""

from __future__ import annotations

import sys
from dataclasses import replace

import lightgbm
import numpy as np
import polars as pl
import pytest
import torch
from class_tasks import classes, labelled_collator
from closeness import NETWORK, assert_close, tolerance
from sklearn.ensemble import HistGradientBoostingClassifier

from raindrop.batch.scaling import Scaler
from raindrop.batch.summaries import SUMMARIES, details_of, summaries_of, summarise
from raindrop.errors import ConfigError, MissingExtraError
from raindrop.estimators import Classifier, Imputer, load
from raindrop.models.base import DataSpec
from raindrop.models.boosting import TreesConfig
from raindrop.models.trees import MANY_ROWS, Trees
from raindrop.table.event_table import EventTable

SMALL = {
    "model.rounds": 12,
    "model.learning_rate": 0.2,
    "model.min_samples": 3,
    "model.leaves": 6,
    "model.patience": 4,
    "model.l2": 0.0,
    "model.columns": 1.0,
}
ENGINES = pytest.mark.parametrize("engine", ["sklearn", "lightgbm"])


@pytest.fixture
def table(make_table):
    """Labels that the readings tell, with some noise; sensor 2 is read or not as the label says."""
    table = make_table(samples=150, sensors=4, times=8, seed=3)
    column = np.nan_to_num(summarise(table)[:, 0, SUMMARIES.index("mean")])
    noise = np.random.default_rng(0).normal(0, 0.3, len(table))
    return table.with_labels((column + noise > np.median(column)).astype(int))


@pytest.fixture
def grown(monkeypatch):
    """The models that the engines made."""
    made = []
    fit, train = HistGradientBoostingClassifier.fit, lightgbm.train
    monkeypatch.setattr(
        HistGradientBoostingClassifier, "fit", lambda self, *a, **k: made.append(fit(self, *a, **k)) or made[-1]
    )
    monkeypatch.setattr(lightgbm, "train", lambda *a, **k: made.append(train(*a, **k)) or made[-1])
    return made


def with_three_classes(table):
    return table.with_labels((table.labels + np.arange(len(table)) % 2).astype(str))


def test_the_summaries_of_a_batch_are_those_of_its_scaled_table(table, make_batch):
    scaler = Scaler.fit(table)
    wanted = summarise(table)
    for name in SUMMARIES:
        at = SUMMARIES.index(name)
        if name in ("mean", "min", "max", "first", "last"):
            wanted[:, :, at] -= scaler.mean
        if name not in ("count", "time_of_last"):
            wanted[:, :, at] /= scaler.scale
    found = summaries_of(make_batch(table)).numpy()
    assert_close(found, wanted, dtype=np.float32)
    assert np.isnan(found[0, 1, 1:]).all()
    assert found[0, 1, 0] == 0


@pytest.mark.slow
def test_details_are_what_a_loop_over_readings_finds(table, make_batch):
    batch = make_batch(table)
    found, whole = (part.numpy() for part in details_of(batch, recent=5.0))
    time = batch.time.double()[batch.step].numpy()
    value = batch.value.double().numpy()
    for sample in range(batch.num_samples):
        mine = (batch.sample == sample).numpy()
        if not mine.any():
            assert np.isnan(whole[sample]).all()
            assert np.isnan(found[sample]).all()
            continue
        start, end = time[mine].min(), time[mine].max()
        counts = np.bincount(batch.sensor.numpy()[mine], minlength=batch.num_sensors)
        expected = [end, start, end - start, mine.sum(), (counts > 0).sum(), counts.max()]
        assert_close(whole[sample], expected)
        for sensor in range(batch.num_sensors):
            own = mine & (batch.sensor == sensor).numpy()
            if not own.any():
                assert np.isnan(found[sample, sensor]).all()
                continue
            t, x = time[own], value[own]
            weight = np.exp((t - t[-1]) / 5.0)
            slope = np.polyfit(t, x, 1)[0] if len(x) > 1 else 0.0
            step = np.abs(np.diff(x)).mean() if len(x) > 1 else 0.0
            wanted = [
                end - t[-1],
                t[0],
                x[max(len(x) - 2, 0)],
                x[max(len(x) - 3, 0)],
                slope,
                weight @ x / weight.sum(),
                step,
            ]
            assert_close(found[sample, sensor], [*wanted, t.mean()], roundings=4 * NETWORK)  # polyfit solves a system


def test_trees_that_see_more_tell_what_nine_summaries_do_not():
    rng = np.random.default_rng(0)  # the label is the order of the middle readings, which no summary of the nine knows
    turned = rng.integers(0, 2, 200)
    values = [(0.0, *((1.0, 2.0) if turn else (2.0, 1.0)), 0.0) for turn in turned]
    table = EventTable.from_columns(
        sample=np.repeat(np.arange(200), 4),
        time=np.tile(np.arange(4.0), 200),
        sensor=["a"] * 800,
        value=np.ravel(values),
    ).with_labels(turned)
    train, test = table[np.arange(100)], table[np.arange(100, 200)]
    accuracy = {}
    for seen in ("nine", "more"):
        clf = Classifier("trees", config={**SMALL, "model.summaries": seen, "train.holdout": 0.0}).fit(train)
        accuracy[seen] = (clf.predict(test) == test.labels).mean()
    assert accuracy["more"] == 1.0
    assert accuracy["nine"] < 0.7


@pytest.mark.parametrize("seen", ["nine", "more"])
def test_columns_are_the_same_whoever_is_summarised_along(table, monkeypatch, seen):
    data = labelled_collator(table)
    trees = Trees(TreesConfig(summaries=seen), DataSpec(table.sensors, classes(2)))
    whole = trees.rows_of(data, 0).x
    monkeypatch.setattr("raindrop.models.trees.CHUNK", 7)
    np.testing.assert_array_equal(trees.rows_of(data, 0).x, whole)


@ENGINES
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("validated", [False, True])
def test_probabilities_are_the_engines_own(table, grown, monkeypatch, engine, classes, validated):
    monkeypatch.setattr("raindrop.models.trees.TREES_AT_ONCE", 5)  # 12 or more trees are walked in parts
    if classes == 3:
        table = with_three_classes(table)
    parts = table.split((0.7, 0.3), seed=0) if validated else (table, None)
    clf = Classifier("trees", config={**SMALL, "model.engine": engine, "train.holdout": 0.0})
    clf.fit(parts[0], validation=parts[1])
    data = clf._collator(table, labelled=True)
    columns, rounds = clf.model_.rows_of(data, 0).x, len(clf.model_.output) // (1 if classes == 2 else 3)
    if engine == "sklearn":
        own = list(grown[0].staged_predict_proba(columns))[rounds - 1]
    else:
        own = grown[0].predict(columns, num_iteration=rounds)
        own = np.stack([1 - own, own], axis=1) if classes == 2 else own
    assert_close(clf.predict_proba(table), own)
    assert own.std(0).min() > 0.02  # and they tell samples apart


@ENGINES
def test_many_samples_get_the_same_values_node_by_node(table, engine):
    clf = Classifier("trees", config={**SMALL, "model.engine": engine}).fit(table)
    rng = np.random.default_rng(0)
    columns = clf.model_.columns(clf._collator(table).batch(np.arange(len(table))))[
        rng.integers(0, len(table), MANY_ROWS)
    ]
    columns[torch.from_numpy(rng.random(columns.shape) < 0.2)] = torch.nan
    forest = clf.model_.forest
    few = torch.cat([forest(part) for part in torch.split(columns, 100)])
    assert few.std() > 0
    assert torch.equal(forest(columns), few)
    forest.left[forest.root] = forest.root[0]  # a damaged file: nodes in a circle
    forest.right[forest.root] = forest.root[0] + 1
    assert torch.equal(forest(columns), torch.cat([forest(part) for part in torch.split(columns, 100)]))


@ENGINES
def test_a_missing_value_goes_where_the_engine_sends_it(table, grown, engine):
    """All sensors missing, also those that were never missing in training."""
    always = table[(summarise(table)[:, :, 0] > 0).all(1)]
    clf = Classifier("trees", config={**SMALL, "model.engine": engine, "train.holdout": 0.0}).fit(always)
    columns = torch.full((1, 4 * 9 + clf.scaler_.static_width), torch.nan, dtype=torch.float64)
    columns[:, :36:9] = 0
    score = clf.model_.forest(columns).sum(1) + clf.model_.baseline[1]
    own = grown[0].predict_proba(columns.numpy())[:, 1] if engine == "sklearn" else grown[0].predict(columns.numpy())
    assert_close(torch.sigmoid(score).numpy(), own)


@ENGINES
def test_a_saved_model_gives_identical_probabilities_and_holds_only_safetensors_and_json(table, tmp_path, engine):
    clf = Classifier("trees", config={**SMALL, "model.engine": engine}).fit(with_three_classes(table))
    again = load(clf.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.predict_proba(table), clf.predict_proba(table))
    assert {file.name for file in (tmp_path / "run").iterdir()} == {"model.safetensors", "model.json", "split.parquet"}


def test_a_model_grown_by_lightgbm_loads_and_predicts_without_lightgbm(table, tmp_path, monkeypatch):
    clf = Classifier("trees", config={**SMALL, "model.engine": "lightgbm"}).fit(table)
    wanted = clf.predict_proba(table)
    clf.save(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    np.testing.assert_array_equal(load(tmp_path / "run").predict_proba(table), wanted)
    with pytest.raises(MissingExtraError, match=r"raindrop-ts\[trees\]"):
        Classifier("trees", config={"model.engine": "lightgbm"}).fit(table)


def test_the_round_with_the_lowest_validation_loss_is_kept(table):
    noisy = table.with_labels(np.random.default_rng(1).integers(0, 2, len(table)))
    training, validation = noisy.split((0.7, 0.3), seed=0)
    config = {**SMALL, "model.learning_rate": 0.5, "model.rounds": 30}
    clf = Classifier("trees", config=config).fit(training, validation=validation)
    losses = [record["validation"]["log_loss"] for record in clf.history_]
    kept = len(clf.model_.output)
    assert kept == np.argmin(losses) + 1 < len(losses) < 30
    assert clf.evaluate(validation)["log_loss"] == pytest.approx(min(losses), abs=tolerance())


@ENGINES
def test_the_same_seed_grows_the_same_trees(table, engine):
    config = {**SMALL, "model.engine": engine, "model.columns": 0.3, "train.holdout": 0.0}  # else it moves too
    first, again, other = (Classifier("trees", config=config, seed=seed).fit(table) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.predict_proba(table), again.predict_proba(table))
    assert not np.array_equal(first.predict_proba(table), other.predict_proba(table))


def test_settings_of_the_training_loop_are_refused_not_ignored(table):
    with pytest.raises(ConfigError, match=r"train\.epochs"):
        Classifier("trees", config={"train.epochs": 5}).fit(table)


def test_a_run_folder_holds_the_model_and_a_loaded_one_can_be_fitted_again(table, tmp_path):
    Classifier("trees", config=SMALL).fit(table, run=tmp_path / "run")
    load(tmp_path / "run").fit(table)


# ------------------------------------------------------------------ the contract of every model, where it applies


@pytest.fixture
def fitted(table):
    return Classifier("trees", config=SMALL).fit(table)


def test_a_sample_has_the_same_result_in_any_batch(table, fitted):
    data = fitted._collator(table)
    with torch.inference_mode():
        together = fitted.model_(data.batch(np.arange(len(table)))).scores
        order = np.random.default_rng(0).permutation(len(table))[:20]
        assert torch.equal(fitted.model_(data.batch(order)).scores, together[order])
        assert torch.equal(fitted.model_(data.batch(order[:1])).scores, together[order[:1]])


def test_one_reading_or_none_is_enough(table, fitted):
    data = fitted._collator(table)
    output = fitted.model_(data.batch(np.array([148, 149, 149])))
    assert data.table.count[148] == 1
    assert data.table.count[149] == 0
    assert output.scores.isfinite().all()
    assert output.embedding.isfinite().all()
    nothing = fitted.model_(data.batch(np.array([149, 149])))
    assert torch.equal(nothing.scores, output.scores[1:])


def test_a_model_without_trees_knows_nothing(table, make_batch):
    model = Trees(TreesConfig(), DataSpec(table.sensors, classes(3), Scaler.fit(table).static_width))
    assert not model(make_batch(table)).scores.any()


def test_statics_tell(table):
    about = replace(table, samples=table.samples.with_columns(age=table.labels.astype(float)))
    clf = Classifier("trees", config=SMALL).fit(about)
    assert clf.score(about) == 1


@ENGINES
@pytest.mark.parametrize("model", ["trees", "raindrop", "blend"])
def test_a_sensor_that_is_hardly_ever_read_does_no_harm(engine, model):
    """scikit-learn fails on a column without any value; soft targets make such columns in their folds."""
    rng = np.random.default_rng(0)
    table = EventTable.from_columns(
        sample=[*np.repeat(np.arange(100), 4).tolist(), 3],
        time=[*np.tile(np.arange(4.0), 100).tolist(), 9.0],
        sensor=[*["a", "b", "a", "b"] * 100, "rare"],
        value=rng.normal(0, 1, 401),
        sensors=["a", "b", "rare", "never"],
    ).with_labels(np.arange(100) % 2)
    key = {"trees": "model", "blend": "model.trees"}.get(model)
    config = {f"{key}.engine": engine, f"{key}.rounds": 3} if key else {}
    config |= {} if model == "trees" else {"train.epochs": 1}
    clf = Classifier(model, config=config).fit(table)
    assert np.isfinite(clf.predict_proba(table)).all()


def test_a_table_without_any_reading_gives_the_class_shares():
    table = EventTable.from_columns(["a"], [0.0], ["x"], [1.0], {"sample": [*"abcdefgh"], "label": [0, 1] * 4})
    empty = table.where(np.array([False]))
    clf = Classifier("trees", config=SMALL | {"train.holdout": 0.0}).fit(empty)
    assert_close(clf.predict_proba(empty), 0.5)


def test_trees_grown_with_sensors_hidden_see_every_sample_as_it_is_and_once_more_without_some_sensors(table):
    spec = DataSpec(table.sensors, classes(2), Scaler.fit(table).static_width)
    data = labelled_collator(table)
    data.weights = np.linspace(1, 2, len(table), dtype=np.float32)
    plain, hidden = (Trees(TreesConfig(hide_sensors=share), spec).rows_of(data, 0) for share in (0.0, 0.8))
    np.testing.assert_array_equal(hidden.weight, np.tile(data.weights, 2))
    size = len(table)
    np.testing.assert_array_equal(hidden.x[:size], plain.x)
    np.testing.assert_array_equal(hidden.target, np.concatenate([plain.target, plain.target]))
    counts = [rows.reshape(size, -1, 9)[:, :, 0] for rows in (plain.x[:, :36], hidden.x[size:, :36])]
    same = (counts[0] == counts[1]) & (counts[0] > 0)
    gone = (counts[0] > 0) & (counts[1] == 0)
    assert ((counts[0] == counts[1]) | gone).all()  # a sensor keeps all readings or has none
    assert 0.2 < gone.sum() / (gone.sum() + same.sum()) < 0.6


def test_trees_grown_with_sensors_hidden_know_more_when_the_best_sensor_fails():
    rng = np.random.default_rng(0)  # sensor b tells the label nearly as well as a
    label = rng.integers(0, 2, 600)
    values = np.stack([label + rng.normal(0, 0.2, 600), label + rng.normal(0, 0.4, 600)], axis=1)
    table = EventTable.from_columns(
        sample=np.repeat(np.arange(600), 2), time=np.zeros(1200), sensor=["a", "b"] * 600, value=values.ravel()
    ).with_labels(label)
    train, test = table[np.arange(400)], table[np.arange(400, 600)].where(pl.col("sensor") == "b")
    found = {}
    for share in (0.0, 0.7):
        clf = Classifier("trees", config={**SMALL, "model.hide_sensors": share, "train.holdout": 0.0}).fit(train)
        found[share] = clf.evaluate(test)["auroc"]
    assert found[0.7] > 0.9
    assert found[0.7] > found[0.0] + 0.05


def test_settings_of_summaries_are_not_offered_to_trees_that_answer_queries():
    with pytest.raises(ConfigError, match=r"^Unknown setting 'model\.hide_sensors'"):
        Imputer("trees", config={"model.hide_sensors": 0.5}).resolved()

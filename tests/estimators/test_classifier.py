"""Classifier: scikit-learn's conventions over tables, labels of any kind, and a saved folder that can be trusted."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from closeness import assert_close, tolerance
from learnable import QUICK, SENSORS, easy_table
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

import raindrop
from raindrop import Classifier, load
from raindrop.errors import ConfigError, DataError, ModelFileError, OutputExistsError, RaindropError, RaindropWarning
from raindrop.estimators.persistence import FORMAT
from raindrop.files import content_checksum
from raindrop.table.event_table import EventTable


def quick(epochs: int = 1, **options: Any) -> Classifier:
    changes = QUICK | {"train.epochs": epochs} | options.pop("config", {})
    return Classifier(preset="paper", config=changes, **options)


@pytest.fixture(scope="module")
def table() -> EventTable:
    return easy_table(48, statics=("age", "ward"))


@pytest.fixture(scope="module")
def fitted(table: EventTable) -> Classifier:
    """A model that has learned; no test may change it."""
    return quick(15, config={"train.batch_size": 8}).fit(table)


@pytest.fixture(scope="module")
def fresh_table() -> EventTable:
    """Samples that the fitted model has not seen."""
    return easy_table(30, statics=("age", "ward"), prefix="new", seed=5)


# ---------------------------------------------------------------- scikit-learn


def test_parameters_are_stored_untouched_and_cloned() -> None:
    config = {"train.epochs": 1}
    clf = Classifier("grud", preset="paper", config=config, seed=3, unknown_sensors="ignore", progress=True)
    held = {"model": "grud", "preset": "paper", "config": config, "seed": 3, "unknown_sensors": "ignore"}
    defaults = {"label": None, "positive": None, "class_weight": None, "device": "cpu", "threads": None}
    assert clf.get_params() == held | defaults | {"progress": True, "calibrate": "none", "threshold": None}
    assert clf.get_params()["config"] is config
    copy = clone(clf)
    assert copy is not clf
    assert copy.get_params() == clf.get_params()
    assert copy.set_params(seed=4).seed == 4
    assert clf.seed == 3
    assert is_classifier(clf)


def test_fitting_does_not_change_the_parameters(table: EventTable) -> None:
    config = QUICK | {"train.epochs": 1}
    clf = Classifier(preset="paper", config=config)
    before = json.dumps(clf.get_params())
    assert clf.fit(table) is clf
    assert json.dumps(clf.get_params()) == before
    assert clf.config is config


LEARNS = {"train.batch_size": 8, "train.epochs": 8, "train.holdout": 0.0}


@pytest.mark.slow
def test_single_settings_are_searched_by_flat_names() -> None:
    table = easy_table(96)
    given = QUICK | LEARNS
    grid = {"train__learning_rate": [1e-6, 0.05], "model__slots__dim": [0]}
    search = GridSearchCV(Classifier(preset="paper", config=given), grid, cv=2, error_score="raise")
    search.fit(table, table.labels)
    assert search.best_params_["train__learning_rate"] == 0.05
    assert search.best_estimator_.resolved()["train"]["learning_rate"] == 0.05
    assert search.best_estimator_.resolved()["model"]["slots.dim"] == 0
    assert given == QUICK | LEARNS  # the dictionary that was given is not changed


def test_flat_names_win_over_a_config_and_a_misspelt_one_suggests() -> None:
    clf = Classifier(config={"train": {"epochs": 3, "batch_size": 7}}).set_params(train__epochs=4, seed=2)
    assert (clf.resolved()["train"]["epochs"], clf.resolved()["train"]["batch_size"], clf.seed) == (4, 7, 2)
    with pytest.raises(ConfigError, match=r"Unknown setting 'train.epoch': did you mean 'train.epochs'"):
        clf.set_params(train__epoch=4).resolved()


@pytest.mark.slow
def test_grid_search_runs_over_a_table() -> None:
    table = easy_table(96)
    grid = {"config": [QUICK | LEARNS | {"train.epochs": 1, "train.learning_rate": 1e-6}, QUICK | LEARNS]}
    search = GridSearchCV(Classifier(preset="paper"), grid, cv=2, error_score="raise").fit(table, table.labels)
    assert search.best_params_["config"]["train.epochs"] == 8
    assert search.best_score_ > 0.75
    assert search.predict(table).shape == (96,)


@pytest.mark.slow
def test_cross_validation_takes_labels_from_the_table_or_from_y(table: EventTable) -> None:
    clf = quick(2)
    assert cross_val_score(clf, table, cv=2).shape == (2,)  # by the table's own labels
    text = np.where(table.labels == 1, "ill", "well")
    assert cross_val_score(clf, table, text, cv=2).shape == (2,)


@pytest.mark.slow
def test_cross_validation_scores_by_roc_auc() -> None:
    table = easy_table(96, classes=("ill", "well"))
    clf = quick(config=LEARNS)
    scores = cross_val_score(clf, table, table.labels, cv=2, scoring="roc_auc", error_score="raise")
    assert (scores > 0.9).all()


# ---------------------------------------------------------------- predicting


@pytest.mark.slow
def test_what_was_learned_carries_over_to_new_samples(fitted: Classifier, fresh_table: EventTable) -> None:
    probability = fitted.predict_proba(fresh_table)
    assert probability.shape == (30, 2)
    assert_close(probability.sum(1), 1.0)
    assert roc_auc_score(fresh_table.labels, probability[:, 1]) > 0.9
    assert np.array_equal(fitted.predict(fresh_table), fitted.classes_[probability.argmax(1)])


def test_predictions_embeddings_and_graphs_are_by_sample(fitted: Classifier, fresh_table: EventTable) -> None:
    predictions = fitted.predict_table(fresh_table)
    assert list(predictions.ids) == fresh_table.ids
    assert np.array_equal(predictions.probabilities, fitted.predict_proba(fresh_table))
    embedding = fitted.embed(fresh_table)
    assert embedding.shape[0] == 30
    assert np.isfinite(embedding).all()
    graphs = fitted.graphs(fresh_table)
    assert list(graphs) == fresh_table.ids
    assert graphs.sensors == SENSORS
    assert graphs["new003"].weights.shape == (3, 3)
    assert np.array_equal(fitted.graphs(fresh_table[[3]])["new003"].weights > 0, graphs["new003"].weights > 0)


def test_score_is_accuracy_and_evaluate_has_every_figure(fitted: Classifier, fresh_table: EventTable) -> None:
    right = fitted.predict(fresh_table) == fresh_table.labels
    assert fitted.score(fresh_table) == pytest.approx(right.mean())
    assert fitted.score(fresh_table, 1 - fresh_table.labels) == pytest.approx(1 - right.mean())
    assert fitted.score(fresh_table, sample_weight=right) == 1
    figures = fitted.evaluate(fresh_table)
    assert figures["accuracy"] == pytest.approx(right.mean())
    expected = roc_auc_score(fresh_table.labels, fitted.predict_proba(fresh_table)[:, 1])
    assert figures["auroc"] == pytest.approx(expected)


def test_score_and_evaluate_find_the_label_that_training_had(fitted: Classifier, fresh_table: EventTable) -> None:
    events = fresh_table.events()
    unnamed = EventTable.from_frames(events, fresh_table.samples, label="", statics=["age", "ward"], sensors=SENSORS)
    assert unnamed.roles.label is None
    assert fitted.score(unnamed) == fitted.score(fresh_table)
    assert fitted.evaluate(unnamed) == fitted.evaluate(fresh_table)


def test_labels_as_text_are_matched_to_classes_that_are_numbers(fitted: Classifier, fresh_table: EventTable) -> None:
    text = fresh_table.with_labels([str(label) for label in fresh_table.labels])
    assert fitted.score(text) == fitted.score(fresh_table) > 0.5
    assert fitted.evaluate(text) == fitted.evaluate(fresh_table)


@pytest.mark.slow
@pytest.mark.parametrize(
    "classes", [("ill", "well"), (3, 7), (False, True), ("low", "middle", "high"), (2, 10, 1)], ids=str
)
def test_classes_of_any_kind_come_back_as_they_were(classes: tuple[Any, ...], tmp_path: Path) -> None:
    table = easy_table(36, classes=classes)
    clf = quick().fit(table)
    assert clf.classes_.tolist() == sorted(classes)
    assert clf.predict_proba(table).shape == (36, len(classes))
    assert set(clf.predict(table).tolist()) <= set(classes)
    assert clf.predict(table).dtype.kind == table.labels.dtype.kind
    assert load(clf.save(tmp_path / "m")).classes_.tolist() == sorted(classes)
    assert clf.predict_table(table).frame().columns[2] == f"probability_{sorted(classes)[0]}"


def test_a_sample_without_a_reading_is_judged_by_its_statics(fitted: Classifier, fresh_table: EventTable) -> None:
    silent = fresh_table.where(pl.col("sample") != "new002")
    assert silent.count[2] == 0
    probability = fitted.predict_proba(silent)
    assert np.isfinite(probability).all()
    assert not np.allclose(probability[2], fitted.predict_proba(fresh_table)[2])
    assert np.isfinite(fitted.embed(silent)).all()
    assert np.isfinite(fitted.graphs(silent)["new002"].weights).all()


def test_a_table_without_any_reading_is_predicted(fitted: Classifier, fresh_table: EventTable) -> None:
    silent = fresh_table.where(pl.col("value").is_null())
    assert silent.num_readings == 0
    assert np.isfinite(fitted.predict_proba(silent)).all()


def test_a_sample_without_a_reading_does_not_disturb_training() -> None:
    silent = easy_table(32).where(pl.col("sample") != "s002")
    assert np.isfinite(quick().fit(silent).predict_proba(silent)).all()


def test_a_table_where_a_trained_sensor_is_missing_altogether_is_fine(
    fitted: Classifier, fresh_table: EventTable
) -> None:
    events = fresh_table.events().filter(pl.col("sensor") != "pressure")
    fewer = EventTable.from_frames(events, fresh_table.samples, label="label", statics=["age", "ward"])
    assert fewer.sensors == ("heart rate", "temperature")
    hidden = fresh_table.where(pl.col("sensor") != "pressure")
    assert np.array_equal(fitted.predict_proba(fewer), fitted.predict_proba(hidden))


def test_an_unknown_sensor_is_an_error_or_ignored(fitted: Classifier, fresh_table: EventTable) -> None:
    extra = pl.DataFrame({"sample": ["new000"] * 2, "time": [1.0, 2.0], "sensor": ["lactate"] * 2, "value": [9.0, 9.5]})
    known = fresh_table.events().with_columns(pl.col("sensor").cast(pl.String), pl.col("value").cast(pl.Float64))
    more = EventTable.from_frames(
        pl.concat([known, extra]), fresh_table.samples, label="label", statics=["age", "ward"]
    )
    with pytest.raises(DataError, match=r"1 sensor was not read in training \(first: 'lactate'; 2 of"):
        fitted.predict_proba(more)
    lenient = quick(unknown_sensors="ignore")
    lenient.__dict__ |= {name: value for name, value in vars(fitted).items() if name.endswith("_")}
    assert_close(lenient.predict_proba(more), fitted.predict_proba(fresh_table))


def with_rare_sensor(table: EventTable, samples: list[str]) -> EventTable:
    """The table with a further sensor "lactate" that is read only in these samples."""
    lactate = pl.DataFrame({"sample": samples, "time": 1.0, "sensor": "lactate", "value": 1e6})
    events = pl.concat([table.events().with_columns(pl.col("sensor").cast(pl.String)), lactate])
    return EventTable.from_frames(
        events, table.samples, label="label", statics=["age", "ward"], sensors=[*SENSORS, "lactate"]
    )


@pytest.mark.slow
def test_a_sensor_that_was_listed_but_never_read_in_training_is_unknown(
    table: EventTable, fresh_table: EventTable, tmp_path: Path
) -> None:
    clf = quick().fit(with_rare_sensor(table, []))
    assert clf.scaler_.sensors == (*SENSORS, "lactate")
    clf.save(tmp_path / "model")
    rare = with_rare_sensor(fresh_table, ["new000", "new001"])
    for strict in (clf, load(tmp_path / "model")):
        with pytest.raises(DataError, match=r"1 sensor was not read in training \(first: 'lactate'; 2 of"):
            strict.predict_proba(rare)
        lenient = strict.set_params(unknown_sensors="ignore")
        assert_close(lenient.predict_proba(rare), clf.predict_proba(fresh_table))


@pytest.mark.slow
def test_validation_samples_may_hold_a_sensor_that_training_never_reads(
    table: EventTable, fresh_table: EventTable
) -> None:
    clf = quick().fit(with_rare_sensor(table, []), validation=with_rare_sensor(fresh_table, ["new000"]))
    without = quick().fit(with_rare_sensor(table, []), validation=with_rare_sensor(fresh_table, []))
    for one, other in zip(clf.history_, without.history_, strict=True):
        assert one | {"seconds": 0} == other | {"seconds": 0}
    held_out = table.split((0.8, 0.2), seed=0)[1].ids
    clf = quick(config={"train.holdout": 0.2}).fit(with_rare_sensor(table, held_out))
    assert clf.scaler_.observed_sensors == SENSORS


def test_a_table_in_another_time_unit_gives_the_same_result(fitted: Classifier, fresh_table: EventTable) -> None:
    seconds = fresh_table.in_unit("seconds")
    assert seconds.time.max() > 1000 * fresh_table.time.max()
    assert_close(fitted.predict_proba(seconds), fitted.predict_proba(fresh_table))


@pytest.mark.parametrize("method", ["predict_proba", "embed"])
def test_a_sample_is_judged_the_same_alone_and_in_company(
    method: str, fitted: Classifier, fresh_table: EventTable
) -> None:
    judge: Callable[[EventTable], np.ndarray] = getattr(fitted, method)
    together = judge(fresh_table)
    assert_close([judge(fresh_table[[at]])[0] for at in range(6)], together[:6])
    order = np.random.default_rng(0).permutation(30)
    assert_close(judge(fresh_table[order]), together[order])


def test_an_empty_table_has_no_predictions_and_says_so_elsewhere(fitted: Classifier, table: EventTable) -> None:
    nobody = table[np.zeros(len(table), dtype=bool)]
    assert fitted.predict_proba(nobody).shape == (0, 2)
    assert fitted.predict(nobody).shape == (0,)
    assert fitted.predict_table(nobody).frame().schema["sample"] == pl.String
    for method in (fitted.embed, fitted.graphs, fitted.evaluate, fitted.score):
        with pytest.raises(DataError, match=r"The table is empty; at least one sample is needed"):
            method(nobody)
    with pytest.raises(DataError, match="The training table is empty"):
        quick().fit(nobody)


# ---------------------------------------------------------------- learning


@pytest.mark.slow
def test_test_rows_never_influence_what_was_learned(table: EventTable) -> None:
    first, rest = table[:32], table[32:]
    spoiled = rest.where(pl.col("time") < 10)
    found = []
    for other in (rest, spoiled):
        clf = quick().fit(first)
        clf.predict_proba(other)
        clf.evaluate(other)
        found.append(clf)
    assert found[0].scaler_.to_dict() == found[1].scaler_.to_dict()
    for one, two in zip(found[0].model_.parameters(), found[1].model_.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.slow
def test_the_scale_is_learned_from_training_samples_alone(table: EventTable) -> None:
    train, validation = table[:32], table[32:]
    shifted = EventTable.from_frames(
        validation.events().with_columns(pl.col("value") * 100 + 7),
        validation.samples,
        label="label",
        statics=["age", "ward"],
        sensors=SENSORS,
    )
    one, two = (quick().fit(train, validation=part).scaler_.to_dict() for part in (validation, shifted))
    assert one == two
    held_out = quick(config={"train.holdout": 0.5}).fit(table).scaler_.to_dict()
    assert held_out != quick(config={"train.holdout": 0.0}).fit(table).scaler_.to_dict()


@pytest.mark.slow
def test_validation_is_given_held_out_or_left_out(table: EventTable) -> None:
    given = quick().fit(table[:32], validation=table[32:])
    assert given.history_[0]["validation"] == pytest.approx(given.evaluate(table[32:]), abs=tolerance())
    assert "validation" in quick().fit(table).history_[0]
    assert "validation" not in quick(config={"train.holdout": 0.0}).fit(table).history_[0]
    with pytest.warns(RaindropWarning, match="No validation samples are held out of the 6 training samples"):
        few = quick().fit(table[:6])
    assert "validation" not in few.history_[0]


def test_a_rare_class_stays_in_training_and_the_others_are_held_out(table: EventTable) -> None:
    labels = table.labels.astype(str)
    labels[0] = "rare"
    clf = quick().fit(table.with_labels(labels))
    assert "validation" in clf.history_[0]
    assert clf.classes_.tolist() == ["0", "1", "rare"]


def test_with_y_the_validation_table_has_its_own_label(table: EventTable) -> None:
    renamed = easy_table(24, classes=("a", "b"), statics=("age", "ward"), label="outcome", seed=3)
    y = np.where(table.labels == 1, "b", "a")
    clf = quick().fit(table, y, validation=renamed)
    assert clf.history_[0]["validation"] == pytest.approx(clf.evaluate(renamed), abs=tolerance())


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model_and_no_global_random_state_is_touched(table: EventTable) -> None:
    found = []
    for drawn, seed in enumerate((0, np.int64(0), 1)):
        torch.manual_seed(drawn)
        before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
        clf = Classifier(config=QUICK | {"train.epochs": 1}, seed=seed).fit(table)
        found.append(clf.predict_proba(table))
        assert torch.equal(before[0], torch.get_rng_state())
        assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
        assert before[2] == random.getstate()
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def refused(call: Callable[..., Any], *given: Any, error: type[RaindropError] = DataError, **options: Any) -> str:
    with pytest.raises(error) as caught:
        call(*given, **options)
    return str(caught.value)


def test_training_refuses_what_cannot_be_learned_from(table: EventTable) -> None:
    one = table[table.labels == 1]
    assert refused(quick().fit, one) == (
        "All 24 training samples have the label '1'. There must be at least two classes to tell apart."
    )
    assert "There are 48 samples, but labels of shape (3,)" in refused(quick().fit, table, [0, 1, 0])
    assert "1 of 48 samples have no label 'label' (first: 's000')" in refused(
        quick().fit, table, [None, *table.labels[1:].tolist()]
    )
    unlabelled = EventTable.from_frames(table.events(), table.samples, label="")
    assert "The table has no label. Name the label column with label='NAME'" in refused(quick().fit, unlabelled)
    empty = table[np.zeros(48, dtype=bool)]
    assert "The validation table is empty" in refused(quick().fit, table, validation=empty)
    assert "All 24 validation samples are alike" in refused(
        quick(config={"train.metric": "auroc"}).fit, table, validation=one
    )


def test_a_label_that_training_never_saw_is_an_error_at_evaluation(fitted: Classifier, fresh_table: EventTable) -> None:
    strange = fresh_table.with_labels([2, 2, *fresh_table.labels[2:]])
    assert refused(fitted.evaluate, strange) == (
        "2 of 30 samples have a label that was not there in training (first: '2').\n"
        "The model knows the classes '0', '1'."
    )
    assert fitted.predict_proba(strange).shape == (30, 2)
    assert "not there in training" in refused(quick().fit, fresh_table, validation=strange)


@pytest.mark.parametrize(
    "method", ["predict", "predict_proba", "predict_table", "embed", "graphs", "evaluate", "score"]
)
def test_a_classifier_that_is_not_fitted_says_so(method: str, table: EventTable) -> None:
    with pytest.raises(NotFittedError, match=r"not fitted yet\. Call fit\(table\) first"):
        getattr(quick(), method)(table)


def test_a_classifier_that_is_not_fitted_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="nothing to save"):
        quick().save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    "wrong", [np.zeros((3, 4)), None, "table", pl.DataFrame({"a": [1]})], ids=lambda x: type(x).__name__
)
def test_anything_but_a_table_is_refused(wrong: Any, fitted: Classifier, table: EventTable) -> None:
    expected = f"takes an EventTable, not {type(wrong).__name__}. Make one with EventTable.from_frames"
    for call in (quick().fit, fitted.predict, fitted.evaluate, fitted.score):
        assert expected in refused(call, wrong)
    if wrong is not None:
        assert expected in refused(quick().fit, table, validation=wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "raindorp"}, "Unknown model 'raindorp': did you mean 'raindrop'?"),
        ({"preset": "tunde"}, "Model 'raindrop' has no preset 'tunde': did you mean 'tuned'?"),
        ({"config": {"train.epoch": 3}}, "Unknown setting 'train.epoch': did you mean 'train.epochs'?"),
        ({"config": {"model.purne": 0.3}}, "Unknown setting 'model.purne': did you mean 'model.prune'?"),
        ({"config": {"epochs": 3}}, "Unknown setting 'epochs': settings start with 'model.' or 'train.'."),
        ({"config": {"train.epochs": "many"}}, "Setting 'train.epochs': expected `int`, got `str`."),
        ({"config": {"train.metric": "auroq"}}, "Unknown metric 'auroq': did you mean 'auroc'?"),
        ({"calibrate": "platt"}, "Unknown calibration 'platt': there are: 'none', 'temperature', 'isotonic'."),
        ({"unknown_sensors": "drop"}, "unknown_sensors is 'error' or 'ignore', not 'drop'."),
        ({"seed": -1}, "seed=-1: a seed is a whole number, 0 or above."),
        ({"seed": None}, "seed=None: a seed is a whole number, 0 or above."),
    ],
    ids=lambda x: str(x)[:40],
)
def test_an_unknown_name_suggests_the_near_one(options: dict[str, Any], message: str, table: EventTable) -> None:
    assert refused(Classifier(**options).fit, table, error=ConfigError) == message


@pytest.mark.slow
def test_a_run_is_logged_and_saved_and_a_failed_one_leaves_nothing(table: EventTable, tmp_path: Path) -> None:
    clf = quick(2).fit(table, run=tmp_path / "deep/run")
    names = ["checkpoint.safetensors", "log.jsonl", "model.json", "model.safetensors", "split.parquet"]
    assert sorted(path.name for path in (tmp_path / "deep/run").iterdir()) == names
    assert np.array_equal(load(tmp_path / "deep/run").predict_proba(table), clf.predict_proba(table))
    assert refused(clf.fit, table, run=tmp_path / "deep/run", error=OutputExistsError)
    small = quick(config={"train.batch_size": 1, "train.sampling": "balanced"})
    assert refused(small.fit, table, run=tmp_path / "failed", error=ConfigError)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_a_run_folder_that_cannot_be_made_is_one_message(table: EventTable, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for run in (tmp_path / "file", tmp_path / "file/run"):
        assert str(run) in refused(quick().fit, table, run=run, resume=True, error=RaindropError)


# ---------------------------------------------------------------- keeping


@pytest.fixture
def saved(fitted: Classifier, tmp_path: Path) -> Path:
    return fitted.save(tmp_path / "model")


def test_a_loaded_model_gives_bit_identical_results(fitted: Classifier, saved: Path, fresh_table: EventTable) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    again = raindrop.load(saved)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(again.predict_proba(fresh_table), fitted.predict_proba(fresh_table))
    assert np.array_equal(again.embed(fresh_table), fitted.embed(fresh_table))
    assert np.array_equal(again.graphs(fresh_table).weights, fitted.graphs(fresh_table).weights)
    assert again.evaluate(fresh_table) == fitted.evaluate(fresh_table)
    assert again.history_ == fitted.history_
    assert again.classes_.dtype == fitted.classes_.dtype


def test_a_loaded_model_is_the_estimator_that_was_saved(saved: Path, tmp_path: Path, table: EventTable) -> None:
    assert load(saved).model == "raindrop"
    Classifier("trees", config={"model.rounds": 2}).fit(table).save(tmp_path / "trees")
    for run, model in ((saved, "raindrop"), (tmp_path / "trees", "trees")):
        loaded = load(run)
        assert type(loaded) is Classifier
        assert loaded.model == model


@pytest.mark.slow
def test_a_loaded_model_can_be_saved_again_and_fitted_again(saved: Path, tmp_path: Path, table: EventTable) -> None:
    again = load(saved)
    again.save(tmp_path / "copy")
    assert (tmp_path / "copy/model.json").read_bytes() == (saved / "model.json").read_bytes()
    refitted = load(saved).fit(table)
    assert np.array_equal(refitted.predict_proba(table), again.predict_proba(table))


def test_a_known_graph_and_every_other_setting_survive_saving(table: EventTable, tmp_path: Path) -> None:
    edges = [("heart rate", "pressure", 0.5), ("pressure", "temperature", 1.0)]
    clf = quick(config={"model.graph.initial_edges": edges, "model.prune": 0.0}).fit(table)
    again = load(clf.save(tmp_path / "m"))
    assert again.model_.config == clf.model_.config
    assert np.array_equal(again.predict_proba(table), clf.predict_proba(table))


def test_a_model_is_not_saved_over_another(fitted: Classifier, saved: Path) -> None:
    assert "this folder exists already" in refused(fitted.save, saved, error=OutputExistsError)


def test_everyone_who_may_read_the_description_may_read_the_weights(saved: Path) -> None:
    modes = {(saved / name).stat().st_mode for name in ("model.json", "model.safetensors")}
    assert len(modes) == 1


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any], *, vouch: bool) -> None:
    """Change model.json, and its checksum too where somebody goes that far."""
    content = json.loads((folder / "model.json").read_text())
    checksum = content.pop("checksum")
    change(content)
    (folder / "model.json").write_text(
        json.dumps({**content, "checksum": content_checksum(content) if vouch else checksum})
    )


def flip(path: Path, at: int) -> None:
    held = bytearray(path.read_bytes())
    held[at] ^= 1
    path.write_bytes(held)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


TAMPERING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "weights changed": (lambda m: flip(m / "model.safetensors", -5), "not the weights that model.json describes"),
    "weights truncated": (lambda m: cut(m / "model.safetensors"), "not the weights that model.json describes"),
    "weights missing": (lambda m: (m / "model.safetensors").unlink(), "the weights are missing. Copy the run again"),
    "json truncated": (lambda m: cut(m / "model.json"), "not a model description; the file is damaged"),
    "json emptied": (lambda m: (m / "model.json").write_text(""), "not a model description; the file is damaged"),
    "json is a list": (lambda m: (m / "model.json").write_text("[1]"), "not a model description"),
    "json is not text": (lambda m: (m / "model.json").write_bytes(b"\xff\xfe"), "not a model description"),
    "json missing": (lambda m: (m / "model.json").unlink(), "there is no model.json. Is this a run folder?"),
    "folder missing": (lambda m: shutil.rmtree(m), "there is no model.json. Is this a run folder?"),
    "scaler changed": (
        lambda m: rewrite(m, lambda c: c["scaler"]["mean"].append(0.5), vouch=False),
        "changed since it was written",
    ),
    "classes changed": (
        lambda m: rewrite(m, lambda c: c["task"]["classes"].reverse(), vouch=False),
        "changed since it was",
    ),
    "checksum removed": (
        lambda m: (m / "model.json").write_text((m / "model.json").read_text().replace('"checksum"', '"other"')),
        "changed since it was written",
    ),
    "newer format": (
        lambda m: rewrite(m, lambda c: c.update(format=FORMAT + 1), vouch=True),
        f"written in format {FORMAT + 1} by raindrop .*which reads format {FORMAT}. Upgrade raindrop to load it",
    ),
    "older format": (
        lambda m: rewrite(m, lambda c: c.update(format=FORMAT - 1), vouch=True),
        "Load it with the version that wrote it",
    ),
    "unknown model": (
        lambda m: rewrite(m, lambda c: c.update(model="raindrop2"), vouch=True),
        "unknown model 'raindrop2': did you mean 'raindrop'",
    ),
    "unknown setting": (
        lambda m: rewrite(m, lambda c: c["config"]["model"].update(wings=2), vouch=True),
        "does not describe a model of this version .Unknown setting 'model.wings'",
    ),
    "another size": (
        lambda m: rewrite(m, lambda c: c["config"]["model"].update(hidden=9), vouch=True),
        "does not describe a model of this version",
    ),
    "another class": (
        lambda m: rewrite(m, lambda c: c["task"]["classes"].append(5), vouch=True),
        "does not describe a model",
    ),
    "part missing": (lambda m: rewrite(m, lambda c: c.pop("scaler"), vouch=True), "does not describe a model"),
}


@pytest.mark.parametrize(("tamper", "message"), TAMPERING.values(), ids=TAMPERING.keys())
def test_a_tampered_model_is_a_clear_error(tamper: Callable[[Path], Any], message: str, saved: Path) -> None:
    load(saved)
    tamper(saved)
    with pytest.raises(ModelFileError, match=message) as caught:
        load(saved)
    assert str(saved) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_run_that_has_not_finished_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"")
    with pytest.raises(ModelFileError, match="The run has not finished; continue it with --resume"):
        load(tmp_path)

"""What a fitted classifier offers to explanations and reports: truth, raw outputs, probabilities, positive class."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from closeness import assert_close
from learnable import QUICK, easy_table

from raindrop import Classifier, DataError, EventTable


@pytest.fixture(scope="module")
def table():
    return easy_table(40, classes=("sick", "well"), label="outcome")


@pytest.fixture(scope="module", params=["none", "temperature", "isotonic"])
def fitted(request, table):
    return Classifier(config=QUICK, calibrate=request.param).fit(table, validation=table)


@pytest.mark.slow
def test_outputs_and_probabilities_are_those_of_predict_proba(fitted, table, monkeypatch):
    monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", 150)
    results = [(batch.num_samples, fitted.to_predictions(output)) for batch, output in fitted.run_model(table)]
    assert len(results) > 1
    assert all(len(probability) == number for number, probability in results)
    # The library chooses its number of threads where it scores, so the two may round differently; where an isotonic
    # curve is steep, it multiplies that.
    slopes = [float((np.diff(y) / np.diff(x)).max()) for x, y in fitted.calibrator_.curves]
    steepest = max([1.0, *slopes])
    assert_close(np.concatenate([row for _, row in results]), fitted.predict_proba(table), magnitude=steepest)


def test_inference_mode_is_off_between_batches(fitted, table):
    fitted.model_.train()
    for _, output in fitted.run_model(table):
        assert not torch.is_inference_mode_enabled()
        assert not fitted.model_.training
        assert output.scores.is_inference()
        break  # a caller that stops early leaves nothing switched on
    assert not torch.is_inference_mode_enabled()


def test_truth_is_the_position_of_the_label_in_classes(fitted, table):
    assert fitted.truth(table).tolist() == [("sick", "well").index(label) for label in table.labels]


def test_truth_uses_the_label_of_training_where_the_table_names_none(fitted, table):
    unnamed = EventTable.from_frames(table.events(), table.samples)
    assert unnamed.roles.label is None
    assert fitted.truth(unnamed).tolist() == fitted.truth(table).tolist()


def test_truth_refuses_a_class_that_training_did_not_have(fitted):
    with pytest.raises(DataError, match="label that was not there in training"):
        fitted.truth(easy_table(6, classes=("sick", "dead"), label="outcome"))


def test_the_positive_class_is_the_last_of_two_and_none_of_more(fitted):
    assert (fitted.positive_, fitted.positive_code_) == ("well", 1)
    three = Classifier("trees", preset="paper").fit(easy_table(24, classes=("a", "b", "c")))
    assert three.positive_ is None
    assert three.positive_code_ is None


@pytest.mark.slow
def test_graphs_of_a_sample_without_readings_say_why_they_are_empty(table):
    fitted = Classifier(config=QUICK).fit(table, validation=table)
    nothing = table[:2].where(lambda events: np.zeros(len(events), dtype=bool))
    assert fitted.graphs(table).mean().describe_empty() == ""
    assert "no sensor has a reading" in fitted.graphs(nothing).mean().describe_empty()

"""How much memory a long sample takes is known before it is taken."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raindrop import Classifier, EventTable
from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator, bounded
from raindrop.models.base import Model
from raindrop.training.memory import MARGIN, TRIED, _peak, growth

pytestmark = pytest.mark.slow

LENGTH = 5000


def series(samples: int, length: int, *, together: int = 1) -> EventTable:
    """`together` readings of different sensors share each time."""
    rng, total = np.random.default_rng(0), samples * length
    names = np.repeat([f"p{at}" for at in range(samples)], length)
    table = EventTable.from_columns(
        names,
        np.tile(np.arange(length) // together, samples),
        np.array(["a", "b", "c"])[np.arange(total) % 3],
        rng.normal(size=total),
    )
    return table.with_labels([at % 2 for at in range(samples)])


def tried(name: str) -> tuple[Model, Batch]:
    """A model, and a batch with one long sample."""
    settings = {"train.epochs": 1, "train.min_steps": 0, "train.holdout": 0.0, "train.soft_targets": 0.0}
    trained = Classifier(name, config=settings).fit(series(4, 20))
    return trained.model_.network, Collator(series(1, LENGTH), trained.scaler_).batch(np.array([0]))


@pytest.mark.parametrize("name", ["raindrop", "grud", "transformer", "ipnet"])
@pytest.mark.parametrize("gradients", [True, False])
def test_what_a_long_sample_will_take_is_extrapolated_from_its_first_readings(name, gradients):
    model, item = tried(name)
    found = growth(model, item, gradients=gradients).bytes_at(LENGTH) / MARGIN
    assert 0.6 < found / _peak(model, item, gradients=gradients) < 1.7


def test_memory_that_grows_with_the_square_of_the_times_is_known_from_the_first_readings():
    model, item = tried("ipnet")  # tells every reading from every other in training
    training, scoring = (growth(model, item, gradients=gradients).bytes_at(LENGTH) for gradients in (True, False))
    assert training > 20 * scoring


def test_a_trial_changes_neither_the_model_nor_the_random_numbers():
    model, item = tried("raindrop")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    gradients = [parameter.grad for parameter in model.parameters()]
    mode, state = model.training, torch.get_rng_state()
    growth(model, item, gradients=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is then for parameter, then in zip(model.parameters(), gradients, strict=True))
    assert model.training == mode
    assert torch.equal(torch.get_rng_state(), state)


def test_long_samples_of_few_sensors_are_not_all_in_one_batch():
    table = series(8, 30_000)
    trained = Classifier("seft", config={"train.epochs": 1, "train.holdout": 0.0}).fit(series(4, 20))
    parts = list(bounded(Collator(table, trained.scaler_), np.arange(8)))
    assert [len(part) for part in parts] == [4, 4]


def test_a_model_is_tried_once_however_often_it_scores(monkeypatch):
    trained = Classifier("seft", config={"train.epochs": 1, "train.holdout": 0.0}).fit(series(4, 20))
    tried = []
    monkeypatch.setattr("raindrop.training.memory._peak", lambda *_, **__: tried.append(1) or 1000 * len(tried))
    table = series(2, 12_000)
    trained.predict_proba(table)
    trained.predict_proba(table[:1])
    assert len(tried) == len(TRIED)
    trained.predict_proba(series(2, 12_000, together=3))  # fewer timestamps take less: another shape is tried anew
    assert len(tried) == 2 * len(TRIED)

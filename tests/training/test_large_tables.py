"""Training on a large table: batches from one pool after another, the same weights however it was interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learnable import QUICK, easy_table
from sklearn.base import clone
from small_blocks import make_small

from raindrop.errors import NotEnoughMemoryError, RaindropWarning
from raindrop.estimators.classifier import Classifier
from raindrop.models.raindrop.model import Raindrop
from raindrop.table import blocks
from raindrop.table.event_table import EventTable
from raindrop.training import loop

pytestmark = pytest.mark.slow

CONFIG = QUICK | {"train.batch_size": 8, "train.epochs": 2, "train.checkpoint_minutes": 0.0, "train.holdout": 0.0}


@pytest.fixture
def data(tmp_path: Path) -> EventTable:
    return EventTable.read(easy_table(60).write(tmp_path / "data"))


def weights(estimator: Classifier) -> dict[str, torch.Tensor]:
    return dict(estimator.model_.state_dict())


def is_the_same(one: Classifier, other: Classifier) -> bool:
    return all(torch.equal(weights(one)[name], weights(other)[name]) for name in weights(one))


def fitted(table: EventTable, **options: Any) -> Classifier:
    return Classifier(preset="paper", config=CONFIG, seed=1).fit(table, **options)


def test_a_table_of_one_pool_is_trained_as_one_in_memory(
    data: EventTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Streaming or not: the same batches, so the same weights; pages are given back on the way."""
    in_memory = fitted(easy_table(60))
    make_small(monkeypatch, large=len(data.time) - 1, block=len(data.time), ranges=1)
    monkeypatch.setattr(blocks, "pools", lambda array, start, count, rng: [np.arange(len(count))])
    monkeypatch.setattr("raindrop.batch.collate.pools", blocks.pools)
    released = []
    monkeypatch.setattr(blocks, "release", lambda *arrays: released.append(len(arrays)))
    monkeypatch.setattr("raindrop.table.event_table.release", blocks.release)
    assert is_the_same(fitted(data), in_memory)
    assert released


def test_several_pools_give_other_batches_and_learn_as_well(data: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = Classifier(preset="paper", config=CONFIG | {"train.epochs": 8}, seed=1)
    whole = clone(longer).fit(data)
    make_small(monkeypatch, large=120, ranges=2)
    pooled = clone(longer).fit(data)
    assert not is_the_same(pooled, whole)
    for fitted_one in (whole, pooled):
        assert fitted_one.evaluate(data)["auroc"] > 0.9


@pytest.mark.parametrize("step", [3, 11])
def test_a_run_that_died_in_a_pool_is_resumed_to_the_same_weights(
    data: EventTable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: int
) -> None:
    make_small(monkeypatch, large=120, ranges=2)
    whole = fitted(data, run=tmp_path / "whole")
    original, steps = loop._step, iter(range(step))

    def stop(*given: Any, **options: Any) -> float:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return original(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_step", stop)
        with pytest.raises(KeyboardInterrupt):
            fitted(data, run=tmp_path / "run")
    assert is_the_same(fitted(data, run=tmp_path / "run", resume=True), whole)


def test_trees_learn_from_a_part_of_a_large_table_and_say_so(data: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch, large=120)
    monkeypatch.setattr("raindrop.models.trees.MAX_COLUMNS", 40 * 9 * 3)
    trees = Classifier("trees", config={"model.rounds": 5, "model.min_samples": 2, "train.holdout": 0.0})
    with pytest.warns(RaindropWarning, match="Trees learn from 40 of 60 samples, drawn with the seed"):
        trees.fit(data)
    assert trees.evaluate(data)["auroc"] > 0.9


def test_soft_targets_of_a_large_table_are_those_in_memory(data: EventTable, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"train.soft_targets": 0.5, "train.epochs": 1}
    in_memory = Classifier(preset="paper", config=CONFIG | settings, seed=1).fit(data)
    monkeypatch.setattr("raindrop.training.distill.is_large", lambda array: True)
    large = Classifier(preset="paper", config=CONFIG | settings, seed=1).fit(data)
    for name, tensor in weights(large).items():
        torch.testing.assert_close(tensor, weights(in_memory)[name], rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- samples that are too large


def test_a_sample_that_does_not_fit_in_memory_is_refused_with_numbers_and_a_way_out(
    data: EventTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = fitted(data)
    trees = Classifier("trees", config={"model.rounds": 5, "model.min_samples": 2, "train.holdout": 0.0}).fit(data)
    for module in ("raindrop.batch.collate", "raindrop.training.memory"):
        monkeypatch.setattr(f"{module}.MAX_CELLS", 10)
    monkeypatch.setattr("raindrop.training.memory.SMALL", 0)
    assert trained.predict_proba(data).shape == (60, 2)  # there is enough
    monkeypatch.setattr("raindrop.hardware.available_memory", lambda: 100)
    sentence = r"the largest sample, with 8 readings of a table of 3 sensors, would take about .* GB .* are available"
    with pytest.raises(NotEnoughMemoryError, match=f"Scoring {sentence}.*\n.*use the model 'trees'"):
        trained.predict_proba(data)
    with pytest.raises(NotEnoughMemoryError, match=f"Training on {sentence}"):
        fitted(data)
    assert trees.predict_proba(data).shape == (60, 2)


def test_a_long_sample_of_few_sensors_is_refused_by_its_number_of_readings(
    data: EventTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, length = fitted(data), 300_000
    at = np.arange(length)
    long = EventTable.from_columns(["long"] * length, at, np.array(data.sensors)[at % 3], np.ones(length))
    monkeypatch.setattr("raindrop.hardware.available_memory", lambda: 60 << 20)
    with pytest.raises(NotEnoughMemoryError, match=r"with 300,000 readings of .* 3 sensors, would take about 0.\d GB"):
        trained.predict_proba(long)


def test_weights_that_do_not_fit_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    sensors = [f"s{at}" for at in range(600)]
    table = EventTable.from_columns(["a", "b"], [0, 1], ["s0", "s1"], [1, 2], sensors=sensors).with_labels([0, 1])
    made: list[str] = []
    make = Raindrop.__init__

    def noting(self: Raindrop, *given: Any) -> None:
        make(self, *given)
        made.append(next(self.parameters()).device.type)

    monkeypatch.setattr(Raindrop, "__init__", noting)
    monkeypatch.setattr("raindrop.hardware.available_memory", lambda: 50 << 20)
    with pytest.raises(NotEnoughMemoryError, match=r"600 sensors, for its weights alone, would take .* GB .*\n.*trees"):
        Classifier(config={"train.holdout": 0.0}).fit(table)
    assert made == ["meta"]

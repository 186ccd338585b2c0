"""The cores that are exported compute what the trained models compute, on a grid instead of flat readings."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from closeness import NETWORK, assert_close
from random_tables import random_table
from torch import Tensor

from raindrop import Classifier, ConfigError, EventTable, Forecaster, Imputer, Regressor
from raindrop.batch.batch import Batch, Queries
from raindrop.batch.collate import Collator
from raindrop.estimators.base import Estimator
from raindrop.export.predictions import Predictions
from raindrop.export.query_core import QueryCore
from raindrop.export.sample_core import SampleCore
from raindrop.export.writing import Exported, export_model
from raindrop.models.raindrop.model import Raindrop

SHORT: dict[str, Any] = {"train.epochs": 1, "train.holdout": 0.0, "train.batch_size": 8}
WITHOUT_TREES: dict[str, Any] = SHORT | {"train.min_steps": 1, "train.soft_targets": 0.0}
EDGES = (("sensor 0", "sensor 1", 0.5), ("sensor 2", "sensor 1", 1.0))
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "tuned": ("tuned", WITHOUT_TREES),
    "paper": ("paper", SHORT),
    "graph": ("graph", SHORT),
    "readings before only": ("tuned", WITHOUT_TREES | {"model.graph.sides": "before"}),
    "known edges": ("tuned", WITHOUT_TREES | {"model.graph.initial_edges": EDGES}),
    "residual, two heads": ("paper", SHORT | {"model.graph.mixing": "residual", "model.graph.heads": 2}),
    "no messages, mean": ("paper", SHORT | {"model.temporal": "mean", "model.ablation.messages": False}),
    "no edge weights, mean scores": (
        "paper",
        SHORT | {"model.ablation.edge_weights": False, "model.temporal_attention.scores": "mean"},
    ),
}


@pytest.fixture(scope="module")
def table() -> EventTable:
    return random_table(samples=9, times=12)


def shaken(estimator: Estimator) -> Estimator:
    """With weights that differ, as after a long training."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in estimator.model_.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    estimator.model_.eval()
    return estimator


def on_grid(batch: Batch) -> tuple[Tensor, ...]:
    grid = batch.grid()
    return grid.value, grid.observed, grid.time, batch.statics


@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
@pytest.mark.parametrize("name", SETTINGS)
def test_the_core_of_a_classifier_gives_the_scores_of_its_model(table: EventTable, name: str) -> None:
    preset, config = SETTINGS[name]
    estimator = shaken(Classifier(preset=preset, config=config).fit(table))
    batch = Collator(table, estimator.scaler_).batch(np.arange(len(table)))
    assert isinstance(estimator.model_, Raindrop)
    with torch.no_grad():
        expected = estimator.model_(batch).scores
        found = SampleCore(estimator.model_, rounds=4)(*on_grid(batch))
    assert_close(found, expected, roundings=4 * NETWORK)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model.messages": False},
        {"model.members": 3, "model.pair_rank": 2},
        {"dated": True},
        {"model.sensor_facts": ["x"]},
    ],
)
def test_the_core_of_an_imputer_answers_as_its_model_does(table: EventTable, config: dict[str, Any]) -> None:
    config = dict(config)
    if config.pop("dated", False):
        zero = pl.Series([datetime(2026, 1, 1, at % 24) for at in range(len(table))])
        table = replace(table, samples=table.samples.with_columns(time_zero=zero))
    table = table.with_sensor_info(
        {"sensor": list(table.sensors), "x": [float(at**2) for at in range(len(table.sensors))]}
    )
    estimator = shaken(
        Imputer(config={"train.epochs": 1, "train.min_steps": 1, "train.holdout": 0.0} | config).fit(table)
    )
    batch = Collator(table, estimator.scaler_).batch(np.arange(len(table)))
    number, rng = 300, np.random.default_rng(0)
    at_readings = torch.from_numpy(rng.integers(0, len(batch.value), number))
    columns = [
        torch.cat([batch.sample[at_readings], torch.from_numpy(rng.integers(0, len(table), number))]),
        torch.cat([batch.sensor[at_readings], torch.from_numpy(rng.integers(0, batch.num_sensors, number))]),
        torch.cat([batch.time[batch.step[at_readings]], torch.from_numpy(rng.uniform(-5, 60, number))]),
    ]
    columns.append(torch.randn(2 * number, 2))  # the time of day
    assert estimator.model_.dated == (table.time_zero is not None)
    with torch.no_grad():
        expected = estimator.model_(replace(batch, queries=Queries(*columns))).scores
        found = QueryCore(estimator.model_, rounds=4)(*on_grid(batch), *columns)
    assert_close(found, expected, roundings=4 * NETWORK, magnitude=10.0)


@pytest.mark.slow
def test_rows_behind_the_last_timestamp_and_values_not_observed_change_nothing(table: EventTable) -> None:
    estimator = shaken(Classifier(config=WITHOUT_TREES).fit(table))
    assert isinstance(estimator.model_, Raindrop)
    core = SampleCore(estimator.model_, rounds=5)
    value, observed, time, statics = on_grid(Collator(table, estimator.scaler_).batch(np.arange(len(table))))
    with torch.no_grad():
        expected = core(value, observed, time, statics)
        noise = torch.where(observed, value, 1e6)
        longer = [
            torch.cat([x, torch.full_like(x[:, :2], fill)], 1) for x, fill in ((noise, 9), (observed, 0), (time, -7))
        ]
        found = core(*longer, statics)
    assert_close(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [Classifier(config=WITHOUT_TREES), Regressor(label="age", config=WITHOUT_TREES)])
def test_scores_become_predictions_as_the_task_has_them(table: EventTable, estimator: Any) -> None:
    estimator.fit(table)
    scores = torch.randn(50, estimator.task_.num_outputs)
    assert_close(Predictions(estimator.task_)(scores).numpy(), estimator.task_.predict(scores), magnitude=100.0)


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [
        (Classifier("trees", config={"model.rounds": 2}), "of the model 'trees' cannot be exported"),
        (Classifier(preset="paper", config=SHORT | {"model.temporal": "lstm"}), 'model.temporal = "lstm"'),
        (Classifier(preset="paper", config=SHORT | {"model.graph.senders": "embedded"}), "embedded"),
        (Forecaster(horizon=5, config={"train.epochs": 1, "train.min_steps": 1}), "A Forecaster of the model"),
    ],
    ids=["trees", "lstm", "embedded", "forecaster"],
)
@pytest.mark.filterwarnings("ignore::raindrop.RaindropWarning")
def test_a_model_that_cannot_be_exported_says_so_in_one_sentence(
    table: EventTable, estimator: Any, reason: str, tmp_path: Any
) -> None:
    estimator.fit(table)
    with pytest.raises(ConfigError, match=reason) as caught:
        Exported(estimator, rounds=3)
    assert str(caught.value).count("\n") == 0
    with pytest.raises(ConfigError):
        export_model(estimator, tmp_path / "export", format="pt2")
    assert not (tmp_path / "export").exists()

"""Every model learns every task: finite scores of the task's shape, gradients everywhere, results of a sample alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from closeness import assert_close

from raindrop.batch.collate import Collator
from raindrop.batch.scaling import Scaler
from raindrop.config import make
from raindrop.estimators import ESTIMATORS, make_estimator
from raindrop.models.base import DataSpec, DirectModel
from raindrop.models.registry import MODELS
from raindrop.training.loop import task_loss
from raindrop.training.scoring import scores_of

LABELS = ["one", "other"]
OPTIONS = {name: {"labels": LABELS} for name in ESTIMATORS} | {"classification": {"labels": []}}
"""Of every task; a class is the table's own label."""
TASKS = {name: (name, options) for name, options in OPTIONS.items()} | {
    "regression of the mean": ("regression", {"labels": ["one"], "loss": "squared"})
}
pytestmark = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(params=TASKS)
def problem(request, make_table):
    """A table with two labels, of which one is unknown for some samples; its task, and the data a model learns from."""
    table = make_table(samples=40, sensors=5, times=8, extremes=False)
    one = np.arange(40) % 2 + 0.0
    other = np.where(np.arange(40) % 5 == 0, np.nan, np.arange(40) // 2 % 2)
    table = replace(table, samples=table.samples.with_columns(one=one, other=other))
    name, options = TASKS[request.param]
    task = make_estimator(name, "trees", **options).learn_task(table)
    truth = task.encode(table)
    data = Collator(table, Scaler.fit(table), truth=truth, targets=task.targets(truth))
    return task, data, DataSpec(table.sensors, task, data.scaler.static_width)


def build(name: str, spec: DataSpec):
    entry = MODELS[name]
    torch.manual_seed(0)
    small = {"trees": {"rounds": 5, "min_samples": 4}, "blend": {"trees.rounds": 5, "trees.min_samples": 4}}
    model = entry.model(make(entry.config, entry.presets["tuned"].get("model", {}), small.get(name, {})), spec)
    return model


@pytest.mark.slow
def test_it_learns_and_predicts_each_sample_by_itself(name, problem):
    task, data, spec = problem
    model = build(name, spec)
    if isinstance(model, DirectModel):
        model.fit(data, data, seed=0)
    else:
        model.prepare(data, data, seed=0)
        network = model.network.train()
        batch = data.batch(np.arange(40))
        output = network(batch)
        assert output.scores.shape == (40, task.num_outputs)
        (task_loss(task, output, batch.target) + output.penalty).backward()
        without = [parameter for parameter, x in network.named_parameters() if x.grad is None or not x.grad.any()]
        assert without == []
        model.finish(data)
    scores = scores_of(model, data)
    assert scores.isfinite().all()
    assert_close(scores_of(model, data.part(np.array([3]))), scores[3:4])
    values = task.evaluate(data.truth, task.predict(scores))
    assert all(np.isfinite(values[metric]) for metric in task.metrics)

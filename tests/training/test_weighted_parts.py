"""A batch that is computed in parts, in one process or several, is the same mean over its samples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from closeness import NETWORK, assert_close
from learnable import QUICK, easy_table
from torch import nn

from raindrop.batch.batch import Batch
from raindrop.estimators.classifier import Classifier
from raindrop.estimators.inputs import with_weights
from raindrop.models.base import Model, Output
from raindrop.training import distributed, loop
from raindrop.training.config import TrainConfig

pytestmark = pytest.mark.slow

SETTINGS = QUICK | {"model.similarity": 0.0, "train.epochs": 1, "train.learning_rate": 0.01, "train.holdout": 0.0}


@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "own weights"])
def test_parts_of_a_batch_count_by_the_weight_of_their_samples(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = easy_table(32)
    weight = np.random.default_rng(0).uniform(0.1, 10, 32) if weighted else None
    predicted = []
    for cells in (10**9, 1):  # all samples of a batch in one part, or each by itself
        monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", cells)
        classifier = Classifier("raindrop", preset="paper", config=SETTINGS)
        classifier.fit(table, sample_weight=weight)
        monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", 10**9)
        predicted.append(classifier.predict_proba(table))
    assert_close(predicted[1], predicted[0], roundings=2 * NETWORK)


class WithPenalty(Model):
    """A model with an extra loss that is a mean over samples."""

    def __init__(self, inner: Model):
        nn.Module.__init__(self)
        self.inner = inner

    def forward(self, batch: Batch) -> Output:
        output: Output = self.inner(batch)
        return replace(output, penalty=output.embedding.square().mean())


@pytest.mark.parametrize("processes", [2, 4, 7])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "own weights"])
def test_the_shares_of_several_processes_add_up_to_the_gradient_of_one(
    processes: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where shares are uneven, or a process has no sample: 5 samples, up to 7 processes."""
    table = easy_table(16)
    weight = np.random.default_rng(0).uniform(0.1, 10, 16) if weighted else None
    fitted = Classifier("raindrop", preset="paper", config=SETTINGS).fit(table, sample_weight=weight)
    source = fitted._training_source(with_weights(table, weight))
    model, config = WithPenalty(fitted.model_).train(), TrainConfig()
    parameters = list(model.parameters())
    stays = torch.optim.SGD(parameters, lr=0.0)
    monkeypatch.setattr(distributed, "add_gradients", lambda parameters, loss: loss)  # added up below

    def step(rank: int, size: int) -> tuple[float, torch.Tensor]:
        monkeypatch.setattr(distributed, "rank", lambda: rank)
        monkeypatch.setattr(distributed, "size", lambda: size)
        positions = np.array([3, 1, 14, 8, 6])
        loss = loop._step(model, source, positions, config, fitted.task_, stays, parameters, [0, 0, 0], "cpu")
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
        return loss, torch.cat([gradient.flatten() for gradient in gradients])

    loss, gradient = step(0, 1)
    parts = [step(rank, processes) for rank in range(processes)]
    assert_close(sum(part[0] for part in parts), loss, dtype=np.float32)
    assert_close(torch.stack([part[1] for part in parts]).sum(0), gradient)
    assert float(gradient.abs().max()) > 1e-3

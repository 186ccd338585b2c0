"""Helpers to compare a Raindrop model with the loops of paper_loops.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import paper_loops as paper
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.models.raindrop.messages import State
from raindrop.models.raindrop.model import Raindrop

SENDERS = ("embedded", "observed")


def as_double(batch: Batch) -> Batch:
    """The batch in double precision."""
    return replace(batch, value=batch.value.double(), statics=batch.statics.double())


def assert_close(tensor: Tensor, expected: Any, atol: float = 1e-6) -> None:
    """Every number agrees up to `atol`."""
    np.testing.assert_allclose(paper.numpy(tensor), expected, rtol=0, atol=atol)


def assert_same_embeddings(
    batch: Batch, b: int, expected: dict[paper.At, Any], embeddings: Tensor, present: Tensor
) -> None:
    """The same sensors have an embedding at the same times, and it is the same; 0 elsewhere, not sigma(0) = 0.5."""
    assert not embeddings[~present].any()
    steps = (batch.step_sample == b).nonzero().flatten().tolist()
    assert {(t, v) for t, s in enumerate(steps) for v in range(batch.num_sensors) if present[s, v]} == set(expected)
    for (t, v), embedding in expected.items():
        assert_close(embeddings[steps[t], v], embedding)


def propagate(model: Raindrop, batch: Batch) -> list[State]:
    """The state before the first layer and after each layer."""
    p, h = model.encode_time(batch.time, like=batch.value), model.embed(batch)
    states = [model.initial_graph(batch, h)]
    for layer in model.layers:
        states.append(layer(batch, h, p, states[-1]))
    return states

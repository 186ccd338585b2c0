"""Run a trained model over a table, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource, in_order
from raindrop.models.base import Model, Output
from raindrop.training import distributed
from raindrop.training.memory import require_room
from raindrop.training.progress import bar


def evaluating(model: Model, device: str) -> None:
    """Put a model on a device and in evaluation mode, unless it already is: walking through all modules is slow."""
    if model.training or model.network.training:
        model.eval()
    tensor = next(chain(model.parameters(), model.buffers()), None)
    if tensor is not None and tensor.device != torch.device(device):
        model.to(device)


def run_model(
    model: Model, data: BatchSource, device: str = "cpu", *, show: bool = False
) -> Iterator[tuple[Batch, Output]]:
    """Each batch of the samples, in order, with the model's output for it."""
    evaluating(model, device)
    require_room(model, data, gradients=False)
    done = 0
    with bar(show, len(data), "predicting") as update:
        for host_batch in in_order(data):
            batch = host_batch.to(device)
            with torch.inference_mode():  # never across a yield: it would stay active in the caller's code
                output = model(batch)
            yield batch, output
            done += batch.num_samples
            update(done, [])


def _scored(model: Model, data: BatchSource, device: str, *, show: bool = False) -> list[Tensor]:
    """The scores of each batch, in order, on the CPU."""
    evaluating(model, device)
    require_room(model, data, gradients=False)
    parts: list[Tensor] = []
    done = 0
    with bar(show, len(data), "predicting") as update, torch.inference_mode():
        for batch in in_order(data):
            parts.append(model.score_batch(batch.to(device)).cpu())
            done += batch.num_samples
            update(done, [])
    return parts


def scores_of(model: Model, data: BatchSource, device: str = "cpu", *, show: bool = False) -> Tensor:
    """(items, output) on the CPU; several processes share the work, and each gets the full result."""
    if not len(data):
        raise ValueError("there are no samples to score")
    if distributed.size() == 1:
        return torch.cat(_scored(model, data, device, show=show))
    own = np.arange(len(data))[distributed.rank() :: distributed.size()]
    parts = _scored(model, data.part(own), device) if len(own) else []
    width = torch.tensor([parts[0].shape[1] if parts else 0])
    scores = torch.zeros(len(data), int(distributed.largest(width)))
    if parts:
        scores[own] = torch.cat(parts)
    return distributed.total(scores)

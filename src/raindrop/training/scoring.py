"""Run a trained model over a table, without gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.collate import MAX_CELLS, BatchSource, in_order
from raindrop.hardware import require_memory
from raindrop.models.base import Model, Output
from raindrop.training import distributed
from raindrop.training.progress import bar

SCORING_BYTES, TRAINING_BYTES = 32, 96  # per cell of an item that is larger than MAX_CELLS
SCORING_READING, TRAINING_READING = 1000, 1700  # per reading, however few sensors there are
COPIES = 6  # of the weights in training: gradients, two moments, their average, the best ones, a copy to exchange
MANY_SENSORS = 500  # with fewer, the weights are not checked
SMALL = 100 << 20  # bytes; smaller amounts are not checked


def evaluating(model: Model, device: str) -> None:
    """Put a model on a device and in evaluation mode, unless it already is: walking through all modules is slow."""
    if model.training or model.network.training:
        model.eval()
    tensor = next(chain(model.parameters(), model.buffers()), None)
    if tensor is not None and tensor.device != torch.device(device):
        model.to(device)


def require_room_for_weights(make: Callable[[], Model], sensors: int) -> None:
    """Raise before creating a model whose weights, with their copies in training, exceed the memory."""
    if sensors < MANY_SENSORS:
        return
    with torch.device("meta"):  # shapes without memory
        needed = COPIES * sum(4 * parameter.numel() for parameter in make().parameters())
    if needed >= SMALL:
        require_memory(
            needed,
            f"Training a model of a table of {sensors:,} sensors, for its weights alone,",
            "Leave out uninformative sensors, or use the model 'trees', which has no weights.",
        )


def require_room(model: Model, data: BatchSource, *, gradients: bool) -> None:
    """Raise before memory runs out if a single item exceeds the memory, by an estimate.

    Batches are cut to stay below MAX_CELLS, so only items that exceed it by themselves need a check.
    """
    readings, cells = data.largest()
    by_cell, by_reading = (TRAINING_BYTES, TRAINING_READING) if gradients else (SCORING_BYTES, SCORING_READING)
    of_items = max(cells * by_cell if cells > MAX_CELLS else 0, readings * by_reading) if model.needs_cells else 0
    of_weights = COPIES * sum(4 * parameter.numel() for parameter in model.parameters()) if gradients else 0
    if of_items + of_weights < SMALL:
        return
    sensors = len(data.scaler.sensors)
    require_memory(
        of_items + of_weights,
        f"{'Training on' if gradients else 'Scoring'} the largest sample, with {readings:,} readings of a table of "
        f"{sensors:,} sensors,",
        "Cut long samples into shorter ones, leave out uninformative sensors, or use the model 'trees', whose memory "
        "does not grow with readings times sensors.",
    )


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

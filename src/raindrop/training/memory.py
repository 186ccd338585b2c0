"""Estimates of the memory that a model needs, made before it is allocated."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from raindrop.batch.batch import Batch
from raindrop.batch.collate import MAX_CELLS, BatchSource, Collator
from raindrop.errors import NotEnoughMemoryError, RaindropWarning
from raindrop.hardware import require_memory
from raindrop.models.base import Model
from raindrop.training import distributed

SCORING_BYTES, TRAINING_BYTES = 32, 96  # per cell of an item of more than MAX_CELLS
LONG = 10_000  # readings; for longer items the model is tried on the first readings
TRIED = (250, 500, 1000, 2000)  # readings
FLOOR = 500  # bytes per reading: the batch itself, and arrays outside torch
NODE = 1000  # bytes per operation recorded for its gradient, besides its tensors
MARGIN = 1.5  # for fragmentation, and for arrays outside torch
COPIES = 6  # of the weights in training: gradients, two moments, their average, the best ones, a copy to exchange
MANY_SENSORS = 500  # with fewer, the weights are not checked
SMALL = 100 << 20  # bytes; smaller amounts are not checked


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
    needed = 0.0
    if model.needs_cells and cells > MAX_CELLS:
        needed = cells * (TRAINING_BYTES if gradients else SCORING_BYTES)
    if model.needs_cells and readings > LONG and isinstance(data, Collator):  # windows are short
        needed = _growth(model, data, gradients=gradients).bytes_at(readings)
    if gradients:
        needed += COPIES * sum(4 * parameter.numel() for parameter in model.parameters())
    if needed < SMALL:
        return
    require_memory(
        needed,
        f"{'Training on' if gradients else 'Scoring'} the largest sample, with {readings:,} readings of a table of "
        f"{len(data.scaler.sensors):,} sensors,",
        "Cut long samples into shorter ones, leave out uninformative sensors, or use the model 'trees', whose memory "
        "does not grow with readings times sensors.",
    )


def only_without_messages_fits(network: Model, without: Model | None, data: BatchSource) -> bool:
    """Raise if training would exceed the memory; True, with a warning, if it would not `without` messages.

    Several processes decide alike: what exceeds the memory of one is too much for all.
    """
    found: NotEnoughMemoryError | None = None
    try:
        require_room(network, data, gradients=True)
    except NotEnoughMemoryError as error:
        found = error
    if without is None:
        if found is not None:
            raise found
        return False
    if not distributed.agreed(found is not None):
        return False
    require_room(without, data, gradients=True)
    why = "another process would exceed its memory." if found is None else str(found).splitlines()[0]
    warnings.warn(
        f"The network is trained without messages between sensors. With them: {why}", RaindropWarning, stacklevel=4
    )
    return True


@dataclass(frozen=True)
class Growth:
    """How the memory of one item grows with its readings, from the largest number that was tried on."""

    peak: float  # bytes at TRIED[-1] readings
    slope: float  # bytes per reading there
    bend: float  # bytes per reading and reading

    def bytes_at(self, readings: int) -> float:
        """Bytes that an item of so many readings needs."""
        rest = readings - TRIED[-1]
        grown = max(self.slope, 0.0) * rest + self.bend * rest * (readings - TRIED[-2])
        return max(MARGIN * (self.peak + grown), float(FLOOR * readings))


def growth(model: Model, item: Batch, *, gradients: bool) -> Growth:
    """How the memory of a model grows, from the first readings of a long item.

    A copy of the model is run on the first 250, 500, 1,000 and 2,000 readings. Its peak is extrapolated linearly, or
    quadratically if the growth rises throughout: some models attend from every time to every other.
    """
    n = np.array(TRIED, dtype=float)
    peak = np.array([_peak(model, _first(item, some), gradients=gradients) for some in TRIED], dtype=float)
    slope = np.diff(peak) / np.diff(n)
    bend = float((np.diff(slope) / (n[2:] - n[:-2])).min())  # work cut into chunks makes only one of them large
    return Growth(float(peak[-1]), float(slope[-1]), 0.0 if bend * n[-1] < 0.1 * slope[-1] else bend)


_known: weakref.WeakKeyDictionary[Model, dict[tuple[bool, int], Growth]] = weakref.WeakKeyDictionary()


def _growth(model: Model, data: Collator, *, gradients: bool) -> Growth:
    """The same for the longest item of `data`; once for each model and order of magnitude of readings per timestamp."""
    longest = data.batch(np.array([int(np.argmax(data.lengths))]))
    known, key = _known.setdefault(model, {}), (gradients, int(len(longest.value) / len(longest.time)).bit_length())
    if key not in known:
        known[key] = growth(model, longest, gradients=gradients)
    return known[key]


def _first(item: Batch, readings: int) -> Batch:
    """The first readings of the one item of a batch."""
    steps = int(item.step[readings - 1]) + 1
    return replace(
        item,
        value=item.value[:readings],
        sensor=item.sensor[:readings],
        step=item.step[:readings],
        time=item.time[:steps],
        step_sample=item.step_sample[:steps],
    )


def _peak(model: Model, item: Batch, *, gradients: bool) -> int:
    """The peak of live bytes while a copy of the model processes an item, on the model's device."""
    copy = deepcopy(model)
    copy.train(gradients)
    item = item.to(next((tensor.device for tensor in copy.parameters()), torch.device("cpu")))
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(gradients), _LiveTensors() as live:
        output = copy(item)  # not score_batch, which may have a shortcut for short items
        recorded = NODE * live.operations if gradients else 0
        if gradients:
            (output.scores.sum() + output.penalty).backward()
        peak: int = live.peak + recorded
        return peak


class _LiveTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations and the bytes of all live tensors, and keeps their maximum."""

    operations: int
    peak: int

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.bytes = self.peak = 0
        self._storages: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        place, size = storage._cdata, storage.nbytes()
        if place in self._storages:
            return
        self._storages.add(place)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self._storages.discard(place)
        self.bytes -= size

"""Train the network of a model: soft targets first, then gradients, with and without messages where they are optional.

The network without messages is trained first; it takes a fraction of the time. The one with messages is given up if,
after two fifths of its steps, it has not been ahead of the finished one at the end of any epoch. Where only messages
know the label they are far ahead by then; where they add nothing, the faster and simpler network remains.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from raindrop.batch.collate import BatchSource
from raindrop.errors import TrainingError
from raindrop.models.base import DataSpec, Model
from raindrop.tasks.base import Task
from raindrop.tasks.metrics import Metric
from raindrop.training import distributed
from raindrop.training.callbacks import Callback, CallbackList
from raindrop.training.config import Plan, TrainConfig
from raindrop.training.distill import soft_targets
from raindrop.training.loop import Goal, train
from raindrop.training.progress import note

JUDGED_AFTER, JUDGED_AFTER_STEPS = 0.4, 320  # share of the epochs, and at least so many steps
SHARE_WITHOUT = 1 / 3  # of a limited training time, for the network without messages
SOFT_TARGETS = "soft_targets.safetensors"  # in a run's folder: predictions of its trees, kept for resuming
WITHOUT_MESSAGES = "without_messages"  # in a run's folder: log and checkpoint of that network

History = list[dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """A trained network and its history; where messages were optional, the one that validated better."""

    network: Model
    history: History
    comparison: dict[str, Any] | None = None
    """The validation metric with and without messages."""


def fit_network(
    network: Model,
    without: Model | None,
    training: BatchSource,
    validation: BatchSource | None,
    config: TrainConfig,
    *,
    spec: DataSpec,
    targets_file: Path | None = None,
    samples_identity: str = "",
    **options: Any,
) -> Trained:
    """Train `network` in place, or `without` (messages) if that validates better; `options` are those of `train`.

    Soft targets are kept in `targets_file`, where they are found again by `samples_identity`.
    """
    seed, show = options["seed"], options["show"]
    if config.soft_targets:
        targets = soft_targets(training, spec, config.soft_targets, seed, show, targets_file, samples_identity)
        training.targets = training.targets if targets is None else targets
    if without is None or validation is None:
        return Trained(network, train(network, training, validation, config, **options))
    without.prepare(training, validation, seed)
    return _with_and_without(network, without, training, validation, config, **options)


def _with_and_without(
    network: Model,
    without: Model,
    training: BatchSource,
    validation: BatchSource,
    config: TrainConfig,
    *,
    task: Task,
    run: Path | None,
    show: bool,
    callbacks: Sequence[Any],
    **options: Any,
) -> Trained:
    """Train `without`, then `network`; callbacks see the epochs of both as one training."""
    name, started = task.require_metric(config.metric), time.monotonic()
    metric, title = task.metrics[name], task.title(name)
    folder = None if run is None else run / WITHOUT_MESSAGES
    if folder is not None and distributed.rank() == 0:
        folder.mkdir(parents=True, exist_ok=True)
    first, second = _in_turn(callbacks)
    options |= {"task": task, "show": show}
    note(show, "first without messages between sensors")
    shorter = replace(config, minutes=SHARE_WITHOUT * config.minutes)
    history = train(without, training, validation, shorter, run=folder, callbacks=[first], **options)
    target = best_of(history, name, metric)
    if config.minutes:
        config = replace(config, minutes=max(config.minutes - (time.monotonic() - started) / 60, 1e-3))
    note(show, f"validation {title} {target:.4f} without messages; now with them")
    plan = Plan.of(config, len(training), float(np.mean(training.lengths)))
    goal = Goal(math.ceil(max(JUDGED_AFTER * plan.epochs, JUDGED_AFTER_STEPS / plan.steps)), target)
    found = train(network, training, validation, config, run=run, callbacks=[second], goal=goal, **options)
    value = best_of(found, name, metric)
    used = metric.better(value, target)
    note(show, f"validation {title} {value:.4f} with messages: they are {'used' if used else 'left out'}")
    comparison = {"metric": name, "with": value, "without": target, "used": used, "epochs": len(found)}
    return Trained(network, found, comparison) if used else Trained(without, history, comparison)


def best_of(history: Sequence[Mapping[str, Any]], name: str, metric: Metric) -> float:
    """The best validation metric of all epochs."""
    best: float | None = None
    for record in history:
        value = record["validation"][name]
        best = value if metric.better(value, best) else best
    return float("nan") if best is None else float(best)


class _Turn(Callback):
    """One of two trainings that callbacks see as one."""

    def __init__(self, callbacks: CallbackList, before: _Turn | None):
        self.callbacks, self.before, self.last = callbacks, before, 0

    def on_start(self, settings: Mapping[str, Any]) -> None:
        if self.before is None:
            self.callbacks.on_start(settings)

    def on_epoch(self, epoch: int, metrics: Mapping[str, float]) -> bool:
        self.last = epoch + (0 if self.before is None else self.before.last)
        return self.callbacks.on_epoch(self.last, metrics)

    def on_end(self) -> None:
        if self.before is not None:
            self.callbacks.on_end()


def _in_turn(callbacks: Sequence[Any]) -> tuple[_Turn, _Turn]:
    first = _Turn(CallbackList(callbacks), None)
    return first, _Turn(first.callbacks, first)


@contextmanager
def without_leftovers(folder: Path | None) -> Iterator[None]:
    """If training fails before its first checkpoint, there is nothing to resume, so delete what was written."""
    try:
        yield
    except TrainingError:
        if folder is not None and not any(folder.rglob("checkpoint.safetensors")):
            (folder / SOFT_TARGETS).unlink(missing_ok=True)
            with suppress(OSError):
                (folder / WITHOUT_MESSAGES).rmdir()
        raise

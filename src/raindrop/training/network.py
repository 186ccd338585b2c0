"""Train the network of a model: soft targets first, then gradients, with and without messages where they are optional.

The network without messages is trained first; it takes a fraction of the time. The one with messages is given up after
two fifths of its steps unless its validation loss has been lower than that of the other one by then. Where only
messages know the label it is far ahead; where they add nothing, the faster and simpler network remains.
"""

from __future__ import annotations

import math
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
from raindrop.training.callbacks import Callback, CallbackList, check_callbacks
from raindrop.training.config import Plan, TrainConfig
from raindrop.training.distill import soft_targets
from raindrop.training.loop import Goal, closing_callbacks, train
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
    messages: dict[str, Any] | None = None
    """Where they were optional: whether they are used, and why; the validation metric with and without them."""


def fit_network(
    network: Model | None,
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

    Without a `network`, since it would exceed the memory, only the one without messages is trained. Soft targets are
    kept in `targets_file`, where they are found again by `samples_identity`.
    """
    seed, show = options["seed"], options["show"]
    if config.soft_targets:
        targets = soft_targets(training, spec, config.soft_targets, seed, show, targets_file, samples_identity)
        training.targets = training.targets if targets is None else targets
    if without is None or validation is None:
        assert network is not None
        return Trained(network, train(network, training, validation, config, **options))
    without.prepare(training, validation, seed)
    if network is None:
        history = train(without, training, validation, config, **options | {"run": _folder(options["run"])})
        return Trained(without, history, {"used": False, "reason": "memory"})
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
    """Train `without`, then `network` unless a callback has stopped training; callbacks see both as one training."""
    name = judging_metric(task, config, weighted=training.weights is not None)
    metric, title = task.metrics[name], task.title(name)
    check_callbacks(callbacks)
    options |= {"task": task, "show": show}
    with closing_callbacks(watchers := CallbackList(callbacks if distributed.rank() == 0 else ())):
        note(show, "first without messages between sensors")
        shorter = replace(config, minutes=SHARE_WITHOUT * config.minutes)
        folder, part = _folder(run), _Part(watchers, 0, config)
        history = train(without, training, validation, shorter, run=folder, callbacks=[part], **options)
        if distributed.agreed(part.stopped):
            return Trained(without, history, {"used": False, "reason": "stopped"})
        note(show, f"validation {title} {value_of_kept(history, name, task, config):.4f}; now with messages")
        if config.minutes:
            spent = sum(record["seconds"] for record in history) / 60
            config = replace(config, minutes=max(config.minutes - spent, 1e-3))
        plan = Plan.of(config, len(training), float(np.mean(training.lengths)))
        epoch = math.ceil(max(JUDGED_AFTER * plan.epochs, JUDGED_AFTER_STEPS / plan.steps))
        goal, part = Goal(epoch, name, best_of(history[:epoch], name, metric)), _Part(watchers, len(history), config)
        found = train(network, training, validation, config, run=run, callbacks=[part], goal=goal, **options)
    with_, without_ = (value_of_kept(each, name, task, config) for each in (found, history))
    used = not goal.is_missed(found, metric) and metric.better(with_, without_)
    note(show, f"validation {title} {with_:.4f} with messages: they are {'used' if used else 'left out'}")
    messages = {"used": used, "reason": "compared", "metric": name, "epochs": len(found)}
    messages |= {"with": with_, "without": without_}
    return Trained(network, found, messages) if used else Trained(without, history, messages)


def _folder(run: Path | None) -> Path | None:
    """Where the network without messages has its log and checkpoint."""
    if run is None:
        return None
    if distributed.rank() == 0:
        (run / WITHOUT_MESSAGES).mkdir(parents=True, exist_ok=True)
    return run / WITHOUT_MESSAGES


def judging_metric(task: Task, config: TrainConfig, *, weighted: bool = False) -> str:
    """The metric by which networks are compared: the task's loss, since it varies least by chance.

    Where that is no metric, or training weights samples and the metric does not, it is the one that chooses the epoch.
    """
    return task.loss_name if task.loss_name in task.metrics and not weighted else task.require_metric(config.metric)


def best_of(history: Sequence[Mapping[str, Any]], name: str, metric: Metric) -> float:
    """The best validation metric of these epochs."""
    best: float | None = None
    for record in history:
        value = record["validation"][name]
        best = value if metric.better(value, best) else best
    return math.nan if best is None else best


def value_of_kept(history: Sequence[Mapping[str, Any]], name: str, task: Task, config: TrainConfig) -> float:
    """A validation metric of the epoch whose weights are kept."""
    chosen_by = task.require_metric(config.metric)
    best = best_of(history, chosen_by, task.metrics[chosen_by])
    kept = next((each for each in history if each["validation"][chosen_by] == best), history[-1])
    return float(kept["validation"][name])


class _Part(Callback):
    """A part of a training that callbacks see as one: its epochs are counted from `before` on."""

    def __init__(self, callbacks: CallbackList, before: int, whole: TrainConfig):
        self.callbacks, self.before, self.whole, self.stopped = callbacks, before, whole, False

    def on_start(self, settings: Mapping[str, Any]) -> None:
        if not self.before:
            self.callbacks.on_start({**settings, "train.minutes": self.whole.minutes})

    def on_epoch(self, epoch: int, metrics: Mapping[str, float]) -> bool:
        self.stopped = self.callbacks.on_epoch(self.before + epoch, metrics)
        return self.stopped


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

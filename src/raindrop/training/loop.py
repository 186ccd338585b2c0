"""The one loop that trains every network.

Everything random in step s of epoch e is drawn from (seed, e, s), so a run that was killed and resumed takes exactly
the same steps as one that was not, and there is no generator state to save.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from raindrop.batch.collate import BatchSource, bounded, plan_batches
from raindrop.errors import TrainingError
from raindrop.files import to_json, write_text
from raindrop.models.base import Model, Output
from raindrop.tasks.base import Task
from raindrop.tasks.metrics import Metric
from raindrop.training import distributed
from raindrop.training.callbacks import CallbackList, check_callbacks
from raindrop.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from raindrop.training.config import Plan, TrainConfig
from raindrop.training.progress import bar
from raindrop.training.scoring import scores_of

_ADVICE = "Lower train.learning_rate, set train.max_grad_norm=1, or look for extreme values with 'raindrop inspect'."


@dataclass(frozen=True)
class Goal:
    """Training ends after `epoch` epochs unless this validation metric has been better than `value` by then."""

    epoch: int
    metric: str
    value: float

    def is_missed(self, history: Sequence[Mapping[str, Any]], metric: Metric) -> bool:
        """Whether the first epochs of a training have not been better."""
        first = history[: self.epoch]
        return len(first) == self.epoch and not any(
            metric.better(record["validation"][self.metric], self.value) for record in first
        )


def train(
    model: Model,
    training: BatchSource,
    validation: BatchSource | None,
    config: TrainConfig,
    *,
    task: Task,
    seed: int = 0,
    device: str = "cpu",
    run: Path | None = None,
    resume: bool = False,
    identity: str = "",
    show: bool = False,
    callbacks: Sequence[Any] = (),
    goal: Goal | None = None,
) -> list[dict[str, Any]]:
    """Train `model` in place and return one record per epoch.

    With `run`, a checkpoint and log.jsonl are kept in that folder, and `resume` continues from them, even for more
    epochs than the run was started with. The model ends with the weights of the epoch that validated best, or the last
    ones without validation. `callbacks` are called by the first process only.
    """
    check_callbacks(callbacks)
    watchers = CallbackList(callbacks if distributed.rank() == 0 else ())
    metric = task.require_metric(config.metric)
    better = task.metrics[metric].better
    strata = np.zeros(len(training), dtype=np.int64) if training.truth is None else task.strata(training.truth)
    balanced = config.sampling == "balanced" or (config.sampling == "auto" and _imbalanced(strata))
    model.to(device)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimiser]
    optimiser = kind(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    ema = _copy(model) if config.ema_decay else None
    best: dict[str, Tensor] | None = None
    progress = Progress(identity, threads=torch.get_num_threads(), processes=distributed.size())
    checkpoint = None if run is None else run / "checkpoint.safetensors"
    if resume and checkpoint is not None and checkpoint.exists():
        progress, ema, best = load_checkpoint(checkpoint, model, optimiser, progress)
    if validation is not None:
        task.require_judgeable(cast(NDArray[Any], validation.truth), metric)
    schedule = Plan.of(config, len(training), float(np.mean(training.lengths)))
    config, steps = replace(config, batch_size=schedule.batch_size, epochs=schedule.epochs), schedule.steps
    saved = time.monotonic()

    def is_done() -> bool:
        missed = goal is not None and goal.is_missed(progress.history, task.metrics[goal.metric])
        return missed or _is_done(progress, config)

    limit = 60 * config.minutes or math.inf
    begun = saved - sum(record["seconds"] for record in progress.history)
    if progress.done:  # a finished run may be extended
        progress.done = is_done() or time.monotonic() - begun > 0.95 * limit
    if progress.history:  # it may have been killed between checkpoint and log
        _log(run, progress.history)

    def save() -> None:
        if checkpoint is not None and distributed.rank() == 0:
            save_checkpoint(checkpoint, model, optimiser, progress, ema, best)

    watchers.on_start({f"train.{name}": value for name, value in vars(config).items()})
    with (
        closing_callbacks(watchers),
        torch.random.fork_rng(devices=[]),
        bar(show and not progress.done, config.epochs * steps) as update_bar,
    ):
        update_bar(progress.epoch * steps + progress.step, progress.history)
        while not progress.done:
            epoch, started = progress.epoch, time.monotonic()
            rng = np.random.default_rng([seed, epoch])
            plan = plan_batches(
                config.batch_size,
                rng,
                pools=training.pools(rng),
                strata=strata,
                lengths=training.lengths,
                balanced=balanced,
                bucketed=config.bucketed,
            )
            model.train()
            for step in range(progress.step, len(plan)):
                elapsed = time.monotonic() - begun
                done = max((epoch * len(plan) + step) / (config.epochs * len(plan)), min(1.0, elapsed / limit))
                for group in optimiser.param_groups:
                    group["lr"] = config.learning_rate * _lr_factor(config, done)
                draw = [seed, epoch, step]
                progress.loss += _step(model, training, plan[step], config, task, optimiser, parameters, draw, device)
                if ema is not None:
                    _update_ema(ema, model, config.ema_decay, epoch * len(plan) + step)
                progress.step = step + 1
                update_bar(epoch * len(plan) + step + 1, progress.history)
                if checkpoint and time.monotonic() - saved > 60 * config.checkpoint_minutes and step + 1 < len(plan):
                    save()
                    saved = time.monotonic()
                if distributed.agreed(time.monotonic() - begun >= limit):
                    break
            if not all(bool(parameter.isfinite().all()) for parameter in parameters):
                raise TrainingError(f"The weights are no longer finite after epoch {epoch + 1}. {_ADVICE}")
            record: dict[str, Any] = {"epoch": epoch + 1, "loss": progress.loss / max(1, progress.step)}
            if validation is not None:
                with _swapped(model, ema):
                    scores = scores_of(model, validation, device)
                    if not bool(scores.isfinite().all()):
                        raise TrainingError(f"The validation of epoch {epoch + 1} is not finite. {_ADVICE}")
                    metrics = task.evaluate(cast(NDArray[Any], validation.truth), task.predict(scores))
                record["validation"] = metrics
                if better(metrics[metric], progress.best):
                    progress.best, progress.best_epoch = metrics[metric], epoch + 1
                    best = _copy(model) if ema is None else {name: x.clone() for name, x in ema.items()}
            record["seconds"] = round(time.monotonic() - started, 3)
            progress.history.append(record)
            progress.epoch, progress.step, progress.loss = epoch + 1, 0, 0.0
            shown = {"loss": record["loss"], "seconds": record["seconds"], **record.get("validation", {})}
            stop = watchers.on_epoch(epoch + 1, shown) or time.monotonic() - begun >= limit
            progress.done = is_done() or distributed.agreed(stop)
            save()
            saved = time.monotonic()
            _log(run, progress.history)
            update_bar(progress.epoch * steps, progress.history)
    final = best or ema
    if final is not None:
        model.load_state_dict(final)
    if config.half_precision:
        _round_to_half(parameters)
    model.eval()
    return progress.history


def _step(
    model: Model,
    training: BatchSource,
    positions: NDArray[np.int64],
    config: TrainConfig,
    task: Task,
    optimiser: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    draw: list[int],
    device: str,
) -> float:
    """One step of all processes, each on its share of the batch; returns the loss over the whole batch.

    A share that would not fit in memory is processed in parts whose gradients are summed. Each part is weighted by its
    share of the whole batch, so the sum over all parts of all processes is the mean over the batch, however uneven they
    are.
    """
    draw = [*draw, distributed.rank()]
    rng = np.random.default_rng(draw)
    torch.manual_seed(int(rng.integers(2**62)))
    share = positions[distributed.rank() :: distributed.size()]
    optimiser.zero_grad()
    loss, total = 0.0, _total_weight(training, positions)  # of all processes, whose gradients are added up
    for part in bounded(training, share):
        batch = training.batch(part, rng=rng, drop_readings=config.drop_readings, drop_sensors=config.drop_sensors)
        batch = batch.to(device)
        output = model(batch)
        objective = task_loss(task, output, cast(Tensor, batch.target), batch.weight)
        objective = objective * (_total_weight(training, part) / total)
        objective = objective + output.penalty * (len(part) / len(positions))
        loss += float(objective.detach())
        if not math.isfinite(loss):
            raise TrainingError(f"The loss became {loss} in epoch {draw[1] + 1}, step {draw[2] + 1}. {_ADVICE}")
        objective.backward()
    loss = distributed.add_gradients(parameters, loss)
    if config.max_grad_norm:
        nn.utils.clip_grad_norm_(parameters, config.max_grad_norm)
    optimiser.step()
    return loss


def _total_weight(training: BatchSource, positions: NDArray[np.int64]) -> float:
    """The total weight of these samples in a mean over samples."""
    return float(len(positions) if training.weights is None else training.weights[positions].sum())


def task_loss(task: Task, output: Output, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """The task's loss of the scores, or of each ensemble member separately."""
    if output.members is None:
        return task.loss(output.scores, target, weight)
    return task.member_loss(output.members, target, weight)


def _round_to_half(parameters: list[nn.Parameter]) -> None:
    """Round to half precision, except parameters with numbers beyond its range."""
    with torch.no_grad():
        for parameter in parameters:
            rounded = parameter.half().float()
            if bool(rounded.isfinite().all()):
                parameter.copy_(rounded)


def _imbalanced(strata: NDArray[np.int64]) -> bool:
    counts = np.unique(strata, return_counts=True)[1]
    return bool(counts.min() < 0.5 * len(strata) / len(counts))


def _lr_factor(config: TrainConfig, done: float) -> float:
    """The factor of the peak learning rate when the share `done` of all steps is done."""
    rise = min(1.0, (done + 1e-3) / config.warmup) if config.warmup else 1.0
    return rise * (0.5 * (1 + math.cos(math.pi * done)) if config.schedule == "cosine" else 1.0)


def _copy(model: Model) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _update_ema(ema: dict[str, Tensor], model: Model, decay: float, step: int) -> None:
    """Exponential moving average; the decay is smaller at first, so that the initial weights fade quickly."""
    rate = 1 - min(decay, (1 + step) / (10 + step))
    for name, tensor in model.state_dict().items():
        ema[name].lerp_(tensor, rate) if tensor.is_floating_point() else ema[name].copy_(tensor)


@contextmanager
def _swapped(model: Model, weights: dict[str, Tensor] | None) -> Iterator[None]:
    """The model with other weights within the block."""
    if weights is None:
        yield
        return
    own = _copy(model)
    model.load_state_dict(weights)
    try:
        yield
    finally:
        model.load_state_dict(own)


def _is_done(progress: Progress, config: TrainConfig) -> bool:
    """Whether all epochs are done, or there was no improvement for `patience` epochs."""
    waited = progress.epoch - (progress.best_epoch or progress.epoch)
    return progress.epoch >= config.epochs or 0 < config.patience <= waited


@contextmanager
def closing_callbacks(callbacks: CallbackList) -> Iterator[None]:
    """Call `on_end` whatever happens in the block."""
    try:
        yield
    finally:
        callbacks.on_end()


def _log(run: Path | None, history: list[dict[str, Any]]) -> None:
    if run is not None and distributed.rank() == 0:
        write_text(run / "log.jsonl", "".join(to_json(record) + "\n" for record in history))

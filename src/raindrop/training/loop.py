"""The one loop that trains every network, and its checkpoints.

Everything random in step s of epoch e is drawn from (seed, e, s), so a run that was killed and resumed walks the
same path as one that was not, and there is no generator state to save.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.collate import Collator, in_order, plan_batches
from raindrop.errors import ConfigError, DataError, MissingExtraError, TrainingError, format_count
from raindrop.files import to_json, write_text
from raindrop.models.base import Model, Output
from raindrop.models.layers import softmax
from raindrop.tasks.metrics import METRICS, better, evaluate, require_metric
from raindrop.training import distributed
from raindrop.training.checkpoint import Progress, load_checkpoint, save_checkpoint
from raindrop.training.progress import bar

_CALMER = "Lower train.learning_rate, set train.clip=1, or look for extreme values with 'raindrop inspect'."


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a network is trained; every default is the paper's."""

    epochs: int = 20
    """How often the training samples are gone through."""
    least_steps: int = 0
    """Small tables are gone through more often, until there are so many steps; epochs that are asked for are kept."""
    batch: int = 128
    """Samples in a batch."""
    sampling: Literal["auto", "natural", "balanced"] = "auto"
    """Batches as samples come, or with all classes equal; auto balances if a class is rarer than half its share."""
    bucketed: bool = False
    """Samples of similar length share a natural batch."""
    optimiser: Literal["adam", "adamw"] = "adam"
    """The gradient method."""
    learning_rate: float = 1e-4
    """Step size at its largest."""
    weight_decay: float = 0.0
    """Pull of the weights towards zero."""
    schedule: Literal["constant", "cosine"] = "constant"
    """How the step size falls."""
    warmup: float = 0.0
    """Share of all steps over which the step size rises from zero."""
    clip: float = 0.0
    """Largest norm of a gradient; 0 leaves it as it is."""
    patience: int = 0
    """Stop after this many epochs without a better validation; 0 never stops early."""
    metric: str = "auroc"
    """The validation figure that chooses the epoch to keep."""
    average: float = 0.0
    """Decay of the moving average of the weights that is validated and kept; 0 keeps the weights themselves."""
    drop_readings: float = 0.0
    """Largest share of a training sample's readings left out at random, drawn anew for each sample."""
    drop_sensors: float = 0.0
    """Largest share of a training sample's sensors left out at random, drawn anew for each sample."""
    half: bool = False
    """The weights end rounded to half precision, so that the saved model is half as large."""
    teacher: float = 0.0
    """Weight, against the labels, of what trees that have not seen a sample say of it with all its readings."""
    holdout: float = 0.1
    """Share of the training samples used for validation where no validation table is given; 0 uses none."""
    checkpoint_minutes: float = 5.0
    """A checkpoint is written after every epoch, and this often within one."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"train.{name} must be at least 1, not {getattr(self, name)}.")
        if not 0 <= self.teacher <= 1 or self.least_steps < 0:
            raise ValueError("train.teacher is from 0 to 1, and train.least_steps at least 0.")
        for name in ("drop_readings", "drop_sensors", "holdout", "average", "warmup"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"train.{name} must be at least 0 and below 1, not {getattr(self, name)}.")
        for name in ("weight_decay", "clip", "patience", "checkpoint_minutes"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"train.{name} must be at least 0, not {getattr(self, name)}.")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"train.learning_rate must be positive, not {self.learning_rate}.")
        require_metric(self.metric)


def train(
    model: Model,
    training: Collator,
    validation: Collator | None,
    config: TrainConfig,
    *,
    seed: int = 0,
    run: Path | None = None,
    resume: bool = False,
    identity: str = "",
    show: bool = False,
    tensorboard: bool = False,
) -> list[dict[str, Any]]:
    """Train `model` in place and return one record per epoch.

    With `run`, a checkpoint and log.jsonl are kept in that folder, and `resume` continues from them. The model ends
    with the weights of the epoch that validated best, or the last ones where there is no validation.
    """
    labels = cast(NDArray[np.int64], training.labels)
    balanced = config.sampling == "balanced" or (config.sampling == "auto" and _imbalanced(labels))
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimiser]
    optimiser = kind(weights, lr=config.learning_rate, weight_decay=config.weight_decay)
    average = _copy(model) if config.average else None
    best: dict[str, Tensor] | None = None
    progress = Progress(identity)
    checkpoint = None if run is None else run / "checkpoint.safetensors"
    if resume and checkpoint is not None and checkpoint.exists():
        progress, average, best = load_checkpoint(checkpoint, model, optimiser, identity)
    if validation is not None:
        _require_judgement(cast(NDArray[np.int64], validation.labels), config.metric)
    steps = max(1, -(-len(training) // config.batch))
    config = replace(config, epochs=max(config.epochs, -(-config.least_steps // steps)))
    saved = time.monotonic()
    board = _board(run, tensorboard)
    if progress.history:  # the kill may have come between the checkpoint and the log
        _log(run, progress.history, None)

    def save() -> None:
        if checkpoint is not None and distributed.rank() == 0:
            save_checkpoint(checkpoint, model, optimiser, progress, average, best)

    with torch.random.fork_rng(devices=[]), bar(show and not progress.done, config.epochs * steps) as tick:
        tick(progress.epoch * steps + progress.step, progress.history)
        while not progress.done:
            epoch, started = progress.epoch, time.monotonic()
            plan = plan_batches(
                config.batch,
                np.random.default_rng([seed, epoch]),
                labels=labels,
                lengths=training.table.count,
                balanced=balanced,
                bucketed=config.bucketed,
            )
            model.train()
            for step in range(progress.step, len(plan)):
                done = (epoch * len(plan) + step) / (config.epochs * len(plan))
                for group in optimiser.param_groups:
                    group["lr"] = config.learning_rate * _pace(config, done)
                progress.loss += _step(model, training, plan[step], config, optimiser, weights, [seed, epoch, step])
                if average is not None:
                    _follow(average, model, config.average, epoch * len(plan) + step)
                progress.step = step + 1
                tick(epoch * len(plan) + step + 1, progress.history)
                if checkpoint and time.monotonic() - saved > 60 * config.checkpoint_minutes and step + 1 < len(plan):
                    save()
                    saved = time.monotonic()
            if not all(bool(parameter.isfinite().all()) for parameter in weights):
                raise TrainingError(f"The weights are no longer finite after epoch {epoch + 1}. {_CALMER}")
            record: dict[str, Any] = {"epoch": epoch + 1, "loss": progress.loss / len(plan)}
            if validation is not None:
                with _swapped(model, average):
                    found = _probabilities(model, validation)
                    if not np.isfinite(found).all():
                        raise TrainingError(f"The validation of epoch {epoch + 1} is not finite. {_CALMER}")
                    figures = evaluate(cast(NDArray[np.int64], validation.labels), found)
                record["validation"] = figures
                if better(config.metric, figures[config.metric], progress.best):
                    progress.best, progress.best_epoch = figures[config.metric], epoch + 1
                    best = _copy(model) if average is None else {name: x.clone() for name, x in average.items()}
            record["seconds"] = round(time.monotonic() - started, 3)
            progress.history.append(record)
            progress.epoch, progress.step, progress.loss = epoch + 1, 0, 0.0
            waited = progress.epoch - (progress.best_epoch or progress.epoch)
            progress.done = progress.epoch >= config.epochs or 0 < config.patience <= waited
            save()
            saved = time.monotonic()
            _log(run, progress.history, board)
            tick(progress.epoch * steps, progress.history)
    if board is not None:
        board.close()
    final = best or average
    if final is not None:
        model.load_state_dict(final)
    if config.half:
        _round(weights)
    model.eval()
    return progress.history


def _step(
    model: Model,
    training: Collator,
    positions: NDArray[np.int64],
    config: TrainConfig,
    optimiser: torch.optim.Optimizer,
    weights: list[nn.Parameter],
    draw: list[int],
) -> float:
    """One step of all processes, each on its share of the batch; the loss over the whole batch."""
    draw = [*draw, distributed.rank()]
    rng = np.random.default_rng(draw)
    torch.manual_seed(int(rng.integers(2**62)))
    share = positions[distributed.rank() :: distributed.size()]
    optimiser.zero_grad()
    loss = 0.0
    if len(share):
        batch = training.batch(share, rng=rng, drop_readings=config.drop_readings, drop_sensors=config.drop_sensors)
        output = model(batch)
        objective = (
            classification_loss(output, cast(Tensor, batch.label if batch.goal is None else batch.goal))
            + output.penalty
        )
        loss = float(objective.detach())
        if not math.isfinite(loss):
            raise TrainingError(f"The loss became {loss} in epoch {draw[1] + 1}, step {draw[2] + 1}. {_CALMER}")
        objective.backward()
    loss = distributed.average_gradients(weights, len(share), loss)
    if config.clip:
        nn.utils.clip_grad_norm_(weights, config.clip)
    optimiser.step()
    return loss


def classification_loss(output: Output, goal: Tensor) -> Tensor:
    """Cross entropy with labels (b,) or probabilities (b, class); of each of several members by itself, so that they
    stay different."""
    if output.members is None:
        return F.cross_entropy(output.logits, goal)
    return F.cross_entropy(output.members.flatten(0, 1), goal.repeat_interleave(output.members.shape[1], dim=0))


def outputs(model: Model, data: Collator, show: bool = False) -> Iterator[Output]:
    """The model's output for all samples in order, a few at a time, without gradients."""
    model.eval()
    done = 0
    with torch.inference_mode(), bar(show, len(data), "predicting") as tick:
        for batch in in_order(data):
            yield model(batch)
            done += batch.num_samples
            tick(done, [])


def probabilities(model: Model, data: Collator, show: bool = False) -> NDArray[np.float32]:
    """(samples, classes); several processes share the work."""
    probability = _probabilities(model, data, show)
    wrong = np.flatnonzero(~np.isfinite(probability).all(1))
    if len(wrong):
        raise DataError(
            f"{format_count(len(wrong), len(data), 'samples')} have no finite probability (first: "
            f"'{data.table.ids[wrong[0]]}'). Their values are too extreme for the model; look at them with "
            "'raindrop inspect'."
        )
    return probability


def _probabilities(model: Model, data: Collator, show: bool = False) -> NDArray[np.float32]:
    if distributed.size() == 1:
        return np.concatenate([softmax(output.logits) for output in outputs(model, data, show)])
    mine = np.arange(len(data))[distributed.rank() :: distributed.size()]
    found: Tensor | None = None
    model.eval()
    with torch.inference_mode():
        for positions in np.array_split(mine, max(1, len(mine) // 256)):
            probability = torch.from_numpy(softmax(model(data.batch(positions)).logits))
            found = torch.zeros(len(data), probability.shape[1]) if found is None else found
            found[positions] = probability
    return cast(NDArray[np.float32], distributed.total(cast(Tensor, found)).numpy())


def _require_judgement(labels: NDArray[np.int64], metric: str) -> None:
    """Some figures need two classes; without one, the first epoch would be kept whatever came after it."""
    if math.isnan(METRICS[metric](labels, np.full((len(labels), labels.max() + 2), 0.5))):
        raise DataError(
            f"All {len(labels):,} validation samples are of one class, so there is no {metric} to choose an epoch by. "
            "Give a validation table with several classes, or set train.metric=log_loss."
        )


def _round(weights: list[nn.Parameter]) -> None:
    """To half precision, but those with numbers beyond its range."""
    with torch.no_grad():
        for parameter in weights:
            rounded = parameter.half().float()
            if bool(rounded.isfinite().all()):
                parameter.copy_(rounded)


def _imbalanced(labels: NDArray[np.int64]) -> bool:
    counts = np.unique(labels, return_counts=True)[1]
    return bool(counts.min() < 0.5 * len(labels) / len(counts))


def _pace(config: TrainConfig, done: float) -> float:
    """The share of the learning rate when `done` of all steps are behind."""
    rise = min(1.0, (done + 1e-3) / config.warmup) if config.warmup else 1.0
    return rise * (0.5 * (1 + math.cos(math.pi * done)) if config.schedule == "cosine" else 1.0)


def _copy(model: Model) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def _follow(average: dict[str, Tensor], model: Model, decay: float, step: int) -> None:
    """Moving average; early on it forgets faster, so that the first weights do not linger."""
    rate = 1 - min(decay, (1 + step) / (10 + step))
    for name, tensor in model.state_dict().items():
        average[name].lerp_(tensor, rate) if tensor.is_floating_point() else average[name].copy_(tensor)


@contextmanager
def _swapped(model: Model, weights: dict[str, Tensor] | None) -> Iterator[None]:
    """The model with other weights for a while."""
    if weights is None:
        yield
        return
    own = _copy(model)
    model.load_state_dict(weights)
    try:
        yield
    finally:
        model.load_state_dict(own)


def _log(run: Path | None, history: list[dict[str, Any]], board: Any) -> None:
    if run is None or distributed.rank() != 0:
        return
    write_text(run / "log.jsonl", "".join(to_json(record) + "\n" for record in history))
    if board is not None:
        record = history[-1]
        board.add_scalar("loss", record["loss"], record["epoch"])
        for name, value in record.get("validation", {}).items():
            board.add_scalar(f"validation/{name}", value, record["epoch"])
        board.flush()


def _board(run: Path | None, wanted: bool) -> Any:
    if not wanted or distributed.rank() != 0:
        return None
    if run is None:
        raise ConfigError("TensorBoard logs go into the run's folder; give one with run='FOLDER'.")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError("tensorboard", "log", "Writing TensorBoard logs") from None
    return SummaryWriter(os.fspath(run / "tensorboard"))

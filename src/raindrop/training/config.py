"""The settings of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raindrop.ranges import Count, Length, Positive, Ranged, Share, Weight, WholeShare


@dataclass(frozen=True, kw_only=True)
class TrainConfig(Ranged):
    """How a network is trained; every default is the paper's."""

    epochs: Length = 20
    """Passes over the training samples."""
    min_steps: Count = 0
    """Train for more epochs if a small table would give fewer steps than this, unless epochs are set explicitly."""
    batch_size: Length = 128
    """Samples per batch."""
    batch_readings: Count = 0
    """Readings per batch on average, instead of a number of samples; 0 leaves it to batch_size."""
    sampling: Literal["auto", "natural", "balanced"] = "auto"
    """Batches of random samples, or with equally many of each class; auto balances if a class is rarer than half its
    fair share."""
    bucketed: bool = False
    """Whether natural batches are made of samples of similar length."""
    optimiser: Literal["adam", "adamw"] = "adam"
    """The optimiser."""
    learning_rate: Positive = 1e-4
    """Peak learning rate."""
    weight_decay: Weight = 0.0
    """Weight decay."""
    schedule: Literal["constant", "cosine"] = "constant"
    """How the learning rate falls after the warm-up."""
    warmup: Share = 0.0
    """Share of all steps over which the learning rate rises from zero."""
    max_grad_norm: Weight = 0.0
    """Gradient clipping: the largest norm of a gradient; 0 does not clip."""
    patience: Count = 0
    """Early stopping: epochs without a better validation metric; 0 trains for all epochs and keeps the best one."""
    minutes: Weight = 0.0
    """Stop after this many minutes, with a schedule that ends by then; 0 means no limit. Where messages are optional, a
    third of it is for the network without them."""
    metric: str = "auto"
    """The validation metric that chooses the epoch to keep; auto is the task's own (AUROC, or MAE)."""
    ema_decay: Share = 0.0
    """Decay of the exponential moving average (EMA) of the weights, which is validated and kept; 0 switches it off."""
    drop_readings: Share = 0.0
    """Largest share of a training sample's readings to drop at random; the share is drawn for each sample."""
    drop_sensors: Share = 0.0
    """Largest share of a training sample's sensors to drop at random; the share is drawn for each sample."""
    half_precision: bool = False
    """Round the final weights to half precision, so that the saved model is half as large."""
    soft_targets: WholeShare = 0.0
    """Weight, against the labels, of predictions by boosted trees that have not seen the sample (distillation)."""
    holdout: Share = 0.1
    """Share of the training samples to hold out for validation if no validation table is given; 0 holds out none."""
    checkpoint_minutes: Weight = 5.0
    """A checkpoint is written after every epoch, and this often within one."""


@dataclass(frozen=True)
class Plan:
    """Epochs, steps and batch size for a table."""

    batch_size: int
    steps: int  # of an epoch
    epochs: int

    @classmethod
    def of(cls, config: TrainConfig, samples: int, mean_readings: float) -> Plan:
        """The plan for a table with this many samples, and this many readings each on average."""
        size = config.batch_size
        if config.batch_readings:
            size = max(1, round(config.batch_readings / max(1.0, mean_readings)))
        steps = max(1, -(-samples // size))
        return cls(size, steps, max(config.epochs, -(-config.min_steps // steps)))

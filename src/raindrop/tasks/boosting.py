"""How boosted trees learn a task: which scores, from which targets, with which objective."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from raindrop.tasks.metrics import Array


@dataclass(frozen=True)
class Objective:
    """What trees minimise. Any objective that both libraries support can be given; a task may define its own."""

    sklearn: str
    """The `loss` of scikit-learn's histogram boosting; "log_loss" is the one of its classifier."""
    lightgbm: str
    """The `objective` of LightGBM."""
    losses: Callable[[Tensor, Tensor], Tensor]
    """(scores (n, outputs), known targets (n,)) -> (n,); chooses the number of rounds."""
    level: float | None = None
    """The level, for a quantile."""

    @property
    def flat(self) -> bool:
        """Whether the loss has no curvature: absolute errors, and the pinball loss of quantiles."""
        return self.level is not None or self.sklearn == "absolute_error"


def _binary_losses(scores: Tensor, target: Tensor) -> Tensor:
    return F.softplus(torch.where(target > 0.5, -scores[:, 0], scores[:, 0]))


def _multiclass_losses(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores, target.long(), reduction="none")


def _squared_losses(scores: Tensor, target: Tensor) -> Tensor:
    return (target.to(scores.dtype) - scores[:, 0]).square()


def _pinball_losses(level: float) -> Callable[[Tensor, Tensor], Tensor]:
    def losses(scores: Tensor, target: Tensor) -> Tensor:
        error = target.to(scores.dtype) - scores[:, 0]
        return torch.maximum(level * error, (level - 1) * error)

    return losses


BINARY = Objective("log_loss", "binary", _binary_losses)
MULTICLASS = Objective("log_loss", "multiclass", _multiclass_losses)
SQUARED = Objective("squared_error", "regression", _squared_losses)
ABSOLUTE = Objective("absolute_error", "regression_l1", _pinball_losses(0.5))


def quantile(level: float) -> Objective:
    """The pinball loss, which is minimised by the quantile of this level."""
    return Objective("quantile", "quantile", _pinball_losses(level), level)


@dataclass(frozen=True)
class BoostingProblem:
    """One ensemble of boosted trees that fills some of the task's scores."""

    outputs: tuple[int, ...]
    """The scores it fills; the others stay 0."""
    objective: Objective
    column: int = 0
    """The column of the targets (n, column) that it learns."""

    def targets(self, targets: Array) -> Array:
        """(n,) its targets; NaN if unknown."""
        return targets if targets.ndim == 1 else targets[:, self.column]

"""From a core's scores to predictions, as in `Task.predict`, in operations that can be exported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from raindrop.errors import ConfigError
from raindrop.tasks.base import Task


class Predictions(nn.Module):
    """Probabilities, quantities in their own unit, or ascending quantiles of readings, from scores (n, output)."""

    scale: Tensor
    centre: Tensor

    def __init__(self, task: Task):
        super().__init__()
        about: dict[str, Any] = task.to_dict()
        self.name, self.shape = task.name, (0, 0)
        if self.name not in ("classification", "multilabel", "regression", "readings"):
            raise ConfigError(f"A model of the task '{self.name}' cannot be exported.")
        if self.name == "regression":
            self.shape = (len(about["labels"]), task.num_outputs // len(about["labels"]))
            self.register_buffer("scale", torch.tensor(about["scale"], dtype=torch.float64)[:, None])
            self.register_buffer("centre", torch.tensor(about["centre"], dtype=torch.float64)[:, None])

    def forward(self, scores: Tensor) -> Tensor:
        if self.name == "classification":
            return torch.softmax(scores.double(), dim=-1).float()
        if self.name == "multilabel":
            return torch.sigmoid(scores.double()).float()
        if self.name == "readings":
            return scores.sort(-1).values
        standard = scores.double().view(-1, *self.shape).sort(-1).values
        return (standard * self.scale + self.centre).float()

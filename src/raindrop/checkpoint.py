"""Where a training run is, in one file that is replaced in one stroke."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from raindrop.errors import ConfigError, TrainingError
from raindrop.files import atomic_file


@dataclass
class Progress:
    """Where a run is; together with the weights it is all a checkpoint holds."""

    identity: str
    epoch: int = 0  # epochs finished
    step: int = 0  # steps finished within the next one
    loss: float = 0.0  # sum over those steps
    best: float | None = None
    best_epoch: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    average: dict[str, Tensor] | None,
    best: dict[str, Tensor] | None,
) -> None:
    """Weights, optimiser, progress: one file, replaced in one stroke."""
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for group, held in (("average", average), ("best", best)):
        tensors |= {f"{group}/{name}": tensor for name, tensor in (held or {}).items()}
    for at, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{at}/{name}": torch.as_tensor(value) for name, value in state.items()}
    with atomic_file(path) as partial:
        save_file({name: x.contiguous().clone() for name, x in tensors.items()}, partial,
                  metadata={"progress": json.dumps(vars(progress))})  # fmt: skip


def load_checkpoint(
    path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, identity: str
) -> tuple[Progress, dict[str, Tensor] | None, dict[str, Tensor] | None]:
    try:
        with safe_open(path, framework="pt") as file:
            progress = Progress(**json.loads(file.metadata()["progress"]))
            groups: dict[str, dict[str, Tensor]] = {"model": {}, "average": {}, "best": {}, "optimiser": {}}
            for key in file.keys():  # noqa: SIM118
                group, _, name = key.partition("/")
                groups[group][name] = file.get_tensor(key)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise TrainingError(
            f"{path}: the checkpoint cannot be read ({error}). Remove the run and start again."
        ) from None
    if progress.identity != identity:
        raise ConfigError(
            f"{path.parent}: was started with other data, settings, seed or version, so it cannot be resumed.\n"
            "Give what it was started with, or choose another output."
        )
    model.load_state_dict(groups["model"])
    content = optimiser.state_dict()
    for key, tensor in groups["optimiser"].items():
        at, _, name = key.partition("/")
        content["state"].setdefault(int(at), {})[name] = tensor
    optimiser.load_state_dict(content)
    return progress, groups["average"] or None, groups["best"] or None

"""Checkpoints: the state of a training run, in one file that is replaced atomically."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from raindrop.errors import ResumeError, TrainingError, first_line
from raindrop.files import atomic_file


@dataclass
class Progress:
    """The progress of a run; a checkpoint holds this and the weights."""

    identity: str
    epoch: int = 0  # epochs finished
    step: int = 0  # steps finished within the next one
    loss: float = 0.0  # sum over those steps
    best: float | None = None
    best_epoch: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    done: bool = False
    threads: int | None = None  # the order of sums depends on the number of threads and processes
    processes: int | None = None

    def require_same_machine(self, now: Progress, folder: Path) -> None:
        """Raise unless this unfinished run continues with the same number of threads and processes."""
        for name, option in (("threads", "--threads"), ("processes", "torchrun --nproc-per-node")):
            then, current = getattr(self, name), getattr(now, name)
            if not self.done and then is not None and then != current:
                raise ResumeError(
                    f"{folder}: was started with {then} {name}, and this is {current}; the last digits of a run depend "
                    f"on it, so it would end in weights of neither.\nResume it with {option} {then}."
                )


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    ema: dict[str, Tensor] | None,
    best: dict[str, Tensor] | None,
) -> None:
    """Write weights, optimiser state and progress to one file, atomically."""
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for group, weights in (("ema", ema), ("best", best)):
        tensors |= {f"{group}/{name}": tensor for name, tensor in (weights or {}).items()}
    for at, state in optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser/{at}/{name}": torch.as_tensor(value) for name, value in state.items()}
    text = json.dumps(vars(progress))
    with atomic_file(path) as partial:
        save_file({name: x.cpu().contiguous().clone() for name, x in tensors.items()}, partial,
                  metadata={"progress": text, "checksum": _checksum(text, tensors)})  # fmt: skip


def load_checkpoint(
    path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, now: Progress
) -> tuple[Progress, dict[str, Tensor] | None, dict[str, Tensor] | None]:
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata()
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        progress = Progress(**json.loads(about["progress"]))
        if about["checksum"] != _checksum(about["progress"], tensors):
            raise ValueError("its checksum does not fit")
        groups: dict[str, dict[str, Tensor]] = {"model": {}, "ema": {}, "best": {}, "optimiser": {}}
        for key, tensor in tensors.items():
            group, _, name = key.partition("/")
            groups[group][name] = tensor
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise TrainingError(
            f"{path}: the checkpoint cannot be read ({error}). Remove the run and start again."
        ) from None
    if progress.identity != now.identity:
        raise ResumeError(
            f"{path.parent}: was started with other data, settings, seed or version, so it cannot be resumed.\n"
            "Give what it was started with, or choose another output."
        )
    progress.require_same_machine(now, path.parent)
    try:
        model.load_state_dict(groups["model"])
        content = optimiser.state_dict()
        for key, tensor in groups["optimiser"].items():
            at, _, name = key.partition("/")
            content["state"].setdefault(int(at), {})[name] = tensor
        optimiser.load_state_dict(content)
    except (RuntimeError, ValueError, KeyError) as error:
        raise TrainingError(
            f"{path}: the checkpoint is not one of this model ({first_line(error)}). Remove the run and start again."
        ) from None
    return progress, groups["ema"] or None, groups["best"] or None


def _checksum(progress: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(progress.encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()

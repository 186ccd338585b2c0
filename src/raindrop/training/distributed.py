"""Several processes started by torchrun: rank, size, and sums over all of them. With one process, all are no-ops."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from raindrop.errors import ConfigError, TrainingError, first_line


def join() -> None:
    """Join the other processes if torchrun started several."""
    if not dist.is_available() or dist.is_initialized() or os.environ.get("WORLD_SIZE", "1").strip() in ("", "0", "1"):
        return
    wanted = os.environ["WORLD_SIZE"]
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing or not wanted.strip().isdecimal():
        raise ConfigError(
            f"WORLD_SIZE={wanted} asks for several processes, but {', '.join(missing) or 'it'} "
            f"{'are not set' if len(missing) > 1 else 'is not set' if missing else 'is not a number'}.\n"
            "Start them with 'torchrun --nproc-per-node 2 -m raindrop train ...', or unset WORLD_SIZE for one process."
        )
    try:
        dist.init_process_group("gloo")
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"The {wanted} processes cannot reach one another ({_reason(error)}). Start them with torchrun; where it "
            "restarts them, with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment (docs/scaling.md)."
        ) from None


def leave() -> None:
    """Leave the other processes, if any."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """The number of this process, 0 for the one that writes."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def size() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def total(tensor: Tensor) -> Tensor:
    """The sum of the tensor over all processes, in place."""
    return _reduced(tensor, "SUM")


def largest(tensor: Tensor) -> Tensor:
    """The largest value of the tensor over all processes, in place."""
    return _reduced(tensor, "MAX")


def agreed(stop: bool) -> bool:
    """Whether any process wants to stop: then all of them must."""
    return bool(largest(torch.tensor([float(stop)]))) if size() > 1 else stop


def wait() -> None:
    """Wait until all processes get here."""
    if size() > 1:
        with _others_may_end():
            dist.barrier()


def add_gradients(parameters: Iterable[nn.Parameter], loss: float) -> float:
    """Sum the gradients of all processes, and return the sum of their losses.

    Each process scales its loss by its share of the whole batch. A process without samples has no gradient and adds
    nothing, which DistributedDataParallel does not support, since it needs every process in every backward pass. All
    gradients are sent as one vector: the networks are small, so one message is enough.
    """
    if size() == 1:
        return loss
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten().cpu() for p in learned] + [torch.tensor([loss])]
    )
    total(flat)
    for parameter, gradient in zip(learned, flat[:-1].split([p.numel() for p in learned]), strict=True):  # type: ignore[no-untyped-call]
        parameter.grad = gradient.view_as(parameter).to(parameter.device, copy=True)
    return float(flat[-1])


def _reduced(tensor: Tensor, operation: str) -> Tensor:
    if size() > 1:
        with _others_may_end():
            dist.all_reduce(tensor, getattr(dist.ReduceOp, operation))
    return tensor


@contextmanager
def _others_may_end() -> Iterator[None]:
    """Turn errors about a process that has ended, or does not respond, into a message."""
    try:
        yield
    except RuntimeError as error:
        raise TrainingError(
            f"Another of the {size()} processes has ended or does not answer ({_reason(error)}).\n"
            "Start all of them again with --resume; torchrun --max-restarts 3 does so by itself."
        ) from None


def _reason(error: BaseException) -> str:
    """The message of gloo, without source locations and advice."""
    return re.sub(r"\[/[^\]]*\]\s*", "", first_line(error)).partition(". ")[0]

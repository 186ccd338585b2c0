"""Several processes started by torchrun: who am I, and sums over all of us. Alone, everything is a no-op."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from raindrop.errors import ConfigError, TrainingError, first_line


def join() -> None:
    """Join the other processes where torchrun started several."""
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
            f"The {wanted} processes cannot reach one another ({first_line(error)}). Start them with torchrun."
        ) from None


def leave() -> None:
    """Leave the other processes, if any."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def rank() -> int:
    """The number of this process, 0 for the one that writes."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def total(tensor: Tensor) -> Tensor:
    """The sum of the tensor over all processes, in place."""
    if size() > 1:
        dist.all_reduce(tensor)
    return tensor


def wait() -> None:
    """Until all processes are here."""
    if size() > 1:
        dist.barrier()


def average_gradients(parameters: Iterable[nn.Parameter], weight: float, loss: float) -> float:
    """Each process's gradient and loss are means over its own samples, whose total weight is given; make them means
    over all samples, and return the loss."""
    if size() == 1:
        return loss
    learned = [parameter for parameter in parameters if parameter.requires_grad]
    flat = torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() * weight for p in learned]
        + [torch.tensor([loss * weight, weight])]
    )
    dist.all_reduce(flat)
    flat = flat[:-1] / flat[-1].clamp_min(1e-12)
    for parameter, gradient in zip(learned, flat[:-1].split([p.numel() for p in learned]), strict=True):  # type: ignore[no-untyped-call]
        parameter.grad = gradient.view_as(parameter).clone()
    return float(flat[-1])


def largest(tensor: Tensor) -> Tensor:
    """The largest value of the tensor over all processes, in place."""
    if size() > 1:
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor

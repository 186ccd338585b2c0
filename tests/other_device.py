"""A stand-in for a device other than the CPU, to find code that mixes devices on a machine that has only a CPU.

Tensors "elsewhere" wrap CPU tensors and report the device "meta". As on a GPU, an operation on a tensor elsewhere and
an ordinary CPU tensor fails, and so does `.numpy()`. As on Apple's GPUs, there is no float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

ELSEWHERE = torch.device("meta")
CPU = torch.device("cpu")
aten = torch.ops.aten


class Elsewhere(Tensor):
    """A tensor on the other device; `wrapped` has its numbers."""

    wrapped: Tensor

    @staticmethod
    def __new__(cls, wrapped: Tensor) -> Elsewhere:
        if wrapped.dtype == torch.float64:
            raise TypeError("the other device has no float64")
        size, strides, offset = wrapped.size(), wrapped.stride(), wrapped.storage_offset()
        options = {"strides": strides, "storage_offset": offset, "dtype": wrapped.dtype, "device": ELSEWHERE}
        tensor = Tensor._make_wrapper_subclass(cls, size, **options)
        tensor.wrapped = wrapped
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        return self.wrapped.tolist()


def _wrap(x: Any) -> Any:
    return Elsewhere(x) if isinstance(x, Tensor) and not isinstance(x, Elsewhere) else x


def _unwrap(x: Any) -> Any:
    return x.wrapped if isinstance(x, Elsewhere) else x


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the wrapped tensors, and wrap its result if it belongs elsewhere."""
    inputs = args[:1] if func is aten._pack_padded_sequence.default else args  # its lengths are always on the CPU
    tensors = [x for x in tree_flatten((inputs, kwargs))[0] if isinstance(x, Tensor)]
    elsewhere = any(isinstance(x, Elsewhere) for x in tensors)
    on_cpu = [tuple(x.shape) for x in tensors if not isinstance(x, Elsewhere) and x.dim()]
    if elsewhere and on_cpu and func is not aten.copy_.default:
        raise RuntimeError(f"{func} mixes devices; on the CPU are tensors of shape {on_cpu}")
    if "device" in kwargs and kwargs["device"] is not None:
        elsewhere, kwargs = kwargs["device"] == ELSEWHERE, kwargs | {"device": CPU}
    out = func(*tree_map(_unwrap, args), **tree_map(_unwrap, kwargs))
    if func is aten._pack_padded_sequence.default:
        return _wrap(out[0]), out[1]  # and so are its batch sizes
    return tree_map(_wrap, out) if elsewhere else out


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@contextmanager
def other_device() -> Iterator[None]:
    """Within this context tensors can be created elsewhere and moved there; without gradients."""
    with torch.no_grad(), _Dispatch():
        yield


def call_elsewhere(model: nn.Module, *args: Any) -> Any:
    """Call the model with its parameters and buffers elsewhere."""
    state = {name: Elsewhere(x.detach()) for name, x in (*model.named_parameters(), *model.named_buffers())}
    return functional_call(model, state, args)

"""Convert tensors on any device to NumPy arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray
from torch import Tensor


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """The values of a tensor as an array in main memory, without gradients."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array

"""Series on a padded grid: the latest and the next reading of each sensor, and decaying averages, at every timestamp.

The same numbers as `batch/nearby.py`, in operations that ONNX has and that do not depend on the number of threads:
everything along time is done by doubling, with shifts of 1, 2, 4, ... timestamps. Axes: b a sample, t a timestamp, u a
sensor, k a width. Rows of the grid after a sample's last timestamp are empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GridBatch:
    """Readings on a grid: the input of an exported core."""

    value: Tensor  # (b, t, u) scaled; any number where not observed
    observed: Tensor  # (b, t, u)
    time: Tensor  # (b, t) double, ascending; any number after the last timestamp
    statics: Tensor  # (b, a)

    @property
    def present(self) -> Tensor:
        """(b, t) the timestamps of the sample."""
        return self.observed.any(2)


def shift(x: Tensor, by: int, fill: float) -> Tensor:
    """x (b, t, ...) shifted to later times by `by` rows; `fill` in the first rows."""
    rows = torch.arange(x.shape[1]) - by
    moved = x.index_select(1, rows.clamp_min(0))
    return torch.where((rows >= 0).view(-1, *[1] * (x.dim() - 2)), moved, fill)


def latest(observed: Tensor, rounds: int) -> Tensor:
    """(b, t, u) the row of the latest reading at or before each row; -1 if there is none."""
    rows = torch.arange(observed.shape[1]).view(1, -1, 1)
    index = torch.where(observed, rows, -1)
    for r in range(rounds):
        index = torch.maximum(index, shift(index, 2**r, -1))
    return index


def coming(observed: Tensor, rounds: int) -> Tensor:
    """(b, t, u) the row of the first reading after each row; -1 if there is none."""
    last = observed.shape[1] - 1
    back = shift(latest(observed.flip(1), rounds), 1, -1).flip(1)
    return torch.where(back < 0, -1, last - back)


def recurrence(x: Tensor, decay: Tensor, rounds: int) -> Tensor:
    """y_t = decay_t y_(t-1) + x_t along axis 1, for x and decay that broadcast; y before the first row is 0."""
    total, reach = x, decay
    for r in range(rounds):
        total = total + reach * shift(total, 2**r, 0.0)
        if r < rounds - 1:
            reach = reach * shift(reach, 2**r, 0.0)
    return total


def decay_since_row_before(time: Tensor, interval: Tensor, scales: Tensor) -> Tensor:
    """(b, t, u, k) exp(-gap / width) from the row before to this one; widths are `scales` times the interval (u,)."""
    before = time.index_select(1, (torch.arange(time.shape[1]) - 1).clamp_min(0))
    gap = (time - before).clamp_min(0.0).to(interval.dtype)  # 0 after the last timestamp, where there are no readings
    return torch.exp(-(gap[..., None] / interval)[..., None] / scales)


def rows_at(x: Tensor, index: Tensor) -> Tensor:
    """x (b, t, u, c) at the rows index (b, t, u): (b, t, u, c); an arbitrary row if the index is -1."""
    return x.gather(1, index.clamp_min(0)[..., None].expand(-1, -1, -1, x.shape[3]))


def times_at(time: Tensor, index: Tensor) -> Tensor:
    """time (b, t) at the rows index (b, t, u): (b, t, u); an arbitrary time if the index is -1."""
    return time.gather(1, index.clamp_min(0).flatten(1)).view_as(index)

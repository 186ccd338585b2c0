"""Learned numbers for each ordered pair of sensors, stored individually or as a low-rank product."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PairNumbers(nn.Module):
    """`number` learned numbers for each pair (receiver v, sender u)."""

    full: nn.Parameter  # (v, u, n), without a rank
    send: nn.Parameter  # (u, r)
    receive: nn.Parameter  # (v, r, n)

    def __init__(self, num_sensors: int, number: int, rank: int, scale: float):
        """rank: of the numbers over all pairs; 0 stores each individually, initialised with a size of `scale`."""
        super().__init__()
        self.rank = rank
        if rank:
            self.send = nn.Parameter(torch.randn(num_sensors, rank) * 0.1)
            self.receive = nn.Parameter(torch.randn(num_sensors, rank, number) * 0.1)
        else:
            self.full = nn.Parameter(torch.randn(num_sensors, num_sensors, number) * scale)

    def forward(self, v: Tensor) -> Tensor:
        """(q, u, n): the numbers of these receivers (q,) with all senders."""
        if self.rank:
            return torch.einsum("ur,qrn->qun", self.send, self.receive[v])
        return self.full[v]

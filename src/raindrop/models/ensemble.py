"""Several classifiers in one pass: they share their large matrices and differ in what each scales and adds.

As in BatchEnsemble (Wen et al., ICLR 2020) and TabM (Gorishniy et al., ICLR 2025). Each member learns from its own
loss; the prediction is the mean of their probabilities. Axes: b a sample, m a member.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SharedLinear(nn.Module):
    """y_m = ((x_m * r_m) W) * s_m + b_m."""

    def __init__(self, wide: int, narrow: int, members: int, *, first: bool):
        super().__init__()
        self.W = nn.Linear(wide, narrow, bias=False)
        signs = torch.randint(0, 2, (members, wide)).float() * 2 - 1  # members start apart from the first layer on
        self.r = nn.Parameter(signs if first else torch.ones(members, wide))
        self.s = nn.Parameter(torch.ones(members, narrow))
        self.b = nn.Parameter(torch.empty(members, narrow).uniform_(-(wide**-0.5), wide**-0.5))

    def forward(self, x: Tensor) -> Tensor:  # (b, m, wide)
        out: Tensor = self.W(x * self.r) * self.s + self.b
        return out


class EnsembleHead(nn.Module):
    """Embeddings (b, z) -> logits of each member (b, m, class)."""

    def __init__(
        self, width: int, hidden: int, members: int, num_classes: int, *, activation: nn.Module, dropout: float
    ):
        super().__init__()
        self.members, self.activation, self.dropout = members, activation, dropout
        self.first = SharedLinear(width, hidden, members, first=True)
        self.second = SharedLinear(hidden, hidden, members, first=False)
        bound = hidden**-0.5
        self.last = nn.Parameter(torch.empty(members, hidden, num_classes).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(members, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(x, self.dropout, self.training)[:, None].expand(-1, self.members, -1)
        for layer in (self.first, self.second):
            x = F.dropout(self.activation(layer(x)), self.dropout, self.training)
        return torch.einsum("bmh,mhc->bmc", x, self.last) + self.bias


def together(members: Tensor) -> Tensor:
    """Logits (b, m, class) -> (b, class): the log of the members' mean probability."""
    return members.log_softmax(-1).logsumexp(1) - math.log(members.shape[1])

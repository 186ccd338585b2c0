"""Several classifiers in one pass. Members share the large weight matrices and have their own scales and biases.

As in BatchEnsemble (Wen et al., ICLR 2020) and TabM (Gorishniy et al., ICLR 2025). Each member has its own loss; the
prediction is the mean of the members' probabilities. Axes: b a sample, m a member.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SharedLinear(nn.Module):
    """y_m = ((x_m * r_m) W) * s_m + b_m."""

    def __init__(self, in_features: int, out_features: int, members: int, *, random_signs: bool):
        super().__init__()
        self.W = nn.Linear(in_features, out_features, bias=False)
        signs = torch.randint(0, 2, (members, in_features)).float() * 2 - 1  # makes the members differ from the start
        self.r = nn.Parameter(signs if random_signs else torch.ones(members, in_features))
        self.s = nn.Parameter(torch.ones(members, out_features))
        self.b = nn.Parameter(torch.empty(members, out_features).uniform_(-(in_features**-0.5), in_features**-0.5))

    def forward(self, x: Tensor) -> Tensor:  # (b, m, in) -> (b, m, out)
        out: Tensor = self.W(x * self.r) * self.s + self.b
        return out


class EnsembleHead(nn.Module):
    """Embeddings (b, z) -> logits of each member (b, m, class)."""

    def __init__(
        self, width: int, hidden: int, members: int, num_outputs: int, *, activation: nn.Module, dropout: float
    ):
        super().__init__()
        self.members, self.activation, self.dropout = members, activation, dropout
        self.first = SharedLinear(width, hidden, members, random_signs=True)
        self.second = SharedLinear(hidden, hidden, members, random_signs=False)
        bound = hidden**-0.5
        self.last = nn.Parameter(torch.empty(members, hidden, num_outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(members, num_outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(x, self.dropout, self.training)[:, None].expand(-1, self.members, -1)
        for layer in (self.first, self.second):
            x = F.dropout(self.activation(layer(x)), self.dropout, self.training)
        return torch.bmm(x.transpose(0, 1), self.last).transpose(0, 1) + self.bias

"""Several classifiers in one pass."""

from __future__ import annotations

import torch
from class_tasks import classes
from closeness import assert_close

from raindrop.models.base import Output
from raindrop.models.ensemble import EnsembleHead
from raindrop.tasks.classification import mean_log_prob
from raindrop.training.loop import task_loss


def test_members_are_what_each_would_be_alone():
    torch.manual_seed(0)
    head = EnsembleHead(7, 5, members=3, num_outputs=4, activation=torch.nn.ReLU(), dropout=0.0)
    x = torch.randn(6, 7)
    found = head(x)
    assert found.shape == (6, 3, 4)
    for m in range(3):
        hidden = x
        for layer in (head.first, head.second):
            hidden = torch.relu((hidden * layer.r[m]) @ layer.W.weight.T * layer.s[m] + layer.b[m])
        assert_close(found[:, m], hidden @ head.last[m] + head.bias[m])
    assert not torch.allclose(found[:, 0], found[:, 1])


def test_mean_log_prob_is_the_mean_probability():
    members = torch.randn(5, 3, 2)
    torch.testing.assert_close(mean_log_prob(members).softmax(-1), members.softmax(-1).mean(1))


def test_each_member_learns_from_its_own_loss():
    members, label = torch.randn(5, 3, 2), torch.tensor([0, 1, 1, 0, 1])
    output = Output(mean_log_prob(members), torch.zeros(5, 1), torch.zeros(()), members=members)
    wanted = torch.stack([torch.nn.functional.cross_entropy(members[:, m], label) for m in range(3)]).mean()
    torch.testing.assert_close(task_loss(classes(2), output, label), wanted)

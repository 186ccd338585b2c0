"""Everyone to everyone, in portions and with a gradient by hand, against the same sums over whole arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from closeness import assert_close
from torch import Tensor
from torch.autograd import gradcheck

import raindrop.models.raindrop.sending as module
from raindrop.batch.ragged import BLOCK, Blocks, Segments
from raindrop.models.raindrop.sending import LIMIT, NEVER, send_to_all

TIMES, M, D, RANK = [5, 0, BLOCK + 3, 1], 4, 3, 2  # timestamps per sample: one has none, one more than a block


@dataclass
class Given:
    blocks: Blocks
    sample: Tensor  # (s,)
    has: Tensor  # (s, u)
    deaf: Tensor  # (s, u)
    tensors: tuple[Tensor, ...]  # h, meets, shift, sends, edges

    def send(self, *tensors: Tensor, **settings: Any) -> tuple[Tensor, ...]:
        return send_to_all(self.blocks, *tensors, **settings)


@pytest.fixture
def given() -> Given:
    sample = torch.repeat_interleave(torch.arange(len(TIMES)), torch.tensor(TIMES))
    torch.manual_seed(0)
    s, edges = len(sample), torch.rand(len(TIMES), M, M).double()
    shapes = ((s, M, D), (D, M), (s, M), (s, M, RANK))
    tensors = (*(torch.randn(shape).double() for shape in shapes), edges * (edges > 0.3))
    blocks = Blocks.of(Segments.of(sample, len(TIMES), ordered=True))
    return Given(blocks, sample, torch.rand(s, M) < 0.7, torch.rand(s, M) < 0.4, tensors)


def over_whole_arrays(
    given: Given, h: Tensor, meets: Tensor, shift: Tensor, sends: Tensor, edges: Tensor | None, **settings: Any
) -> tuple[Tensor, ...]:
    """What `send_to_all` says it gives, with torch's own gradient."""
    argument = h @ meets + shift[..., None]  # (s, u, v)
    present = settings["has"][..., None].double()
    alpha = torch.sigmoid(argument) * present
    share = argument.clamp(-LIMIT, LIMIT) if settings.get("of_logits") else torch.sigmoid(argument)
    share = share.exp() * present
    if settings.get("deaf") is not None:
        share = share * (1 - torch.diag_embed(settings["deaf"].double()))
    carried = share
    if edges is not None:
        e = edges[given.sample]
        share, carried = share * e.detach().sign(), share * e
    total = torch.zeros(len(TIMES), M, M).double().index_add(0, given.sample, alpha)
    return total, torch.einsum("suv,suj->sjv", carried, sends), share.sum(1)


@pytest.fixture(params=[False, True], ids=["of alpha", "of logits"])
def settings(request: pytest.FixtureRequest, given: Given) -> dict[str, Any]:
    return {"has": given.has, "deaf": given.deaf, "of_logits": request.param}


CHANGES = {
    "": {},
    "all send": {"has": None},
    "all hear themselves": {"deaf": None},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("graph", [True, False], ids=["graph", "no graph"])
@pytest.mark.parametrize("portion", [1, 3 * BLOCK * M * M, 1 << 19])
def test_sums_and_gradients_are_those_over_whole_arrays(given, settings, monkeypatch, change, graph, portion):
    monkeypatch.setattr(module, "PORTION", portion)
    settings = settings | CHANGES[change]
    if settings["has"] is None:
        settings["has"] = torch.ones_like(given.has)
    inputs = [x.clone().requires_grad_() for x in given.tensors[: 5 if graph else 4]]
    found, expected = (
        send(*inputs, *([] if graph else [None]), **settings)
        for send in (given.send, lambda *tensors, **more: over_whole_arrays(given, *tensors, **more))
    )
    assert_close(found, expected)
    pull = [torch.randn_like(x) for x in expected]
    gradients = [torch.autograd.grad(out, inputs, pull) for out in (found, expected)]
    if graph:  # an edge that is not there has no gradient, nor could pruning use one
        gradients[1] = (*gradients[1][:4], gradients[1][4] * inputs[4].detach().sign())
    assert_close(*gradients)


def test_the_gradient_is_the_slope(given, settings):
    h, meets, shift, sends, edges = (x.clone() for x in given.tensors)
    inputs = [x.requires_grad_() for x in (h, meets, shift, sends, edges + 0.5)]  # all edges: no kink at 0
    assert gradcheck(lambda *tensors: given.send(*tensors, **settings), inputs)


def test_a_logit_beyond_the_limit_is_cut_off_and_has_no_gradient(given):
    h, meets, shift, sends, edges = given.tensors
    shift = shift.clone()
    shift[0], shift[1] = 2 * LIMIT, -2 * LIMIT
    shift.requires_grad_()
    settings = {"has": torch.ones_like(given.has), "of_logits": True}
    for out in (given.send, lambda *x, **more: over_whole_arrays(given, *x, **more)):
        _, sent, weight = out(h, meets, shift, sends, edges, **settings)
        (slope,) = torch.autograd.grad(sent.sum() + weight.sum(), shift)
        assert not slope[:2].any()
        assert slope[2:].any()


def test_an_argument_of_never_is_an_alpha_of_exactly_0_and_its_opposite_of_1():
    assert torch.sigmoid(torch.tensor([NEVER, -NEVER])).tolist() == [0.0, 1.0]

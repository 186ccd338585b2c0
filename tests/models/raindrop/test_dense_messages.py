"""Dense messages, in chunks and with a hand-written gradient, compared with the same sums over whole arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

import raindrop.models.raindrop.dense_messages as module
from raindrop.batch.ragged import BLOCK_SIZE, Blocks, Segments
from raindrop.models.raindrop.dense_messages import MASKED_LOGIT, MAX_LOGIT, dense_messages

TIMES = [5, 0, BLOCK_SIZE + 3, 1]  # timestamps per sample: one sample has none, one has more than a block
M, D, RANK = 4, 3, 2


@dataclass
class Inputs:
    blocks: Blocks
    sample: Tensor  # (s,)
    sends: Tensor  # (s, u)
    exclude_self: Tensor  # (s, u)
    tensors: tuple[Tensor, ...]  # h, receiver_weight, time_logit, content, edges

    def dense_messages(self, *tensors: Tensor, **settings: Any) -> tuple[Tensor, ...]:
        return dense_messages(self.blocks, *tensors, **settings)


@pytest.fixture
def inputs() -> Inputs:
    sample = torch.repeat_interleave(torch.arange(len(TIMES)), torch.tensor(TIMES))
    torch.manual_seed(0)
    s, edges = len(sample), torch.rand(len(TIMES), M, M).double()
    shapes = ((s, M, D), (D, M), (s, M), (s, M, RANK))
    tensors = (*(torch.randn(shape).double() for shape in shapes), edges * (edges > 0.3))
    blocks = Blocks.from_segments(Segments.from_index(sample, len(TIMES), is_sorted=True))
    return Inputs(blocks, sample, torch.rand(s, M) < 0.7, torch.rand(s, M) < 0.4, tensors)


def over_whole_arrays(
    inputs: Inputs,
    h: Tensor,
    receiver_weight: Tensor,
    time_logit: Tensor,
    content: Tensor,
    edges: Tensor | None,
    **settings: Any,
) -> tuple[Tensor, ...]:
    """What `dense_messages` is documented to return, with torch's own gradient."""
    logit = h @ receiver_weight + time_logit[..., None]  # (s, u, v)
    sends = settings["sends"][..., None].double()
    alpha = torch.sigmoid(logit) * sends
    weight = logit.clamp(-MAX_LOGIT, MAX_LOGIT) if settings.get("softmax_of_logits") else torch.sigmoid(logit)
    weight = weight.exp() * sends
    if settings.get("exclude_self") is not None:
        weight = weight * (1 - torch.diag_embed(settings["exclude_self"].double()))
    scaled = weight
    if edges is not None:
        e = edges[inputs.sample]
        weight, scaled = weight * e.detach().sign(), weight * e
    alpha_sum = torch.zeros(len(TIMES), M, M).double().index_add(0, inputs.sample, alpha)
    return alpha_sum, torch.einsum("suv,suj->sjv", scaled, content), weight.sum(1)


@pytest.fixture(params=[False, True], ids=["of alpha", "of logits"])
def settings(request: pytest.FixtureRequest, inputs: Inputs) -> dict[str, Any]:
    return {"sends": inputs.sends, "exclude_self": inputs.exclude_self, "softmax_of_logits": request.param}


CHANGES = {
    "": {},
    "all send": {"sends": None},
    "all send to themselves": {"exclude_self": None},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("graph", [True, False], ids=["graph", "no graph"])
@pytest.mark.parametrize("chunk_size", [1, 3 * BLOCK_SIZE * M * M, 1 << 19])
def test_sums_and_gradients_equal_those_over_whole_arrays(inputs, settings, monkeypatch, change, graph, chunk_size):
    monkeypatch.setattr(module, "CHUNK_SIZE", chunk_size)
    settings = settings | CHANGES[change]
    if settings["sends"] is None:
        settings["sends"] = torch.ones_like(inputs.sends)
    tensors = [x.clone().requires_grad_() for x in inputs.tensors[: 5 if graph else 4]]
    arguments = [*tensors, *([] if graph else [None])]
    actual = inputs.dense_messages(*arguments, **settings)
    expected = over_whole_arrays(inputs, *arguments, **settings)
    torch.testing.assert_close(actual, expected)
    weights = [torch.randn_like(x) for x in expected]
    gradients = [torch.autograd.grad(out, tensors, weights) for out in (actual, expected)]
    if graph:  # an edge that does not exist has no gradient
        gradients[1] = (*gradients[1][:4], gradients[1][4] * tensors[4].detach().sign())
    torch.testing.assert_close(*gradients)


@pytest.mark.slow
def test_the_gradient_is_that_of_finite_differences(inputs, settings):
    *tensors, edges = (x.clone() for x in inputs.tensors)
    tensors = [x.requires_grad_() for x in (*tensors, edges + 0.5)]  # every edge exists: no kink at 0
    assert gradcheck(lambda *x: inputs.dense_messages(*x, **settings), tensors)


def test_a_clamped_logit_has_no_gradient(inputs):
    h, receiver_weight, time_logit, content, edges = inputs.tensors
    time_logit = time_logit.clone()
    time_logit[0], time_logit[1] = 2 * MAX_LOGIT, -2 * MAX_LOGIT
    time_logit.requires_grad_()
    settings = {"sends": torch.ones_like(inputs.sends), "softmax_of_logits": True}
    for compute in (inputs.dense_messages, lambda *x, **more: over_whole_arrays(inputs, *x, **more)):
        _, numerator, denominator = compute(h, receiver_weight, time_logit, content, edges, **settings)
        (gradient,) = torch.autograd.grad(numerator.sum() + denominator.sum(), time_logit)
        assert not gradient[:2].any()
        assert gradient[2:].any()


def test_a_masked_logit_gives_an_alpha_of_exactly_0_and_its_negative_of_1():
    assert torch.sigmoid(torch.tensor([MASKED_LOGIT, -MASKED_LOGIT])).tolist() == [0.0, 1.0]

"""The scoring core of Raindrop on a padded grid: the equations of `models/raindrop/` in plain, masked operations.

A trained model works on flat, ragged readings, with sums that ONNX lacks or runs unsafely with several threads. This is
the same model on a grid (b, t, u), with the trained weights; tests compare the two. Axes as in
`models/raindrop/model.py`, but b and t instead of s.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from raindrop.errors import ConfigError
from raindrop.export.grid_series import (
    GridBatch,
    coming,
    decay_since_row_before,
    latest,
    recurrence,
    rows_at,
    times_at,
)
from raindrop.models.raindrop.messages import MAX_TARGET, MessagePassing, Messages, mean_over_heads, predict_reading
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.raindrop.nearby_messages import LINE_DECAYS, MAX_PAIR, NearbyMessages
from raindrop.models.raindrop.slots import SensorSummaries, Summarised
from raindrop.models.raindrop.temporal import TemporalAttention, TemporalMean


def require_exportable(model: Raindrop) -> None:
    """Raise a ConfigError for settings that the core does not support."""
    config = model.config
    refused = {
        'model.graph.senders = "embedded"': config.graph.senders == "embedded" and config.ablation.messages,
        'model.temporal = "lstm"': config.temporal == "lstm",
        'model.temporal_attention.s = "rank"': (
            config.temporal == "attention" and config.temporal_attention.s == "rank"
        ),
        f'model.long_series.mode = "{config.long_series.mode}"': config.long_series.mode != "whole",
    }
    for setting, found in refused.items():
        if found:
            raise ConfigError(f"A model with {setting} cannot be exported; train one without this setting.")


class SampleCore(nn.Module):
    """Scores of samples: value, observed (b, t, u), time (b, t), statics (b, a) -> (b, output)."""

    def __init__(self, model: Raindrop, rounds: int):
        super().__init__()
        require_exportable(model)
        self.model, self.rounds = deepcopy(model).eval().requires_grad_(False), rounds
        if self.model.slots is not None:
            self.model.slots.summaries = GridSummaries(self.model.slots.summaries)  # type: ignore[assignment]

    def forward(self, value: Tensor, observed: Tensor, time: Tensor, statics: Tensor) -> Tensor:
        batch, model = GridBatch(torch.where(observed, value, 0.0), observed, time, statics), self.model
        p = model.encode_time(time.flatten(), like=value).view(*time.shape, -1)  # Appendix: (b, t, p)
        h = embed(model, batch)  # Sec. 3.3: (b, t, u, d)
        extra: list[Tensor] = []
        if model.nearby is not None:
            h, agreement = receive_nearby(model.nearby, batch, h, model.initial_graph.known, self.rounds)
            present, extra = observed, [agreement]
        else:
            h, present = pass_messages(model, batch, h, p)  # Eq. 1-3, pruning
        z = torch.cat([pool(model.pool, h, p, present), *extra], dim=-1)  # Eq. 4-5: (b, v, z)
        sample, _ = model.read_out(batch, z, None)  # type: ignore[arg-type]  # Sec. 3.4
        scores: Tensor = model.head(sample, statics)  # Sec. 3.5
        return model.task.combine(scores) if model.config.head.members else scores


def embed(model: Raindrop, batch: GridBatch) -> Tensor:
    """Sec. 3.3: h = sigma(x R_u), (b, t, u, d)."""
    x = batch.value[..., None] * model.embed.R
    if model.embed.indicator is not None:
        x = x + model.embed.indicator
    return torch.sigmoid(x)


# ------------------------------------------------------------------ messages at identical timestamps


def pass_messages(model: Raindrop, batch: GridBatch, h: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 1-3: embeddings (b, t, v, d) after all layers, and where they exist."""
    observed, uses_edges = batch.observed, model.config.ablation.edge_weights
    edges = model.initial_graph.known
    if edges is not None:
        edges = edges.expand(len(h), -1, -1)
    embeddings, present = h * observed[..., None], observed
    for layer in model.layers:
        assert isinstance(layer, MessagePassing)
        alpha, score = layer.attention(h, p[:, :, None], h.shape[2])  # Eq. 1: (b, t, u, k, v)
        if layer.sends_messages:
            messages = _send(layer, batch, h, score, edges if uses_edges else None)
            embeddings, present = _receive(layer, batch, h, messages)  # Eq. 2
        if uses_edges:
            edges = _update_edges(layer, batch, alpha, edges)  # Eq. 3
    return embeddings, present


def _send(layer: MessagePassing, batch: GridBatch, h: Tensor, score: Tensor, edges: Tensor | None) -> Messages:
    M = h.shape[2]
    weight = score.exp() * batch.observed[..., None, None]
    if layer.exclude_self:
        weight = weight * (1 - torch.eye(M)).view(M, 1, M)
    scaled = weight
    if edges is not None:
        e = edges[:, None, :, None]  # (b, 1, u, 1, v)
        weight, scaled = weight * e.sign(), weight * e
    content = (h[:, :, :, None] * layer.w_send).sum(-1).view(*h.shape[:3], layer.heads, layer.rank)
    numerator = content.permute(0, 1, 3, 4, 2) @ scaled.permute(0, 1, 3, 2, 4)  # (b, t, k, j, v)
    return Messages(numerator, weight.sum(2))


def _receive(layer: MessagePassing, batch: GridBatch, h: Tensor, messages: Messages) -> tuple[Tensor, Tensor]:
    message = layer.message(messages)  # (b, t, v, d)
    present = batch.observed | (messages.denominator > 0).any(2)
    own = sigmoid_of_sum(h, message) if layer.config.graph.mixing == "residual" else h
    received = torch.sigmoid(message) * present[..., None]
    return torch.where(batch.observed[..., None], own, received), present


def _update_edges(layer: MessagePassing, batch: GridBatch, alpha: Tensor, edges: Tensor | None) -> Tensor:
    counts = batch.observed.sum(1).clamp_min(1)  # (b, u)
    alpha = mean_over_heads((alpha * batch.observed[..., None, None]).sum(1).transpose(1, 2))  # (b, u, v)
    edges = alpha / counts[..., None] if edges is None else edges * (alpha / counts[..., None])
    if not layer.prunes:
        return edges
    flat = edges.flatten(1)
    num_kept = flat.shape[1] - int(layer.config.prune * flat.shape[1])
    threshold = flat.topk(num_kept, dim=1).values[:, -1:]
    above, tied = flat > threshold, flat == threshold
    kept = above | (tied & (tied.long().cumsum(1) <= num_kept - above.long().sum(1, keepdim=True)))
    return (flat * kept).view_as(edges)


def sigmoid_of_sum(h: Tensor, message: Tensor) -> Tensor:
    """sigma(sigma^-1(h) + message)."""
    h = h.clamp(1e-6, 1 - 1e-6)
    return torch.sigmoid(torch.log(h / (1 - h)) + message)


# ------------------------------------------------------------------ messages that cross time


def receive_nearby(
    layer: NearbyMessages, batch: GridBatch, h: Tensor, edges: Tensor | None, rounds: int
) -> tuple[Tensor, Tensor]:
    """Eq. 1-2 across time: embeddings of the readings (b, t, v, d), and their agreement (b, v, 3)."""
    lines, rank = len(LINE_DECAYS), layer.rank
    observed, time = batch.observed, batch.time
    previous, following = latest(observed, rounds), coming(observed, rounds)
    before, after = previous >= 0, following >= 0
    age, wait = time[..., None] - times_at(time, previous), times_at(time, following) - time[..., None]
    share = torch.where(before & after, age / (age + wait), (~before).double()).to(h.dtype)
    age, wait = (
        torch.where(has, x.clamp_min(0.0) / layer.interval, torch.inf).to(h.dtype)  # negative only without readings
        for x, has in ((age, before), (wait, after))
    )

    content = (h[:, :, :, None] * layer.w_send).sum(-1) * observed[..., None]  # (b, t, u, kj)
    own, averages = content[..., : lines * rank], content[..., lines * rank :]
    if len(layer.scales):
        averages = _average_up_to(layer, batch, averages, rounds)
    sent = rows_at(torch.cat([own, averages], dim=-1), previous) * before[..., None]
    own, averages = sent[..., : lines * rank], sent[..., lines * rank :]
    nearest = age
    if layer.sides == "both":
        next_own = rows_at(content[..., : lines * rank], following) * after[..., None]
        own = own + (next_own - own) * share[..., None]
        nearest = torch.minimum(age, wait)
    sent = torch.cat([own, averages], dim=-1)
    sent = sent.view(*sent.shape[:3], layer.heads, rank)  # (b, t, u, k, j)

    decay = layer.decay.abs()
    evidence = torch.cat(
        [_evidence(nearest, decay[:, :lines]), _evidence(age, decay[:, lines:])], dim=-1
    )  # (b, t, u, k)
    pair = layer.pair_weight()  # (v, u, k)
    exists, scaled = (pair, pair) if edges is None else (pair * edges.T.sign()[..., None], pair * edges.T[..., None])
    numerator = torch.einsum("btukj,vuk->btvkj", evidence[..., None] * sent, scaled)
    weight = torch.einsum("btuk,vuk->btvk", evidence, exists) + layer.nobody.clamp(-MAX_PAIR, MAX_PAIR).exp()
    message = torch.einsum("btvc,vcd->btvd", (numerator / weight[..., None]).flatten(-2), layer.w_receive)

    predicted, value = predict_reading(message, layer.decode, layer.decode_bias), batch.value
    value = value.clamp(-MAX_TARGET, MAX_TARGET)
    statistics = torch.stack([value * predicted, predicted.square(), (predicted - value).square()], dim=-1)
    agreement = (statistics * observed[..., None]).sum(1) / observed.sum(1).clamp_min(1)[..., None]
    return sigmoid_of_sum(h, message), agreement


def _evidence(age: Tensor, decay: Tensor) -> Tensor:
    """(b, t, u, k) weights by age (b, t, u); 0 if it is infinite."""
    present = age < torch.inf
    log_age = torch.where(present, age, 0.0).log1p()
    return torch.exp(-decay * log_age[..., None]) * present[..., None]


def _average_up_to(layer: NearbyMessages, batch: GridBatch, content: Tensor, rounds: int) -> Tensor:
    """(b, t, u, kj) decaying averages of contents up to each reading; 0 if there is no reading."""
    decay = decay_since_row_before(batch.time, layer.interval, layer.scales)[..., None]  # (b, t, u, k, 1)
    content = content.reshape(*content.shape[:3], len(layer.scales), layer.rank)
    counts = batch.observed[..., None, None].to(content.dtype).expand(*content.shape[:4], 1)
    total = recurrence(torch.cat([content, counts], dim=-1), decay, rounds)
    weight = torch.where(batch.observed[..., None, None], total[..., -1:], 1.0)
    return (total[..., :-1] / weight).flatten(-2)


# ------------------------------------------------------------------ pooling over time


def pool(module: nn.Module, h: Tensor, p: Tensor, present: Tensor) -> Tensor:
    """Eq. 4-5: embeddings (b, t, v, d) where present, time encodings (b, t, p) -> (b, v, z)."""
    weight = present.to(h.dtype)
    if isinstance(module, TemporalMean):
        return _weighted_sum(h, p, weight / weight.sum(1, keepdim=True).clamp_min(1)) @ module.W
    assert isinstance(module, TemporalAttention)
    assert module.s_bias is not None
    d, scale = h.shape[-1], module.W_Q.shape[-1] ** -0.5
    if module.mean_scores:
        weight = weight / weight.sum(1, keepdim=True).clamp_min(1)
    s = module.s_bias.expand(*p.shape[:2], -1) if module.s_time is None else p @ module.s_time + module.s_bias
    pooled = []
    for k in range(module.heads):
        K_s = _weighted_sum(h, p, s[:, :, None, k] * weight) @ module.W_K[k]  # (b, v, d_k): K^T s
        query = K_s @ module.W_Q[k].T * scale  # (b, v, d+p)
        score = (h * query[:, None, :, :d]).sum(-1) + p @ query[..., d:].transpose(1, 2)
        score = torch.where(present, score, torch.finfo(score.dtype).min)
        beta = torch.exp(score - score.amax(1, keepdim=True)) * present  # Eq. 4: (b, t, v)
        pooled.append(_weighted_sum(h, p, beta / beta.sum(1, keepdim=True).clamp_min(1.0)))
    return torch.cat(pooled, dim=-1) @ module.W  # Eq. 5


def _weighted_sum(h: Tensor, p: Tensor, weight: Tensor) -> Tensor:
    """sum_t weight_t [h_t || p_t]: (b, t, v, d), (b, t, p), (b, t, v) -> (b, v, d+p)."""
    return torch.cat([(h * weight[..., None]).sum(1), weight.transpose(1, 2) @ p], dim=-1)


# ------------------------------------------------------------------ summaries


class GridSummaries(nn.Module):
    """`SensorSummaries` on a grid."""

    mean: Tensor
    scale: Tensor

    def __init__(self, learned: SensorSummaries):
        super().__init__()
        self.clock = learned.clock
        self.register_buffer("mean", learned.mean.clone())
        self.register_buffer("scale", learned.scale.clone())

    def forward(self, batch: GridBatch) -> Summarised:
        """The scaled summaries, 0 for sensors without readings."""
        value, observed = batch.value, batch.observed
        T, rows = observed.shape[1], torch.arange(observed.shape[1]).view(1, -1, 1)
        time = self.clock(batch.time, like=value)  # (b, t)
        counts, present = observed.sum(1), observed.any(1)  # (b, u)
        count = counts.clamp_min(1)
        mean = (value * observed).sum(1) / count
        std = (((value - mean[:, None]) * observed).square().sum(1) / count).sqrt()
        low, high = (torch.where(observed, value, sign * torch.inf) for sign in (1, -1))
        first_row = torch.where(observed, rows, T).amin(1, keepdim=True).clamp_max(T - 1)  # (b, 1, u)
        last_row = torch.where(observed, rows, 0).amax(1, keepdim=True)
        first, last = (value.gather(1, row).squeeze(1) for row in (first_row, last_row))
        time_of_last = time.gather(1, last_row.squeeze(1))  # (b, u)
        steps = batch.present.sum(1, keepdim=True)  # (b, 1)
        sample_end = torch.where(steps > 0, time.gather(1, (steps - 1).clamp_min(0)), 0.0)
        sample_start = torch.where(steps > 0, time[:, :1], 0.0)
        log_counts = counts.to(value.dtype).log1p()
        columns = [
            log_counts, mean, low.amin(1), high.amax(1), std, first, last, last - first, time_of_last,
            sample_end - time_of_last,
        ]  # fmt: skip
        scaled = (torch.stack(columns, dim=-1) - self.mean) / self.scale
        readings = counts.sum(1, keepdim=True).to(value.dtype).log1p()
        share = present.to(value.dtype).mean(1, keepdim=True)
        context = torch.cat([sample_end, sample_start, readings, share], dim=1)
        return Summarised(torch.where(present[..., None], scaled, 0.0), context, present)

"""Sec. 3.3: messages between sensors, and the edges they pass along (Eq. 1-3, pruning). Axes as in model.py."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.models.base import DataSpec
from raindrop.models.layers import uniform
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.dense_messages import MASKED_LOGIT, MAX_LOGIT, dense_messages
from raindrop.models.raindrop.temporal import insert_readings

MAX_TARGET = 5.0  # reconstruction targets are clipped to this many standard deviations


@dataclass(frozen=True)
class State:
    """The state that one layer passes to the next."""

    present: Tensor  # (s, v) whether sensor v has an embedding at timestamp s: s is in T_{i,v}
    penalty: Tensor  # () extra losses
    edges: Tensor | None = None  # (b, u, v) edge weights e, 0 for no edge; None while every edge has weight 1
    embeddings: Tensor | None = None  # (s, v, d) of every sensor; None while only readings have one


@dataclass(frozen=True)
class Messages:
    """Messages to each sensor v before normalisation, from one reading n or summed over the senders of a timestamp s.

    numerator / denominator is the scalar a of Eq. 2: the softmax over senders, times e (h_u . w_u).
    """

    numerator: Tensor  # (n or s, k, j, v) weight * e * (h_u . w_u)
    denominator: Tensor  # (n or s, k, v) weight of the softmax; 0 where nothing is sent


class MessagePassing(nn.Module):
    """Sec. 3.3: one layer. Embeddings are sent along edges (Eq. 1-2), and edge weights are updated (Eq. 3).

    A message h_u w_u w_v^T alpha e is a scalar times w_v, so (s, v) receives one scalar a per rank and head.
    """

    def __init__(self, config: RaindropConfig, spec: DataSpec, *, last: bool):
        super().__init__()
        graph, ablation = config.graph, config.ablation
        d, M, heads = config.observation_dim, spec.num_sensors, graph.heads
        self.config, self.heads, self.rank = config, heads, graph.rank
        self.prunes = not last and ablation.edge_weights
        time_dim = config.time_dim if ablation.time_encoding else 0
        receiver_dim = config.receiver_dim if ablation.receiver_vectors else 0
        if ablation.inter_sensor_attention:
            self.D_p = uniform(heads, d, time_dim, bound=d**-0.5) if time_dim else None
            self.D_r = uniform(heads, d, receiver_dim, bound=d**-0.5) if receiver_dim else None
            self.r = uniform(heads, M, receiver_dim) if receiver_dim else None  # (k, v, r)
        # With observed senders, messages of earlier layers would never be used: those layers only update edges.
        self.sends_messages = last or graph.senders == "embedded"
        if self.sends_messages:
            self.w_send = uniform(M, heads * graph.rank, d)  # (u, kj, d)
            self.w_receive = uniform(M, heads * graph.rank, d)  # (v, kj, d)
        self.exclude_self = graph.mixing == "residual" or graph.reconstruction > 0
        if graph.reconstruction and last:
            self.decode = uniform(M, d)  # (v, d)
            self.decode_bias = nn.Parameter(torch.zeros(M))

    def forward(self, batch: Batch, h: Tensor, p: Tensor, state: State) -> State:
        edges = state.edges if self.config.ablation.edge_weights else None
        if state.embeddings is None or not batch.num_steps:
            mean_alpha, messages = self.send_readings(batch, h, p, edges)  # Eq. 1-2
        else:
            mean_alpha, messages = self.send_embeddings(batch, state.embeddings, state.present, p, edges)  # Eq. 1-2
        state = replace(state, edges=self.update_edges(state.edges, mean_alpha))  # Eq. 3, pruning
        return state if messages is None else self.receive(batch, h, messages, state)  # Eq. 2

    # ------------------------------------------------------------------ Eq. 1

    def attention(self, h: Tensor, p: Tensor, num_sensors: int) -> tuple[Tensor, Tensor]:
        """Eq. 1: alpha = sigmoid(h D [r_v || p_t]^T), (..., k, v); and the argument of the softmax over senders.

        D is split into the parts for r_v and p_t.
        """
        if not self.config.ablation.inter_sensor_attention:
            alpha = h.new_ones(*h.shape[:-1], self.heads, num_sensors)
            return alpha, alpha
        logit = self.time_logit(h, p)[..., None].expand(*h.shape[:-1], -1, num_sensors)
        if self.r is not None:
            receiver_weight = self.receiver_weight().transpose(0, 1).flatten(1)  # (d, k v)
            logit = logit + (h @ receiver_weight).view_as(logit)
        alpha = torch.sigmoid(logit)
        return alpha, alpha if self.config.graph.normalise == "sigmoid" else logit.clamp(-MAX_LOGIT, MAX_LOGIT)

    def receiver_weight(self) -> Tensor:
        """D_r r_v^T of Eq. 1, (k, d, v); 0 without receiver vectors."""
        if self.r is None or self.D_r is None:
            return self.w_send.new_zeros(self.heads, self.config.observation_dim, len(self.w_send))
        return self.D_r @ self.r.transpose(1, 2)

    def time_logit(self, h: Tensor, p: Tensor) -> Tensor:
        """h D_p p_t^T of Eq. 1, the same for every receiver: h (..., d), p (..., p) -> (..., k)."""
        if self.D_p is None:
            return h.new_zeros(*h.shape[:-1], self.heads)
        time_weight = (p @ self.D_p.flatten(0, 1).T).view(*p.shape[:-1], *self.D_p.shape[:2])  # (..., k, d)
        return (h[..., None, :] * time_weight).sum(-1)

    # ------------------------------------------------------------------ Eq. 2

    def send_readings(self, batch: Batch, h: Tensor, p: Tensor, edges: Tensor | None) -> tuple[Tensor, Messages | None]:
        """Every reading sends: alpha, mean over the timestamps at which u sends (b, u, v), and the messages summed."""
        alpha, sent = self.messages_per_reading(batch, h, p, edges)
        mean_alpha = batch.senders.sum(mean_over_heads(alpha)) / batch.senders.counts.clamp_min(1)[:, None]
        mean_alpha = mean_alpha.view(batch.num_samples, batch.num_sensors, batch.num_sensors)
        if sent is None:
            return mean_alpha, None
        return mean_alpha, Messages(batch.steps.sum(sent.numerator), batch.steps.sum(sent.denominator))

    def messages_per_reading(
        self, batch: Batch, h: Tensor, p: Tensor, edges: Tensor | None
    ) -> tuple[Tensor, Messages | None]:
        """Every reading's messages to every sensor, before summing over readings: alpha (n, k, v), and the messages."""
        alpha, score = self.attention(h, batch.steps.broadcast(p), batch.num_sensors)
        if not self.sends_messages:
            return alpha, None
        weight = score.exp()
        if self.exclude_self:
            itself = batch.sensor[:, None, None].expand(-1, weight.shape[1], 1)
            weight = weight.scatter(-1, itself, 0.0)
        scaled = weight  # e scales the message, but not the sender's share of the softmax
        if edges is not None:
            e = edges.flatten(0, 1)  # (b u, v)
            exists = batch.senders.broadcast(e.detach().sign())[:, None]  # (n, 1, v)
            weight, scaled = weight * exists, weight * batch.senders.broadcast(e)[:, None]
        content = batch.sensor_blocks.dot(h, self.w_send)  # (n, kj): h_u . w_u
        content = content.view(len(h), self.heads, self.rank)
        return alpha, Messages(scaled[:, :, None] * content[..., None], weight)

    def send_embeddings(
        self, batch: Batch, h: Tensor, present: Tensor, p: Tensor, edges: Tensor | None
    ) -> tuple[Tensor, Messages]:
        """Every sensor with an embedding h (s, u, d) sends; returns the same as `send_readings`."""
        graph, has_attention = self.config.graph, self.config.ablation.inter_sensor_attention
        if has_attention:
            receiver_weight, time_logit = self.receiver_weight(), self.time_logit(h, p[:, None])  # (k, d, v), (s, u, k)
        else:  # a logit so large that alpha is 1
            receiver_weight = h.new_zeros(self.heads, h.shape[-1], batch.num_sensors)
            time_logit = h.new_full((*h.shape[:2], self.heads), -MASKED_LOGIT)
        content = (h[:, :, None] * self.w_send).sum(-1).view(*time_logit.shape, self.rank)  # (s, u, k, j): h_u . w_u
        per_head = [
            dense_messages(
                batch.blocks,
                h,
                receiver_weight[k],
                time_logit[..., k],
                content[:, :, k],
                edges,
                sends=present,
                exclude_self=batch.observed if self.exclude_self else None,
                softmax_of_logits=graph.normalise == "logit" and has_attention,
            )
            for k in range(self.heads)
        ]
        alpha_sum, numerator, denominator = (torch.stack(heads, 1) for heads in zip(*per_head, strict=True))
        times = batch.samples.sum(present.to(h.dtype)).clamp_min(1)  # (b, u)
        return mean_over_heads(alpha_sum) / times[..., None], Messages(numerator, denominator)

    def message(self, messages: Messages) -> Tensor:
        """The argument a w_v of Eq. 2, (..., v, d); 0 if nothing was sent."""
        denominator = messages.denominator.masked_fill(messages.denominator <= 0, 1.0)
        a = messages.numerator / denominator[..., None, :]  # (..., k, j, v)
        return (a.flatten(-3, -2)[..., None] * self.w_receive.transpose(0, 1)).sum(-3)

    def receive(self, batch: Batch, h: Tensor, messages: Messages, state: State) -> State:
        """Eq. 2: h_v = sigma(a w_v) where sensor v receives messages; a reading of its own takes precedence."""
        message = self.message(messages)  # (s, v, d)
        receives = (messages.denominator > 0).any(1)  # (s, v)
        present = batch.observed | receives
        received = torch.sigmoid(message) * present[..., None].to(message.dtype)
        own, penalty = h, state.penalty
        if self.exclude_self:
            to_reading = message.flatten(0, 1).index_select(0, batch.cell)  # (n, d) messages to sensors with a reading
            if self.config.graph.mixing == "residual":
                own = torch.sigmoid(torch.logit(h, eps=1e-6) + to_reading)
            if self.config.graph.reconstruction:
                error = self.reconstruction_error(batch, to_reading, receives)
                penalty = penalty + self.config.graph.reconstruction * error
        return State(present, penalty, state.edges, insert_readings(batch, own, received))

    # ------------------------------------------------------------------ Eq. 3

    def update_edges(self, edges: Tensor | None, mean_alpha: Tensor) -> Tensor:
        """Eq. 3: scale each edge (b, u, v) by the mean of alpha over the timestamps at which u sends, then prune."""
        if not self.config.ablation.edge_weights:
            return torch.ones_like(mean_alpha)
        edges = mean_alpha if edges is None else edges * mean_alpha
        return prune(edges, self.config.prune) if self.prunes else edges

    # ------------------------------------------------------------------ not in the paper: messages predict readings

    def reconstruction_error(self, batch: Batch, message: Tensor, receives: Tensor) -> Tensor:
        """Mean squared error of readings predicted from the messages (n, d) to them; () over readings with messages."""
        decode, bias = batch.sensors.broadcast(self.decode), batch.sensors.broadcast(self.decode_bias)
        counts = receives.flatten().index_select(0, batch.cell)
        error = predict_reading(message, decode, bias) - batch.value.clamp(-MAX_TARGET, MAX_TARGET)
        return (error.square() * counts).sum() / counts.sum().clamp_min(1)


def predict_reading(message: Tensor, decode: Tensor, bias: Tensor) -> Tensor:
    """A sensor's reading predicted from its messages (..., d)."""
    return (torch.sigmoid(message) * decode).sum(-1) + bias


def mean_over_heads(alpha: Tensor) -> Tensor:
    """(n, k, ...) -> (n, ...)."""
    return alpha.squeeze(1) if alpha.shape[1] == 1 else alpha.mean(1)


def prune(edges: Tensor, share: float) -> Tensor:
    """Sec. 3.3: set the lowest `share` of each sample's M^2 edges to 0; among equal edges, later ones are set first."""
    flat = edges.flatten(1)  # (b, u v)
    num_kept = flat.shape[1] - int(share * flat.shape[1])
    with torch.no_grad():
        threshold = flat.kthvalue(flat.shape[1] - num_kept + 1, dim=1, keepdim=True).values
        above, tied = flat > threshold, flat == threshold
        num_tied_kept = num_kept - above.sum(1, keepdim=True)
        kept = above | (tied & (tied.cumsum(1) <= num_tied_kept))
    return (flat * kept.to(flat.dtype)).view_as(edges)

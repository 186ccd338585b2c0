"""Sec. 3.3: messages between sensors and the graph they travel along (Eq. 1-3, pruning). Axes as in raindrop.py."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.models.base import DataSpec
from raindrop.models.layers import uniform
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.sending import LIMIT, NEVER, Delivery, send_to_all


@dataclass(frozen=True)
class State:
    """What the layers hand on."""

    loss: Tensor  # () further losses
    edges: Tensor | None = None  # (b, u, v); 0 where there is no edge, None while all weigh 1
    received: Tensor | None = None  # (s, v, d) embeddings at every sensor, its own reading included
    reached: Tensor | None = None  # (s, v) who has one

    def embedding(self, batch: Batch, h: Tensor) -> Tensor:
        """(s, v, d) the embedding of every sensor at every time, 0 where it has none."""
        if self.received is not None:
            return self.received
        return place_readings(batch, h.new_zeros(batch.num_slots, batch.num_sensors, h.shape[-1]), h)

    def has(self, batch: Batch) -> Tensor:
        """(s, v) whether sensor v has an embedding at time s: s is in T_{i,v}."""
        return batch.observed if self.reached is None else self.reached


class MessagePassing(nn.Module):
    """Sec. 3.3: one round. Observation embeddings travel along edges, and edges learn from what was sent.

    A message h_u w_u w_v^T alpha e is a number times w_v, so what arrives at (s, v) is one number per rank and head.
    """

    def __init__(self, config: RaindropConfig, spec: DataSpec, *, last: bool):
        super().__init__()
        d, M, heads, rank = config.observation_dim, spec.num_sensors, config.heads, config.rank
        self.config, self.prunes = config, not last and config.edge_weights
        time_dim = config.time_dim if config.time_encoding else 0
        receiver_dim = config.receiver_dim if config.receiver_vectors else 0
        if config.inter_sensor_attention:
            self.D_p = uniform(heads, d, time_dim, bound=d**-0.5) if time_dim else None
            self.D_r = uniform(heads, d, receiver_dim, bound=d**-0.5) if receiver_dim else None
            self.r = uniform(heads, M, receiver_dim) if receiver_dim else None  # (k, v, r)
        # With observed senders, what earlier layers deliver is never sent on: they only shape the graph.
        self.delivers = last or config.senders == "embedded"
        if self.delivers:
            self.w_send = uniform(M, heads * rank, d)  # (u, kj, d)
            self.w_receive = uniform(M, heads * rank, d)  # (v, kj, d)
        self.deaf_to_itself = config.mixing == "residual" or config.reconstruction > 0
        if config.reconstruction and last:
            self.decode = uniform(M, d)  # (v, d)
            self.decode_bias = nn.Parameter(torch.zeros(M))

    def meets(self) -> Tensor:
        """D_r r_v^T of Eq. 1, what an embedding meets at each receiver: (k, d, v); 0 where all receivers are alike."""
        if self.r is None or self.D_r is None:
            return self.w_send.new_zeros(self.config.heads, self.config.observation_dim, len(self.w_send))
        return self.D_r @ self.r.transpose(1, 2)

    def shift(self, h: Tensor, p: Tensor) -> Tensor:
        """h D_p p_t^T of Eq. 1, which every receiver shares: h (..., d), p (..., p) -> (..., k)."""
        if self.D_p is None:
            return h.new_zeros(*h.shape[:-1], self.config.heads)
        along = (p @ self.D_p.flatten(0, 1).T).view(*p.shape[:-1], *self.D_p.shape[:2])  # (..., k, d)
        return (h[..., None, :] * along).sum(-1)

    def attention(self, h: Tensor, p: Tensor, num_sensors: int) -> tuple[Tensor, Tensor]:
        """Eq. 1: alpha (..., k, v), and what the softmax over senders is taken of.

        The argument h D [r_v || p_t]^T, with D split into the parts that meet r_v and p_t.
        """
        if not self.config.inter_sensor_attention:
            alpha = h.new_ones(*h.shape[:-1], self.config.heads, num_sensors)
            return alpha, alpha
        logit = self.shift(h, p)[..., None].expand(*h.shape[:-1], -1, num_sensors)
        if self.r is not None:
            meets = self.meets().transpose(0, 1).flatten(1)  # (d, k v)
            logit = logit + (h @ meets).view_as(logit)
        alpha = torch.sigmoid(logit)
        return alpha, alpha if self.config.normalise == "sigmoid" else logit.clamp(-LIMIT, LIMIT)

    def forward(self, batch: Batch, h: Tensor, p: Tensor, state: State) -> State:
        edges = state.edges if self.config.edge_weights else None
        if state.received is None or not batch.num_slots:  # without any time there is nothing to cut into chunks
            mean_alpha, delivery = self.send_readings(batch, h, p, edges)
        else:
            mean_alpha, delivery = self.send_embeddings(batch, state.received, state.has(batch), p, edges)
        if self.config.edge_weights:
            updated = mean_alpha if state.edges is None else state.edges * mean_alpha  # Eq. 3
            updated = prune(updated, self.config.prune) if self.prunes else updated
        else:
            updated = torch.ones_like(mean_alpha)
        if delivery is None:
            return State(loss=state.loss, edges=updated)
        return self.receive(batch, h, delivery, replace(state, edges=updated))

    def speak(self, batch: Batch, h: Tensor, p: Tensor, edges: Tensor | None) -> tuple[Tensor, Delivery | None]:
        """What every reading sends to every sensor, before any sum: alpha (n, k, v), and its part of the delivery."""
        alpha, score = self.attention(h, batch.slots.broadcast(p), batch.num_sensors)
        if not self.delivers:
            return alpha, None
        weight = score.exp()
        if self.deaf_to_itself:
            itself = batch.sensor[:, None, None].expand(-1, weight.shape[1], 1)
            weight = weight.scatter(-1, itself, 0.0)
        # `weight` goes below the fraction of the softmax, `carried` above it: e scales a message, not its share.
        carried = weight
        if edges is not None:
            e = edges.flatten(0, 1)  # (b u, v)
            exists = batch.senders.broadcast(e.detach().sign())[:, None]  # (n, 1, v)
            weight, carried = weight * exists, weight * batch.senders.broadcast(e)[:, None]
        sends = (h[:, None] * batch.sensors.broadcast(self.w_send)).sum(-1)  # (n, kj): h_u . w_u
        sends = sends.view(len(h), self.config.heads, self.config.rank)
        return alpha, Delivery(carried[:, :, None] * sends[..., None], weight)

    def send_readings(self, batch: Batch, h: Tensor, p: Tensor, edges: Tensor | None) -> tuple[Tensor, Delivery | None]:
        """Every reading sends. -> the mean of alpha over the times u sent, (b, u, v), and what was delivered."""
        alpha, spoken = self.speak(batch, h, p, edges)
        mean_alpha = batch.senders.sum(over_heads(alpha, 1)) / batch.senders.counts.clamp_min(1)[:, None]
        mean_alpha = mean_alpha.view(batch.num_samples, batch.num_sensors, batch.num_sensors)
        if spoken is None:
            return mean_alpha, None
        return mean_alpha, Delivery(batch.slots.sum(spoken.sent), batch.slots.sum(spoken.weight))

    def send_embeddings(
        self, batch: Batch, h: Tensor, has: Tensor, p: Tensor, edges: Tensor | None
    ) -> tuple[Tensor, Delivery]:
        """Every sensor with an embedding h (s, u, d) sends; as `send_readings`."""
        config = self.config
        if config.inter_sensor_attention:
            meets, shift = self.meets(), self.shift(h, p[:, None])  # (k, d, v), (s, u, k)
        else:  # an argument so large that alpha is 1
            meets = h.new_zeros(config.heads, h.shape[-1], batch.num_sensors)
            shift = h.new_full((*h.shape[:2], config.heads), -NEVER)
        sends = (h[:, :, None] * self.w_send).sum(-1).view(*shift.shape, config.rank)  # (s, u, k, j): h_u . w_u
        heads = [
            send_to_all(
                batch.blocks, h, meets[k], shift[..., k], sends[:, :, k], edges,
                has=has, deaf=batch.observed if self.deaf_to_itself else None,
                of_logits=config.normalise == "logit" and config.inter_sensor_attention,
            )
            for k in range(config.heads)
        ]  # fmt: skip
        total, sent, weight = (torch.stack(parts, 1) for parts in zip(*heads, strict=True))
        times = batch.samples.sum(has.to(h.dtype)).clamp_min(1)  # (b, u)
        return over_heads(total, 1) / times[..., None], Delivery(sent, weight)

    def message(self, delivery: Delivery) -> Tensor:
        """a w_v, a the sum of what was sent, normalised over senders: (..., v, d), 0 where nothing arrived."""
        total = delivery.weight.masked_fill(delivery.weight <= 0, 1.0)
        a = delivery.sent / total[..., None, :]  # (..., k, j, v)
        return (a.flatten(-3, -2)[..., None] * self.w_receive.transpose(0, 1)).sum(-3)

    def receive(self, batch: Batch, h: Tensor, delivery: Delivery, state: State) -> State:
        """Eq. 2: h_v = sigma(a w_v); where v has a reading of its own, that wins."""
        message = self.message(delivery)  # (s, v, d)
        arrived = (delivery.weight > 0).any(1)  # (s, v)
        reached = batch.observed | arrived
        received = torch.sigmoid(message) * reached[..., None].to(message.dtype)
        own, loss = h, state.loss
        if self.deaf_to_itself:
            told = message.flatten(0, 1).index_select(0, batch.cell)  # (n, d) what the others told each reading
            if self.config.mixing == "residual":
                own = torch.sigmoid(torch.logit(h, eps=1e-6) + told)
            if self.config.reconstruction:
                heard = arrived.flatten().index_select(0, batch.cell)
                guess = self.guess(
                    told, batch.sensors.broadcast(self.decode), batch.sensors.broadcast(self.decode_bias)
                )
                error = (guess - batch.value.clamp(-5, 5)).square() * heard
                loss = loss + self.config.reconstruction * error.sum() / heard.sum().clamp_min(1)
        return State(loss, state.edges, place_readings(batch, received, own), reached)

    @staticmethod
    def guess(message: Tensor, decode: Tensor, bias: Tensor) -> Tensor:
        """A sensor's reading as its messages (..., d) tell it; not in the paper."""
        return (torch.sigmoid(message) * decode).sum(-1) + bias


def over_heads(alpha: Tensor, dim: int) -> Tensor:
    """The mean over heads."""
    return alpha.squeeze(dim) if alpha.shape[dim] == 1 else alpha.mean(dim)


def place_readings(batch: Batch, embeddings: Tensor, own: Tensor) -> Tensor:
    """Where a sensor has a reading, its own embedding (n, d) stands in (s, v, d)."""
    return embeddings.flatten(0, 1).index_copy(0, batch.cell, own).view_as(embeddings)


def prune(edges: Tensor, share: float) -> Tensor:
    """Sec. 3.3: set the `share` of lowest edges of each sample to 0, over all M^2; of equal ones the later go first."""
    flat = edges.flatten(1)  # (b, u v)
    keep = flat.shape[1] - int(share * flat.shape[1])
    with torch.no_grad():
        border = flat.kthvalue(flat.shape[1] - keep + 1, dim=1, keepdim=True).values
        above, tied = flat > border, flat == border
        room = keep - above.sum(1, keepdim=True)
        alive = above | (tied & (tied.cumsum(1) <= room))
    return (flat * alive.to(flat.dtype)).view_as(edges)

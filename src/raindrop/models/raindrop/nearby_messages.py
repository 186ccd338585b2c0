"""Messages that cross time: Eq. 1-3 where sensors have clocks of their own. Not in the paper; axes as in model.py.

In the paper, sensors exchange messages at identical timestamps. Here a sensor receives at each of its own readings, and
every other sensor sends what it measured near that time: the linear interpolation of its readings, and decaying
averages of the earlier ones. Each of them is a head with its own attention. An age of 0 is the paper's case.

The attention weight of sender u at timestamp s for receiver v is pair(u, v) * evidence(s, u), where evidence falls with
the age of u's nearest reading, in units of the sensor's typical interval. Sums over senders are in nearby_sums.py;
their cost grows with readings times sensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raindrop.batch.batch import Batch
from raindrop.batch.nearby import Neighbours, decaying_average
from raindrop.models.base import DataSpec
from raindrop.models.layers import uniform
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.messages import MAX_TARGET, predict_reading
from raindrop.models.raindrop.nearby_sums import SenderSums

LINE_DECAYS = (8.0, 1.0)  # initial decays of the heads that see the line: one for simultaneous readings, one for any
AVERAGE_DECAY = 1.0
PAIR_RATE = 5.0  # pairs must differ by a factor of e^5 within a few hundred steps, so their logits move faster
MAX_PAIR = 15.0  # largest size of a pair's logit
AGREEMENT_DIM = 3


@dataclass(frozen=True)
class Received:
    """What the readings of a batch receive."""

    h: Tensor  # (n, d) embeddings of the readings with their messages
    agreement: Tensor  # (b, v, AGREEMENT_DIM) agreement of a sensor's readings with their predictions from messages
    penalty: Tensor  # () squared error of readings predicted from their messages alone
    edges: Tensor | None  # (b, u, v) mean attention of v's readings to u; None unless requested


class NearbyMessages(nn.Module):
    """One layer of messages between readings that are near in time."""

    interval: Tensor
    scales: Tensor

    def __init__(self, config: RaindropConfig, spec: DataSpec):
        super().__init__()
        graph, d, M = config.graph, config.observation_dim, spec.num_sensors
        self.rank, self.sides = graph.rank, graph.sides
        self.heads = len(LINE_DECAYS) + len(graph.scales)
        self.register_buffer("interval", torch.ones(M))
        self.register_buffer("scales", torch.tensor(graph.scales), persistent=False)
        self.pair = nn.Parameter(torch.zeros(self.heads, M, M))  # (k, u, v)
        self.nobody = nn.Parameter(torch.zeros(M, self.heads))  # (v, k) the logit of attention to no sender
        decays = torch.tensor([*LINE_DECAYS, *[AVERAGE_DECAY] * len(graph.scales)])
        self.decay = nn.Parameter(decays.repeat(M, 1))  # (u, k) how fast evidence falls with age
        self.w_send = uniform(M, self.heads * graph.rank, d)  # (u, kj, d)
        self.w_receive = uniform(M, self.heads * graph.rank, d)  # (v, kj, d)
        self.decode = uniform(M, d)
        self.decode_bias = nn.Parameter(torch.zeros(M))

    def forward(self, batch: Batch, h: Tensor, edges: Tensor | None = None, *, with_edges: bool = True) -> Received:
        """Readings with embeddings h (n, d); edges (b, u, v) scale messages, and 0 removes them."""
        sums = self.sums(batch, edges)
        numerator, weight = sums(self.contents(batch, h), self.decay.abs(), self.pair_weight())
        denominator = weight + self.nobody_weight(batch)
        message = self.message(batch, numerator / denominator[..., None])  # Eq. 2: (n, d)
        predicted, value = self.predict(batch, message), batch.value.clamp(-MAX_TARGET, MAX_TARGET)
        error = (predicted - value).square()
        statistics = torch.stack([value * predicted, predicted.square(), error], dim=-1)
        agreement = batch.senders.sum(statistics) / batch.senders.counts.clamp_min(1)[:, None]
        return Received(
            h=torch.sigmoid(torch.logit(h, eps=1e-6) + message),
            agreement=agreement.view(batch.num_samples, batch.num_sensors, AGREEMENT_DIM),
            penalty=error.mean() if len(h) else h.new_zeros(()),
            edges=self.mean_attention(batch, sums, denominator) if with_edges else None,  # Eq. 3
        )

    # ------------------------------------------------------------------ senders

    def sums(self, batch: Batch, edges: Tensor | None) -> SenderSums:
        """Sums over the senders near each reading."""
        near = Neighbours(batch, self.interval)
        return SenderSums(batch, near, lines=len(LINE_DECAYS), before_only=self.sides == "before", edges=edges)

    def contents(self, batch: Batch, h: Tensor) -> Tensor:
        """(n, k, j) h_u . w_u of each reading; for the last heads, its decaying averages up to that reading."""
        content = batch.sensor_blocks.dot(h, self.w_send).view(len(h), self.heads, self.rank)
        if not len(self.scales):
            return content
        lines = len(LINE_DECAYS)
        averages = decaying_average(batch, content[:, lines:], self.interval, self.scales)
        return torch.cat([content[:, :lines], averages], dim=1)

    def pair_weight(self) -> Tensor:
        """(v, u, k) attention by pair; a sensor does not send to itself."""
        weight = (PAIR_RATE * self.pair).clamp(-MAX_PAIR, MAX_PAIR).exp()
        return (weight * (1 - torch.eye(weight.shape[-1], device=weight.device))).permute(2, 1, 0).contiguous()

    # ------------------------------------------------------------------ receivers

    def nobody_weight(self, batch: Batch) -> Tensor:
        """(n, k) a weight added to those of the senders, so that old evidence alone has little influence."""
        return batch.sensors.broadcast(self.nobody.clamp(-MAX_PAIR, MAX_PAIR).exp())

    def message(self, batch: Batch, a: Tensor) -> Tensor:
        """The argument a w_v of Eq. 2: (n, k, j) -> (n, d)."""
        return batch.sensor_blocks.dot(a.flatten(1), self.w_receive.transpose(1, 2))

    def predict(self, batch: Batch, message: Tensor) -> Tensor:
        """(n,) each reading predicted from its messages (n, d)."""
        decode, bias = batch.sensors.broadcast(self.decode), batch.sensors.broadcast(self.decode_bias)
        return predict_reading(message, decode, bias)

    @torch.no_grad()
    def predict_without_each(self, batch: Batch, h: Tensor) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """For some readings at a time: predicted from all messages (n,), without those of each sender (n, u), and
        whether that sender has sent anything (n, u)."""
        sums, content = self.sums(batch, None), self.contents(batch, h)
        decay, pair, nobody = self.decay.abs(), self.pair_weight(), self.nobody_weight(batch)
        for rows, sent, weight in sums.terms(content, decay, pair):
            numerator, denominator = sent.sum(1, keepdim=True), weight.sum(1, keepdim=True) + nobody[rows][:, None]
            a = torch.cat([numerator, numerator - sent], dim=1)  # (n, 1 + u, k, j)
            a = a / torch.cat([denominator, denominator - weight], dim=1)[..., None]
            v = batch.sensor[rows]
            message = torch.einsum("nuc,ncd->nud", a.flatten(2), self.w_receive[v])
            predicted = predict_reading(message, self.decode[v][:, None], self.decode_bias[v][:, None])
            yield rows, predicted[:, 0], predicted[:, 1:], (weight > 0).any(-1)

    # ------------------------------------------------------------------ edges

    @torch.no_grad()
    def mean_attention(self, batch: Batch, sums: SenderSums, denominator: Tensor) -> Tensor:
        """Eq. 3: the attention of v to u, mean over v's readings and heads; (b, u, v), 0 for a sensor without readings.

        Attention to no sender is not included, so the edges to a sensor sum to less than 1.
        """
        M = batch.num_sensors
        total = denominator.new_zeros(batch.num_samples * M, M)  # (b v, u)
        for rows, weight in sums.weights(self.decay.abs(), self.pair_weight()):
            total.index_add_(0, batch.senders.index[rows], (weight / denominator[rows][:, None]).mean(-1))
        total /= batch.senders.counts.clamp_min(1)[:, None]
        return total.view(batch.num_samples, M, M).transpose(1, 2)

"""DGM2-O (Wu et al., "Dynamic Gaussian Mixture based Deep Generative Model For Robust Forecasting on Sparse
Multivariate Time Series", AAAI 2021) with a classifier on top. A sample moves between latent clusters over time.

Pre-imputation   x_k = seen_k * own + (1 - seen_k) * others, at reference points r_k: own is the Gaussian-kernel mean
                 of the sensor's readings, others the same of all sensors, mixed by rho
Inference        s_k = GRU(ODESolve(s_{k-1}), [x_k, seen_k, z_{k-1}]),  q(z_k | x, z_{k-1}) = softmax(W s_k)
Transition       h_k = ODESolve(GRU(h_{k-1}, z_k)),                     p(z_{k+1} | z_1..k) = softmax(W' h_k)
Mixture          psi_k = (1 - gamma_k) q(z_k) + gamma_k p(mu), with basis weights p(mu) and gate gamma_k in (0, 1)
Emission         a reading of sensor v next to r_k ~ N(mu_{z, v}, sigma^2) with z ~ psi_k
Learning         cross entropy - weight * ELBO,  ELBO = E_psi[log p(readings | z)] - KL(q || p), p(z_1) = p(mu)

The O stands for the ODE: between reference points states follow dh/dt = f(h). Reference points are the same for all
samples, so one loop over them serves the whole batch. Two choices are ours. There may be no reading at a reference
point, so seen_k, which is 0 or 1 in the paper, is 1 - exp(-intensity). The classifier gets the last state and the mean
of q over the reference points. In training z_k is a Gumbel-softmax draw, in prediction it is q itself.

Axes: n a reading, b a sample, v a sensor, k a reference point, z a cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from raindrop.batch.batch import Batch
from raindrop.batch.ragged import Segments
from raindrop.models.base import DataSpec, Output
from raindrop.models.baselines.interpolation import ReferenceConfig, ReferenceModel
from raindrop.models.baselines.odernn import GRUJump, flow
from raindrop.models.layers import uniform
from raindrop.ranges import Layers, Positive, Range, Share, Size, Weight


@dataclass(frozen=True, kw_only=True)
class DGM2Config(ReferenceConfig):
    """Sizes between those of the paper, which forecasts, and those that classification needs."""

    clusters: Annotated[int, Range(2, 65_536)] = 20
    """Latent clusters z."""
    hidden: Size = 32
    """Size of the states s and h."""
    ode_width: Size = 32
    """Neurons in the hidden layer of f."""
    steps: Layers = 1
    """Euler steps of the ODE from one reference point to the next."""
    temperature: Positive = 0.5
    """Of the Gumbel-softmax draw of z."""
    sigma: Positive = 1.0
    """Standard deviation of a reading around its cluster's mean; readings have standard deviation 1."""
    elbo: Weight = 0.1
    """Weight of the ELBO beside the cross entropy."""
    dropout: Share = 0.2
    """Dropout in the classifier."""


@dataclass(frozen=True)
class Path:
    """The clusters of each sample at the reference points."""

    q: Tensor  # (b, k, z) posterior
    z: Tensor  # (b, k, z) drawn from q, or q itself
    last: Tensor  # (b, h) the last state


class DGM2(ReferenceModel):
    """Readings -> values at reference points -> path through latent clusters -> class, and the readings' likelihood."""

    def __init__(self, config: DGM2Config, spec: DataSpec):
        super().__init__(config, spec)
        self.inference = ClusterRNN(2 * spec.num_sensors, config)
        self.transition = ClusterRNN(0, config)
        self.mixture = DynamicMixture(config, spec.num_sensors)
        self.head = config.head(config.hidden + config.clusters, spec, config.dropout)

    def forward(self, batch: Batch) -> Output:
        time = batch.steps.broadcast(self.clock(batch.time, like=batch.value))  # (n,)
        smoothed = self.smooth(batch, time, self.points.expand(batch.num_samples, -1))
        seen = -torch.expm1(-smoothed.log_intensity.exp())  # (b, k, v)
        others = self.mix(smoothed.value, smoothed.log_intensity)
        x = seen * smoothed.value + (1 - seen) * others
        path = self.inference.infer(torch.cat([x, seen], dim=-1), draw=self.training)
        embedding = torch.cat([path.last, path.q.mean(1)], dim=-1)
        penalty = x.new_zeros(())
        if self.training and self.config.elbo:
            penalty = -self.config.elbo * self.elbo(batch, time, path)
        return Output(self.head(embedding, batch.statics), embedding, penalty)

    def elbo(self, batch: Batch, time: Tensor, path: Path) -> Tensor:
        """The ELBO: log likelihood per reading, less the KL divergence per reference point."""
        log_p, h = self.transition.predict(path.z)  # p(z_{k+1} | z_1..k), for k = 1 .. K - 1
        basis = torch.log_softmax(self.mixture.basis, dim=-1)
        log_p = torch.cat([basis.expand(len(log_p), 1, -1), log_p], dim=1)  # (b, k, z)
        log_q = path.q.clamp_min(1e-8).log()
        divergence = (path.q * (log_q - log_p)).sum(-1).mean()
        likelihood: Tensor = self.mixture(batch, time / self.config.window, path, h)
        return likelihood - divergence


class ClusterRNN(nn.Module):
    """A GRU whose state follows an ODE between reference points and gives the probability of each cluster."""

    def __init__(self, inputs: int, config: DGM2Config):
        super().__init__()
        self.config = config
        self.f = nn.Sequential(
            nn.Linear(config.hidden, config.ode_width), nn.Tanh(), nn.Linear(config.ode_width, config.hidden)
        )
        self.jump = GRUJump(inputs + config.clusters if inputs else config.clusters, config.hidden)
        self.emit = nn.Linear(config.hidden, config.clusters)

    def flow(self, h: Tensor) -> Tensor:
        """The state at the next reference point; the unit of time is the window."""
        gap = h.new_full((len(h), 1), 1 / (self.config.reference_points - 1))
        return flow(self.f, h, gap, self.config.steps, "euler")

    def infer(self, x: Tensor, *, draw: bool) -> Path:
        """q(z_k | x_1..k, z_{k-1}) at every reference point, x (b, k, inputs)."""
        weight, bias = self.jump.from_readings.weight, self.jump.from_readings.bias
        from_x = F.linear(x, weight[:, : x.shape[-1]], bias)  # for all reference points at once
        h = x.new_zeros(len(x), self.config.hidden)
        q, z = [], [x.new_zeros(len(x), self.config.clusters)]
        for k in range(x.shape[1]):
            h = self.flow(h) if k else h
            h = self.jump(from_x[:, k] + F.linear(z[-1], weight[:, x.shape[-1] :]), h)
            logits = self.emit(h)
            q.append(torch.softmax(logits, dim=-1))
            z.append(F.gumbel_softmax(logits, tau=self.config.temperature) if draw else q[-1])
        return Path(torch.stack(q, dim=1), torch.stack(z[1:], dim=1), h)

    def predict(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """log p(z_{k+1} | z_1..k) for all but the last point, (b, k - 1, z); and the states before each point."""
        from_z = self.jump.from_readings(z)
        h = [z.new_zeros(len(z), self.config.hidden)]
        for k in range(z.shape[1] - 1):
            h.append(self.flow(self.jump(from_z[:, k], h[-1])))
        states = torch.stack(h, dim=1)  # (b, k, h)
        return torch.log_softmax(self.emit(states[:, 1:]), dim=-1), states


class DynamicMixture(nn.Module):
    """psi_k = (1 - gamma_k) q(z_k) + gamma_k p(mu), and the readings' likelihood under it."""

    def __init__(self, config: DGM2Config, num_sensors: int):
        super().__init__()
        self.sigma, self.outlier = config.sigma, config.outlier
        self.mu = uniform(num_sensors, config.clusters, bound=1.0)  # (v, z)
        self.basis = nn.Parameter(torch.zeros(config.clusters))
        self.gate = nn.Linear(config.hidden, 1)

    def weights(self, path: Path, h: Tensor) -> Tensor:
        """psi (b, k, z); h (b, k, h) are the transition's states."""
        gamma = torch.sigmoid(self.gate(h))
        return (1 - gamma) * path.q + gamma * torch.softmax(self.basis, dim=-1)

    def forward(self, batch: Batch, share: Tensor, path: Path, h: Tensor) -> Tensor:
        """Mean over readings of sum_z psi_k(z) log N(value; mu_zv, sigma), with r_k the nearest reference point.

        share (n,): the time of each reading as a share of the window.
        """
        last = path.q.shape[1] - 1
        k = (share * last).round().clamp(0, last).long()
        points = Segments.from_index(batch.sample * (last + 1) + k, path.q.shape[0] * (last + 1))
        psi = points.broadcast(self.weights(path, h).flatten(0, 1))  # (n, z)
        value = batch.value.clamp(-self.outlier, self.outlier)[:, None]
        squared = ((value - batch.sensors.broadcast(self.mu)) / self.sigma).square()
        log_likelihood = -0.5 * (psi * squared).sum(-1) - math.log(self.sigma * math.sqrt(2 * math.pi))
        return log_likelihood.sum() / max(1, len(value))

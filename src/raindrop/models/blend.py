"""Blend: Raindrop and trees as one model, mixed by how many of the usual sensors are missing.

    log p = sum over parts of w(m) log p_part, normalised    (the average of log-odds), or
        p = sum over parts of w(m) p_part                    (the average of probabilities),

over three parts: the network, trees grown on the samples as they are, and trees that were also grown on copies without
some sensors. m is the share of the usual sensors that a sample lacks: absent sensors count by how often samples have
them. Trees are best where all sensors report; without them the network is, because it was trained with sensors
dropped. The weights and the kind of average are those with the lowest loss on validation samples and on copies of them
with sensors hidden; between two shares of missing sensors, weights change linearly. Quantities are averaged directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource, bounded, in_order
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.boosting import TreesConfig
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.trees import CHUNK, Trees
from raindrop.ranges import Share

PARTS = ("raindrop", "trees", "robust_trees")
STEPS = 20  # weights are multiples of 1 / STEPS
HIDDEN = 0.9  # largest share of sensors hidden from copies of validation samples
RANGES = 4  # of the share of missing sensors in these copies, each with weights of its own
MIN_COPIES, MAX_COPIES = 4000, 8  # in all, and of each validation sample


@dataclass(frozen=True, kw_only=True)
class BlendConfig:
    """The settings of the parts; how they are mixed is learned."""

    raindrop: RaindropConfig = field(default_factory=RaindropConfig)
    """Settings of the network, such as raindrop.prune."""
    trees: TreesConfig = field(default_factory=TreesConfig)
    """Settings of the trees, such as trees.rounds."""
    hide_sensors: Share = 0.7
    """Largest share of sensors hidden from the copies of samples that the second trees are also grown on."""


class Blend(Model):
    """A Raindrop network and trees; graph, time weights and embedding are the network's."""

    usual: Tensor  # (u,) share of the training samples with a reading of each sensor
    missing: Tensor  # (knot,) rising shares of missing sensors
    weights: Tensor  # (knot, part) there; the network alone until `finish` has chosen them
    of_scores: Tensor  # () whether scores such as log-odds are averaged, not predictions

    def __init__(self, config: BlendConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.task = spec.task
        self.raindrop = Raindrop(config.raindrop, spec)
        self.trees = Trees(config.trees, spec)
        self.robust_trees = Trees(replace(config.trees, hide_sensors=config.hide_sensors), spec)
        self.register_buffer("usual", torch.ones(spec.num_sensors))
        self.register_buffer("missing", torch.linspace(0, 1, RANGES + 1))
        self.register_buffer("weights", torch.tensor([1.0, 0.0, 0.0]).repeat(RANGES + 1, 1))
        self.register_buffer("of_scores", torch.tensor(True))

    @property
    def network(self) -> Raindrop:
        """The part that the training loop trains."""
        return self.raindrop

    def forward(self, batch: Batch, keep: Tensor | None = None) -> Output:
        """`keep` (b, u, v): as for Raindrop, the sample without some edges; the trees have none."""
        output = cast(Output, self.raindrop(batch, keep))
        if self.training:
            return output  # in training, the network is trained as it would be alone
        return replace(output, scores=self._mixed(batch, output.scores), members=None)

    def score_batch(self, batch: Batch) -> Tensor:
        """The scores without the network's graph."""
        if self.training:
            return self.raindrop.score_batch(batch)
        return self._mixed(batch, self.raindrop.score_batch(batch))

    def _mixed(self, batch: Batch, raindrop: Tensor) -> Tensor:
        return self._mix(self._parts(batch, raindrop), self.missing_share(batch))

    def _mix(self, parts: Tensor, missing: Tensor) -> Tensor:
        """(part, b, output) scores and (b,) shares of missing sensors -> (b, output)."""
        after = torch.searchsorted(self.missing, missing).clamp(1, len(self.missing) - 1)
        low, high = self.missing[after - 1], self.missing[after]
        along = ((missing - low) / (high - low)).clamp(0, 1)[:, None]
        weights = (1 - along) * self.weights[after - 1] + along * self.weights[after]  # (b, part)
        return self.task.mix(parts, weights.T, bool(self.of_scores))

    def _parts(self, batch: Batch, raindrop: Tensor) -> Tensor:
        """(part, b, output) the scores of each part."""
        return torch.stack([raindrop, self.trees(batch).scores, self.robust_trees(batch).scores])

    def missing_share(self, batch: Batch) -> Tensor:
        """(b,) m: the share of the usual sensors without a reading."""
        return 1 - (_present(batch) * self.usual).sum(1) / self.usual.sum().clamp_min(1e-6)

    # ---------------------------------------------------------------- learning

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Fit the trees first, so that a problem with them shows before the network's long training."""
        self.trees.fit(training, validation, seed)
        self.robust_trees.fit(training, validation, seed)
        self.raindrop.prepare(training, validation, seed)
        seen = self.trees.drawn(training, seed)
        chunks = np.split(seen, range(CHUNK, len(seen), CHUNK))
        present = sum((_present(training.batch(positions)).sum(0) for positions in chunks), torch.zeros(1))
        self.usual.copy_(present / max(len(seen), 1))

    def finish(self, validation: BatchSource | None) -> dict[str, Any]:
        """Choose how to mix; the notes contain the choice and the validation metrics of the parts and of the blend."""
        if validation is None:
            self.weights.copy_(torch.tensor([0.5, 0.25, 0.25]).expand_as(self.weights))
            return self._notes()
        self.eval()
        with torch.inference_mode():
            whole = self._score(in_order(validation))
            groups = [whole, *self._score(_with_hidden_sensors(validation)).by_missing_share(RANGES)]
            chosen = {kind: [self._best_weights(group, kind) for group in groups] for kind in (True, False)}
            of_scores = min(chosen, key=lambda kind: sum(loss for loss, _ in chosen[kind]))
            knots = torch.stack([group.missing.mean() for group in groups]).cummax(0).values
            self.missing.copy_(knots + 1e-4 * torch.arange(len(knots)))  # strictly rising
            self.weights.copy_(torch.stack([weights for _, weights in chosen[of_scores]]))
            self.of_scores.fill_(of_scores)
            mixed = self._mix(whole.parts, whole.missing)
            truth = cast(NDArray[Any], validation.truth)
            scores = dict(zip(PARTS, whole.parts, strict=True)) | {"blend": mixed}
            metrics = {name: self.task.evaluate(truth, self.task.predict(part)) for name, part in scores.items()}
        return self._notes() | {"validation": metrics}

    def _score(self, batches: Iterable[Batch]) -> Scored:
        """What each part says about the samples of these batches."""
        rows = [
            (self._parts(b, self.raindrop(b).scores), self.missing_share(b), cast(Tensor, b.target)) for b in batches
        ]
        parts, missing, target = zip(*rows, strict=True)
        return Scored(torch.cat(parts, dim=1), torch.cat(missing), torch.cat(target))

    def _best_weights(self, scored: Scored, of_scores: bool) -> tuple[float, Tensor]:
        """The lowest loss of all mixtures that are tried, and its weights (part,)."""
        tried = [torch.tensor([i, j, STEPS - i - j]) / STEPS for i in range(STEPS + 1) for j in range(STEPS + 1 - i)]
        size = scored.parts.shape[1]
        losses = [
            float(
                self.task.loss(self.task.mix(scored.parts, weights[:, None].expand(-1, size), of_scores), scored.target)
            )
            for weights in tried
        ]
        best = int(np.argmin(losses))
        return losses[best], tried[best]

    def _notes(self) -> dict[str, Any]:
        knots = [
            {"missing": round(float(missing), 3)}
            | {part: round(float(w), 3) for part, w in zip(PARTS, weights, strict=True)}
            for missing, weights in zip(self.missing, self.weights, strict=True)
        ]
        return {
            "share_of_raindrop": round(float(self.weights[0, 0]), 6),
            "average_of": "log-odds" if self.of_scores else "probabilities",
            "weights": knots,
        }


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of the parts (part, n, output), the share of missing sensors (n,) and the targets of samples."""

    parts: Tensor
    missing: Tensor
    target: Tensor

    def by_missing_share(self, number: int) -> list[Scored]:
        """The samples in `number` groups of equal size, from few missing sensors to many."""
        order = torch.argsort(self.missing, stable=True)
        groups = torch.tensor_split(order, number)
        return [Scored(self.parts[:, rows], self.missing[rows], self.target[rows]) for rows in groups]


def _with_hidden_sensors(data: BatchSource) -> Iterator[Batch]:
    """Copies of the samples, each without a random share of its sensors."""
    rng = np.random.default_rng(0)
    for _ in range(max(1, min(MAX_COPIES, MIN_COPIES // max(len(data), 1)))):
        for positions in bounded(data, np.arange(len(data)), CHUNK):
            yield data.batch(positions, rng=rng, drop_sensors=HIDDEN)


def _present(batch: Batch) -> Tensor:
    """(b, u) whether a sample has a reading of a sensor."""
    return batch.senders.counts.view(batch.num_samples, batch.num_sensors) > 0

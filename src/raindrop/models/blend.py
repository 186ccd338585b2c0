"""Blend: Raindrop and several kinds of trees as one model, mixed by how many of the usual sensors are missing.

    log p = sum over parts of w(m) log p_part, normalised    (the average of log-odds), or
        p = sum over parts of w(m) p_part                    (the average of probabilities),

over five parts: the network, trees with the best thresholds, several forests with random thresholds (random_trees.py),
and both kinds of trees once more, also grown on copies of the samples without some sensors. Random thresholds are ahead
where the labels are noisy, the best ones where the label changes sharply at some value. m is the share of the usual
sensors that a sample lacks: absent sensors count by how often samples have them. Trees grown on whole samples lose most
where sensors fail; the network was trained with sensors dropped.

The weights are those with the lowest loss on validation samples, up to the m that nine in ten of them stay below, and
for larger m on copies of them with sensors hidden; in between they change linearly. Quantities are averaged directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.collate import MAX_SAMPLES, BatchSource, bounded, in_order
from raindrop.batch.summaries import SUMMARIES
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.boosting import RandomTreesConfig, Samples, TreesConfig
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.trees import Trees
from raindrop.ranges import Ranged, Share

PARTS = ("raindrop", "trees", "random_trees", "robust_trees", "robust_random_trees")
STEPS = 10  # weights are multiples of 1 / STEPS
HIDDEN = 0.9  # largest share of sensors hidden from copies of validation samples
RANGES = 4  # of the share of missing sensors in these copies, each with weights of its own
USUAL_SHARE = 0.9  # of the validation samples, whose missing sensors are nothing unusual
COPIES, MAX_COPIES = 4000, 8  # about how many in all, and at most of each validation sample


@dataclass(frozen=True, kw_only=True)
class BlendConfig(Ranged):
    """The settings of the parts; how they are mixed is learned."""

    raindrop: RaindropConfig = field(default_factory=RaindropConfig)
    """Settings of the network, such as raindrop.prune."""
    trees: TreesConfig = field(default_factory=TreesConfig)
    """Settings of the trees, such as trees.rounds."""
    random_trees: RandomTreesConfig = field(default_factory=RandomTreesConfig)
    """Settings of the trees with random thresholds, which have the summaries of the others."""
    hide_sensors: Share = 0.7
    """Largest share of sensors hidden from the copies of samples that both robust sets are also grown on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.trees.hide_sensors:
            raise ValueError("trees.hide_sensors is for trees alone; a blend has hide_sensors, for its robust trees.")


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
        random = TreesConfig(**vars(config.random_trees), summaries=config.trees.summaries)
        self.random_trees = Trees(random, spec)
        self.robust_trees, self.robust_random_trees = (
            Trees(replace(alone, hide_sensors=config.hide_sensors), spec) for alone in (config.trees, random)
        )
        self.register_buffer("usual", torch.ones(spec.num_sensors))
        self.register_buffer("missing", torch.linspace(0, 1, RANGES + 1))
        self.register_buffer("weights", torch.eye(len(PARTS))[0].repeat(RANGES + 1, 1))
        self.register_buffer("of_scores", torch.tensor(True))

    network_settings = "raindrop."

    @property
    def network(self) -> Raindrop:
        """The part that the training loop trains."""
        return self.raindrop

    def with_network(self, network: Model) -> Blend:
        self.raindrop = cast(Raindrop, network)
        return self

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
        columns = self.trees.columns(batch)
        trees = (cast(Trees, getattr(self, name)) for name in PARTS[1:])
        return torch.stack([raindrop, *(part.score_columns(columns).float() for part in trees)])

    def missing_share(self, batch: Batch) -> Tensor:
        """(b,) m: the share of the usual sensors without a reading."""
        present = batch.senders.counts.view(batch.num_samples, batch.num_sensors) > 0
        return 1 - (present * self.usual).sum(1) / self.usual.sum().clamp_min(1e-6)

    # ---------------------------------------------------------------- learning

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Fit the trees first, so that a problem with them shows before the network's long training."""
        rows = self._grow(self.trees, self.random_trees, training, validation, seed)
        counts = rows.x[:, : len(SUMMARIES) * len(self.usual) : len(SUMMARIES)]  # the first summary of each sensor
        self.usual.copy_(torch.from_numpy((counts > 0).mean(0)))
        self._grow(self.robust_trees, self.robust_random_trees, training, validation, seed)
        self.raindrop.prepare(training, validation, seed)

    @staticmethod
    def _grow(one: Trees, other: Trees, training: BatchSource, validation: BatchSource | None, seed: int) -> Samples:
        """Fit two kinds of trees on the same columns, which are returned."""
        rows = one.rows_of(training, seed)
        held_out = None if validation is None else one.rows_of(validation, seed)
        for trees in (one, other):
            trees.fit_rows(rows, held_out, seed)
        return rows

    def finish(self, validation: BatchSource | None) -> dict[str, Any]:
        """Choose how to mix; the notes contain the choice and the validation metrics of the parts and of the blend."""
        if validation is None:
            self.weights.copy_(torch.tensor([4.0, 1.0, 1.0, 1.0, 1.0]).expand_as(self.weights) / 8)  # half is trees
            return self._notes()
        self.eval()
        with torch.inference_mode():
            whole, hidden = (
                self._score(batches) for batches in (in_order(validation), _with_hidden_sensors(validation))
            )
            usual = whole.missing.quantile(USUAL_SHARE)
            groups = hidden[hidden.missing > usual].by_missing_share(RANGES)
            chosen = {kind: self._weights([whole, *groups], kind) for kind in (True, False)}
            of_scores = min(chosen, key=lambda kind: chosen[kind][0])
            knots = [usual, *(group.missing.mean() for group in groups)]
            self.missing.copy_(torch.stack(knots).nan_to_num(1.0) + 1e-4 * torch.arange(len(knots)))  # strictly rising
            self.weights.copy_(chosen[of_scores][1])
            self.of_scores.fill_(of_scores)
            mixed = self._mix(whole.parts, whole.missing)
            truth = cast(NDArray[Any], validation.truth)
            scores = dict(zip(PARTS, whole.parts, strict=True)) | {"blend": mixed}
            metrics = {name: self.task.evaluate(truth, self.task.predict(part)) for name, part in scores.items()}
        return self._notes() | {"validation": metrics}

    def _score(self, batches: Iterable[Batch]) -> Scored:
        """What each part says about the samples of these batches."""
        rows = [
            (self._parts(b, self.raindrop.score_batch(b)), self.missing_share(b), cast(Tensor, b.target), b.weight)
            for b in batches
        ]
        parts, missing, target, weight = zip(*rows, strict=True)
        weights = None if weight[0] is None else torch.cat(weight)
        return Scored(torch.cat(parts, dim=1), torch.cat(missing), torch.cat(target), weights)

    def _weights(self, groups: Sequence[Scored], of_scores: bool) -> tuple[float, Tensor]:
        """(group, part) the best weights of each group, and their loss: half of it is that of the first group."""
        best = [self._best_weights(groups[0], of_scores)]
        for group in groups[1:]:
            best.append(self._best_weights(group, of_scores) if group.has_targets else best[-1])
        losses = [loss for loss, _ in best]
        return (losses[0] + float(np.mean(losses[1:]))) / 2, torch.stack([weights for _, weights in best])

    def _best_weights(self, scored: Scored, of_scores: bool) -> tuple[float, Tensor]:
        """The lowest loss of all mixtures that are tried, and its weights (part,)."""
        tried, size = _mixtures(), scored.parts.shape[1]
        mixtures = (self.task.mix(scored.parts, weights[:, None].expand(-1, size), of_scores) for weights in tried)
        losses = [float(self.task.loss(mixed, scored.target, scored.weight)) for mixed in mixtures]
        best = int(np.argmin(losses))
        return losses[best], tried[best]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        rising = bool((self.missing.diff() > 0).all())
        fits = bool((self.weights >= 0).all()) and bool(((self.weights.sum(1) - 1).abs() < 1e-3).all())
        if not (rising and fits and bool(self.usual.isfinite().all())):
            raise ValueError("the weights of its parts do not fit together")

    def _notes(self) -> dict[str, Any]:
        knots = [
            {"missing": round(float(missing), 3)}
            | {part: round(float(w), 3) for part, w in zip(PARTS, weights, strict=True)}
            for missing, weights in zip(self.missing, self.weights, strict=True)
        ]
        return {
            "share_of_raindrop": round(float(self.weights[0, 0]), 6),
            "average_of": self.task.averages[0 if self.of_scores else 1],
            "weights": knots,
        }


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of the parts (part, n, output), the share of missing sensors (n,), targets and weights of samples."""

    parts: Tensor
    missing: Tensor
    target: Tensor
    weight: Tensor | None

    def __getitem__(self, rows: Tensor) -> Scored:
        weight = None if self.weight is None else self.weight[rows]
        return Scored(self.parts[:, rows], self.missing[rows], self.target[rows], weight)

    @property
    def has_targets(self) -> bool:
        """Whether any target is known."""
        return not bool(self.target.isnan().all())

    def by_missing_share(self, number: int) -> list[Scored]:
        """The samples in `number` groups of equal size, from few missing sensors to many."""
        order = torch.argsort(self.missing, stable=True)
        return [self[rows] for rows in torch.tensor_split(order, number)]


@cache
def _mixtures() -> Tensor:
    """(mixture, part) all weights in steps of 1 / STEPS that sum to 1."""
    counts = [count for count in product(range(STEPS + 1), repeat=len(PARTS)) if sum(count) == STEPS]
    return torch.tensor(counts) / STEPS


def _with_hidden_sensors(data: BatchSource) -> Iterator[Batch]:
    """Copies of the samples, each without a random share of its sensors."""
    rng = np.random.default_rng(0)
    for _ in range(min(MAX_COPIES, -(-COPIES // max(len(data), 1)))):
        for positions in bounded(data, np.arange(len(data)), MAX_SAMPLES):
            yield data.batch(positions, rng=rng, drop_sensors=HIDDEN)

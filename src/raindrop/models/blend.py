"""Blend: Raindrop and trees as one model, with the weights that are best on the validation samples.

    log p = w log p_raindrop + (1 - w) log p_trees, normalised    (the average of log-odds), or
        p = w p_raindrop + (1 - w) p_trees                        (the average of probabilities),

where w, the network's share, and the kind of average are those with the lowest loss on validation samples; quantities
are averaged directly. Trees split summaries of each sensor at any value, the network sees each reading at its time.
Each captures something that the other misses, so the blend is better than either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raindrop.batch.batch import Batch
from raindrop.batch.collate import BatchSource, in_order
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.boosting import TreesConfig
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.trees import Trees

SHARES = np.linspace(0, 1, 41)  # of the network, tried on validation samples


@dataclass(frozen=True, kw_only=True)
class BlendConfig:
    """The settings of both parts; how they are mixed is learned."""

    raindrop: RaindropConfig = field(default_factory=RaindropConfig)
    """Settings of the network, such as raindrop.prune."""
    trees: TreesConfig = field(default_factory=TreesConfig)
    """Settings of the trees, such as trees.rounds."""


class Blend(Model):
    """A Raindrop network and trees; graph, time weights and embedding are the network's."""

    share: Tensor  # () of the network; 1 until `finish` has chosen it
    of_scores: Tensor  # () whether scores such as log-odds are averaged, not predictions

    def __init__(self, config: BlendConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.task = spec.task
        self.raindrop = Raindrop(config.raindrop, spec)
        self.trees = Trees(config.trees, spec)
        self.register_buffer("share", torch.tensor(1.0))
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
        return replace(output, scores=self._mixed(output.scores, self.trees(batch).scores), members=None)

    def score_batch(self, batch: Batch) -> Tensor:
        """The scores without the network's graph."""
        if self.training:
            return self.raindrop.score_batch(batch)
        return self._mixed(self.raindrop.score_batch(batch), self.trees(batch).scores)

    def _mixed(self, raindrop: Tensor, trees: Tensor) -> Tensor:
        return self.task.mix(raindrop, trees, float(self.share), bool(self.of_scores))

    def prepare(self, training: BatchSource, validation: BatchSource | None, seed: int) -> None:
        """Fit the trees first, so that a problem with them shows before the network's long training."""
        self.trees.fit(training, validation, seed)
        self.raindrop.prepare(training, validation, seed)

    def finish(self, validation: BatchSource | None) -> dict[str, Any]:
        """Choose how to mix; the notes contain the choice and the validation metrics of both parts and of the blend."""
        if validation is None:
            self._choose(0.5, True)
            return self._notes()
        self.eval()
        with torch.inference_mode():
            pairs = [(self.raindrop(batch).scores, self.trees(batch).scores) for batch in in_order(validation)]
            raindrop, trees = (torch.cat(part) for part in zip(*pairs, strict=True))
            target = torch.from_numpy(validation.targets)
            choices = [(share, of_scores) for of_scores in (True, False) for share in SHARES.tolist()]
            losses = [float(self.task.loss(self.task.mix(raindrop, trees, *choice), target)) for choice in choices]
            share, of_scores = choices[int(np.argmin(losses))]
            mixed = self.task.mix(raindrop, trees, share, of_scores)
            parts = {"raindrop": raindrop, "trees": trees, "blend": mixed}
            truth = cast(NDArray[Any], validation.truth)
            metrics = {name: self.task.evaluate(truth, self.task.predict(scores)) for name, scores in parts.items()}
        self._choose(share, of_scores)
        return self._notes() | {"validation": metrics}

    def _choose(self, share: float, of_scores: bool) -> None:
        self.share.fill_(share)
        self.of_scores.fill_(of_scores)

    def _notes(self) -> dict[str, Any]:
        average = "log-odds" if self.of_scores else "probabilities"
        return {"share_of_raindrop": round(float(self.share), 6), "average_of": average}

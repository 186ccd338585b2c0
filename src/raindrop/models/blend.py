"""Blend: Raindrop and trees as one model, mixed by what the validation samples say.

    log p = w log p_raindrop + (1 - w) log p_trees, normalised    (the average of log-odds), or
        p = w p_raindrop + (1 - w) p_trees                        (the average of probabilities),

where w, the network's share, and the kind of average are those with the lowest log loss on validation samples. Trees
see summaries of each sensor and cut them where they like; the network sees each reading at its time. Each misses what
the other has, so together they are better than either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from raindrop.batch.batch import Batch
from raindrop.batch.collate import Collator, in_order
from raindrop.models.base import DataSpec, Model, Output
from raindrop.models.layers import softmax
from raindrop.models.raindrop.config import RaindropConfig
from raindrop.models.raindrop.model import Raindrop
from raindrop.models.trees import Trees, TreesConfig
from raindrop.tasks.metrics import evaluate

SHARES = np.linspace(0, 1, 41)  # of the network, tried on validation samples


@dataclass(frozen=True, kw_only=True)
class BlendConfig:
    """The settings of both parts; nothing is set about their mixing, which is learned."""

    raindrop: RaindropConfig = field(default_factory=RaindropConfig)
    """Settings of the network, such as raindrop.prune."""
    trees: TreesConfig = field(default_factory=TreesConfig)
    """Settings of the trees, such as trees.rounds."""


class Blend(Model):
    """A Raindrop network and trees; graph, time weights and embedding are the network's."""

    share: Tensor  # () of the network; all until `finish` has chosen
    of_odds: Tensor  # () whether log-odds are averaged, not probabilities

    def __init__(self, config: BlendConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.raindrop = Raindrop(config.raindrop, spec)
        self.trees = Trees(config.trees, spec)
        self.register_buffer("share", torch.tensor(1.0))
        self.register_buffer("of_odds", torch.tensor(True))

    @property
    def network(self) -> Raindrop:
        """The part that the training loop trains."""
        return self.raindrop

    def forward(self, batch: Batch, keep: Tensor | None = None) -> Output:
        """`keep` (b, u, v): as for Raindrop, the sample without some edges; the trees have none."""
        output = cast(Output, self.raindrop(batch, keep))
        if self.training:
            return output  # it is the network that learns here, as it would alone
        logits = mix(output.logits, self.trees(batch).logits, float(self.share), bool(self.of_odds))
        return replace(output, logits=logits, members=None)

    def prepare(self, training: Collator, validation: Collator | None, seed: int) -> None:
        """Grow the trees first: what may be wrong with them shows before the network's long training."""
        self.trees.fit(training, validation, seed)
        self.raindrop.prepare(training, validation, seed)

    def finish(self, validation: Collator | None) -> dict[str, Any]:
        """Choose the mixing; tell it, and how good either part and both together are on validation samples."""
        if validation is None:
            self._take(0.5, True)
            return self._told()
        self.eval()
        with torch.inference_mode():
            pairs = [(self.raindrop(batch).logits, self.trees(batch).logits) for batch in in_order(validation)]
            raindrop, trees = (torch.cat(part) for part in zip(*pairs, strict=True))
            label = cast(NDArray[np.int64], validation.labels)
            tried = [(share, of_odds) for of_odds in (True, False) for share in SHARES.tolist()]
            mixed = (mix(raindrop, trees, *choice) for choice in tried)
            loss = [float(cross_entropy(logits, torch.from_numpy(label))) for logits in mixed]
            share, of_odds = tried[int(np.argmin(loss))]
            parts = {"raindrop": raindrop, "trees": trees, "blend": mix(raindrop, trees, share, of_odds)}
            figures = {name: evaluate(label, softmax(logits)) for name, logits in parts.items()}
        self._take(share, of_odds)
        return self._told() | {"validation": figures}

    def _take(self, share: float, of_odds: bool) -> None:
        self.share.fill_(share)
        self.of_odds.fill_(of_odds)

    def _told(self) -> dict[str, Any]:
        average = "log-odds" if self.of_odds else "probabilities"
        return {"share_of_raindrop": round(float(self.share), 6), "average_of": average}


def mix(raindrop: Tensor, trees: Tensor, share: float, of_odds: bool) -> Tensor:
    """Logits of the average, from the logits of both."""
    raindrop, trees = raindrop.log_softmax(-1), trees.log_softmax(-1)
    if of_odds:
        return share * raindrop + (1 - share) * trees
    weight = torch.tensor([share, 1 - share]).log()
    return torch.logaddexp(raindrop + weight[0], trees + weight[1])

"""The settings that a search varies for each model, and their ranges.

Names are those of settings: 'model.hidden', 'train.learning_rate'. Every range contains the value of the preset
"tuned", so that a search can start from it. A setting whose current value lies outside its range is not varied: a part
that a preset switches off stays off. The length of training is never varied; it is the budget of a trial.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Between:
    """The numbers from `low` to `high`, inclusive; whole numbers if both are."""

    low: float
    high: float
    log: bool = False
    """Whether the range is sampled on a logarithmic scale."""

    @property
    def is_whole(self) -> bool:
        """Whether only whole numbers are tried."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.is_whole else (int, float)):
            return False
        return self.low <= value <= self.high


class OneOf(tuple[Any, ...]):
    """These values."""

    def __new__(cls, *values: Any) -> OneOf:
        return super().__new__(cls, values)


Space = Mapping[str, Between | OneOf]
"""The values to try, by the name of the setting."""


TRAINING: Space = {
    "train.learning_rate": Between(1e-4, 2e-2, log=True),
    "train.weight_decay": OneOf(0.0, 0.001, 0.01, 0.03, 0.1, 0.3),
    "train.batch_size": OneOf(32, 64, 128, 256),
    "train.drop_readings": Between(0.0, 0.6),
    "train.drop_sensors": Between(0.0, 0.7),
}
"""For every network, including those registered elsewhere."""

RAINDROP: Space = {
    "model.observation_dim": OneOf(4, 8, 16),
    "model.sensor_dim": OneOf(8, 16, 20, 32),
    "model.hidden": OneOf(32, 64, 128, 256),
    "model.graph.rank": Between(1, 4),
    "model.graph.reconstruction": Between(0.1, 10.0, log=True),
    "model.slots.dim": OneOf(8, 16, 32),
    "model.slots.dropout": Between(0.05, 0.5),
    "model.head.dropout": Between(0.0, 0.5),
}
TREES: Space = {
    "model.summaries": OneOf("nine", "more"),
    "model.learning_rate": Between(0.01, 0.2, log=True),
    "model.leaves": Between(4, 64, log=True),
    "model.min_samples": Between(2, 100, log=True),
    "model.l2": Between(0.0, 20.0),
    "model.columns": Between(0.1, 1.0),
}
TRANSFORMER: Space = {
    **TRAINING,
    "model.dim": OneOf(32, 64, 128),
    "model.layers": Between(1, 4),
    "model.heads": OneOf(1, 2, 4, 8),
    "model.feedforward": OneOf(64, 128, 256),
    "model.dropout": Between(0.0, 0.6),
    "model.time_base": OneOf(10.0, 100.0, 1000.0, 10000.0),
}


def _of_part(part: str, space: Space) -> dict[str, Between | OneOf]:
    """The settings of a model as settings of one part of a blend."""
    return {name.replace("model.", f"model.{part}.", 1): values for name, values in space.items()}


SEARCH_SPACES: dict[str, Space] = {
    "raindrop": {**TRAINING, **RAINDROP},
    "transformer": TRANSFORMER,
    "trans_mean": TRANSFORMER,
    "grud": {
        **TRAINING,
        "model.state_dim": OneOf(32, 49, 64, 128),
        "model.hidden": OneOf(32, 64, 128, 256),
        "model.dropout": Between(0.0, 0.6),
    },
    "mtand": {
        **TRAINING,
        "model.references": OneOf(32, 64, 128),
        "model.time_dim": OneOf(32, 64, 128),
        "model.heads": OneOf(1, 2, 4),
        "model.frequency": Between(0.3, 50.0, log=True),
        "model.state_dim": OneOf(32, 64, 128),
        "model.dropout": Between(0.0, 0.6),
    },
    "trees": TREES,
    "blend": {**TRAINING, **_of_part("raindrop", RAINDROP), **_of_part("trees", TREES)},
    "seft": {
        **TRAINING,
        "model.layers": Between(1, 4),
        "model.width": OneOf(32, 64, 128),
        "model.latent": OneOf(16, 32, 64),
        "model.heads": OneOf(2, 4, 8),
        "model.dropout": Between(0.0, 0.5),
        "model.attention_dropout": Between(0.0, 0.6),
        "model.head_width": OneOf(64, 128, 256, 512),
    },
    "ipnet": {
        **TRAINING,
        "model.reference_points": OneOf(24, 48, 96, 192),
        "model.hidden": OneOf(32, 64, 100, 128),
        "model.kappa": Between(2.0, 50.0, log=True),
        "model.reconstruction": Between(0.1, 10.0, log=True),
        "model.dropout": Between(0.0, 0.5),
    },
    "dgm2": {
        **TRAINING,
        "model.clusters": OneOf(10, 20, 40),
        "model.hidden": OneOf(16, 32, 64),
        "model.elbo": Between(0.01, 1.0, log=True),
        "model.dropout": Between(0.0, 0.5),
    },
    "mtgnn": {
        **TRAINING,
        "model.width": OneOf(4, 8, 16),
        "model.layers": Between(1, 5),
        "model.neighbours": OneOf(5, 10, 20),
        "model.depth": Between(1, 3),
        "model.dropout": Between(0.0, 0.5),
    },
    "odernn": {
        **TRAINING,
        "model.hidden": OneOf(20, 40, 80),
        "model.layers": Between(1, 3),
        "model.width": OneOf(25, 50, 100),
        "model.dropout": Between(0.0, 0.5),
    },
    "evonet": {
        **TRAINING,
        "model.segments": OneOf(12, 15, 24, 48),
        "model.states": OneOf(10, 20, 30, 60),
        "model.node_dim": OneOf(16, 32, 64, 96),
        "model.graph_dim": OneOf(32, 64, 128, 256),
        "model.missing": OneOf("mean", "ignore"),
        "model.dropout": Between(0.0, 0.5),
    },
}
"""By the name of the model in `MODELS`."""

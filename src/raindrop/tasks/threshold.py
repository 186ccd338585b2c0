"""Decision thresholds: the probability from which a sample of two classes counts as positive.

The most probable class is the best decision if both mistakes have the same cost. If a missed positive costs more, or a
given share of the positives must be found, the threshold is chosen on validation samples and kept with the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raindrop.errors import ConfigError
from raindrop.tasks.metrics import wilson


@dataclass(frozen=True)
class Sensitivity:
    """The highest threshold that finds at least this share of the positive validation samples."""

    at_least: float

    def __post_init__(self) -> None:
        if not 0 < self.at_least <= 1:
            raise ConfigError(f"A sensitivity is a share above 0 and up to 1, such as 0.9, not {self.at_least}.")

    def __str__(self) -> str:
        return f"a sensitivity of {self.at_least:g}"

    def choose(self, positive: NDArray[np.bool_], score: NDArray[np.float64]) -> float:
        """Midway between the lowest score that must be flagged and the next lower one."""
        found = np.sort(score[positive])[::-1]
        last = found[int(np.ceil(self.at_least * len(found) - 1e-9)) - 1]
        below = score[score < last]
        return float((last + below.max()) / 2) if len(below) else float(last)


@dataclass(frozen=True)
class CostRatio:
    """The threshold with the lowest cost on the validation samples.

    A missed positive costs `ratio` times as much as a false alarm. Among equally good thresholds, the one nearest to 1
    / (1 + ratio) is chosen, which is optimal for calibrated probabilities.
    """

    ratio: float

    def __post_init__(self) -> None:
        if not 0 < self.ratio < float("inf"):
            raise ConfigError(f"A cost ratio is a number above 0, such as 10, not {self.ratio}.")

    def __str__(self) -> str:
        return f"a missed positive that costs {self.ratio:g} times as much as a false alarm"

    def choose(self, positive: NDArray[np.bool_], score: NDArray[np.float64]) -> float:
        values = np.unique(score)
        candidates = np.concatenate([[values[0] / 2], (values[1:] + values[:-1]) / 2, [(values[-1] + 1) / 2]])
        missed = np.searchsorted(np.sort(score[positive]), candidates, side="left")
        alarms = (~positive).sum() - np.searchsorted(np.sort(score[~positive]), candidates, side="left")
        cost = self.ratio * missed + alarms
        best = candidates[cost <= cost.min() * (1 + 1e-12)]
        return float(best[np.abs(best - 1 / (1 + self.ratio)).argmin()])


Rule = Sensitivity | CostRatio | float
"""How a threshold is chosen; a number is the threshold itself."""
_RULES: dict[str, type[Sensitivity] | type[CostRatio]] = {"sensitivity": Sensitivity, "cost_ratio": CostRatio}


def check_rule(rule: Any) -> None:
    """Raise unless this is a rule, or None."""
    number = isinstance(rule, (int, float, np.number)) and not isinstance(rule, bool)
    if number and not 0 <= rule <= 1:
        raise ConfigError(f"threshold={rule}: a threshold is a probability between 0 and 1.")
    if rule is not None and not number and not isinstance(rule, Sensitivity | CostRatio):
        raise ConfigError(
            f"threshold={rule!r}: give rd.Sensitivity(0.9), rd.CostRatio(10), a probability, or None for the most "
            "probable class."
        )


@dataclass(frozen=True)
class Threshold:
    """A threshold, the rule that chose it, and its results on the samples it was chosen on."""

    value: float
    """A sample counts as positive from this probability on."""
    rule: Rule
    positives: int = 0
    negatives: int = 0
    found: int = 0
    """Positives at or above the threshold."""
    alarms: int = 0
    """Negatives at or above the threshold."""

    @classmethod
    def fit(cls, rule: Rule, truth: NDArray[np.int64], probability: NDArray[Any]) -> Self:
        """Choose on samples with class codes and probabilities (samples, 2)."""
        score, positive = probability[:, 1].astype(np.float64), truth == 1
        if isinstance(rule, Sensitivity | CostRatio):
            if positive.all() or not positive.any():
                raise ConfigError("Choosing a threshold needs samples of both classes; these have only one.")
            value = rule.choose(positive, score)
        else:
            value = rule = float(rule)
        flagged = score >= value
        counts = positive.sum(), (~positive).sum(), (flagged & positive).sum(), (flagged & ~positive).sum()
        return cls(value, rule, *(int(count) for count in counts))

    def flags(self, probability: NDArray[Any]) -> NDArray[np.bool_]:
        """(samples,) which count as positive, given probabilities (samples, 2)."""
        flagged: NDArray[np.bool_] = probability[:, 1].astype(np.float64) >= self.value
        return flagged

    def describe(self, positive: Any) -> str:
        """The decision rule, and how it was chosen, as text."""
        text = f"'{positive}' from a probability of {self.value:.4g} on"
        if not isinstance(self.rule, Sensitivity | CostRatio):
            return text
        low, high = wilson(np.array(self.found / self.positives), np.array(self.positives))
        return (
            f"{text}, chosen on {self.positives + self.negatives:,} validation samples for {self.rule}; there it finds "
            f"{self.found:,} of {self.positives:,} positives ({self.found / self.positives:.1%}, 95 % interval "
            f"{low:.1%} to {high:.1%}) with {self.alarms:,} false alarms among {self.negatives:,} negatives"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON values from which `from_dict` restores the threshold."""
        rule = self.rule
        named = {name: vars(rule) for name, kind in _RULES.items() if isinstance(rule, kind)}
        return {**vars(self), "rule": named or rule}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The threshold that `to_dict` described."""
        rule = content["rule"]
        if isinstance(rule, Mapping):
            ((name, settings),) = rule.items()
            rule = _RULES[name](**settings)
        return cls(**{**content, "rule": rule})

"""The result of a search: its trials, the best settings as TOML, and which settings mattered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from raindrop.errors import RaindropError

if TYPE_CHECKING:  # an extra
    from optuna import Study
    from optuna.trial import FrozenTrial

State = Literal["complete", "pruned", "failed"]
MIN_IMPORTANCE = 4  # complete trials; fewer are not enough to rank settings


@dataclass(frozen=True)
class TrialRecord:
    """One trial: its settings, and the model's metric on the validation samples."""

    number: int
    """In order of their start, from 0."""
    state: State
    value: float | None
    """The validation metric; for a pruned trial that of its last epoch, None for a failed one."""
    settings: dict[str, Any]
    """The settings that the search varies."""
    is_start: bool
    """Whether these are the settings that the search started from."""
    epochs: int
    """The epochs it was trained for; 0 for a model without epochs."""
    seconds: float
    failure: str = ""


@dataclass(eq=False)
class SearchResult:
    """The trials of a search, and the best of them."""

    model: str
    preset: str
    metric: str
    """Title of the validation metric."""
    lower_is_better: bool
    judged_on: str
    """A description of the validation samples."""
    given: dict[str, Any]
    """Settings that were fixed by the user, the same in every trial."""
    trials: list[TrialRecord]
    importance: dict[str, float] = field(default_factory=dict)
    """Share of the variance of the metric that each setting explains (fANOVA), largest first; empty with few trials."""

    @property
    def best(self) -> TrialRecord:
        """The best complete trial."""
        complete = [trial for trial in self.trials if trial.state == "complete" and trial.value is not None]
        if not complete:
            raise RaindropError("No trial of the search is finished yet, so there are no best settings.")
        return min(complete, key=lambda trial: self._order(trial.value))

    @property
    def start(self) -> TrialRecord | None:
        """The trial of the initial settings; None if it is not finished."""
        return next((trial for trial in self.trials if trial.is_start and trial.value is not None), None)

    @property
    def gain(self) -> float | None:
        """How much better the best is than the start, positive if it is; None without a start."""
        if self.start is None or self.best.value is None or self.start.value is None:
            return None
        difference = self.best.value - self.start.value
        return -difference if self.lower_is_better else difference

    def compared_with_start(self) -> str:
        """A sentence on whether the best is better than the initial settings."""
        gain, start = self.gain, self.start
        if gain is None or start is None:
            return "The settings that the search started from have no result yet."
        if gain <= 0:
            return f"No trial is better than the settings that the search started from ({start.value:.4f})."
        return (
            f"Better by {gain:.4f} than the settings that the search started from ({start.value:.4f}); chosen among "
            f"{len(self.trials)} trials on the same samples, so this is optimistic."
        )

    @property
    def best_config(self) -> dict[str, Any]:
        """The best settings, for `config=` of an estimator with the same model and preset."""
        return self.given | self.best.settings

    def frame(self) -> pl.DataFrame:
        """One row per trial, in order: number, state, the metric, epochs, seconds, and every setting."""
        rows = [
            {
                "trial": trial.number,
                "state": trial.state,
                self.metric: trial.value,
                "epochs": trial.epochs,
                "seconds": round(trial.seconds, 1),
                **trial.settings,
            }
            for trial in self.trials
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def toml(self) -> str:
        """The best settings in the format of `raindrop train --config`."""
        best, start = self.best, self.start
        compared = "" if start is None else f"; {start.value:.6g} with the settings that the search started from"
        about = (
            f"# Trial {best.number} of {len(self.trials)}: {self.metric} {best.value:.6g} on {self.judged_on}"
            f"{compared}.\n"
            f"# raindrop train DATA --model {self.model} --preset {self.preset} --config THIS_FILE --out RUN\n"
        )
        return about + to_toml(self.best_config)

    def _repr_html_(self) -> str:
        return self.frame()._repr_html_()

    def _order(self, value: float | None) -> float:
        return float("inf") if value is None else value if self.lower_is_better else -value


def records(trials: Sequence[FrozenTrial]) -> list[TrialRecord]:
    """The finished ones of these trials; running ones count in their numbering, waiting ones do not."""
    begun = [trial for trial in trials if trial.state.name != "WAITING"]
    return [_record(at, trial) for at, trial in enumerate(begun) if trial.state.is_finished()]


def record_of(trials: Sequence[FrozenTrial], number: int) -> TrialRecord:
    """The record of the trial with this number in Optuna."""
    begun = [trial for trial in trials if trial.state.name != "WAITING"]
    at = next(at for at, trial in enumerate(begun) if trial.number == number)
    return _record(at, begun[at])


def _record(number: int, trial: FrozenTrial) -> TrialRecord:
    states: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned"}
    return TrialRecord(
        number,
        states.get(trial.state.name, "failed"),
        trial.value,
        dict(trial.params),
        bool(trial.user_attrs.get("is_start")),
        len(trial.intermediate_values),
        0.0 if trial.duration is None else trial.duration.total_seconds(),
        str(trial.user_attrs.get("failure", "")),
    )


def importances(study: Study) -> dict[str, float]:
    """Share of the variance that each setting explains, over the complete trials; empty if there are too few."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    values = [trial.value for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    if len(values) < MIN_IMPORTANCE or len(set(values)) < 2:
        return {}
    found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0))
    return {name: float(share) for name, share in found.items()}


def to_toml(settings: Mapping[str, Any]) -> str:
    """Settings by their full names as TOML with the sections [model] and [train]; None values are left out."""
    lines = []
    for section in ("model", "train"):
        own = {name.partition(".")[2]: value for name, value in settings.items() if name.startswith(f"{section}.")}
        own = {name: value for name, value in own.items() if value is not None}
        if own:
            lines += [f"\n[{section}]", *(f"{_key(name)} = {_value(value)}" for name, value in own.items())]
    return "\n".join(lines).strip() + "\n"


def _key(name: str) -> str:
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part) for part in name.split("."))


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)

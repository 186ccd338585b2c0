"""Run the trials of a search: train with the trial's settings, report each epoch, stop trials worse than most."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raindrop.errors import RaindropError, RaindropWarning
from raindrop.estimators.loading import estimator_type
from raindrop.estimators.samples import SampleEstimator
from raindrop.files import write_text
from raindrop.models.base import DirectModel
from raindrop.search.journal import Journal, start_failure
from raindrop.search.result import SearchResult, TrialRecord, record_of, records
from raindrop.search.space import distributions, given_settings, search_space
from raindrop.table.event_table import EventTable
from raindrop.training.callbacks import Callback
from raindrop.training.network import SOFT_TARGETS

if TYPE_CHECKING:  # an extra
    from optuna.trial import Trial

BEST = "best.toml"


@dataclass(frozen=True)
class Search:
    """The model, the data and the limits of a search: everything a process needs to know."""

    folder: Path
    task: str
    options: dict[str, Any]
    """The arguments of the estimator."""
    about: dict[str, Any]
    """The space as stored in the journal."""
    start: dict[str, Any]
    """The initial values of the varied settings: the first trial."""
    metric: str
    title: str
    """Display name of the metric."""
    lower_is_better: bool
    judged_on: str
    """A description of the validation samples."""
    trials: int
    end: float | None
    """When to stop, in seconds since the epoch; None if only the number of trials is limited."""

    def estimator(self, settings: Mapping[str, Any] | None = None) -> SampleEstimator:
        """An unfitted estimator with these settings in addition to its own."""
        made = estimator_type(self.task)(**self.options)
        return made.set_params(**{name.replace(".", "__"): value for name, value in (settings or {}).items()})

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.end is not None and time.time() >= self.end


class OutOfTime(Exception):
    """The time of a search is up during a trial."""


class Pruning(Callback):
    """Reports every epoch to the study, and stops a trial that is worse than half of the earlier ones at this epoch."""

    def __init__(self, trial: Trial, search: Search):
        self.trial, self.search = trial, search

    def on_epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        from optuna import TrialPruned

        value = metrics[self.search.metric]
        if math.isfinite(value):
            self.trial.report(value, epoch)
        if self.trial.should_prune():
            raise TrialPruned
        if self.search.is_over():
            raise OutOfTime


def work(
    search: Search,
    training: EventTable,
    validation: EventTable,
    show: Callable[[TrialRecord], None] = lambda record: None,
) -> None:
    """Run trials until all are finished, or the time is up; other processes may do the same.

    show: called after each trial of this process.
    """
    own = search.estimator()
    varied = distributions(search_space(own))
    with open_journal(search) as journal:
        while not search.is_over():
            trial = journal.next_trial(varied, search.trials, int(own.seed))
            if trial is None:
                break
            try:
                run_trial(search, journal, trial, training, validation)
            except BaseException as error:
                journal.give_back(trial)
                if isinstance(error, OutOfTime):
                    break
                raise
            write_best(search, journal)
            show(record_of(journal.trials(), trial.number))
        failure = start_failure(journal.trials())
    if failure is not None:
        raise RaindropError(failure)


@contextmanager
def open_journal(search: Search) -> Iterator[Journal]:
    """The journal of a search, opened as an additional process."""
    with Journal(search.folder) as journal:
        journal.open(search.about, lower_is_better=search.lower_is_better, start=search.start)
        yield journal


def result_so_far(search: Search, journal: Journal) -> SearchResult:
    """The finished trials of a search."""
    estimator = search.estimator()
    return SearchResult(
        estimator.model,
        estimator.preset,
        search.title,
        search.lower_is_better,
        search.judged_on,
        given_settings(estimator),
        records(journal.trials()),
    )


def write_best(search: Search, journal: Journal) -> SearchResult:
    """Write the best settings so far next to the journal, if there are any."""
    result = result_so_far(search, journal)
    if any(trial.state == "complete" for trial in result.trials):
        write_text(search.folder / BEST, result.toml())
    return result


def run_trial(search: Search, journal: Journal, trial: Trial, training: EventTable, validation: EventTable) -> None:
    """Train with the settings of a trial and report the model's validation metric to the study."""
    from optuna import TrialPruned
    from optuna.trial import TrialState

    estimator = search.estimator(trial.params)
    estimator.soft_targets_file = search.folder / SOFT_TARGETS
    direct = issubclass(estimator.registry[estimator.model].model, DirectModel)
    first = trial.user_attrs.get("is_start")
    with nullcontext() if first else warnings.catch_warnings():
        if not first:  # warnings about the data were shown in the first trial
            warnings.simplefilter("ignore", RaindropWarning)
        try:
            estimator.fit(training, validation=validation, callbacks=[] if direct else [Pruning(trial, search)])
            value = estimator.evaluate(validation)[search.metric]
        except TrialPruned:
            journal.study.tell(trial, state=TrialState.PRUNED)
            return
        except RaindropError as error:
            return journal.fail(trial, str(error))
    if math.isfinite(value):
        journal.study.tell(trial, value)
    else:
        journal.fail(trial, f"the validation samples allow no {search.metric} of its predictions")

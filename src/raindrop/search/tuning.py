"""`tune`: search for better settings of an estimator on validation samples."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

from raindrop.errors import ConfigError, DataError, RaindropError
from raindrop.estimators.inputs import require_table
from raindrop.estimators.samples import SampleEstimator
from raindrop.files import HAS_LOCKS
from raindrop.hardware import resolve_device
from raindrop.search.journal import refuse_other_folder, require_optuna, start_failure
from raindrop.search.processes import work_in_processes
from raindrop.search.result import SearchResult, TrialRecord, importances
from raindrop.search.space import describe_space, search_space, start_values
from raindrop.search.trials import Search, open_journal, work, write_best
from raindrop.table.event_table import EventTable
from raindrop.version import VERSION

NOT_COMPARED = ("model", "preset", "config", "seed", "device", "threads", "progress")
"""Arguments of an estimator that are compared separately, or that do not change what is searched."""


def tune(
    estimator: SampleEstimator,
    X: EventTable,
    *,
    out: str | os.PathLike[str],
    validation: EventTable | None = None,
    trials: int = 50,
    minutes: float | None = None,
    processes: int = 1,
    show: Callable[[TrialRecord], None] = lambda record: None,
) -> SearchResult:
    """Search for better settings of an estimator with Optuna; the best are `result.best_config` and OUT/best.toml.

    The first trial has the estimator's own settings; those set explicitly are the same in every trial. The settings
    that are varied, and their ranges, are declared for each model in `models/search_spaces.py`. A trial trains on X and
    is scored by the validation metric (train.metric), epoch by epoch: one that is worse than half of the others at the
    same epoch is stopped. Messages between sensors are not optional, since trials vary their settings, unless
    model.graph.optional is set explicitly. Without `validation`, a share of X (train.holdout) is held out once for all
    trials, with groups kept together.

    Repeating the call continues the search in the folder `out` until it has this many `trials`; `minutes` limits this
    call. Several `processes`, or several such calls, share the trials; the trial of a killed process is run again by
    another. show: called with each finished trial.
    """
    require_optuna()
    folder = Path(out)
    if not isinstance(estimator, SampleEstimator):
        raise ConfigError("tune takes a Classifier, MultiLabelClassifier or Regressor, not fitted.")
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise ConfigError(f"trials={trials!r}: a search has at least 1 trial.")
    if minutes is not None and not 0 < minutes < math.inf:
        raise ConfigError(f"minutes={minutes}: the time of a search must be a positive number of minutes.")
    if isinstance(processes, bool) or not isinstance(processes, int) or processes < 1:
        raise ConfigError(f"processes={processes!r}: a search has at least 1 process.")
    if processes > 1 and not HAS_LOCKS:
        raise ConfigError(f"processes={processes}: more than 1 needs a system with file locks.")
    end = None if minutes is None else time.time() + 60 * minutes
    training, held_out = _split(estimator, X, validation)
    search = _plan(estimator, training, held_out, folder, trials, end)
    refuse_other_folder(folder)
    if processes == 1:
        work(search, training, held_out, show)
    else:
        work_in_processes(search, training, held_out, processes, show)
    return read_result(search)


def read_result(search: Search) -> SearchResult:
    """The content of a search's journal; the best settings are written next to it."""
    with open_journal(search) as journal:
        failure = start_failure(journal.trials())
        if failure is not None:
            raise RaindropError(failure)
        result = write_best(search, journal)
        result.importance = importances(journal.study)
    return result


def _split(estimator: SampleEstimator, X: EventTable, validation: EventTable | None) -> tuple[EventTable, EventTable]:
    """Samples to train on, and to validate on."""
    table = require_table(X, "tune")
    if not len(table):
        raise DataError("The training table is empty. There must be at least one sample.")
    _, _, config = estimator._configs()
    training, held_out = estimator._hold_out(table, validation, config.holdout, own_labels=True)
    if held_out is None:
        raise DataError(
            "A search needs validation samples, and none can be held out of the training samples. Give a validation "
            "table, more samples, or set train.holdout above 0."
        )
    return training, held_out


def _plan(
    estimator: SampleEstimator,
    training: EventTable,
    validation: EventTable,
    folder: Path,
    trials: int,
    end: float | None,
) -> Search:
    """The search, after all checks that are possible before the first trial."""
    _, _, config = estimator._configs()
    resolve_device(estimator.device)
    task = estimator.learn_task(training)
    metric = task.require_metric(config.metric)
    task.require_judgeable(task.encode(estimator._labelled(validation)), metric)
    options = estimator.get_params(deep=False) | {"progress": False}
    # Trials vary the settings of messages, so no trial replaces its network by one without them.
    optional = {f"model.{name}": False for name in estimator.resolved()["model"] if name.endswith("graph.optional")}
    options["config"] = optional | dict(estimator.config or {})
    estimator = type(estimator)(**options)
    space, own = search_space(estimator), start_values(estimator)
    about = {
        "model": estimator.model,
        "preset": estimator.preset,
        "task": estimator.task_type.name,
        "training table": training.fingerprint,
        "validation table": validation.fingerprint,
        "seed": int(estimator.seed),
        "metric": metric,
        "argument": {name: repr(value) for name, value in options.items() if name not in NOT_COMPARED},
        "setting": estimator.resolved(),
        "search space": describe_space(space),
        "version": VERSION,
    }
    return Search(
        folder=folder,
        task=estimator.task_type.name,
        options=options,
        about=about,
        start={name: own[name] for name in space},
        metric=metric,
        title=task.title(metric),
        lower_is_better=task.metrics[metric].lower_is_better,
        judged_on=f"{len(validation):,} validation samples",
        trials=trials,
        end=end,
    )

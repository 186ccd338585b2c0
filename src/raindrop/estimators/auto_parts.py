"""The folds on which models are compared, and stopping a search early."""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.sample_columns import group_or_own_codes
from raindrop.tasks.base import Task
from raindrop.tasks.classification import Classification

SMALL = 1000  # labelled samples; with fewer, models are cross-validated
FEW_GROUPS = 50
MAX_FOLDS = 5


@dataclass(frozen=True)
class Fold:
    """Samples to train on, to validate on (None: the estimator holds some out), and to test on."""

    training: EventTable
    validation: EventTable | None
    test: EventTable

    def parts(self) -> dict[str, EventTable]:
        """The tables by split name."""
        named = {"train": self.training, "val": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}


def make_folds(table: EventTable, task: Task, seed: int, most: int = MAX_FOLDS) -> tuple[list[Fold], str]:
    """One hold-out split of a large table, otherwise folds that keep groups together; and a description of them.

    If there is time for fewer than two folds (`most`), small tables also get a hold-out split, if possible.
    """
    strata = task.strata(task.encode(table))
    groups = None if table.roles.group is None else group_or_own_codes(table.samples[table.roles.group])
    number = len(table) if groups is None else len(np.unique(groups))
    together = "" if groups is None else f", {number:,} groups of '{table.roles.group}' kept together"
    if most < 2 or (len(table) >= SMALL and number >= FEW_GROUPS):
        source = table if task.stratified else replace(table, roles=replace(table.roles, label=None))
        try:
            parts = [replace(part, roles=table.roles) for part in source.split((0.7, 0.1, 0.2), seed=seed)]
            fold = _with_known_classes(Fold(*parts), task)
            task.require_judgeable(task.encode(fold.test), task.default_metric)
            return [fold], f"{len(fold.test):,} samples held out{together}"
        except DataError:  # too few samples or groups for three parts
            most = 2
    count = min(MAX_FOLDS, most, number, int(np.unique(strata, return_counts=True)[1].min()))
    if count < 2:
        raise DataError(f"{len(table):,} samples in {number} groups are too few to judge a model on unseen ones.")
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    splitter = kind(count, shuffle=True, random_state=seed % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class with fewer groups than folds is not in every fold
        pairs = list(splitter.split(np.zeros(len(strata)), strata, groups))
    folds = [_with_known_classes(Fold(table[rest], None, table[test]), task) for rest, test in pairs]
    return folds, f"{sum(len(f.test) for f in folds):,} samples, cross-validated in {count} folds{together}"


def _with_known_classes(fold: Fold, task: Task) -> Fold:
    """The fold without validation and test samples whose class does not occur in training."""
    if not isinstance(task, Classification):
        return fold
    known = fold.training.labels
    validation = fold.validation
    if validation is not None:
        validation = validation[np.isin(validation.labels, known)]
    return Fold(fold.training, validation, fold.test[np.isin(fold.test.labels, known)])


def aligned(predicted: NDArray[Any], own: Task, whole: Task) -> NDArray[Any]:
    """Probabilities of a model that may lack some classes, with one column for each class of the whole table."""
    if not isinstance(own, Classification) or not isinstance(whole, Classification):
        return predicted
    columns = [[str(name) for name in whole.classes].index(str(name)) for name in own.classes]
    full = np.zeros((len(predicted), len(whole.classes)), dtype=predicted.dtype)
    full[:, columns] = predicted
    return full


@contextmanager
def stop_signals() -> Iterator[None]:
    """Inside the block, SIGTERM raises KeyboardInterrupt, as Ctrl-C does. Has no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)

"""Which sensors tell most about the label, each by itself: the ranking behind Setting 2."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier

from raindrop.batch.summaries import summarise
from raindrop.table.event_table import EventTable
from raindrop.table.splits import stratified_parts
from raindrop.tasks.metrics import auroc

TREES = 20
FOLDS = 3


def rank_sensors(table: EventTable, *, seed: int = 0) -> list[tuple[str, float]]:
    """Sensors with their AUROC, the most informative first; of equal ones the table's order decides.

    For each sensor alone a random forest of 20 trees learns the label from the sensor's summaries, on two thirds of
    the samples, and is judged on the last third, three times over: the training part of a split is all it needs. A
    sensor that is the same in all samples has 0.5. More than two classes: the mean over one class against the rest.
    """
    truth = np.unique(table.labels, return_inverse=True)[1]
    folds = stratified_parts(truth, [1 / FOLDS] * FOLDS, seed)
    summaries = summarise(table)
    scores = np.array([_alone(summaries[:, sensor], truth, folds, seed) for sensor in range(len(table.sensors))])
    return [(table.sensors[at], float(scores[at])) for at in np.argsort(-scores, kind="stable")]


def _alone(about: NDArray[np.float64], truth: NDArray[np.int64], folds: list[NDArray[np.int64]], seed: int) -> float:
    """Mean AUROC over the folds; those without two classes do not count."""
    lowest = np.nanmin(np.nan_to_num(about, nan=np.inf), axis=0)
    about = np.where(np.isnan(about), np.where(np.isfinite(lowest), lowest, 0) - 1, about)  # no reading: below all
    found = []
    for fold in folds:
        learned = np.setdiff1d(np.arange(len(truth)), fold)
        # Out-of-bag votes would not do: for a sensor that is mostly absent they rank the truth backwards, because the
        # trees that did not draw a sample are those that saw fewer of its class.
        forest = RandomForestClassifier(TREES, random_state=seed).fit(about[learned], truth[learned])
        probability = np.zeros((len(fold), truth.max() + 1))
        probability[:, forest.classes_] = forest.predict_proba(about[fold])
        found.append(auroc(truth[fold], probability))
    return float(np.nanmean(found)) if not np.isnan(found).all() else 0.5

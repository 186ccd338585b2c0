"""Rank sensors by how well each alone predicts the label: the order in which Setting 2 hides them."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from raindrop.batch.summaries import summarise
from raindrop.errors import DataError
from raindrop.table.event_table import EventTable
from raindrop.table.sample_columns import group_or_own_codes
from raindrop.tasks.metrics import auroc

TREES = 20
FOLDS = 3

Fold = tuple[NDArray[np.int64], NDArray[np.int64]]  # positions of its training and its test samples


def rank_sensors(table: EventTable, *, seed: int = 0) -> list[tuple[str, float]]:
    """(sensor, AUROC), the most informative sensor first; ties keep the table's order.

    For each sensor alone, a random forest of 20 trees learns the label from the sensor's summaries and is scored by
    three-fold cross-validation, so that the training set of a split is enough. Samples of one group (the table's
    group column) are always in the same fold. A sensor that is constant in all samples scores 0.5. With more than two
    classes the score is the mean over one class against the others.
    """
    labels = np.unique(table.labels, return_inverse=True)[1]
    folds = make_folds(labels, _groups(table), seed)
    summaries = summarise(table)  # (sample, sensor, summary)
    scores = np.array([_score(summaries[:, sensor], labels, folds, seed) for sensor in range(len(table.sensors))])
    return [(table.sensors[sensor], float(scores[sensor])) for sensor in np.argsort(-scores, kind="stable")]


def make_folds(labels: NDArray[np.int64], groups: NDArray[np.int64] | None, seed: int) -> list[Fold]:
    """Stratified folds by scikit-learn, at most three; with `groups`, no group is in two folds."""
    num_groups = len(labels) if groups is None else len(np.unique(groups))
    num_folds = min(FOLDS, num_groups, int(np.bincount(labels).max()))
    if num_folds < 2:
        raise DataError(
            f"{len(labels):,} samples in {num_groups:,} groups are too few to rank sensors by cross-validation; at "
            "least two groups and two samples of one class are needed."
        )
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = kind(num_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")  # its scores are left out below
        return [(train, test) for train, test in folds.split(labels, labels, groups)]


def _groups(table: EventTable) -> NDArray[np.int64] | None:
    """The group number of each sample; a sample without a group is its own group."""
    return None if table.roles.group is None else group_or_own_codes(table.samples[table.roles.group])


def _score(summaries: NDArray[np.float64], labels: NDArray[np.int64], folds: list[Fold], seed: int) -> float:
    """Mean AUROC over the folds whose test samples have two classes; 0.5 if there are none."""
    lowest = np.nanmin(np.nan_to_num(summaries, nan=np.inf), axis=0)
    below_all = np.where(np.isfinite(lowest), lowest, 0) - 1
    features = np.where(np.isnan(summaries), below_all, summaries)
    scores = []
    for train, test in folds:
        # Out-of-bag scores are not usable: for a sensor that is rarely observed they are far below 0.5, because the
        # trees that did not draw a sample are those that saw fewer samples of its class.
        forest = RandomForestClassifier(TREES, random_state=seed).fit(features[train], labels[train])
        probability = np.zeros((len(test), labels.max() + 1))
        probability[:, forest.classes_] = forest.predict_proba(features[test])
        scores.append(auroc(labels[test], probability))
    return float(np.nanmean(scores)) if not np.isnan(scores).all() else 0.5

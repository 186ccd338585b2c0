"""A batch that is computed in parts, in one process or several, is the same mean over its samples."""

from __future__ import annotations

import numpy as np
import pytest
from closeness import NETWORK, assert_close
from learnable import QUICK, easy_table

from raindrop.estimators.classifier import Classifier

pytestmark = pytest.mark.slow

SETTINGS = QUICK | {"model.similarity": 0.0, "train.epochs": 1, "train.learning_rate": 0.01, "train.holdout": 0.0}


@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "own weights"])
def test_parts_of_a_batch_count_by_the_weight_of_their_samples(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = easy_table(32)
    weight = np.random.default_rng(0).uniform(0.1, 10, 32) if weighted else None
    predicted = []
    for cells in (10**9, 1):  # all samples of a batch in one part, or each by itself
        monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", cells)
        classifier = Classifier("raindrop", preset="paper", config=SETTINGS)
        classifier.fit(table, sample_weight=weight)
        monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", 10**9)
        predicted.append(classifier.predict_proba(table))
    assert_close(predicted[1], predicted[0], roundings=2 * NETWORK)

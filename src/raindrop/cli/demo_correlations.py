"""A simple baseline of the demo: pairwise lagged correlations, then logistic regression."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from raindrop.table.event_table import EventTable

STEP = 0.5  # hours of the grid that readings are interpolated to
LAGS = (0, 1, 2, 4)  # steps


class CorrelationClassifier:
    """Logistic regression on the correlations of all ordered pairs of sensors, at four lags, in each sample."""

    def __init__(self) -> None:
        self.pipeline: Pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000))

    def fit(self, table: EventTable) -> Self:
        """Learn from the labels of a table."""
        self.pipeline.fit(lagged_correlations(table), table.labels)
        return self

    def predict_proba(self, table: EventTable) -> NDArray[np.float64]:
        """(samples, classes), classes in sorted order."""
        probability: NDArray[np.float64] = self.pipeline.predict_proba(lagged_correlations(table))
        return probability


def lagged_correlations(table: EventTable) -> NDArray[np.float64]:
    """(samples, features): corr(u(t), v(t + lag)) of each pair u != v and lag; 0 for a sensor with under 3 readings."""
    times = np.arange(0, float(table.time[table.rows()].max(initial=STEP)) + STEP, STEP)
    number = len(table.sensors)
    features = np.zeros((len(table), len(LAGS), number, number))
    for at in range(len(table)):
        rows = table.rows(np.array([at]))
        sensor, time, value = (np.asarray(column[rows]) for column in (table.sensor, table.time, table.value))
        series = np.zeros((number, len(times)))
        for code in np.flatnonzero(np.bincount(sensor, minlength=number) > 2):
            series[code] = np.interp(times, time[sensor == code], value[sensor == code])
        deviation = series.std(1, keepdims=True)
        scaled = np.divide(series - series.mean(1, keepdims=True), deviation, where=deviation > 0, out=series * 0)
        for place, lag in enumerate(LAGS):
            features[at, place] = scaled[:, : len(times) - lag] @ scaled[:, lag:].T / (len(times) - lag)
    pairs = ~np.eye(number, dtype=bool)
    return features[:, :, pairs].reshape(len(table), -1)

"""Estimators with scikit-learn's conventions over an EventTable: fit, predict, embed, graphs, save and load."""

from raindrop.estimators.classifier import Classifier, RaindropClassifier, load

__all__ = ["Classifier", "RaindropClassifier", "load"]

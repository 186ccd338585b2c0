"""What is predicted: targets, losses, predictions, metrics and their uncertainty.

A task is one small object (base.py) that models, the training loop and the estimators share; no code outside this
package and the estimators depends on which task it is.
"""

from raindrop.tasks.base import Task
from raindrop.tasks.classification import Classification
from raindrop.tasks.multilabel import MultiLabel
from raindrop.tasks.regression import Regression

__all__ = ["Classification", "MultiLabel", "Regression", "Task"]

"""What is predicted: targets, losses, predictions, metrics and how sure they are.

A task is one small object (base.py) that models, the training loop and the estimators share; nothing outside this room
and the estimators asks which task it is.
"""

from raindrop.tasks.base import Task
from raindrop.tasks.classification import Classification
from raindrop.tasks.multilabel import MultiLabel
from raindrop.tasks.regression import Regression

__all__ = ["Classification", "MultiLabel", "Regression", "Task"]

"""Loading a saved model as the estimator that wrote it."""

from __future__ import annotations

import os
from pathlib import Path

from raindrop.errors import ConfigError, ModelFileError, suggest
from raindrop.estimators.base import Estimator
from raindrop.estimators.classifier import Classifier
from raindrop.estimators.multilabel import MultiLabelClassifier
from raindrop.estimators.persistence import read_model
from raindrop.estimators.regressor import Regressor
from raindrop.models.registry import MODELS
from raindrop.tasks import TASKS
from raindrop.version import VERSION

ESTIMATORS: dict[str, type[Estimator]] = {
    "classification": Classifier,
    "multilabel": MultiLabelClassifier,
    "regression": Regressor,
}
"""The estimator of each task."""


def load(folder: str | os.PathLike[str]) -> Estimator:
    """The fitted estimator that `save` or `raindrop train` wrote."""
    about, tensors = read_model(Path(folder), set(MODELS))
    try:
        name = about["task"]["name"]
        if name not in ESTIMATORS:
            raise ConfigError(f"unknown task '{name}': {suggest(str(name), ESTIMATORS)}")
        return ESTIMATORS[name]._restore(about, tensors, TASKS[name].from_dict(about["task"]))
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelFileError(
            f"{folder}: model.json does not describe a model of this version ({reason}). "
            f"It was written by raindrop {about['versions']['raindrop']}; this is {VERSION}."
        ) from error

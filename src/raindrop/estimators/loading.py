"""The estimators by task: create one, or load a saved one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raindrop.errors import ConfigError, ModelFileError, suggest
from raindrop.estimators.base import Estimator
from raindrop.estimators.classifier import Classifier
from raindrop.estimators.forecaster import Forecaster
from raindrop.estimators.imputer import Imputer
from raindrop.estimators.multilabel import MultiLabelClassifier
from raindrop.estimators.persistence import find_split, read_model
from raindrop.estimators.regressor import Regressor
from raindrop.estimators.samples import SampleEstimator
from raindrop.estimators.signature import Key, sign
from raindrop.files import content_checksum
from raindrop.models.registry import MODELS, QUERY_MODELS
from raindrop.tasks.readings import ReadingsAt
from raindrop.version import VERSION

ESTIMATORS: dict[str, type[SampleEstimator]] = {
    kind.task_type.name: kind for kind in (Classifier, MultiLabelClassifier, Regressor)
}
"""The estimator of each task, by the task's name."""
READINGS_ESTIMATORS: dict[str, type[Estimator]] = {"imputer": Imputer, "forecaster": Forecaster}
"""The estimators of readings, by the name under which they are saved."""


def estimator_type(task: str) -> type[SampleEstimator]:
    """The estimator of a task; an unknown name raises and suggests a task that exists."""
    if task not in ESTIMATORS:
        raise ConfigError(f"Unknown task '{task}': {suggest(task, ESTIMATORS)}")
    return ESTIMATORS[task]


def make_estimator(task: str, model: str, labels: Sequence[str], **options: Any) -> SampleEstimator:
    """An unfitted estimator for these label columns; none means the table's label.

    Options that this estimator does not have must be None, otherwise they raise.
    """
    kind = estimator_type(task)
    known = kind._get_param_names()
    for name, value in options.items():
        if name not in known and value is not None:
            raise ConfigError(f"'{name}' has no effect with the task '{task}'; leave it out.")
    options = {name: value for name, value in options.items() if name in known and value is not None}
    if "labels" in known:
        options["labels"] = list(labels)
    elif len(labels) == 1:
        options["label"] = labels[0]
    elif labels:
        options["label"] = list(labels)
    return kind(model, **options)


def load(folder: str | os.PathLike[str], *, key: Key | None = None) -> Any:
    """The fitted estimator that `save` or `raindrop train` wrote.

    With `key` (bytes, or a file) the model must have been signed with it by `raindrop sign`, otherwise this raises.
    """
    about, tensors = read_model(Path(folder), {*MODELS, *QUERY_MODELS}, key)
    try:
        kind: type[Estimator]
        if about["task"]["name"] == ReadingsAt.name:
            kind = READINGS_ESTIMATORS[about["state"]["estimator"]]
        else:
            kind = estimator_type(about["task"]["name"])
        split = find_split(Path(folder), about.get("split_sha256"))
        return kind._restore(about, tensors, kind.task_type.from_dict(about["task"]), split)
    except (ConfigError, LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelFileError(
            f"{folder}: model.json does not describe a model of this version ({reason}). "
            f"It was written by raindrop {_writer(about)}; this is {VERSION}."
        ) from error


def _writer(about: Any) -> str:
    versions = about.get("versions")
    return str(versions.get("raindrop", "unknown")) if isinstance(versions, dict) else "an unknown version"


def sign_model(folder: str | os.PathLike[str], key: Key) -> Path:
    """Sign a saved model with a key (bytes, or a file); returns the path of the signature. See `load(..., key=...)`."""
    path = Path(folder)
    about, _ = read_model(path, {*MODELS, *QUERY_MODELS})
    return sign(path, content_checksum(about), key)

"""A saved model: a folder with model.safetensors (weights) and model.json (everything else). Never pickle."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from raindrop.errors import DataError, ModelFileError, ResumeError, suggest
from raindrop.estimators.signature import Key, require_signature
from raindrop.files import atomic_file, content_checksum, file_checksum, read_json, to_json, write_json
from raindrop.table.run_split import RunSplit
from raindrop.table.time_columns import TimeUnit
from raindrop.training.network import WITHOUT_MESSAGES
from raindrop.version import VERSION

FORMAT = 2
SPLIT_FILE = "split.parquet"
MAX_GROWTH, FREE_NUMBERS = 16, 1 << 24  # limit of numbers in a model / numbers in its file; not for small models


class Epoch(msgspec.Struct):
    """One entry of a model's history: an epoch, or a round of trees."""

    loss: float | None = None
    epoch: int | None = None
    seconds: float = 0.0
    validation: dict[str, float | None] = {}


class TrainingData(msgspec.Struct):
    """A description of the training data."""

    fingerprint: str
    samples: int
    readings: int
    window: tuple[float, float]
    dated: Literal["local", "UTC"] | None = None


class OptionalMessages(msgspec.Struct):
    """Whether optional messages are used, and why; `training.network.Trained.messages`."""

    used: bool
    reason: Literal["compared", "memory", "stopped"]
    metric: str = ""
    epochs: int = 0
    with_: float | None = msgspec.field(name="with", default=None)
    without: float | None = None


class Notes(msgspec.Struct):
    """The mixing weights of a blend, and whether optional messages are used; other models have no notes."""

    share_of_raindrop: float = 0.0
    average_of: str = ""
    weights: list[dict[str, float]] = []
    validation: dict[str, dict[str, float | None]] = {}
    messages: OptionalMessages | None = None


class Static(msgspec.Struct):
    """The scaling of a static attribute, or its categories."""

    name: str
    mean: float | None
    scale: float | None
    categories: list[str] | None


class Statics(msgspec.Struct):
    """The static attributes of a scaler."""

    statics: list[Static]


class Description(msgspec.Struct):
    """The types in model.json, except settings, task and sensors, which are validated elsewhere."""

    preset: str
    seed: int
    scaler: Statics
    time_unit: TimeUnit
    data: TrainingData
    history: list[Epoch]
    notes: Notes
    identity: str
    lineage: str = ""
    chosen: dict[str, bool | float] = {}


def check_description(about: Mapping[str, Any]) -> None:
    """Raise a ValueError if a part of model.json has an unexpected type."""
    try:
        msgspec.convert(dict(about), Description)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def write_model(folder: Path, about: Mapping[str, Any], weights: Mapping[str, Tensor], split: RunSplit | None) -> Path:
    """Write split and weights first, then the JSON with their checksums: a kill leaves no model that loads wrongly.

    Without a split, `about` may contain the checksum of one that is kept elsewhere.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if split is not None:
        about = {**about, "split_sha256": split.write(folder / SPLIT_FILE)}
    with atomic_file(folder / "model.safetensors") as partial:
        save_file({name: tensor.detach().contiguous().clone() for name, tensor in weights.items()}, partial)
    content = {
        "format": FORMAT,
        "versions": {
            "raindrop": VERSION,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        **about,
        "weights_sha256": file_checksum(folder / "model.safetensors"),
    }
    content = json.loads(to_json(content))
    write_json(folder / "model.json", {**content, "checksum": content_checksum(content)})
    return folder


def smallest(tensor: Tensor) -> Tensor:
    """The same numbers in the smallest type that holds all of them exactly; loading casts them back."""
    narrower = (torch.float16, torch.float32) if tensor.is_floating_point() else (torch.int16, torch.int32)
    for kind in narrower if tensor.dtype != torch.bool else ():
        if kind.itemsize < tensor.dtype.itemsize and torch.equal(tensor.to(kind).to(tensor.dtype), tensor):
            return tensor.to(kind)
    return tensor


def refuse_other_run(folder: Path, lineage: str) -> None:
    """Raise if a folder holds the finished model of another run than `lineage`, or a damaged one."""
    try:
        found = read_json(folder / "model.json")["lineage"]
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if found != lineage:
        raise ResumeError(
            f"{folder}: holds the model of a run with other data, settings, seed or version, so it cannot be resumed.\n"
            "Give what it was started with, or choose another output."
        )


def read_model(
    folder: Path, known: Collection[str], key: Key | None = None
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON and the weights, after verifying checksums and, if a key is given, the signature."""
    path = folder / "model.json"
    if not path.exists():
        started = any((place / "checkpoint.safetensors").exists() for place in (folder, folder / WITHOUT_MESSAGES))
        hint = "The run has not finished; continue it with --resume." if started else "Is this a run folder?"
        raise ModelFileError(f"{folder}: there is no model.json. {hint}")
    try:
        content = read_json(path)
        checksum = content.pop("checksum", None)
        found = content["format"]
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        raise ModelFileError(f"{path}: not a model description; the file is damaged. Copy the run again.") from None
    if found != FORMAT:
        newer = isinstance(found, int) and found > FORMAT
        writer = content.get("versions", {}).get("raindrop", "unknown")
        raise ModelFileError(
            f"{path}: written in format {found} by raindrop {writer}; this is raindrop {VERSION}, which reads format "
            f"{FORMAT}. {'Upgrade raindrop to load it' if newer else 'Load it with the version that wrote it'}."
        )
    if checksum != content_checksum(content):
        raise ModelFileError(f"{path}: changed since it was written (its checksum does not fit). Copy the run again.")
    if key is not None:
        require_signature(folder, checksum, key)
    if not isinstance(content.get("model"), str) or content["model"] not in known:
        raise ModelFileError(
            f"{path}: unknown model '{content.get('model')}': {suggest(str(content.get('model')), known)}"
        )
    weights = folder / "model.safetensors"
    if not weights.exists():
        raise ModelFileError(f"{weights}: the weights are missing. Copy the run again.")
    if file_checksum(weights) != content.get("weights_sha256"):
        raise ModelFileError(f"{weights}: not the weights that model.json describes; damaged or exchanged.")
    try:
        return content, load_file(weights)
    except SafetensorError as error:
        raise ModelFileError(f"{weights}: cannot be read ({error}).") from None


def read_split(folder: Path, checksum: str) -> RunSplit:
    """The samples that the model in a folder was trained on; `checksum` is the one in its description."""
    path = folder / SPLIT_FILE
    if not path.exists():
        raise DataError(
            f"{path}: missing. It lists the samples that the model was trained on, which a score must leave out.\n"
            "Copy it from the run, or use --part all if no sample of this table was used for training."
        )
    return RunSplit.read(path, checksum)


def find_split(folder: Path, checksum: str | None) -> RunSplit | None:
    """As `read_split`, but None if it is missing or damaged: a model can be used without it."""
    try:
        return None if checksum is None else read_split(folder, checksum)
    except DataError:
        return None


def check_weights(tensors: Mapping[str, Tensor], build: Callable[[], nn.Module]) -> None:
    """Raise a ValueError unless a model with these settings has these tensors, before allocating memory for it.

    The model is built without storage to get its shapes. Buffers may have another size, as those of trees do.
    """
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        expected = build()
    parameters = dict(expected.named_parameters())
    given = sum(tensor.numel() for tensor in tensors.values())
    needed = sum(tensor.numel() for tensor in (*parameters.values(), *expected.buffers()))
    if needed > MAX_GROWTH * given + FREE_NUMBERS:
        raise ValueError(f"its settings ask for {needed:,} numbers, but {given:,} are stored")
    for name, own in expected.state_dict().items():
        if name not in tensors:
            raise ValueError(f"the weights '{name}' are missing")
        stored = tensors[name]
        if name in parameters and stored.shape != own.shape:
            raise ValueError(f"the weights '{name}' have the shape {tuple(stored.shape)}, not {tuple(own.shape)}")
        if _kind(stored) != _kind(own) or stored.dtype.itemsize > own.dtype.itemsize:
            raise ValueError(f"the weights '{name}' are {stored.dtype}, which {own.dtype} cannot hold")


def _kind(tensor: Tensor) -> str:
    return "float" if tensor.is_floating_point() else "bool" if tensor.dtype == torch.bool else "int"

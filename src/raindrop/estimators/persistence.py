"""A saved model: a folder with model.safetensors (weights) and model.json (everything else). Never pickle."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from raindrop.errors import ModelFileError, ResumeError, suggest
from raindrop.files import atomic_file, content_checksum, file_checksum, to_json, write_json
from raindrop.version import VERSION

FORMAT = 2


def write_model(folder: Path, about: Mapping[str, Any], weights: Mapping[str, Tensor]) -> Path:
    """Weights first, then the JSON that vouches for them: a kill in between leaves no model that loads wrongly."""
    folder.mkdir(parents=True, exist_ok=True)
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
    """The same numbers in the smallest type that holds all of them exactly; a model takes them back into its own."""
    narrower = (torch.float16, torch.float32) if tensor.is_floating_point() else (torch.int16, torch.int32)
    for kind in narrower if tensor.dtype != torch.bool else ():
        if kind.itemsize < tensor.dtype.itemsize and torch.equal(tensor.to(kind).to(tensor.dtype), tensor):
            return tensor.to(kind)
    return tensor


def refuse_other_run(folder: Path, lineage: str) -> None:
    """Raise where a folder holds the finished model of another run than `lineage`, or something like it."""
    try:
        found = json.loads((folder / "model.json").read_text(encoding="utf-8"))["lineage"]
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if found != lineage:
        raise ResumeError(
            f"{folder}: holds the model of a run with other data, settings, seed or version, so it cannot be resumed.\n"
            "Give what it was started with, or choose another output."
        )


def read_model(folder: Path, known: Collection[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON and the weights, once both are known to be what `write_model` wrote."""
    path = folder / "model.json"
    if not path.exists():
        started = (folder / "checkpoint.safetensors").exists()
        hint = "The run has not finished; continue it with --resume." if started else "Is this a run folder?"
        raise ModelFileError(f"{folder}: there is no model.json. {hint}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
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
    if content.get("model") not in known:
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

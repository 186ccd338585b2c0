"""A private copy of the served models: changing or deleting a run on disk does not affect them.

Workers load their models from the copy, including replacements for lost workers, until a reload.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from raindrop.errors import ConfigError, ModelFileError
from raindrop.files import read_json

FILES = ("model.json", "model.safetensors")
OPTIONAL = ("signature.json",)  # written by `raindrop sign`


class Snapshot:
    """The copied runs, in a temporary folder that only this user can read."""

    def __init__(self, runs: Sequence[Path]):
        self.folder = tempfile.mkdtemp(prefix="raindrop-serve-")
        self.models: dict[str, str] = {}
        """The folder of each copy, by the model's name."""
        try:
            for name, run in zip(model_names(runs), runs, strict=True):
                self.models[name] = str(self._copy(run, Path(self.folder) / name))
        except BaseException:
            self.remove()
            raise

    def _copy(self, run: Path, to: Path) -> Path:
        to.mkdir()
        for file in (*FILES, *OPTIONAL):
            try:
                shutil.copyfile(run / file, to / file)
            except FileNotFoundError:
                if file in FILES:
                    raise ModelFileError(f"{run}: there is no {file}. Is this a run folder?") from None
        return to

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)


def model_names(runs: Sequence[Path]) -> list[str]:
    """A name for each run: that of its folder, with only letters, digits, - and _."""
    names = [re.sub(r"[^A-Za-z0-9_-]+", "-", run.resolve().name).strip("-")[:64] or "model" for run in runs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"Two runs have the name '{twice}'. Rename one of the folders; a model is known by its name.")
    return names


def check_kinds(runs: Sequence[Path]) -> None:
    """Raise unless the runs are of different kinds: one that predicts samples, an imputer, a forecaster."""
    seen: dict[str, Path] = {}
    for run in runs:
        try:
            about = read_json(run / "model.json")
            state = about.get("state") or {}
            kind = str(state.get("estimator") or "samples")
        except (OSError, ValueError, AttributeError):
            continue  # loading it will report what is wrong
        if kind in seen:
            what = {"samples": "predict samples", "imputer": "are imputers"}.get(kind, "are forecasters")
            raise ConfigError(
                f"{seen[kind]} and {run} both {what}; a service has one of each kind. Start a second one."
            )
        seen[kind] = run


def fingerprint(runs: Sequence[Path]) -> tuple[tuple[int, int, int], ...]:
    """Changes when a run is overwritten: inode, size and time of each model.json; zeros if it is missing."""
    found = []
    for run in runs:
        try:
            status = os.stat(run / "model.json")
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)

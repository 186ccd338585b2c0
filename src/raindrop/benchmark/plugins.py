"""A person's own models: a file of results names them, and every process that runs their cells imports them."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

from raindrop.errors import ConfigError
from raindrop.files import file_checksum
from raindrop.models.registry import MODELS, Entry


@dataclass(frozen=True)
class OwnModel:
    """A model under a name of its own."""

    name: str
    target: str
    """Its `Entry`, as "module:NAME"."""
    folder: str
    """Where the module may lie, beside those that are installed."""

    def register(self) -> None:
        """Make it known in this process under its name; naming it runs its code."""
        module, _, attribute = self.target.partition(":")
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            found = importlib.import_module(module)
            entry = getattr(found, attribute)
        except Exception as error:  # it is somebody's code, so anything may happen
            raise ConfigError(f"models.{self.name}: '{self.target}' cannot be imported ({error}).") from None
        beside = Path(self.folder, *module.split(".")).with_suffix(".py")
        if beside.exists() and (found.__file__ is None or not beside.samefile(found.__file__)):
            raise ConfigError(f"models.{self.name}: {beside} is not what '{module}' means already; rename that file.")
        if not isinstance(entry, Entry):
            kind = type(entry).__name__
            raise ConfigError(f"models.{self.name}: '{self.target}' is not a raindrop.models.Entry, but {kind}.")
        if MODELS.setdefault(self.name, entry) is not entry:
            raise ConfigError(f"models.{self.name}: there is a model of that name already; choose another.")

    def checksum(self) -> str:
        """Of the file its module is; what that imports in turn is not looked at."""
        source = getattr(importlib.import_module(self.target.partition(":")[0]), "__file__", None)
        return file_checksum(Path(source)) if source else ""

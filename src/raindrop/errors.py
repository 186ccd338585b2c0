"""Everything that can go wrong because of what a person gave us.

RaindropError
├── DataError          a table that cannot be used as it is
├── ConfigError        an unknown or impossible setting
│   └── ResumeError    a stored run that was begun with other settings
├── TrainingError      training that cannot go on
├── ModelFileError     a saved model that cannot be loaded
├── OutputExistsError  an output that would be overwritten
└── MissingExtraError  an optional package that is not installed

RaindropWarning        something a person should know, though the work goes on

The command line prints the message alone; anything else is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RaindropError(Exception):
    """Base of every error that tells a person what to do next."""


class DataError(RaindropError, ValueError):
    """The data cannot be used as they are."""


class ConfigError(RaindropError, ValueError):
    """A setting is unknown or impossible."""


class ResumeError(ConfigError):
    """A stored run was begun with other data, settings, seed or version, so it cannot be resumed."""


class TrainingError(RaindropError):
    """Training cannot go on."""


class ModelFileError(RaindropError, ValueError):
    """A saved model cannot be loaded."""


class OutputExistsError(RaindropError, FileExistsError):
    """An output exists already and would be overwritten."""


class RaindropWarning(UserWarning):
    """Something a person should know, though the work goes on."""


class MissingExtraError(RaindropError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed.\n"
            f"Install it with: pip install 'raindrop-ts[{extra}]'"
        )


def suggest(name: str, options: Iterable[str]) -> str:
    """A half sentence that names the nearest option, or all of them."""
    known = [str(option) for option in options]
    folded = {option.casefold(): option for option in reversed(known)}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean '{folded[near[0]]}'?"
    if not known:
        return "there are none."
    shown = ", ".join(f"'{option}'" for option in known[:20])
    return f"there are: {shown}{', ...' if len(known) > 20 else ''}."


def count_of(part: int, whole: int, noun: str) -> str:
    """'3 of 812,410 rows'."""
    return f"{part:,} of {whole:,} {noun}"

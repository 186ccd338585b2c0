"""Errors that the user can fix.

RaindropError
├── DataError          a table that cannot be used as it is
├── ConfigError        an unknown or impossible setting
│   └── ResumeError    a stored run that was begun with other settings
├── TrainingError      training that cannot continue
├── ModelFileError     a saved model that cannot be loaded
├── OutputExistsError  an output that would be overwritten
└── MissingExtraError  an optional package that is not installed

RaindropWarning        something the user should know, though the work continues

The command line prints only their message. Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, get_args

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # characters that act on a terminal, line breaks included


class RaindropError(Exception):
    """Base class. The message says what is wrong and what to do next."""


class DataError(RaindropError, ValueError):
    """The data cannot be used as they are."""


class ConfigError(RaindropError, ValueError):
    """A setting is unknown or impossible."""


class ResumeError(ConfigError):
    """A stored run was begun with other data, settings, seed or version, so it cannot be resumed."""


class TrainingError(RaindropError):
    """Training cannot continue."""


class ModelFileError(RaindropError, ValueError):
    """A saved model cannot be loaded."""


class OutputExistsError(RaindropError, FileExistsError):
    """An output already exists and would be overwritten."""


class MissingExtraError(RaindropError, ImportError):
    """An optional package is needed but not installed."""

    def __init__(self, package: str, extra: str, purpose: str):
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed.\n"
            f"Install it with: pip install 'raindrop-ts[{extra}]'"
        )


class RaindropWarning(UserWarning):
    """Something the user should know, though the work continues."""


def suggest(name: str, options: Iterable[str]) -> str:
    """The end of an error message: the option closest to `name`, or the list of all options."""
    names = [str(option) for option in options]
    by_lower_case = {option.casefold(): option for option in reversed(names)}
    closest = difflib.get_close_matches(name.casefold(), by_lower_case, n=1, cutoff=0.6)
    if closest:
        return f"did you mean '{by_lower_case[closest[0]]}'?"
    if not names:
        return "there are none."
    listed = ", ".join(f"'{option}'" for option in names[:20])
    return f"there are: {listed}{', ...' if len(names) > 20 else ''}."


def check_choice(value: str, choices: Any, option: str) -> None:
    """Raise a DataError unless `value` is one of the values of the Literal type `choices`."""
    if value not in get_args(choices):
        raise DataError(f"{option}='{value}' is not known: {suggest(str(value), get_args(choices))}")


def format_count(count: int, total: int, noun: str) -> str:
    """'3 of 812,410 rows'."""
    return f"{count:,} of {total:,} {noun}"


def printable(text: str) -> str:
    """The text with control characters other than line breaks written out, such as \\x1b: they act on a terminal."""
    return CONTROL.sub(lambda found: found[0] if found[0] == "\n" else f"\\x{ord(found[0]):02x}", text)

"""Errors that the user can fix.

RaindropError
├── DataError          a table that cannot be used as it is
│   └── RowError       because of some of its rows
├── ConfigError        an unknown or impossible setting
│   └── ResumeError    a stored run that was begun with other settings
├── TrainingError      training that cannot continue
├── ModelFileError     a saved model that cannot be loaded
├── NotEnoughMemoryError  what would take more memory than there is
├── OutputExistsError  an output that would be overwritten
└── MissingExtraError  an optional package that is not installed

RaindropWarning        something the user should know, though the work continues

The command line prints only their message. `describe_failure` turns failures of the system (a full disk, an unreadable
file, too little memory) and of file readers into a sentence. Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import difflib
import errno
import operator
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # characters that act on a terminal, line breaks included


class RaindropError(Exception):
    """Base class. The message says what is wrong and what to do next."""


class DataError(RaindropError, ValueError):
    """The data cannot be used as they are."""


class RowError(DataError):
    """Some rows of a table cannot be used; `message_with` formats the message with another count and place."""

    def __init__(self, sentence: str, count: int, total: int, row: int):
        """`sentence` has {count}, such as '3 of 812,410 rows', and {row}, such as 'row 1,204'; rows count from 0."""
        self.sentence, self.count, self.row = sentence, count, row
        super().__init__(self.message_with(format_count(count, total, "rows"), f"row {row + 1:,}"))

    def message_with(self, count: str, row: str) -> str:
        """The message with this text for the number of rows and for the first of them."""
        return self.sentence.replace("{count}", count, 1).replace("{row}", row, 1)


class ConfigError(RaindropError, ValueError):
    """A setting is unknown or impossible."""


class ResumeError(ConfigError):
    """A stored run was begun with other data, settings, seed or version, so it cannot be resumed."""


class TrainingError(RaindropError):
    """Training cannot continue."""


class ModelFileError(RaindropError, ValueError):
    """A saved model cannot be loaded."""


class NotEnoughMemoryError(RaindropError, MemoryError):
    """Something would need more memory than is available, estimated before allocating it."""


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


def suggest(name: str, options: Iterable[str], *, prefix: str = "") -> str:
    """The end of an error message: the option closest to `name`, or a list of all; each prefixed with `prefix`."""
    names = [str(option) for option in options]
    by_lower_case = {option.casefold(): option for option in reversed(names)}
    closest = difflib.get_close_matches(name.casefold(), by_lower_case, n=1, cutoff=0.6)
    if closest:
        return f"did you mean '{prefix}{by_lower_case[closest[0]]}'?"
    if not names:
        return "there are none."
    listed = ", ".join(f"'{prefix}{option}'" for option in names[:20])
    return f"there are: {listed}{', ...' if len(names) > 20 else ''}."


def check_choice(value: str, choices: Any, option: str) -> None:
    """Raise a DataError unless `value` is one of the values of the Literal type `choices`."""
    if value not in get_args(choices):
        raise DataError(f"{option}='{value}' is not known: {suggest(str(value), get_args(choices))}")


def check_seed(seed: Any) -> int:
    """The seed as a whole number; raises a ConfigError if it is not one, or out of range."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if not 0 <= number < 2**63:
        raise ConfigError(f"seed={seed!r}: a seed is a whole number, 0 or above.")
    return number


def format_count(count: int, total: int, noun: str) -> str:
    """'3 of 812,410 rows'."""
    return f"{count:,} of {total:,} {noun}"


def printable(text: str) -> str:
    """The text with control characters except line breaks escaped, such as \\x1b: they act on a terminal."""
    return CONTROL.sub(lambda found: found[0] if found[0] == "\n" else f"\\x{ord(found[0]):02x}", text)


# ---------------------------------------------------------------- failures of the system and of file readers

ADVICE = {
    errno.ENOSPC: "Free some space, or write to another disk.",
    errno.EDQUOT: "Free some space, or write to another disk.",
    errno.EACCES: "Change its permissions, or choose another place.",
    errno.EPERM: "Change its permissions, or choose another place.",
    errno.EROFS: "Choose a place that can be written to.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}


def describe_failure(error: BaseException) -> str | None:
    """A sentence for a failure of the system or of a file reader; None for any other exception, which is a bug."""
    if isinstance(error, OSError):
        place = next((os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))
                      or hasattr(name, "__fspath__")), "")  # fmt: skip
        reason = error.strerror or first_line(error)
        advice = ADVICE.get(error.errno or 0, "")
        return f"{place}: {reason}. {advice}".removeprefix(": ").strip()
    without_memory = ("can't allocate memory", "not enough memory", "out of memory")  # messages of torch's RuntimeError
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in without_memory)
    ):
        return "There is not enough memory. Use fewer samples or sensors, a smaller model, or a larger machine."
    if isinstance(error, RecursionError):
        return "A file or an argument is nested too deeply to be read. Export or copy it again."
    if is_reader_failure(error):
        return f"A file cannot be read or written: {first_line(error)}. Is it damaged, or the disk full?"
    return None


def is_reader_failure(error: BaseException) -> bool:
    """Whether polars or safetensors raised it; polars panics on some damaged files (not a subclass of Exception)."""
    kind = type(error)
    return kind.__name__ in ("PanicException", "SafetensorError") or kind.__module__.partition(".")[0] == "polars"


def first_line(error: BaseException) -> str:
    """The first line of an error's message without a final full stop, or its type if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


@contextmanager
def reading(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turn any exception about a damaged or unreadable file into a DataError; `what` describes what it should hold."""
    try:
        yield
    except RaindropError:
        raise
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        if isinstance(error, FileNotFoundError):
            raise DataError(f"{path}: there is no such file. It holds {what}.") from None
        raise DataError(
            f"{path}: cannot be read ({first_line(error)}); it is damaged, or of another kind.\n"
            f"It should hold {what}. Export or copy it again."
        ) from None

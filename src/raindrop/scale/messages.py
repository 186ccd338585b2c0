"""Messages between engines and their workers: a part to score, and its result."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass

from raindrop import errors
from raindrop.errors import RaindropError, describe_failure

MAX_ATTEMPTS = 3
"""How often a part is attempted if its process ends before it is done."""


@dataclass(frozen=True)
class Part:
    """The samples `start` to `stop` (exclusive) of a table."""

    number: int
    start: int
    stop: int

    @property
    def file(self) -> str:
        """The file of its predictions, within the folder of parts."""
        return f"part-{self.number:06d}.parquet"

    def __len__(self) -> int:
        return self.stop - self.start


Score = Callable[[Part], None]
"""Scores a part and writes its predictions."""
Done = Generator[Part, None, None]
"""The parts that an engine has scored, as they finish; closing it ends the engine's workers."""
OpenScorer = Callable[[], Score]
"""Creates the function that scores parts; called once by each worker."""


@dataclass(frozen=True)
class Outcome:
    """A worker's result for a part: an error is a message and the name of its type; a bug has no type."""

    part: int
    error: str = ""
    kind: str = ""

    @classmethod
    def of_failure(cls, part: int, error: BaseException) -> Outcome:
        """The outcome for an exception."""
        if isinstance(error, RaindropError):
            return cls(part, str(error), type(error).__name__)
        sentence = describe_failure(error)
        if sentence is not None:
            return cls(part, sentence, RaindropError.__name__)
        return cls(part, "".join(traceback.format_exception(error)))

    def raise_failure(self) -> None:
        """Raise the error, if there was one."""
        if not self.error:
            return
        if not self.kind:
            raise RuntimeError(f"A worker failed:\n{self.error}")
        kind = getattr(errors, self.kind, RaindropError)
        raise (RaindropError if kind is errors.MissingExtraError else kind)(self.error)


class LostPart(RaindropError):
    """Every process that scored a part ended before it was done."""

    def __init__(self, part: Part, reason: str):
        super().__init__(f"part {part.number} was lost {MAX_ATTEMPTS} times ({reason})")
        self.part, self.reason = part, reason

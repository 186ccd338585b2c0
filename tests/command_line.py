"""The type of the fixture `ask` of tests/cli: from words to exit code, what was shown, and errors."""

from collections.abc import Callable

Ask = Callable[..., tuple[int, str, str]]

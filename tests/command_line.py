"""The commands of the command line, and the type of the fixture `ask` of tests/cli."""

from collections.abc import Callable, Iterator

from cyclopts import App

Ask = Callable[..., tuple[int, str, str]]
"""From words to exit code, what was shown, and errors."""


def commands_of(group: App, before: str = "") -> Iterator[str]:
    """The names of all commands of the command line."""
    for name in group:
        if not name.startswith("-"):
            inner = [each for each in group[name] if not each.startswith("-")]
            if inner and name != "convert":  # one command for each data set, made by one function
                yield from commands_of(group[name], f"{before}{name} ")
            else:
                yield f"{before}{name}"

"""Progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from raindrop.training import distributed


@contextmanager
def bar(show: bool, total: int, text: str = "training") -> Iterator[Callable[[int, list[dict[str, Any]]], None]]:
    """A progress bar that shows the latest loss and validation."""
    if not show or distributed.rank() != 0:
        yield lambda done, history: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn(text), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
             TimeRemainingColumn()) as line:  # fmt: skip
        task = line.add_task(text, total=total, note="")

        def update(done: int, history: list[dict[str, Any]]) -> None:
            note = ""
            if history:
                metrics = list(history[-1].get("validation", {}).items())[:2]
                note = f"epoch {history[-1]['epoch']} loss {history[-1]['loss']:.4f}"
                note += "".join(f", {name} {value:.3f}" for name, value in metrics)
            line.update(task, completed=done, note=note)

        yield update


def note(show: bool, text: str) -> None:
    """Print a line beside the progress bars."""
    if show and distributed.rank() == 0:
        from rich.console import Console

        Console(soft_wrap=True, highlight=False).print(text, markup=False)

"""The command `raindrop download`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

console = Console(soft_wrap=True, highlight=False)


def download(name: str, /, *, out: Path) -> None:
    """Download a data set and the paper's splits from their publishers.

    Args:
        name: which data set; `raindrop convert --help` lists them.
        out: folder for the files; existing files with the right checksum are not downloaded again.
    """
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    from raindrop.datasets import find_dataset
    from raindrop.datasets.download import Fetcher, announcement
    from raindrop.datasets.download import download as download_publication

    publication = find_dataset(name).PUBLICATION
    console.print(escape(announcement(publication, out)))
    bars = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[amount]}"), TimeRemainingColumn())
    with Progress(*bars, console=console) as progress:
        tasks: dict[str, TaskID] = {}

        def advance(path: str, done: int, total: int | None) -> None:
            if path not in tasks:
                tasks[path] = progress.add_task(escape(path), total=total, amount="")
            progress.update(tasks[path], completed=done, total=total, amount=_format_amount(path, done, total))

        fetcher = Fetcher(out, progress=advance)
        files = download_publication(publication, fetcher)
    for path, record in fetcher.checksums.items():
        console.print(f"{escape(path)}  SHA-256 {record['sha256']}")
    console.print(
        f"{len(files):,} files in {escape(str(out))}; next: raindrop convert {name} {escape(str(out))} --out DATA"
    )


def _format_amount(path: str, done: int, total: int | None) -> str:
    """The progress of a download: a number of files for a folder (its path ends in /), megabytes for a file."""
    if path.endswith("/"):
        return f"{done:,} of {total:,} files"
    return f"{done / 1e6:,.1f} MB" if total is None else f"{done / 1e6:,.1f} of {total / 1e6:,.1f} MB"

"""The commands that bring data in: `raindrop convert` and `raindrop download`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape

from raindrop.files import refuse_to_overwrite

if TYPE_CHECKING:
    from raindrop.datasets.conversion import Conversion

console = Console(soft_wrap=True, highlight=False)
Flag = Annotated[bool, Parameter(negative=())]
convert = App(name="convert", help="Convert published raw files to a table: p12, p19 or pam.")


@convert.command
def p12(
    *source: Path,
    out: Path,
    label: Literal["mortality", "length_of_stay_gt_3"] = "mortality",
    unknown_stay: Literal["exclude", "short"] = "exclude",
    duplicates: Literal["last", "mean", "error"] = "last",
    keep_impossible: Flag = False,
) -> None:
    """PhysioNet/CinC Challenge 2012: 48 hours in intensive care, mortality and length of stay.

    Args:
        source: folder or archives with set-a, set-b, set-c and the three tables of outcomes.
        out: folder for the table; must not exist yet.
        label: the default label of the table; both labels are written.
        unknown_stay: leave the label of an unknown length of stay empty (exclude), or count it as short like the paper.
        duplicates: several values of a sensor in one minute: take the last, their mean, or stop with an error.
        keep_impossible: keep readings that are impossible in a living adult, such as a pH of 735.
    """
    from raindrop.datasets import physionet2012

    limits = None if keep_impossible else physionet2012.LIMITS
    options = {"label": label, "unknown_stay": unknown_stay, "duplicates": duplicates, "limits": limits}
    _write_published_splits(_convert(physionet2012.convert, source, out, options), source, out)


@convert.command
def p19(
    *source: Path,
    out: Path,
    iculos: bool = True,
    cohort: Literal["paper", "all"] = "paper",
    keep_impossible: Flag = False,
) -> None:
    """PhysioNet/CinC Challenge 2019: hourly rows in intensive care, sepsis.

    Args:
        source: folder or archives with training_setA and training_setB.
        out: folder for the table; must not exist yet.
        iculos: use the hours in intensive care so far as a static; they are a shortcut to the label.
        cohort: apply the paper's exclusions, or keep every record with a row before its first positive one.
        keep_impossible: keep impossible readings, such as 40 for a share of oxygen.
    """
    from raindrop.datasets import physionet2019

    limits = None if keep_impossible else physionet2019.LIMITS
    options = {"iculos": iculos, "cohort": cohort, "limits": limits}
    _write_published_splits(_convert(physionet2019.convert, source, out, options), source, out)


@convert.command
def pam(
    *source: Path,
    out: Path,
    unit: Literal["hand", "chest", "ankle"] = "hand",
    steps: int = 600,
    overlap: float = 0.5,
    keep: float = 0.4,
    seed: int = 0,
    min_windows: int = 500,
    min_seconds: float = 600.0,
) -> None:
    """PAMAP2: windows of body-worn sensors, labelled with activities; also writes five splits by subject.

    Args:
        source: the published archive, or a folder with Protocol/subject101.dat to subject109.dat.
        out: folder for the table; must not exist yet.
        unit: which of the three inertial units.
        steps: length of a window in steps of 10 ms.
        overlap: share of a window that the next one has in common with it.
        keep: share of the readings to keep, chosen at random.
        seed: seed of that random choice.
        min_windows: activities with fewer windows are left out.
        min_seconds: subjects with less time in named activities are left out.
    """
    from raindrop.datasets import pamap2
    from raindrop.table.split_files import Split, write_splits

    options = {"unit": unit, "steps": steps, "overlap": overlap, "keep": keep, "seed": seed}
    options |= {"min_windows": min_windows, "min_seconds": min_seconds}
    table = _convert(pamap2.convert, source, out, options).table
    if table.samples["subject"].n_unique() >= 3:
        splits = {number: Split.from_tables(table.split(seed=number)) for number in range(1, 6)}
        path = write_splits(out / "splits_by_subject.parquet", splits)
        console.print(f"wrote five splits by subject; train with --split {escape(str(path))}:1")


def _convert(
    converter: Callable[..., Conversion], source: tuple[Path, ...], out: Path, options: dict[str, Any]
) -> Conversion:
    refuse_to_overwrite(out)
    with console.status("reading ..."):
        conversion = converter(source, **options)
    console.print(escape(str(conversion.report)))
    conversion.write(out)
    console.print(escape(repr(conversion.table)))
    console.print(f"wrote the table to {escape(str(out))}, and this report to {escape(str(out / 'conversion.json'))}")
    return conversion


def _write_published_splits(conversion: Conversion, source: tuple[Path, ...], out: Path) -> None:
    """Write the paper's five splits by sample id into the table's folder, if the source has them."""
    from raindrop.errors import DataError
    from raindrop.table.split_files import Split, write_splits

    for folder in [path / "splits" for path in source if (path / "splits").is_dir()]:
        try:
            splits = {n: Split.from_tables(Split.read(folder, n).apply(conversion.table)) for n in range(1, 6)}
        except DataError as error:
            console.print(f"did not write the published splits: {escape(str(error))}")
        else:
            path = write_splits(out / "splits.parquet", splits)
            console.print(f"wrote the five published splits; train with --split {escape(str(path))}:1")


def download(name: Literal["p12", "p19", "pam"], /, *, out: Path) -> None:
    """Download a data set and the paper's splits from their publishers.

    Args:
        name: which data set.
        out: folder for the files; files that are already there with the right checksum are not downloaded again.
    """
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    from raindrop.datasets.download import Fetcher, announcement, publication_of
    from raindrop.datasets.download import download as download_publication

    publication = publication_of(name)
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

"""EventTables from the published raw files of data sets, and from synthetic systems.

To add a data set, write its module here and add the module to DATASETS. `raindrop convert` and `raindrop download` find
it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from raindrop.datasets import pamap2, physionet2012, physionet2019
from raindrop.datasets.conversion import Conversion, Report, Source
from raindrop.datasets.publishers import Publication
from raindrop.errors import DataError, suggest

__all__ = ["DATASETS", "Conversion", "Dataset", "Publication", "Report", "Source", "convert", "find_dataset"]


class Dataset(Protocol):
    """The interface of a data set's module."""

    @property
    def convert(self) -> Callable[..., Conversion]:
        """`convert(source, *, ...)`: the table of the raw files. Its options are those of `raindrop convert NAME`."""

    @property
    def PUBLICATION(self) -> Publication:
        """Where the raw files are published."""


DATASETS: dict[str, Dataset] = {
    "p12": physionet2012,
    "p19": physionet2019,
    "pam": pamap2,
}


def find_dataset(name: str) -> Dataset:
    """A data set by its short name."""
    if name not in DATASETS:
        raise DataError(f"There is no data set '{name}': {suggest(name, DATASETS)}")
    return DATASETS[name]


def convert(name: str, source: Source, **options: Any) -> Conversion:
    """Convert a data set by its short name; `options` are those of its own `convert`."""
    return find_dataset(name).convert(source, **options)

"""EventTables from the published raw files of the paper's data sets, and from synthetic systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raindrop.datasets import pamap2, physionet2012, physionet2019
from raindrop.datasets.conversion import Conversion, Report, Source
from raindrop.datasets.publishers import PUBLICATIONS, Publication
from raindrop.errors import DataError, suggest

__all__ = ["DATASETS", "Conversion", "Dataset", "Publication", "Report", "Source", "convert"]


@dataclass(frozen=True)
class Dataset:
    """A data set: its short name, its converter and where it is published."""

    name: str
    convert: Callable[..., Conversion]
    publication: Publication


DATASETS = {
    "p12": Dataset("p12", physionet2012.convert, PUBLICATIONS["p12"]),
    "p19": Dataset("p19", physionet2019.convert, PUBLICATIONS["p19"]),
    "pam": Dataset("pam", pamap2.convert, PUBLICATIONS["pam"]),
}


def convert(name: str, source: Source, **options: Any) -> Conversion:
    """Convert a data set by its short name; `options` are those of its own `convert`."""
    if name not in DATASETS:
        raise DataError(f"There is no data set '{name}': {suggest(name, DATASETS)}")
    return DATASETS[name].convert(source, **options)

"""The commands `raindrop convert NAME`, one for each data set. Options and help are those of the data set's `convert`.

app.py imports this module only when the command is used: it needs every data set, and these need polars.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter
from rich.console import Console
from rich.markup import escape

from raindrop.datasets import DATASETS, Conversion, Dataset
from raindrop.errors import DataError
from raindrop.files import refuse_to_overwrite
from raindrop.table.split_files import Split

console = Console(soft_wrap=True, highlight=False)
Out = Annotated[Path, Parameter(help="folder for the table; must not exist yet.")]


def make_app(datasets: Mapping[str, Dataset]) -> App:
    """`convert` with a command for each of the data sets."""
    app = App(name="convert")
    for name, dataset in datasets.items():
        app.command(make_command(dataset.convert), name=name)
    return app


def make_command(converter: Callable[..., Conversion]) -> Callable[..., None]:
    """The command of a converter: `*source`, `out`, and the converter's keyword options."""
    _, *options = inspect.signature(converter, eval_str=True).parameters.values()

    def command(*source: Path, out: Out, **chosen: Any) -> None:
        _convert(converter, source, out, chosen)

    source, out, _ = inspect.signature(command, eval_str=True).parameters.values()
    options = [option.replace(annotation=_without_negative(option)) for option in options]
    command.__signature__ = inspect.Signature([source, out, *options])  # type: ignore[attr-defined]
    command.__doc__ = converter.__doc__
    return command


def _without_negative(option: inspect.Parameter) -> Any:
    """The option's type; a flag that is off by default needs no `--no-` form."""
    return Annotated[bool, Parameter(negative=())] if option.default is False else option.annotation


def _convert(
    converter: Callable[..., Conversion], source: tuple[Path, ...], out: Path, options: Mapping[str, Any]
) -> None:
    refuse_to_overwrite(out)
    with console.status("reading ..."):
        conversion = converter(source, **options)
    console.print(escape(str(conversion.report)))
    published = _published_splits(conversion, source) if conversion.splits is None else None
    conversion.write(out, splits=published)
    console.print(escape(repr(conversion.table)))
    console.print(f"wrote the table to {escape(str(out))}, and this report to {escape(str(out / 'conversion.json'))}")
    if published or conversion.splits:
        group = conversion.table.roles.group
        which = "the five published splits" if published else f"{len(conversion.splits or {})} splits by {group}"
        console.print(f"wrote {which}; train with --split {escape(str(out / conversion.splits_file))}:1")


def _published_splits(conversion: Conversion, source: tuple[Path, ...]) -> dict[int, Split] | None:
    """The paper's five splits by sample id, if the source has them."""
    for folder in [path / "splits" for path in source if (path / "splits").is_dir()]:
        try:
            return {n: Split.from_tables(Split.read(folder, n).apply(conversion.table)) for n in range(1, 6)}
        except DataError as error:
            console.print(f"did not write the published splits: {escape(str(error))}")
    return None


convert = make_app(DATASETS)

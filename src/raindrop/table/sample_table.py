"""The samples table: roles of its columns, unique ids, clean text; and attributes in columns of the readings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

from raindrop.errors import DataError, format_count
from raindrop.table.cells import clean_columns, clean_text, infer_type, require_printable
from raindrop.table.checks import Sources
from raindrop.table.frames import ids_as_text, require_columns
from raindrop.table.store import Roles

MIN_IDS = 20  # with at least this many labels, all different, they look like ids


def resolve_roles(
    named: Mapping[str, str | None],
    statics: tuple[str, ...],
    samples: pl.DataFrame | None,
    id_column: str,
    sources: Sources,
) -> tuple[Roles, str | None]:
    """The columns of the samples table in each role, and the reference column.

    A column with the name of a role has that role by default; '' means none.
    """
    columns = [] if samples is None else samples.columns
    chosen = {
        role: (role if role in columns else None) if name is None else name or None for role, name in named.items()
    }
    roles = Roles(chosen["label"], statics, chosen["group"], chosen["cutoff"])
    required = roles.columns | {role: name for role, name in chosen.items() if name}
    if samples is None and required:
        raise DataError(
            f"There is no samples table, but columns of it are named: {', '.join(required.values())}.\n"
            "Give a table with one row per sample that has these columns."
        )
    if samples is not None:
        require_columns(samples, {"sample": id_column, **required}, sources.samples)
        if id_column in required.values():
            role = next(role for role, name in required.items() if name == id_column)
            raise DataError(f"{sources.samples}: '{id_column}' names the samples; it cannot be their {role} as well.")
    return roles, chosen["reference"]


def attributes_of_events(
    events: pl.DataFrame, id_column: str, named: Sequence[str], source: str, notices: list[str], *, implied: bool
) -> pl.DataFrame | None:
    """A samples table from attribute columns of the readings; None if there are none.

    These are the `named` columns and, if `implied`, one called 'label' if it has one value per sample.
    """
    columns = attribute_names(events.columns, id_column, named, implied=implied)
    grouped = group_attributes(events, id_column, columns, source) if columns else None
    return None if grouped is None else attributes_table(grouped, id_column, columns, named, source, notices)


def attribute_names(columns: Sequence[str], id_column: str, named: Sequence[str], *, implied: bool) -> list[str]:
    """The columns of the readings that describe samples: the `named` ones if all are present, and possibly 'label'."""
    names = [name for name in dict.fromkeys(named) if name in columns and name != id_column]
    if id_column not in columns or names != list(dict.fromkeys(named)):
        return []
    implied = implied and "label" in columns and "label" not in names and id_column != "label"
    return [*names, *(["label"] if implied else [])]


def group_attributes(events: pl.DataFrame, id_column: str, columns: Sequence[str], source: str) -> pl.DataFrame | None:
    """One row per sample: the first value of each column, and the number of distinct ones; None for nested types."""
    ids = ids_as_text(events[id_column], "sample", source).alias("sample")
    values = [clean_text(events[n])[0] if events[n].dtype == pl.String else events[n] for n in columns]
    if any(column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object) for column in values):
        return None
    frame = pl.DataFrame([ids, *(column.alias(f"of {column.name}") for column in values)])
    frame = frame.filter(pl.col("sample").is_not_null())
    return frame.group_by("sample", maintain_order=True).agg(
        *(pl.col(f"of {name}").drop_nulls().first().alias(f"of {name}") for name in columns),
        *(pl.col(f"of {name}").drop_nulls().n_unique().alias(f"values of {name}") for name in columns),
    )


def attributes_table(
    grouped: pl.DataFrame,
    id_column: str,
    columns: Sequence[str],
    named: Sequence[str],
    source: str,
    notices: list[str],
) -> pl.DataFrame | None:
    """The samples table from the result of `group_attributes`; a `named` column with several values raises."""
    for name in columns:
        changing = grouped.filter(pl.col(f"values of {name}") > 1)
        if len(changing) and name in named:
            raise DataError(
                f"{source}: column '{name}' has several values in "
                f"{format_count(len(changing), len(grouped), 'samples')} (first: '{changing['sample'][0]}').\n"
                "An attribute of a sample has one value for all of its rows; give a table "
                "with one row per sample instead (--samples-file)."
            )
        if len(changing):
            columns = [other for other in columns if other in named]
    if not columns:
        return None
    notices.append(f"{source}: {', '.join(map(repr, columns))} taken from the readings' rows, one value per sample.")
    return grouped.select(
        pl.col("sample").alias(id_column), *(infer_type(grouped[f"of {name}"]).alias(name) for name in columns)
    )


def prepare_samples(
    rows: pl.DataFrame, samples: pl.DataFrame | None, id_column: str, sources: Sources, notices: list[str]
) -> pl.DataFrame:
    """The samples table with unique text ids in its first column, 'sample'; made from the readings if there is none."""
    if samples is None:
        if not len(rows):
            raise DataError(f"{sources.events}: the table is empty, and there is no samples table either.")
        samples = pl.DataFrame({"sample": rows["sample"].unique(maintain_order=True)})
        require_printable(samples["sample"], "sample ids", sources.events)
        return samples
    source = sources.samples
    ids = ids_as_text(samples[id_column], "sample", source).alias("sample")
    if id_column != "sample" and "sample" in samples.columns:
        raise DataError(f"{source}: the columns '{id_column}' and 'sample' both exist; drop or rename 'sample'.")
    samples = samples.drop(id_column).insert_column(0, ids)
    if ids.null_count():
        raise DataError(f"{source}: {format_count(ids.null_count(), len(ids), 'rows')} have no sample id; drop them.")
    repeated = ids.is_duplicated()
    if repeated.any():
        raise DataError(
            f"{source}: {format_count(int(repeated.sum()), len(ids), 'rows')} share their sample id with another row "
            f"(first: '{ids.filter(repeated)[0]}').\nThe samples table has one row per sample; remove the others."
        )
    if not len(samples):
        raise DataError(f"{source}: the table is empty. There must be at least one sample.")
    for name, dtype in samples.schema.items():
        if _contains_bytes(dtype):
            raise DataError(
                f"{source}: column '{name}' is of type {dtype}, which cannot be kept with the samples; "
                "drop it, or turn it into text or numbers."
            )
    require_printable(ids, "sample ids", source)
    require_printable(samples.columns, "names of columns", source)
    samples = clean_columns(samples, samples.columns[1:], source, notices)
    for name in samples.columns[1:]:
        if samples[name].dtype == pl.String:
            require_printable(samples[name].drop_nulls().unique(), f"values of column '{name}'", source)
    return samples


def warn_of_ids(label: pl.Series, notices: list[str]) -> None:
    """Add a notice if the label looks like an id: a different value for each sample and no other explanation."""
    known = label.drop_nulls()
    if len(known) < MIN_IDS or known.n_unique() < len(known):
        return
    is_named_id = re.search(r"(^|[_\s.-])(id|key|nr|no|number)$|[a-z]I[Dd]$", label.name) is not None
    if known.dtype == pl.String or (known.dtype.is_integer() and (is_named_id or (known.diff() == 1).all())):
        notices.append(
            f"Label '{label.name}' has another value for each of {len(known):,} samples, so it looks like an id, not "
            "something to predict. Name the column to predict with label='NAME' (--label NAME)."
        )


def _contains_bytes(dtype: pl.DataType) -> bool:
    """Whether a type holds raw bytes or Python objects at any depth; they cannot be compared or written as text."""
    if isinstance(dtype, pl.Struct):
        return any(_contains_bytes(part.dtype) for part in dtype.fields)  # type: ignore[arg-type]
    if isinstance(dtype, (pl.List, pl.Array)):
        return _contains_bytes(dtype.inner)  # type: ignore[arg-type]
    return dtype in (pl.Binary, pl.Object)

"""Documentation pages from results as text: one for each table, a list of them, and a figure of mean ranks.

Nothing is run and no data are read, so the pages can be regenerated on any machine, with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from raindrop.benchmark.aggregate import summarise
from raindrop.benchmark.figures import rank_diagram, to_svg
from raindrop.benchmark.parsing import read_experiments, shipped_tables
from raindrop.benchmark.ranks import Ranking, blocks_of, rank_rows
from raindrop.benchmark.render import markdown, markdown_line
from raindrop.benchmark.spec import Experiment
from raindrop.benchmark.text_store import JobRecord, read_records
from raindrop.errors import DataError, suggest
from raindrop.files import write_text

LIST, RANKS = "tables.md", "ranks.svg"
MIN_RANKED = 3  # rows; the table itself is enough to compare two
MIN_SPLITS = 3  # of all tables together; fewer cannot rank anything
HOW = "Written by `raindrop benchmark --text`, from results as text; the next run of it overwrites changes."


def write_pages(text: Path, out: Path, tables: Sequence[str] = ()) -> list[Path]:
    """Write OUT/TABLE.md for every table in the folder `text`, then OUT/tables.md and OUT/ranks.svg for all of them.

    tables: names that must exist, or TOML files of tables that are not shipped.
    """
    experiments = _experiments(text, tables)
    pages: dict[str, str] = {}
    found: list[tuple[Experiment, list[JobRecord]]] = []
    for experiment in experiments:
        data, jobs = read_records(text / f"{experiment.name}.jsonl", experiment)
        finished = replace(experiment, rows=tuple(row for row in experiment.rows if row.name in {j.row for j in jobs}))
        table = markdown(summarise(finished, data, jobs))
        pages[f"{experiment.name}.md"] = "\n".join(
            [line.removeprefix("#") if line.startswith("##") else line for line in table.splitlines()]
            + ["", f"{_origin(experiment, jobs)} {HOW}", ""]
        )
        found.append((finished, jobs))
    ranking = _ranking(found)
    if ranking is not None:
        pages[RANKS] = to_svg(rank_diagram(ranking), "ranks")
    pages[LIST] = _list(found, with_ranks=RANKS in pages)
    for name, content in pages.items():
        write_text(out / name, content)
    if ranking is None:
        (out / RANKS).unlink(missing_ok=True)  # left by an earlier run; no page shows it any more
    return [out / name for name in pages]


def _experiments(text: Path, tables: Sequence[str]) -> list[Experiment]:
    stored = sorted(path.stem for path in text.glob("*.jsonl"))
    if not stored:
        raise DataError(f"{text}: there are no results as text in it; `raindrop benchmark --data --text` writes them.")
    experiments = read_experiments(tables) if tables else []
    named = {experiment.name for experiment in experiments}
    others = [name for name in stored if name in shipped_tables() and name not in named]
    experiments += read_experiments(others) if others else []
    for name in [experiment.name for experiment in experiments] if tables else stored:
        if name not in stored:
            raise DataError(f"{text}: there are no results of the table '{name}'; {suggest(name, stored)}")
        if name not in [experiment.name for experiment in experiments]:
            raise DataError(f"{text / name}.jsonl: '{name}' is not a shipped table; name its .toml file.")
    return experiments


def _ranking(tables: Sequence[tuple[Experiment, Sequence[JobRecord]]]) -> Ranking | None:
    """Mean ranks; None if the tables share too few rows or splits."""
    try:
        ranking = rank_rows(blocks_of(tables))
    except DataError:
        return None
    num_splits = sum(splits for _, splits in ranking.blocks)
    return ranking if len(ranking.ranks) >= MIN_RANKED and num_splits >= MIN_SPLITS else None


def _origin(experiment: Experiment, jobs: Sequence[JobRecord]) -> str:
    """The number of jobs, when they ran, with which code, and for how long."""
    days = sorted({job.finished[:10] for job in jobs if job.finished})
    sources = sorted({job.source for job in jobs if job.source})
    hours = sum(job.seconds or 0.0 for job in jobs) / 3600
    when = f", finished {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
    code = f", code {', '.join(sources)}" if sources else ""
    plural = "s" if len(jobs) != 1 else ""
    return f"{len(jobs)} job{plural}{when}{code}, {hours:.1f} hours of training: `store/{experiment.name}.jsonl`."


def _list(tables: Sequence[tuple[Experiment, Sequence[JobRecord]]], *, with_ranks: bool) -> str:
    lines = ["# Tables of this version", "", HOW, ""]
    lines += [markdown_line(["table", "rows", "jobs", "version"]), markdown_line(["---"] * 4)]
    for experiment, jobs in tables:
        versions = ", ".join(sorted({job.version for job in jobs if job.version}))
        link = f"[{experiment.title}]({experiment.name}.md)"
        lines.append(markdown_line([link, str(len(experiment.rows)), str(len(jobs)), versions]))
    if with_ranks:
        lines += ["", f"![mean ranks of the rows that these tables share]({RANKS})", ""]
        lines += [
            "*Mean ranks over tables and splits. A bar joins rows that cannot be told apart: their ranks differ by"
        ]
        lines += [
            "less than Nemenyi's critical difference (5 %), for as many independent data sets as Nadeau and Bengio's"
        ]
        lines += ["correction for overlapping splits leaves.*"]
    return "\n".join(lines) + "\n"

"""Copy the tables that `raindrop benchmark` wrote into docs/results.md.

    raindrop benchmark table1 --data DIR --out results --status
    python benchmarks/results_page.py results

Markers on the page say what goes where; the text between them stays as it is:

    <!-- caption table1_p12 -->               title and caption
    <!-- tables table1_p12 -->                all blocks; with `: fixed, random 50 %` those whose heading starts so;
                                              then the note on comparisons, if any of them has some
    <!-- verdicts table1_p12 -->              the verdicts; all, or those of some blocks, as above
    <!-- end -->                              after each of them

Rows without any result are left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from raindrop.errors import DataError
from raindrop.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
MARKER = re.compile(r"(<!-- (caption|tables|verdicts) (\w+)(?:: ([^\n]+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_page(page: str, read_table: Callable[[str], str]) -> str:
    """The page with the content of every marker replaced; `read_table` returns the Markdown of a table by name."""

    def fill(marker: re.Match[str]) -> str:
        opening, kind, name, selection, end = marker.groups()
        prefixes = tuple(text.strip() for text in selection.split(",")) if selection else ("",)
        text = EXTRACT[kind](read_table(name), prefixes)
        if not text:
            raise DataError(f"The table {name} has nothing for {opening.strip()}")
        return f"{opening}\n{text}\n\n{end}"

    return MARKER.sub(fill, page)


def _caption(table: str, _: tuple[str, ...]) -> str:
    title, _, text, *_ = table.splitlines()
    return f"{title}\n\n{text}"


def _tables(table: str, prefixes: tuple[str, ...]) -> str:
    blocks = re.findall(r"(?:^### (?P<heading>[^\n]+)\n\n)?(?P<rows>(?:^\|[^\n]*\n)+)", table, re.MULTILINE)
    chosen = [
        (f"#### {heading}\n\n" if heading else "") + "\n".join(row for row in rows.splitlines() if not _is_empty(row))
        for heading, rows in blocks
        if heading.startswith(prefixes)
    ]
    note = [line for line in table.splitlines() if line.startswith("Note: ")]
    return "\n\n".join(chosen + (note if any("behind (p)" in block for block in chosen) else []))


def _is_empty(row: str) -> bool:
    """Whether the number of splits is 0."""
    return row.split(" | ")[1] == "0"


def _verdicts(table: str, prefixes: tuple[str, ...]) -> str:
    sentences = [line for line in table.splitlines() if line.startswith("- ")]
    return "\n".join(line for line in sentences if line.removeprefix("- ").startswith(prefixes))


EXTRACT = {"caption": _caption, "tables": _tables, "verdicts": _verdicts}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the --out of `raindrop benchmark`")
    folder = parser.parse_args().results
    try:
        write_text(PAGE, fill_page(PAGE.read_text(), lambda name: (folder / f"{name}.md").read_text()))
    except FileNotFoundError as missing:
        raise SystemExit(f"There is no {missing.filename}: `raindrop benchmark` writes it.") from None
    except DataError as problem:
        raise SystemExit(str(problem)) from None

"""Put the tables that `raindrop benchmark` wrote into docs/results.md.

    raindrop benchmark table1 --data DIR --out results --status
    python benchmarks/results_page.py results

The page says where they go, and the words between them stay as they are:

    <!-- caption table1_p12 -->               title and caption
    <!-- tables table1_p12 -->                all blocks; or `: fixed, random 50 %`, those whose headings begin so
    <!-- verdicts table1_p12 -->              whether the trees win; or of some blocks only, as above
    <!-- end -->                              after each of them

Rows without a figure are left out.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from raindrop.errors import DataError
from raindrop.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
PLACE = re.compile(r"(<!-- (caption|tables|verdicts) (\w+)(?:: ([^\n]+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, read: Callable[[str], str]) -> str:
    """The page with every place filled from the tables that `read` returns by name."""

    def fill(place: re.Match[str]) -> str:
        opening, kind, name, chosen, end = place.groups()
        beginnings = tuple(text.strip() for text in chosen.split(",")) if chosen else ("",)
        text = PARTS[kind](read(name), beginnings)
        if not text:
            raise DataError(f"The table {name} has nothing for {opening.strip()}")
        return f"{opening}\n{text}\n\n{end}"

    return PLACE.sub(fill, page)


def _caption(table: str, _: tuple[str, ...]) -> str:
    title, _, text, *_ = table.splitlines()
    return f"{title}\n\n{text}"


def _tables(table: str, beginnings: tuple[str, ...]) -> str:
    blocks = re.findall(r"(?:^### (?P<heading>[^\n]+)\n\n)?(?P<rows>(?:^\|[^\n]*\n)+)", table, re.MULTILINE)
    return "\n\n".join(
        (f"#### {heading}\n\n" if heading else "") + "\n".join(row for row in rows.splitlines() if not _is_empty(row))
        for heading, rows in blocks
        if heading.startswith(beginnings)
    )


def _is_empty(row: str) -> bool:
    return row.split(" | ")[1] == "0"


def _verdicts(table: str, beginnings: tuple[str, ...]) -> str:
    sentences = [line for line in table.splitlines() if line.startswith("- ")]
    return "\n".join(line for line in sentences if line.removeprefix("- ").startswith(beginnings))


PARTS = {"caption": _caption, "tables": _tables, "verdicts": _verdicts}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the --out of `raindrop benchmark`")
    folder = parser.parse_args().results
    try:
        write_text(PAGE, filled(PAGE.read_text(), lambda name: (folder / f"{name}.md").read_text()))
    except FileNotFoundError as missing:
        raise SystemExit(f"There is no {missing.filename}: `raindrop benchmark` writes it.") from None
    except DataError as problem:
        raise SystemExit(str(problem)) from None

"""Run a tutorial (a Jupytext notebook, `# %%` cells) and turn it into a page: text, code, and what the code shows."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jupytext


@dataclass
class Page:
    """A tutorial as Markdown, and its pictures by file name."""

    markdown: str = ""
    pictures: dict[str, str] = field(default_factory=dict)


class TutorialError(Exception):
    """A cell that failed, with its number."""


def run(path: Path) -> Page:
    """Execute the cells of a tutorial, in an empty folder, and return its page."""
    page, parts = Page(), []
    names: dict[str, Any] = {"__name__": path.stem}
    with _empty_folder():
        for number, cell in enumerate(jupytext.read(path).cells, start=1):
            if cell.cell_type != "code":
                parts.append(cell.source)
                continue
            parts.append(f"```python\n{cell.source}\n```")
            try:
                printed, value = execute(cell.source, names)
            except Exception as error:
                raise TutorialError(f"{path.name}, cell {number}: {type(error).__name__}: {error}") from error
            parts += filter(None, [_as_text(printed), _show(value, path.stem, page)])
    links = f"*This page is a notebook: [{path.name}]({path.name}), opened by Jupyter with Jupytext.*"
    page.markdown = "\n\n".join([*parts, links]) + "\n"
    return page


def execute(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell as a notebook does: what it printed, and the value of its last line where that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    return printed.getvalue(), value


def _show(value: Any, stem: str, page: Page) -> str:
    """A value as a notebook shows it: a figure, HTML or text."""
    from matplotlib.figure import Figure

    if value is None:
        return ""
    if isinstance(value, Figure):
        name = f"{stem}_{len(page.pictures) + 1}.svg"
        file = io.StringIO()
        value.savefig(file, format="svg", metadata={"Date": None})
        page.pictures[name] = file.getvalue()
        return f"![what the code above draws]({name})"
    if hasattr(value, "_repr_html_"):
        html = "".join(line.strip() for line in value._repr_html_().splitlines())
        return f'<div class="output">{html}</div>'
    return _as_text(repr(value))


def _as_text(text: str) -> str:
    return f"``` text\n{text.rstrip()}\n```" if text.strip() else ""


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    """Work in a folder of one's own, from which modules are imported too, and leave no trace."""
    before, modules = Path.cwd(), set(sys.modules)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            os.chdir(before)
            sys.path.remove(folder)
            for name in set(sys.modules) - modules:
                file = getattr(sys.modules[name], "__file__", None)
                if file and Path(file).is_relative_to(folder):
                    del sys.modules[name]

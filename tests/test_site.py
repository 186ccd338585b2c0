"""The documentation: it builds strictly, needs nothing from elsewhere, and its tutorials run and end in a picture."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
jupytext = pytest.importorskip("jupytext", reason="the extra `docs` is not installed")

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


def runner() -> Any:
    """docs/site/notebooks.py, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "site" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["notebooks"] = module
    spec.loader.exec_module(module)
    return module


class Sources(HTMLParser):
    """Everything that a browser loads by itself when it opens a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        loaded = {"script": "src", "img": "src", "iframe": "src", "source": "src"}.get(tag)
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect", "preload", "modulepreload"):
            loaded = "href"
        if loaded and given.get(loaded):
            self.found.append(str(given[loaded]))


@pytest.mark.slow
def test_the_site_builds_strictly_and_each_tutorial_runs_and_ends_in_a_picture(tmp_path: Path) -> None:
    config = (ROOT / "mkdocs.yml").read_text()
    assert "strict: true" in config  # a broken link or a page outside the navigation is an error
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        sources = Sources()
        sources.feed(page.read_text())
        assert not [source for source in sources.found if "//" in source], f"{page.name} loads from elsewhere"
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:", style.read_text()), f"{style.name} loads from elsewhere"
    for tutorial in TUTORIALS:
        page = (tmp_path / "tutorials" / f"{tutorial.stem}.html").read_text()
        pictures = re.findall(rf'src="({tutorial.stem}_\d+\.svg)"', page)
        assert pictures
        assert "<svg" in (tmp_path / "tutorials" / pictures[-1]).read_text()
    estimators = (tmp_path / "api" / "estimators.html").read_text()
    for name in ("Classifier", "Imputer", "Forecaster", "importances", "predict_proba", "readings_at"):
        assert name in estimators


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_a_notebook_without_outputs_that_ends_in_a_picture(tutorial: Path) -> None:
    cells = jupytext.read(tutorial).cells
    assert cells[0].cell_type == "markdown"
    assert cells[0].source.startswith("# ")
    assert not any(cell.get("outputs") for cell in cells)
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    assert re.match(r"(plots\.\w+|curves)\(", code[-1].splitlines()[-1]), "the last code draws"
    assert "raindrop.datasets" in tutorial.read_text(), "data that the library makes, so that it runs anywhere"


def test_a_page_has_what_the_code_printed_returned_and_drew(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "# %% [markdown]\n# # Small\n\n# %%\nprint('printed')\n6 * 7\n\n# %%\nfrom matplotlib.figure import Figure\n"
        "figure = Figure()\nfigure.add_subplot().plot([1, 2])\nfigure\n\n# %%\nfrom polars import DataFrame\n"
        "DataFrame({'a': [1]})\n\n# %%\nfrom pathlib import Path\nPath('here.txt').touch()\n"
    )
    before = Path.cwd()
    page = runner().run(tmp_path / "small.py")
    assert page.markdown.startswith("# Small\n\n```python\nprint('printed')\n6 * 7\n```")
    assert "``` text\nprinted\n```" in page.markdown
    assert "``` text\n42\n```" in page.markdown
    assert "](small_1.svg)" in page.markdown
    assert page.pictures["small_1.svg"].count("<svg") == 1
    assert '<div class="output"><div><style>' in page.markdown
    assert Path.cwd() == before
    assert not Path("here.txt").exists()


def test_a_cell_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("# %% [markdown]\n# # Wrong\n\n# %%\n1 / 0\n")
    notebooks = runner()
    with pytest.raises(notebooks.TutorialError, match=r"wrong.py, cell 2: ZeroDivisionError: division by zero"):
        notebooks.run(tmp_path / "wrong.py")

"""What MkDocs does beside its usual work: pages from tutorials, and from Markdown files above docs/."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import notebooks

ROOT = Path(__file__).parents[2]
FROM_ROOT = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not files of docs/: each tutorial as run now, with its pictures, and files of the root."""
    for tutorial in sorted(file.src_uri for file in files if file.src_uri.startswith("tutorials/")):
        if not tutorial.endswith(".py"):
            continue
        try:
            page = notebooks.run(ROOT / "docs" / tutorial)
        except notebooks.TutorialError as error:
            raise PluginError(str(error)) from error
        made = {Path(tutorial).with_suffix(".md").name: page.markdown} | page.pictures
        for name, content in made.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))
    for name in FROM_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that are right in the repository, made right in the site."""
    if page.file.src_uri in FROM_ROOT:
        return markdown.replace("](docs/", "](")
    if page.file.src_uri == "tutorials/index.md":
        return markdown.replace(".py)", ".md)")
    for name in FROM_ROOT if "/" not in page.file.src_uri else ():
        markdown = markdown.replace(f"](../{name})", f"]({name})")
    return markdown

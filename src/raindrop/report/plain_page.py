"""The frame of pages without scripts: head, title, style. They need no additional package."""

from __future__ import annotations

from html import escape
from importlib.resources import files

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
SELF_CONTAINED = "This file is self-contained: it loads nothing from the network."


def plain_page(title: str, eyebrow: str, lead: str, sections: list[str], note: str = "") -> str:
    """A page from its sections, which are HTML; title and lead are text, the note below is HTML."""
    style = files("raindrop.report").joinpath("page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{escape(title)}</title>'
            f'<link rel="icon" href="data:,"><style>{style}</style></head><body>'
            f'<header class="top"><div class="wrap"><p class="eyebrow">{escape(eyebrow)}</p><h1>{escape(title)}</h1>'
            f'<p class="lead">{escape(lead)}</p></div></header><main class="wrap">',
            *sections,
            f'<p class="note">{note} {SELF_CONTAINED}</p></main></body></html>',
        ]
    )

"""A report opened in a real browser, with everything it requests and complains about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAINTED = """async () => {
    for (let turn = 0; turn < 4; turn++) {
        await new Promise(requestAnimationFrame);
        await new Promise((done) => setTimeout(done, 20));
    }
}"""
"""Charts are laid out and painted by frames, and by timers of a sixtieth of a second; these come after them."""


class Opened:
    """A page, with its requests and errors."""

    def __init__(self, browser: Any, path: Path, **options: Any):
        self.page = browser.new_page(**options)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else None,
        )
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", timeout=60_000)

    def evaluate(self, script: str) -> Any:
        return self.page.evaluate(script)

    def wait_until_painted(self) -> None:
        """Wait until what was changed before is in its place and visible."""
        self.page.evaluate(PAINTED)

    def screenshot(self, element: str) -> bytes:
        self.wait_until_painted()
        return bytes(self.page.locator(f"#{element}").screenshot())

    def edges(self, chart: str) -> list[tuple[str, str]]:
        columns = self.evaluate(f"(({{sender, receiver}}) => [sender, receiver])(model('{chart}-edges').data)")
        return list(zip(*columns, strict=True))


INJECTED = """<style>body { outline: 7px solid red }</style><p id="injected" style="position: fixed">x</p>
<img src="data:image/png;base64,broken" onerror="document.title = 'ran'">"""


def foreign_markup_works(page: Any) -> list[str]:
    """Put a style, a style attribute and a script into a page, as if a name had got through as markup; what worked."""
    page.evaluate(
        "text => { const place = document.createElement('div'); place.innerHTML = text; document.body.append(place); }",
        INJECTED,
    )
    page.wait_for_timeout(200)
    worked = {
        "style": "getComputedStyle(document.body).outlineWidth === '7px'",
        "style attribute": "getComputedStyle(document.getElementById('injected')).position === 'fixed'",
        "script": "document.title === 'ran'",
    }
    return [name for name, test in worked.items() if page.evaluate(test)]

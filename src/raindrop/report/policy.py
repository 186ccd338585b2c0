"""How a page's Content-Security-Policy names its own scripts and styles; a browser refuses all others."""

from __future__ import annotations

import base64
import hashlib


def policy_hash(text: str) -> str:
    """The one inline script or style with this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def content_nonce(content: str) -> str:
    """The mark of the page's own styles. It follows from all data, so that no text in the data can contain it."""
    return base64.b64encode(hashlib.sha256(content.encode()).digest()[:18]).decode()

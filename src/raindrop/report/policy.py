"""The Content-Security-Policy entries for a page's own scripts and styles; a browser blocks all others."""

from __future__ import annotations

import base64
import hashlib


def policy_hash(text: str) -> str:
    """The hash that allows the inline script or style with this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def content_nonce(content: str) -> str:
    """The nonce of the page's own styles. It is derived from all data, so that no text in the data can contain it."""
    return base64.b64encode(hashlib.sha256(content.encode()).digest()[:18]).decode()

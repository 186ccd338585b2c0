"""Bearer tokens: who may request what. Only their hashes are on disk.

A token is 32 random bytes, so a plain SHA-256 of it cannot be reversed by guessing. A given token is hashed and
compared with every stored hash in constant time, so timing reveals neither which one matches nor how much of it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from raindrop.errors import ConfigError, suggest
from raindrop.files import read_json, write_json

SCOPES = ("predict", "stream", "model", "metrics", "admin")
"""predict: predictions, readings, graphs; stream: live samples; model: cards; metrics; admin: reload models."""
PREFIX = "rd_"
MAX_TOKENS = 1_000
MAX_TOKEN_BYTES = 256


@dataclass(frozen=True)
class Token:
    """A stored token."""

    name: str
    scopes: tuple[str, ...]
    sha256: str
    created: str


class Tokens:
    """The tokens of a file."""

    def __init__(self, tokens: Sequence[Token]):
        self.tokens = list(tokens)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Tokens:
        """The tokens of a file; raises if it is not one, or if others than its owner may write to it."""
        path = Path(path)
        if os.name == "posix" and path.exists() and path.stat().st_mode & 0o022:
            raise ConfigError(
                f"{path}: others than its owner may change it, and so add tokens. Forbid it: chmod 600 {path}"
            )
        try:
            content = read_json(path)
            tokens = [
                Token(str(one["name"]), tuple(map(str, one["scopes"])), str(one["sha256"]), str(one["created"]))
                for one in content["tokens"]
            ]
        except FileNotFoundError:
            raise ConfigError(
                f"{path}: there is no such file. Make a token with: raindrop token {path} --name NAME"
            ) from None
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(f"{path}: not a file of tokens. Make one with: raindrop token FILE --name NAME") from None
        for token in tokens:
            if not re.fullmatch(r"[0-9a-f]{64}", token.sha256) or not set(token.scopes) <= set(SCOPES):
                raise ConfigError(f"{path}: the token '{token.name}' is damaged. Remove it and make a new one.")
        return cls(tokens)

    def scopes(self, given: bytes | None) -> tuple[str, ...] | None:
        """The scopes of a token; None if it is unknown. Takes the same time in all cases."""
        usable = given is not None and len(given) <= MAX_TOKEN_BYTES
        found = hashlib.sha256(given if usable and given is not None else b"").hexdigest().encode()
        scopes: tuple[str, ...] | None = None
        for token in self.tokens:
            if hmac.compare_digest(found, token.sha256.encode()):
                scopes = token.scopes
        return scopes if usable else None


def add_token(path: str | os.PathLike[str], name: str, scopes: Sequence[str]) -> str:
    """Add a token to a file, which only its owner can read, and return it: it is not stored, so keep it."""
    path = Path(path)
    tokens = Tokens.read(path).tokens if path.exists() else []
    for scope in scopes:
        if scope not in SCOPES:
            raise ConfigError(f"Unknown scope '{scope}': {suggest(scope, SCOPES)}")
    if not scopes:
        raise ConfigError(f"A token needs at least one scope: {', '.join(SCOPES)}.")
    if not re.fullmatch(r"[\w .@-]{1,64}", name):
        raise ConfigError(
            "The name of a token must have 1 to 64 letters, digits, spaces, and . _ @ - ; it says who has it."
        )
    if any(token.name == name for token in tokens):
        raise ConfigError(f"{path}: has a token '{name}' already. Choose another name, or remove it with --remove.")
    if len(tokens) >= MAX_TOKENS:
        raise ConfigError(f"{path}: has {len(tokens):,} tokens, and no more are allowed.")
    secret = PREFIX + secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    created = datetime.now(UTC).isoformat(timespec="seconds")
    _write(path, [*tokens, Token(name, tuple(dict.fromkeys(scopes)), digest, created)])
    return secret


def remove_token(path: str | os.PathLike[str], name: str) -> None:
    """Remove a token from a file."""
    tokens = Tokens.read(path).tokens
    kept = [token for token in tokens if token.name != name]
    if len(kept) == len(tokens):
        raise ConfigError(f"{path}: there is no token '{name}': {suggest(name, [token.name for token in tokens])}")
    _write(Path(path), kept)


def _write(path: Path, tokens: Sequence[Token]) -> None:
    before = os.umask(0o077)  # only the owner may read the file
    try:
        write_json(path, {"tokens": [vars(token) | {"scopes": list(token.scopes)} for token in tokens]})
    finally:
        os.umask(before)

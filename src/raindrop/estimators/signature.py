"""Signed models: an HMAC-SHA256 over the model's checksum, which covers its description, weights and split.

Whoever has the key can sign and verify. A signature shows that somebody with the key signed the model, and that it was
not changed afterwards.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from raindrop.errors import ConfigError, ModelFileError, reading
from raindrop.files import read_json, write_json

SIGNATURE_FILE = "signature.json"
ALGORITHM = "HMAC-SHA256"
MIN_KEY_BYTES, MAX_KEY_BYTES = 32, 65_536
PREFIX = b"raindrop model, version 1\n"  # so that signatures differ from those of other programs with the same key

Key = bytes | str | os.PathLike[str]
"""The bytes of a key, or the path of the file that holds them."""


def read_key(key: Key) -> bytes:
    """The bytes of the key, checked for length; leading and trailing white space of a file is stripped."""
    if isinstance(key, bytes):
        content, source = key, "key"
    else:
        source = os.fspath(key)
        with reading(source, f"a key of at least {MIN_KEY_BYTES} bytes"), open(source, "rb") as file:
            content = file.read(MAX_KEY_BYTES + 1).strip()
    if not MIN_KEY_BYTES <= len(content) <= MAX_KEY_BYTES:
        raise ConfigError(
            f"{source}: a key has {MIN_KEY_BYTES} to {MAX_KEY_BYTES:,} bytes, not {len(content):,}. "
            "Make one with: openssl rand -hex 32 > FILE"
        )
    return content


def sign(folder: Path, checksum: str, key: Key) -> Path:
    """Write the signature of the model with this checksum into its folder."""
    write_json(folder / SIGNATURE_FILE, {"algorithm": ALGORITHM, "signature": _signature(checksum, read_key(key))})
    return folder / SIGNATURE_FILE


def require_signature(folder: Path, checksum: str, key: Key) -> None:
    """Raise unless the model with this checksum was signed with the key."""
    expected = _signature(checksum, read_key(key))
    path = folder / SIGNATURE_FILE
    try:
        content = read_json(path)
        found, algorithm = str(content["signature"]), content["algorithm"]
    except FileNotFoundError:
        raise ModelFileError(
            f"{path}: missing, but a signature is required. Sign it with: raindrop sign {folder} --key FILE"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise ModelFileError(f"{path}: not a signature; the file is damaged. Sign the model again.") from None
    if algorithm != ALGORITHM or not hmac.compare_digest(found.encode(), expected.encode()):
        raise ModelFileError(
            f"{path}: not the signature of this model with this key. The model was changed or exchanged after it was "
            "signed, or signed with another key; do not use it unless you know which."
        )


def _signature(checksum: str, key: bytes) -> str:
    return hmac.new(key, PREFIX + checksum.encode(), hashlib.sha256).hexdigest()

"""The version of raindrop."""

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

try:
    VERSION = version("raindrop-ts")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0+source"


def source_checksum() -> str:
    """Checksum of the package's files, to trace a stored result to the code that produced it."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

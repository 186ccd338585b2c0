"""Which raindrop this is."""

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

try:
    VERSION = version("raindrop-ts")
except PackageNotFoundError:  # run from a source tree that is not installed
    VERSION = "0+source"


def source_checksum() -> str:
    """Of the package's files, so that a stored figure can be traced to the code that made it."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

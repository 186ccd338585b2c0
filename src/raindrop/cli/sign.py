"""The command `raindrop sign`."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from raindrop.cli.samples import console


def sign(run: Path, *, key: Path) -> None:
    """Sign a trained model with a key, so that a service can refuse all others with --require-signature KEY.

    Args:
        run: folder that `raindrop train`, `impute train` or `forecast train` wrote.
        key: file with a secret of at least 32 bytes; make one with `openssl rand -hex 32 > FILE`.
    """
    from raindrop.estimators import sign_model

    console.print(f"signed the model; wrote {escape(str(sign_model(run, key)))}")

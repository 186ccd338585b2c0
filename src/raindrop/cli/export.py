"""The command `raindrop export`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.markup import escape

from raindrop.cli.samples import console


def export(
    run: Path,
    *,
    out: Path,
    format: Literal["onnx", "pt2"] = "onnx",
    max_times: int = 1024,
    require_signature: Path | None = None,
) -> None:
    """Write a trained model as ONNX, with a reader that needs NumPy and ONNX Runtime but neither torch nor raindrop.

    Args:
        run: folder that `raindrop train` or `raindrop impute train` wrote, of the model 'raindrop'.
        out: folder to write: the model, model.json and reader.py; must not exist yet.
        format: onnx, or pt2 (a program of torch.export).
        max_times: maximum number of timestamps of a sample.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.estimators import load
    from raindrop.export import export_model
    from raindrop.files import refuse_to_overwrite

    refuse_to_overwrite(out)
    model = load(run, key=require_signature)
    with console.status("tracing the model ..."):
        export_model(model, out, format=format, max_times=max_times)
    console.print(f"wrote {escape(str(out / f'model.{format}'))}, model.json and reader.py")
    if format == "onnx":
        console.print(f"Next: python {escape(str(out / 'reader.py'))} events.csv --samples samples.csv")

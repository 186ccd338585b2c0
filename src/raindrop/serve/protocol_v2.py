"""The Open Inference Protocol, version 2: readings as four flat tensors, predictions as a tensor for each column."""

from __future__ import annotations

from typing import Any

import msgspec
import polars as pl

from raindrop.serve.failures import RequestError
from raindrop.serve.limits import Limits
from raindrop.serve.messages import Cell, Columns, Job

NUMBERS = {"FP64", "FP32", "FP16", "INT64", "INT32", "INT16", "INT8", "UINT64", "UINT32", "UINT16", "UINT8"}
READINGS = {"sample": {"BYTES"}, "time": NUMBERS, "sensor": {"BYTES"}, "value": NUMBERS}


class Tensor(msgspec.Struct, forbid_unknown_fields=True):
    """An input tensor with its numbers or texts in JSON."""

    name: str
    shape: list[int]
    datatype: str
    data: list[Cell]
    parameters: dict[str, Cell] = {}


class AskedOutput(msgspec.Struct, forbid_unknown_fields=True):
    """A requested output tensor."""

    name: str
    parameters: dict[str, Cell] = {}


class InferRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request to infer."""

    inputs: list[Tensor]
    id: str = ""
    parameters: dict[str, Cell] = {}
    outputs: list[AskedOutput] = []


DECODER = msgspec.json.Decoder(InferRequest)


def job_of(body: bytes, model: str, limits: Limits) -> Job:
    """The job of a request; errors say which tensor is wrong."""
    request = DECODER.decode(body)
    if len(request.inputs) > 4 + 64 or len(request.outputs) > 10_000:
        raise RequestError("too_large", "The request has too many tensors.")
    tensors = {tensor.name: tensor for tensor in request.inputs}
    if len(tensors) < len(request.inputs):
        raise RequestError("bad_request", "Two inputs have the same name; give each tensor once.")
    for name, kinds in READINGS.items():
        if name not in tensors:
            raise RequestError(
                "bad_request", f"The input '{name}' is missing. Readings are the tensors {', '.join(READINGS)}."
            )
        if tensors[name].datatype not in kinds:
            raise RequestError(
                "bad_request",
                f"The input '{name}' is of type {tensors[name].datatype}, not {' or '.join(sorted(kinds))}.",
            )
    for tensor in tensors.values():
        _check_shape(tensor)
    if len({len(tensors[name].data) for name in READINGS}) > 1:
        lengths = ", ".join(f"{name} {len(tensors[name].data):,}" for name in READINGS)
        raise RequestError("bad_request", f"The four tensors of readings must be equally long, but have: {lengths}.")
    texts = {name: _texts(tensors[name]) for name in ("sample", "sensor")}
    statics: dict[str, list[Cell]] = {name: tensor.data for name, tensor in tensors.items() if name not in READINGS}
    ids = list(dict.fromkeys(texts["sample"]))
    for name, column in statics.items():
        if len(column) != len(ids):
            raise RequestError(
                "bad_request",
                f"The input '{name}' has {len(column):,} entries; an attribute has one for each sample ({len(ids):,}).",
            )
    numbers = {name: _numbers(tensors[name]) for name in ("time", "value")}
    coverage, every = (_parameter(request.parameters, name) for name in ("coverage", "every"))
    return Job(
        0,
        "predict",
        "v2",
        Columns(numbers["time"], texts["sensor"], numbers["value"], texts["sample"]),
        samples={"sample": list(ids), **statics} if statics else {},
        coverage=coverage,
        every=every,
        model=model,
        id=request.id[:256],
        outputs=[output.name for output in request.outputs],
    )


def _check_shape(tensor: Tensor) -> None:
    if tensor.shape != [len(tensor.data)]:
        raise RequestError(
            "bad_request",
            f"The input '{tensor.name}' says the shape {tensor.shape}, but has {len(tensor.data):,} entries; a flat "
            "tensor has one dimension, their number.",
        )


def _texts(tensor: Tensor) -> list[str]:
    wrong = next((at for at, entry in enumerate(tensor.data) if not isinstance(entry, str)), None)
    if wrong is not None:
        raise RequestError(
            "bad_request", f"The input '{tensor.name}' has an entry that is not text (number {wrong + 1:,})."
        )
    return [str(entry) for entry in tensor.data]


def _numbers(tensor: Tensor) -> list[float | str | None]:
    for at, entry in enumerate(tensor.data):
        if isinstance(entry, (str, bool)) or entry is None:
            raise RequestError(
                "bad_request", f"The input '{tensor.name}' has an entry that is not a number (number {at + 1:,})."
            )
    try:
        return [float(entry) for entry in tensor.data]  # type: ignore[arg-type]
    except OverflowError:
        raise RequestError("bad_request", f"The input '{tensor.name}' has a number that is too large.") from None


def _parameter(parameters: dict[str, Cell], name: str) -> float | None:
    value = parameters.get(name)
    if value is None:
        return None
    if isinstance(value, (str, bool)):
        raise RequestError("bad_request", f"The parameter '{name}' is a number.")
    return float(value)


def response(model: str, version: str, id: str, frame: pl.DataFrame, outputs: list[str]) -> bytes:
    """The columns of a frame as tensors; all of them, or the requested ones."""
    unknown = [name for name in outputs if name not in frame.columns]
    if unknown:
        raise RequestError(
            "bad_request", f"There is no output '{unknown[0]}'; there are: {', '.join(frame.columns[:50])}."
        )
    content: dict[str, Any] = {"model_name": model, "model_version": version}
    if id:
        content["id"] = id
    content["outputs"] = [
        {"name": name, "shape": [len(frame)], "datatype": datatype(frame[name].dtype), "data": frame[name].to_list()}
        for name in outputs or frame.columns
    ]
    return msgspec.json.encode(content, enc_hook=str)


def datatype(dtype: pl.DataType) -> str:
    """The protocol's name of a column's type."""
    if dtype == pl.Boolean:
        return "BOOL"
    if dtype.is_float():
        return "FP32" if dtype == pl.Float32 else "FP64"
    return "INT64" if dtype.is_integer() else "BYTES"


def metadata(card: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a model in the protocol."""
    inputs = [{"name": name, "datatype": "BYTES" if "BYTES" in kinds else "FP64", "shape": [-1]}
              for name, kinds in READINGS.items()]  # fmt: skip
    inputs += [
        {"name": static["name"], "datatype": "FP64" if static["values"] is None else "BYTES", "shape": [-1]}
        for static in card["statics"]
    ]
    if card["kind"] == "samples":
        names = [("sample", "BYTES"), *(("probability_" + name, "FP32") for name in card["classes"])]
        names += [] if card["classes"] else [(label, "FP32") for label in card["labels"]]
    else:
        names = [("sample", "BYTES"), ("time", "FP64"), ("sensor", "BYTES")]
        names += [(name, "FP64") for name in ("value", "low", "high")]
    return {
        "name": card["name"],
        "versions": [card["run"]],
        "platform": "raindrop",
        "inputs": inputs,
        "outputs": [{"name": name, "datatype": kind, "shape": [-1]} for name, kind in names],
    }

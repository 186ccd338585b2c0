"""Hostile inputs for commands: files in other shapes, tables of odd values, odd options, models of readings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from followers import SENSORS
from hostile import CELLS, Home, Rng, command, damage, mutate, pick
from refusal import is_sound
from small_blocks import read_in_small_pieces

from raindrop.files import content_checksum
from raindrop.table.event_table import EventTable

NUMBERS = ["0", "1", "-1", "2.5", "1e300", "-1e308", "1e-320", "9007199254740993", "12", "0.1", "nan", "", "x", "1e9"]
OPTIONS: list[Any] = [-1, 0, 1, 2, 0.5, 0.9, 6, 12, 1e-9, 1e-3, 1e9, 1e300, "nan", "inf", "", "x", "label", "age", "\0"]


def odd_table(rng: Rng, home: Home, *, sensors: tuple[str, ...] = SENSORS) -> Path:
    """A folder with CSV files: few samples, times and values that are often extreme, names that are sometimes odd."""
    folder = home.fresh() / "data"
    folder.mkdir()
    samples, many = int(rng.integers(1, 16)), int(rng.integers(0, 60))
    odd = float(rng.choice([0.0, 0.02, 0.3]))
    rows = []
    for at in range(many):
        values = [f"s{at % samples:03d}", f"{rng.uniform(0, 30):.3f}", pick(sensors, rng), f"{rng.normal():.3f}"]
        if rng.random() < odd:
            place = int(rng.integers(4))
            values[place] = pick(NUMBERS if place in (1, 3) and rng.random() < 0.9 else CELLS, rng)
        rows.append(values)
    if rng.random() < 0.1:
        rows = [[row[0], "3", *row[2:]] for row in rows]  # all at one time
    text = "\n".join(",".join(row) for row in [["sample", "time", "sensor", "value"], *rows])
    (folder / "events.csv").write_text(text, encoding="utf-8", errors="replace")
    if rng.random() < 0.7:
        labels = ["ill", "well", "ill", "well", *(["NA", "", "3.5", "ill "] if rng.random() < 0.3 else [])]
        ages = [pick(NUMBERS, rng) if rng.random() < odd else str(60 + at) for at in range(samples)]
        about = [f"s{at:03d},{pick(labels, rng)},{age},north" for at, age in enumerate(ages)]
        (folder / "samples.csv").write_text("\n".join(["sample,label,age,ward", *about]))
    return folder


def options_of(rng: Rng, *names: str, share: float = 0.4) -> list[str]:
    """Some of these options, with odd values."""
    words = []
    for name in names:
        if rng.random() < share:
            words += [name, str(pick(OPTIONS, rng))]
    return words


def damaged_files(rng: Rng, home: Home) -> tuple[Path, list[str]]:
    """A copy of files in one of many shapes, one of them often damaged, and the words that import them."""
    source, words = home.shapes[pick(sorted(home.shapes), rng)]
    folder = home.fresh(source)
    words = [word.replace(str(source), str(folder)) for word in words]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    if rng.random() < 0.8:
        path = pick(files, rng)
        content = path.read_bytes()
        if path.suffix in (".csv", ".tsv") and rng.random() < 0.6:
            lines = content.split(b"\n")
            at = int(rng.integers(len(lines)))
            cells = lines[at].split(b",")
            cells[int(rng.integers(len(cells)))] = pick(CELLS + NUMBERS, rng).encode("utf-8", "replace")
            lines[at] = b",".join(cells)
            path.write_bytes(b"\n".join(lines))
        else:
            path.write_bytes(damage(content, rng))
    if rng.random() < 0.4:
        words = [word for word in words if rng.random() < 0.9]
    return folder, words


def import_files(rng: Rng, home: Home) -> str:
    folder, words = damaged_files(rng, home)
    more = ["--wide", "--time-unit=days", "--time-unit=x", "--duplicates=mean", "--missing=drop", "--missing=error"]
    more += ["--sample=when", "--label=machine", "--group=nothing", "--window=-1", "--codes=temp", "--cutoff=hours"]
    words += [word for word in more if rng.random() < 0.08]
    out = folder / "imported"
    command("import", *words, "--out", out)
    is_sound(EventTable.read(out, verify=True))
    return ""


def prepare_files(rng: Rng, home: Home) -> str:
    """In pieces and buckets of a few rows; what it makes of files is what `import` makes of them."""
    folder, words = damaged_files(rng, home)
    with pytest.MonkeyPatch.context() as patch:
        read_in_small_pieces(patch)
        command("prepare", *words, "--out", folder / "prepared")
    prepared = EventTable.read(folder / "prepared", verify=True)
    is_sound(prepared)
    command("import", *words, "--out", folder / "imported")
    whole = EventTable.read(folder / "imported")
    if sorted(prepared.ids) != sorted(whole.ids) or not prepared[whole.ids].events().equals(whole.events()):
        return "prepare and import differ"
    return ""


def export_table(rng: Rng, home: Home) -> str:
    folder = home.fresh()
    names = ["a", "b", "c", *([pick(CELLS, rng)] if rng.random() < 0.7 else [])]
    many = int(rng.integers(1, 12))
    columns = (
        [pick(names, rng) for _ in range(many)],
        rng.choice([0.0, 1.5, 1e-300, 1e15, -3.0, 7.25], many),
        [pick(names, rng) for _ in range(many)],
        rng.choice([0.0, -0.5, 1e300, 5e-324, 0.1, 12345.678901234567], many),
    )
    table = EventTable.from_columns(*columns, duplicates="last")
    if rng.random() < 0.5:
        about = {"sample": table.ids, "age": rng.choice([1.0, 2.5, np.nan], len(table)).tolist()}
        table = EventTable.from_columns(*columns, about, statics=["age"], duplicates="last")
    table.write(folder / "data")
    kind = pick(["csv", "wide", "parquet", "meds"], rng)
    out = folder / {"csv": "out.csv", "wide": "out.csv", "parquet": "out.parquet", "meds": "out"}[kind]
    command("export-table", folder / "data", "--format", kind, "--out", out)
    if kind == "meds":  # single precision, and subjects by number
        return "" if EventTable.read(out).num_readings == table.num_readings else "MEDS loses readings"
    again = EventTable.from_files(out, wide=kind == "wide", **({"sample": "sample"} if kind == "wide" else {}))
    if again.num_readings != table.num_readings:
        return f"{kind} loses readings"
    same = np.array_equal(np.sort(again.value[again.rows()]), np.sort(table.value[table.rows()]))
    return "" if same else f"{kind} changes values"


def queries_file(rng: Rng, home: Home) -> Path:
    """A file of queries, often odd or damaged."""
    path = home.work / pick(["queries.csv", "queries.parquet", "queries.txt"], rng)
    rows = [(f"s{int(rng.integers(6)):03d}", float(rng.uniform(0, 60)), pick(SENSORS, rng)) for _ in range(6)]
    frame = pl.DataFrame(rows, schema=["sample", "time", "sensor"], orient="row")
    if rng.random() < 0.3:
        frame = frame.with_columns(
            pl.Series(pick(["sample", "time", "sensor", "value"], rng), [pick(NUMBERS, rng)] * 6)
        )
    frame.write_parquet(path) if path.suffix == ".parquet" else frame.write_csv(path)
    if rng.random() < 0.3:
        path.write_bytes(damage(path.read_bytes(), rng))
    return path


def apply_to_readings(rng: Rng, home: Home) -> str:
    kind = pick(["impute", "forecast"], rng)
    data = odd_table(rng, home)
    words = options_of(rng, "--every", "--coverage", share=0.5)
    words += options_of(rng, "--cutoff", share=0.2) if kind == "forecast" else []
    if rng.random() < 0.3:
        words += ["--queries", str(queries_file(rng, home))]
    if rng.random() < 0.3:
        words += ["--unknown-sensors", "ignore"]
    out = home.work / pick(["out.csv", "out.parquet", "out"], rng)
    target = "--readings" if kind == "impute" and out.suffix else "--out"
    command(kind, "apply", pick(home.runs[kind], rng), data, target, out, *words)
    if target == "--out" and kind == "impute":
        is_sound(EventTable.read(out))
    elif out.exists():
        frame = pl.read_parquet(out) if out.suffix == ".parquet" else pl.read_csv(out, infer_schema_length=None)
        if not frame.is_empty() and not (frame["low"] <= frame["high"]).all():
            return "an interval ends before it starts"
    return ""


def train_on_readings(rng: Rng, home: Home) -> str:
    kind = pick(["impute", "forecast"], rng)
    data = odd_table(rng, home) if rng.random() < 0.7 else home.gaps
    words = ["--model", pick(["linear", "mean", "last", "nearest", "trees", "raindrop", "mtand", "x"], rng)]
    words += options_of(rng, "--threads", "--seed", "--split", "--statics", "--group", share=0.1)
    words += ["--horizon", str(pick(OPTIONS, rng) if rng.random() < 0.4 else 6)] if kind == "forecast" else []
    sizes = ["train.epochs=1", "train.batch_readings=500"]
    sizes += ["model.hidden=8", "model.heads=2"] if "raindrop" in words else []
    if rng.random() < 0.4:
        sizes.append(
            f"{pick(['model.hidden', 'train.learning_rate', 'train.epochs', 'model.x'], rng)}={pick([-1, 0, 1], rng)}"
        )
    if words[1] in ("raindrop", "mtand"):
        words += ["--set", *sizes]
    return command(kind, "train", data, "--out", home.fresh_out(), *words)


def evaluate_readings(rng: Rng, home: Home) -> str:
    kind = pick(["impute", "forecast"], rng)
    data = odd_table(rng, home)
    names = ("--hide-readings", "--hide-blocks", "--hide-sensors") if kind == "impute" else ("--horizons", "--cutoff")
    words = options_of(rng, *names, "--seed", share=0.25)
    return command("evaluate", pick(home.runs[kind], rng), data, "--out", home.work / "m.json", *words)


def model_of_readings(rng: Rng, home: Home) -> str:
    kind = pick(["impute", "forecast"], rng)
    run = pick(home.runs[kind], rng)
    folder = home.fresh(run)
    forged = bool(rng.random() < 0.5)
    if forged:
        about = json.loads((folder / "model.json").read_text())
        del about["checksum"]
        about = mutate(about, rng)
        if isinstance(about, dict):
            text = json.loads(json.dumps(about, default=str))
            about = {**text, "checksum": content_checksum(text)}
        (folder / "model.json").write_text(json.dumps(about, default=str))
    else:
        path = pick(sorted(folder.glob("model.*")), rng)
        path.write_bytes(damage(path.read_bytes(), rng))
    target, expected = home.work / "filled.parquet", home.folder / f"{run.name}.parquet"
    asked = (home.gaps, "--every", 5, "--readings" if kind == "impute" else "--out")
    if not expected.exists():
        command(kind, "apply", run, *asked, expected)
    command(kind, "apply", folder, *asked, target)
    if rng.random() < 0.2:
        command("report", folder, "--out", home.work / "r.html")
    same = forged or pl.read_parquet(target).equals(pl.read_parquet(expected))
    return "" if same else "a damaged model predicts something else"


def fit_table(rng: Rng, home: Home) -> str:
    data = odd_table(rng, home)
    minutes = pick([0.001, 0.005, 0.005, -1, "nan", 0, "x"], rng)
    words = options_of(rng, "--label", "--positive", "--group", "--seed", share=0.1)
    words += ["--task", pick(["classification", "readings", "regression", "multilabel", "x"], rng)] * (
        rng.random() < 0.4
    )
    return command("fit", data, "--out", home.work / "run", "--minutes", minutes, "--no-page", *words)


def graph_of_table(rng: Rng, home: Home) -> str:
    data = odd_table(rng, home) if rng.random() < 0.8 else home.gaps
    words = options_of(rng, "--q", "--seed", "--group", share=0.2)
    if rng.random() < 0.3:
        path = home.work / "places.csv"
        path.write_text(
            "sensor,x,y\n" + "\n".join(f"{name},{pick(NUMBERS, rng)},{pick(NUMBERS, rng)}" for name in SENSORS)
        )
        words += ["--positions", str(path)]
    return command("graph", data, "--out", home.fresh_out(), *words)


def use_of_model(rng: Rng, home: Home) -> str:
    data = odd_table(rng, home, sensors=("heart rate", "pressure", "temperature"))
    name = pick(
        ["predict", "evaluate", "evaluate", "predict", "explain"] if rng.random() < 0.3 else ["predict", "evaluate"],
        rng,
    )
    options = {
        "predict": ("--label", "--cutoff", "--coverage"),
        "evaluate": ("--hide-sensors", "--label", "--cutoff", "--seed"),
        "explain": ("--samples", "--label", "--seed"),
    }
    words = options_of(rng, *options[name], share=0.15)
    words += ["--unknown-sensors", "ignore"] * (rng.random() < 0.3) + ["--part", "all"] * (rng.random() < 0.3)
    out = home.work / {"predict": "p.csv", "evaluate": "m.json", "explain": "r.html"}[name]
    return command(name, home.run, data, "--out", out, *words)


def inspect_table(rng: Rng, home: Home) -> str:
    data = odd_table(rng, home)
    words = options_of(rng, "--label", "--statics", "--group", "--reference", "--cutoff", "--time", "--seed", share=0.1)
    return command("inspect", data, *words)


COMMAND_ENTRIES: dict[str, Callable[[Rng, Home], str]] = {
    "import": import_files,
    "prepare": prepare_files,
    "export-table": export_table,
    "inspect": inspect_table,
    "predict, evaluate, explain": use_of_model,
    "impute and forecast, apply": apply_to_readings,
    "impute and forecast, train": train_on_readings,
    "evaluate, readings": evaluate_readings,
    "model of readings, damaged or forged": model_of_readings,
    "graph": graph_of_table,
    "fit": fit_table,
}
COMMAND_SHARES = {
    "predict, evaluate, explain": 0.2,
    "impute and forecast, apply": 0.25,
    "impute and forecast, train": 0.1,
    "evaluate, readings": 0.25,
    "model of readings, damaged or forged": 0.5,
    "graph": 0.1,
    "fit": 0.05,
}

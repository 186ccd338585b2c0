"""Hostile inputs for every entry point. An entry draws one, gives it to the library, and says what came of it.

An entry returns "" for an answer that is right as far as can be known, or what is wrong with it. A refusal is a
RaindropError or an exit code with a sentence; any other exception is a bug.
"""

from __future__ import annotations

import io
import json
import math
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from command_entries import COMMAND_ENTRIES, COMMAND_SHARES
from command_line import commands_of
from hostile import CELLS, KEY, VALUES, Home, RefusedError, Rng, command, damage, mutate, pick
from learnable import QUICK
from refusal import is_sound
from safetensors.torch import load_file, save_file
from stream_entries import STREAM_ENTRIES

import raindrop as rd
from raindrop import config as configs
from raindrop.cli.app import app
from raindrop.datasets.download import Fetcher
from raindrop.datasets.publishers import Listing, Remote
from raindrop.errors import RaindropError
from raindrop.files import content_checksum, file_checksum
from raindrop.models.registry import MODELS
from raindrop.table.event_table import EventTable
from raindrop.table.split_files import Split
from raindrop.training.config import TrainConfig

# ---------------------------------------------------------------- tables


def csv_table(rng: Rng, home: Home) -> str:
    folder, rows = home.fresh(), [["sample", "time", "sensor", "value"]]
    rows += [[f"s{at % 4}", str(at), "HR", str(at * 1.5)] for at in range(int(rng.integers(0, 12)))]
    for _ in range(int(rng.integers(0, 3))):
        row = rows[int(rng.integers(len(rows)))]
        if row and row is not rows[0]:
            row[int(rng.integers(len(row)))] = CELLS[int(rng.integers(len(CELLS)))]
    if rng.random() < 0.1:
        rows.append(["x"] * int(rng.integers(8)))
    text = "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")
    (folder / "events.csv").write_bytes(damage(text, rng) if rng.random() < 0.2 else text)
    if rng.random() < 0.6:
        cells = [CELLS[int(rng.integers(len(CELLS)))] if rng.random() < 0.3 else "yes" for _ in range(4)]
        lines = "\n".join(f"s{at},{cell}" for at, cell in enumerate(cells))
        (folder / "samples.csv").write_text(f"sample,label\n{lines}\n", encoding="utf-8", errors="replace")
    is_sound(EventTable.read(folder))
    return ""


def table_folder(rng: Rng, home: Home) -> str:
    folder = home.fresh(home.data)
    names = sorted(path for path in folder.rglob("*") if path.is_file())
    path = names[int(rng.integers(len(names)))]
    content = path.read_bytes()
    path.write_bytes(damage(content, rng))
    verified = bool(rng.random() < 0.5)
    table = EventTable.read(folder, verify=verified)
    is_sound(table)
    if verified and table.fingerprint != home.table.fingerprint:
        return "a verified table has another fingerprint"
    if path.suffix == ".npy" and table.fingerprint != home.table.fingerprint:
        return f"damage to {path.name} changed the table"
    return ""


def table_json(rng: Rng, home: Home) -> str:
    folder = home.fresh(home.data)
    about = mutate(json.loads((folder / "table.json").read_text()), rng)
    if isinstance(about, dict) and rng.random() < 0.7:
        about.pop("checksum", None)
    (folder / "table.json").write_text(json.dumps(about, default=str))
    is_sound(EventTable.read(folder))
    return ""


def odd_parquet(rng: Rng, home: Home) -> str:
    kinds = [
        pl.Int8,
        pl.Float32,
        pl.String,
        pl.Boolean,
        pl.Date,
        pl.Datetime("ns"),
        pl.Duration("ms"),
        pl.Time,
        pl.Binary,
        pl.Categorical,
        pl.List(pl.Int64),
        pl.Decimal(10, 2),
        pl.Null,
        pl.UInt64,
    ]
    folder, columns = home.fresh(), {}
    for name in ("sample", "time", "sensor", "value"):
        kind = (
            kinds[int(rng.integers(len(kinds)))]
            if rng.random() < 0.3
            else (pl.String, pl.Float64)[name in ("time", "value")]
        )
        try:
            numbers = [1, 2, None if rng.random() < 0.1 else 3, 4]
            columns[name] = pl.Series(name, numbers).cast(kind, strict=False)
        except pl.exceptions.PolarsError:
            columns[name] = pl.Series(name, [None] * 4, dtype=kind)
    pl.DataFrame(columns).write_parquet(folder / "events.parquet")
    is_sound(EventTable.read(folder))
    return ""


# ---------------------------------------------------------------- splits


def split_by_ids(rng: Rng, home: Home) -> str:
    path = home.fresh() / "splits.parquet"
    parts = rng.choice(["train", "val", "test", "tset", ""], size=40, p=[0.5, 0.24, 0.24, 0.01, 0.01])
    frame = pl.DataFrame({"split": [1] * 40, "part": parts.tolist(), "sample": home.table.ids})
    frame.write_parquet(path)
    path.write_bytes(damage(path.read_bytes(), rng))
    parts_of = Split.read(path, 1).apply(home.table)
    return "" if sum(map(len, parts_of)) == 40 else "a split loses samples"


def split_by_position(rng: Rng, home: Home) -> str:
    path = home.fresh() / "a_split1.npy"
    parts = np.empty(3, dtype=object)
    parts[:] = [np.arange(0, 20), np.arange(20, 30), np.arange(30, 40)]
    np.save(path, parts, allow_pickle=True)
    content = path.read_bytes()
    path.write_bytes(content[:128] + damage(content[128:], rng) if rng.random() < 0.7 else damage(content, rng))
    Split.read(path)
    return ""


# ---------------------------------------------------------------- models


def model_folder(rng: Rng, home: Home) -> str:
    folder = home.fresh(home.run)
    path = folder / ("model.json", "model.safetensors", "split.parquet", "signature.json")[int(rng.integers(4))]
    path.write_bytes(damage(path.read_bytes(), rng))
    loaded = rd.load(folder, key=KEY if rng.random() < 0.5 else None)
    same = np.array_equal(loaded.predict_proba(home.table), home.expected)
    return "" if same else "a damaged model predicts something else"


def forged_model(rng: Rng, home: Home) -> str:
    folder = home.fresh(pick(home.models, rng))
    about = json.loads((folder / "model.json").read_text())
    del about["checksum"]
    if rng.random() < 0.3:
        weights = load_file(folder / "model.safetensors")
        name = sorted(weights)[int(rng.integers(len(weights)))]
        tensor = weights[name]
        weights[name] = [tensor[:1] if tensor.ndim else tensor, tensor.double(), tensor.long(), tensor.flatten()][
            int(rng.integers(4))
        ].contiguous()
        save_file(weights, folder / "model.safetensors")
        about["weights_sha256"] = file_checksum(folder / "model.safetensors")
    else:
        about = mutate(about, rng)
    if isinstance(about, dict):
        text = json.loads(json.dumps(about, default=str))
        about = {**text, "checksum": content_checksum(text)}
    (folder / "model.json").write_text(json.dumps(about, default=str))
    command("predict", folder, home.data, "--out", home.work / "p.csv")
    return command("report", folder, "--out", home.work / "r.html") if rng.random() < 0.3 else ""


def checkpoint(rng: Rng, home: Home) -> str:
    folder = home.fresh(home.run)
    for name in ("model.json", "model.safetensors", "split.parquet", "signature.json"):
        (folder / name).unlink()
    path = folder / "checkpoint.safetensors"
    path.write_bytes(damage(path.read_bytes(), rng))
    config = QUICK | {"train.epochs": 1, "train.checkpoint_minutes": 0.0}
    resumed = rd.Classifier("raindrop", preset="paper", config=config).fit(home.table, run=folder, resume=True)
    same = np.allclose(resumed.predict_proba(home.table), home.expected, atol=1e-6)
    return "" if same else "a damaged checkpoint changed the model"


# ---------------------------------------------------------------- settings and commands


def settings(rng: Rng, home: Home) -> str:
    name = sorted(MODELS)[int(rng.integers(len(MODELS)))]
    keys = [f"train.{key}" for key in configs.describe(TrainConfig)]
    keys += [f"model.{key}" for key in configs.to_dict(configs.make(MODELS[name].config))]
    values = [1, 2, 0.5, 3, 1.0] if rng.random() < 0.5 else VALUES
    chosen = {keys[int(rng.integers(len(keys)))]: values[int(rng.integers(len(values)))] for _ in range(2)}
    estimator = rd.Classifier(name, preset="paper" if "paper" in MODELS[name].presets else "tuned", config=chosen)
    resolved = estimator.resolved()
    for group in resolved.values():
        if any(isinstance(value, float) and not math.isfinite(value) for value in group.values()):
            return f"{name}: {chosen} was accepted"
    if name == "raindrop" and rng.random() < 0.2:
        small = QUICK | {"train.epochs": 1} | chosen
        rd.Classifier(name, preset="paper", config=small).fit(home.table[:16])
    return ""


def toml_file(rng: Rng, home: Home) -> str:
    path = home.fresh() / "a.toml"
    text = b"[train]\nepochs = 3\nlearning_rate = 1e-3\n[model]\nhidden = 8\n[model.temporal_attention]\nheads = 2\n"
    if rng.random() < 0.5:
        numbers = (b"3", b"1e-3", b"8", b"2")
        text = text.replace(numbers[int(rng.integers(4))], str(rng.choice([-1, 0, 5, 1e30, 0.5])).encode())
    path.write_bytes(damage(text, rng) if rng.random() < 0.5 else text)
    rd.Classifier(config=configs.read_toml(path)).resolved()
    return ""


def command_line(rng: Rng, home: Home) -> str:
    names = sorted(commands_of(app))
    options = "--out --set --split --seed --part --label --key --model --coverage --threads --hide-sensors --every"
    options += " --horizon --unknown-sensors --verify --group --statics --device --task --minutes --q --format --wide"
    options += (
        " --cutoff --reference --time-unit --duplicates --readings --queries --samples-file --rows --workers --data"
    )
    values = [
        "train.epochs=0",
        "x:1",
        "-1",
        "1e9",
        "all",
        "age",
        "",
        "\0",
        "tree",
        "2",
        "0",
        "nan",
        "p12",
        "ward",
        "cuda",
    ]
    values += ["é", "-", "--", "regression", "nowhere", str(home.data), str(home.run), str(home.gaps), "csv", "hours"]
    rest = [*options.split(), *values, str(home.fresh() / "o")]
    words = pick(names, rng).split() + [pick(rest, rng) for _ in range(int(rng.integers(0, 6)))]
    if words[0] in ("download", "fit", "benchmark", "tune", "serve", "demo") or "train" in words:
        words.append("--nothing")  # neither trains nor fetches nor serves
    return command(*words)


# ---------------------------------------------------------------- published files


def archive(rng: Rng, home: Home) -> str:
    folder, files = home.fresh(), {}
    for record in (132539, 132540):
        rows = f"00:00,RecordID,{record}\n00:00,Age,60\n00:00,Gender,1\n00:00,ICUType,2\n00:00,Weight,70\n"
        files[f"set-a/{record}.txt"] = f"Time,Parameter,Value\n{rows}00:07,HR,73\n00:37,HR,77\n".encode()
    head = "RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n"
    files["Outcomes-a.txt"] = f"{head}132539,6,1,5,-1,0\n132540,16,8,3,-1,1\n".encode()
    if rng.random() < 0.5:
        name = sorted(files)[int(rng.integers(3))]
        files[name] = damage(files[name], rng)
    buffer, kind = io.BytesIO(), ("set-a.zip", "set-a.tar", "set-a.tar.gz", "set-a.tar.xz")[int(rng.integers(4))]
    if kind.endswith("zip"):
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in files.items():
                packed.writestr(name, content)
    else:
        with tarfile.open(fileobj=buffer, mode=f"w:{kind.rpartition('.')[2].replace('tar', '')}") as packed:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                entry.type = tarfile.REGTYPE if rng.random() < 0.9 else (b"1", b"2", b"6", b"S")[int(rng.integers(4))]
                packed.addfile(entry, io.BytesIO(content))
    content = buffer.getvalue()
    (folder / kind).write_bytes(damage(content, rng) if rng.random() < 0.6 else content)
    return command("convert", "p12", folder, "--out", home.folder / "work" / "table")


class _Listed(Fetcher):
    """A fetcher whose files are already there."""

    def fetch(self, remote: Remote, *, listed: bool = False) -> Path:
        target = self.folder / remote.path
        if self.folder.resolve() not in target.resolve().parents:
            raise AssertionError(f"{remote.path} is outside")
        return target


def published_list(rng: Rng, home: Home) -> str:
    folder = home.fresh()
    names = [
        "training/a.psv",
        "training//etc/x",
        "training/../../x",
        "training/a/./b",
        "training/C:x",
        "x",
        "training/",
    ]
    lines = [f"{'0' * 64} {names[int(rng.integers(len(names)))]}" for _ in range(int(rng.integers(1, 4)))]
    content = "\n".join(lines).encode()
    (folder / "SHA256SUMS.txt").write_bytes(damage(content, rng) if rng.random() < 0.3 else content)
    _Listed(folder).fetch_listed(Listing("http://localhost/SHA256SUMS.txt", "http://localhost/", "training/"))
    return ""


ENTRIES: dict[str, Callable[[Rng, Home], str]] = {
    "CSV table": csv_table,
    "Parquet table of odd types": odd_parquet,
    "table folder, damaged": table_folder,
    "table.json, changed": table_json,
    "split by ids": split_by_ids,
    "split by position": split_by_position,
    "model folder, damaged": model_folder,
    "model with fitting checksums": forged_model,
    "checkpoint, damaged": checkpoint,
    "settings": settings,
    "TOML file": toml_file,
    "command line": command_line,
    "archive of a data set": archive,
    "published list of files": published_list,
    **COMMAND_ENTRIES,
    **STREAM_ENTRIES,
}
SHARES = {
    "checkpoint, damaged": 0.1,
    "model with fitting checksums": 0.5,
    "archive of a data set": 0.5,
    **COMMAND_SHARES,
}
"""How often an entry is drawn, where not 1: what takes longer is drawn less often."""


def attempt(name: str, seed: int, home: Home) -> tuple[str, str]:
    """What came of input number `seed` of an entry: "right", "refused", "wrong" or "traceback", and why."""
    try:
        wrong = ENTRIES[name](np.random.default_rng([seed, sorted(ENTRIES).index(name)]), home)
    except (RaindropError, RefusedError) as refusal:
        return "refused", str(refusal)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return "traceback", f"{type(error).__name__}: {error}"
    return ("wrong", wrong) if wrong else ("right", "")

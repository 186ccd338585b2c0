"""What the hostile inputs are made of: sound data to start from, ways to damage it, and commands that may refuse it."""

from __future__ import annotations

import contextlib
import io
import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from data_shapes import SHAPES
from followers import SMALL, followers
from learnable import QUICK, easy_table

import raindrop as rd
from raindrop.cli.app import main
from raindrop.estimators import sign_model

Rng = np.random.Generator
KEY = b"k" * 40
CELLS = [
    "",
    "NA",
    "nan",
    "inf",
    "-1e400",
    "1e309",
    "0x10",
    "=1+1",
    "'",
    '"',
    "a,b",
    "\0",
    "\u202e",
    "é" * 50,
    "9" * 400,
    "2024-01-01",
    "2024-13-45",
    "01:02",
    "-0",
    "1_000",
    " 1 ",
    "true",
    "None",
    "\ud7ff",
    "$x$",
]
VALUES: list[Any] = [
    -1,
    0,
    1,
    2,
    3,
    0.5,
    1.5,
    -0.5,
    math.nan,
    math.inf,
    -math.inf,
    1e30,
    10**12,
    2**63,
    10**400,
    "",
    "x",
    None,
    True,
    [],
    [1],
    {},
    {"a": 1},
]


def pick(choices: Sequence[Any], rng: Rng) -> Any:
    """One of them."""
    return choices[int(rng.integers(len(choices)))]


class RefusedError(Exception):
    """A command ended with a sentence."""


@dataclass
class Home:
    """Sound data, a model and published files, made once, and a folder for what is drawn."""

    folder: Path

    def __post_init__(self) -> None:
        self.table = easy_table(40, classes=("ill", "well"), statics=("age", "ward"))
        self.data = self.table.write(self.folder / "data")
        config = QUICK | {"train.epochs": 1, "train.checkpoint_minutes": 0.0}
        classifier = rd.Classifier("raindrop", preset="paper", config=config)
        self.run = self.folder / "run"
        classifier.fit(self.table, run=self.run)
        sign_model(self.run, KEY)
        self.model = rd.load(self.run)
        self.expected = self.model.predict_proba(self.table)
        trees = {"model.rounds": 3, "model.min_samples": 2}
        yes_no = easy_table(40, statics=("age", "ward"))
        rule = rd.Sensitivity(0.9)
        others = {
            "decisions": rd.Classifier("trees", config=trees, threshold=rule).fit(self.table, validation=self.table),
            "quantity": rd.Regressor("trees", label="age", config=trees).fit(self.table, validation=self.table),
            "several": rd.MultiLabelClassifier("trees", labels=["label"], config=trees).fit(yes_no),
        }
        self.models = [self.run, *(model.save(self.folder / name) for name, model in others.items())]
        self.series = followers(12)
        self.gaps = self.series.write(self.folder / "gaps")
        self.runs = {
            "impute": [
                rd.Imputer("linear").fit(self.series).save(self.folder / "linear"),
                rd.Imputer(config=SMALL).fit(self.series).save(self.folder / "imputer"),
            ],
            "forecast": [
                rd.Forecaster("last", horizon=6.0).fit(self.series).save(self.folder / "last"),
                rd.Forecaster(horizon=6.0, config=SMALL).fit(self.series).save(self.folder / "forecaster"),
            ],
        }
        self.shapes = {}
        for name, shape in SHAPES.items():
            (place := self.folder / "shapes" / name).mkdir(parents=True)
            self.shapes[name] = (place, shape.write(place))
        self.work = self.folder / "work"

    def fresh_out(self) -> Path:
        """A place for output that does not exist yet."""
        target = self.folder / "out"
        shutil.rmtree(target, ignore_errors=True)
        return target

    def fresh(self, source: Path | None = None) -> Path:
        """The folder for what is drawn, empty or with a copy of `source`."""
        shutil.rmtree(self.work, ignore_errors=True)
        if source is None:
            self.work.mkdir()
        else:
            shutil.copytree(source, self.work)
        return self.work


def damage(content: bytes, rng: Rng) -> bytes:
    """Bytes flipped, cut, doubled, inserted or replaced by zeros."""
    if not content:
        return b"\0"
    at, length = int(rng.integers(len(content))), int(rng.integers(1, 64))
    how = rng.integers(6)
    if how == 0:
        return content[:at]
    if how == 1:
        return content[:at] + rng.bytes(length) + content[at:]
    if how == 2:
        return content[:at] + bytes(length) + content[at + length :]
    if how == 3:
        return content + content[at:]
    changed = bytearray(content)
    for place in rng.integers(len(content), size=int(rng.integers(1, 8))):
        changed[place] = int(rng.integers(256))
    return bytes(changed)


def mutate(value: Any, rng: Rng) -> Any:
    """A JSON value with one of its parts exchanged for something odd, or gone."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[int(rng.integers(len(value)))]
        if rng.random() < 0.15:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: mutate(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = int(rng.integers(len(value)))
        return [*value[:at], mutate(value[at], rng), *value[at + 1 :]]
    return VALUES[int(rng.integers(len(VALUES)))]


def command(*words: object) -> str:
    """Run a command; its end with a sentence is a refusal."""
    shown, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(errors):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            if end.code:
                if end.code not in (1, 2) or "error:" not in errors.getvalue() or "Traceback" in errors.getvalue():
                    return f"exit code {end.code} with {errors.getvalue()[:200]!r}"
                raise RefusedError from None
    return ""

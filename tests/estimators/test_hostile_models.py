"""Models made to mislead: absurd sizes and other types are refused before they take memory; signatures."""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from learnable import QUICK, easy_table
from safetensors.torch import load_file, save_file

import raindrop as rd
from raindrop.cli.app import main
from raindrop.errors import ConfigError, ModelFileError
from raindrop.estimators import sign_model
from raindrop.files import content_checksum, file_checksum

KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    classifier = rd.Classifier("raindrop", preset="paper", config=QUICK | {"train.epochs": 1})
    return classifier.fit(easy_table(24)).save(tmp_path_factory.mktemp("models") / "run")


def forged(saved: Path, folder: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """A copy with changed content and checksums that fit it."""
    shutil.copytree(saved, folder)
    about = json.loads((folder / "model.json").read_text())
    weights = load_file(folder / "model.safetensors")
    change(about, weights)
    save_file(weights, folder / "model.safetensors")
    del about["checksum"]
    about["weights_sha256"] = file_checksum(folder / "model.safetensors")
    (folder / "model.json").write_text(json.dumps({**about, "checksum": content_checksum(about)}))
    return folder


def setting(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda about, weights: about["config"]["model"].update({name: value})


def retyped(kind: torch.dtype) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(about: dict[str, Any], weights: dict[str, Any]) -> None:
        floats = (name for name, tensor in weights.items() if tensor.is_floating_point() and tensor.ndim == 2)
        name = next(name for name in floats if name.startswith("model/"))
        weights[name] = weights[name].to(kind)

    return change


def more_sensors(about: dict[str, Any], weights: dict[str, Any]) -> None:
    about["scaler"]["sensors"] = [f"s{at}" for at in range(100_000)]
    for name in ("mean", "scale", "observed"):
        about["scaler"][name] = [1.0] * 100_000


FORGERIES: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], None], str]] = {
    "wide": (setting("hidden", 65_536), "have the shape|ask for"),
    "very wide": (setting("hidden", 10**9), "must be at least 1 and at most 65,536"),
    "wide everywhere": (
        lambda about, _: about["config"]["model"].update(
            {"sensor_dim": 60_000, "attention_dim": 60_000, "hidden": 60_000}
        ),
        "ask for",
    ),
    "deep": (setting("layers", 10**6), "must be at least 1 and at most 256"),
    "long": (
        lambda about, _: about["config"]["model"].update(
            {"temporal_attention.s": "rank", "temporal_attention.max_rank": 10**7}
        ),
        "missing|have the shape|ask for",
    ),
    "many sensors": (more_sensors, "ask for|have the shape"),
    "whole numbers": (retyped(torch.int64), "are torch.int64, which torch.float32 cannot hold"),
    "double precision": (retyped(torch.float64), "are torch.float64, which torch.float32 cannot hold"),
    "true and false": (retyped(torch.bool), "are torch.bool"),
    "statistics of another type": (
        lambda about, weights: weights.update({"reference/counts/level": weights["reference/counts/level"].double()}),
        "reference statistics 'counts/level' are float64",
    ),
    "statistics of another shape": (
        lambda about, weights: weights.update({"reference/low": weights["reference/low"][:1]}),
        "reference statistics have another shape",
    ),
    "nothing": (lambda about, weights: weights.pop(next(n for n in weights if n.startswith("model"))), "are missing"),
    "a model that is no name": (lambda about, weights: about.update(model={"a": []}), "unknown model"),
    "a sensor that is no name": (
        lambda about, weights: about["scaler"].update(sensors=[{"a": 1}, "b", "c"]),
        "sensors have names",
    ),
    "a unit that is none": (lambda about, weights: about.update(time_unit=-0.5), r"\$.time_unit"),
    "a history that is none": (lambda about, weights: about.update(history=["x"]), r"\$.history\[0\]"),
    "metrics that are none": (lambda about, weights: about["history"][0].update(validation=[1]), "validation"),
    "a window that is none": (lambda about, weights: about["data"].update(window=["a", None]), r"\$.data.window"),
    "a label that is no name": (lambda about, weights: about["task"].update(label=0.5), "labels have names"),
    "a class that is none": (lambda about, weights: about["task"].update(classes=["ill", {"a": 1}]), "classes are"),
    "no versions": (lambda about, weights: about.update(versions=3, task=None), "an unknown version"),
}


def test_trees_of_which_one_has_no_score_are_refused(tmp_path: Path) -> None:
    config = {"model.rounds": 2, "model.min_samples": 2}
    saved = rd.Classifier("trees", config=config).fit(easy_table(24)).save(tmp_path / "saved")

    def cut(about: dict[str, Any], weights: dict[str, Any]) -> None:
        weights["model/output"] = weights["model/output"][:1].clone()

    with pytest.raises(ModelFileError, match="not every one of its trees"):
        rd.load(forged(saved, tmp_path / "run", cut))


def tensor(name: str, value: float) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def change(about: dict[str, Any], weights: dict[str, Any]) -> None:
        weights[f"model/{name}"] = torch.full_like(weights[f"model/{name}"].long(), int(value))

    return change


@pytest.mark.parametrize("name", ["forest.depth", "forest.left", "forest.root", "forest.feature", "output"])
@pytest.mark.parametrize("value", [10**15, -1])
def test_trees_that_lead_nowhere_are_refused(name: str, value: int, tmp_path: Path) -> None:
    config = {"model.rounds": 2, "model.min_samples": 2}
    saved = rd.Classifier("trees", config=config).fit(easy_table(24)).save(tmp_path / "saved")
    run = forged(saved, tmp_path / "run", tensor(name, value))
    with pytest.raises(ModelFileError, match=r"do not fit together|not for [12] scores|look at column"):
        rd.load(run).predict_proba(easy_table(4))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_model_is_refused_before_it_takes_memory_or_time(name: str, saved: Path, tmp_path: Path) -> None:
    change, message = FORGERIES[name]
    run = forged(saved, tmp_path / "run", change)
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(ModelFileError, match=message):
        rd.load(run)
    assert time.monotonic() - started < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # KiB


def test_a_model_is_loaded_with_the_key_it_was_signed_with_and_no_other(saved: Path, tmp_path: Path) -> None:
    run = shutil.copytree(saved, tmp_path / "run")
    with pytest.raises(ModelFileError, match=r"signature.json: missing, but a signature is required. Sign it with"):
        rd.load(run, key=KEY)
    (tmp_path / "key").write_bytes(KEY + b"\n")
    assert sign_model(run, tmp_path / "key") == run / "signature.json"
    for key in (KEY, tmp_path / "key", str(tmp_path / "key")):
        assert rd.load(run, key=key).classes_.tolist() == [0, 1]
    with pytest.raises(ModelFileError, match="not the signature of this model with this key"):
        rd.load(run, key=KEY[::-1])
    assert rd.load(run)  # whoever asks for no signature needs none


def test_a_signed_model_that_was_changed_is_refused_though_its_checksums_fit(saved: Path, tmp_path: Path) -> None:
    signed = shutil.copytree(saved, tmp_path / "signed")
    sign_model(signed, KEY)

    def flip(about: dict[str, Any], weights: dict[str, Any]) -> None:
        name = next(name for name, tensor in weights.items() if tensor.is_floating_point())
        weights[name] = -weights[name]

    for change in (flip, lambda about, weights: about.update(seed=7)):
        run = forged(signed, tmp_path / "run", change)
        rd.load(run)
        with pytest.raises(ModelFileError, match="changed or exchanged after it was signed"):
            rd.load(run, key=KEY)
        shutil.rmtree(run)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"signature": 3}', '{"algorithm": "none", "signature": ""}'])
def test_a_damaged_signature_is_refused(content: str, saved: Path, tmp_path: Path) -> None:
    run = shutil.copytree(saved, tmp_path / "run")
    (run / "signature.json").write_text(content)
    with pytest.raises(ModelFileError, match=r"signature\.json: not "):
        rd.load(run, key=KEY)


def test_a_short_or_missing_key_is_an_error_that_says_how_to_make_one(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("secret")
    with pytest.raises(ConfigError, match=r"short: a key has 32 to 65,536 bytes, not 6\. Make one with: openssl rand"):
        rd.load(saved, key=tmp_path / "short")
    with pytest.raises(rd.RaindropError, match="none: there is no such file"):
        rd.load(saved, key=tmp_path / "none")


@pytest.mark.slow
def test_the_commands_sign_and_require_signatures(saved: Path, tmp_path: Path, capsys: Any) -> None:
    run = shutil.copytree(saved, tmp_path / "run")
    easy_table(24).write(tmp_path / "data")
    (tmp_path / "key").write_bytes(KEY)
    asked = [str(run), str(tmp_path / "data"), "--require-signature", str(tmp_path / "key")]
    for command in (["predict", *asked, "--out", str(tmp_path / "p.csv")], ["evaluate", *asked, "--part", "all"]):
        with pytest.raises(SystemExit):
            main(command)
        assert "signature.json: missing, but a signature is required" in capsys.readouterr().err
    main(["sign", str(run), "--key", str(tmp_path / "key")])
    assert f"wrote {run / 'signature.json'}" in capsys.readouterr().out
    main(["predict", *asked, "--out", str(tmp_path / "p.csv")])
    main(["evaluate", *asked, "--part", "all"])

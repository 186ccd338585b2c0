"""The commands, end to end: exit code 0 only on success, a mistake is one message and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from closeness import assert_close, tolerance
from command_line import Ask
from fork_server import BY_FORK
from learnable import easy_table, words

from raindrop import EventTable, load
from raindrop.cli.app import main
from raindrop.datasets.conversion import concatenate
from raindrop.estimators import ESTIMATORS

TRAIN = ("--preset", "paper", "--set", *words(train__epochs=2))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return easy_table(60, classes=("ill", "well"), statics=("age", "ward")).write(
        tmp_path_factory.mktemp("cli") / "data"
    )


@pytest.fixture(scope="module")
def run(data: Path) -> Path:
    """A trained run; no test may change it."""
    main(["train", str(data), "--out", str(data.parent / "run"), *TRAIN])
    return data.parent / "run"


def listing(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# ---------------------------------------------------------------- success


def test_inspect_shows_what_is_in_the_table(ask: Ask, data: Path) -> None:
    code, shown, errors = ask("inspect", data)
    assert (code, errors) == (0, "")
    assert "EventTable(60 samples, 3 sensors" in shown
    assert "heart rate" in shown


@pytest.mark.slow
def test_train_writes_a_run_and_says_where(ask: Ask, data: Path, tmp_path: Path) -> None:
    code, shown, _ = ask("train", data, "--out", tmp_path / "run", "--tensorboard", *TRAIN)
    assert code == 0
    assert f"wrote the model to {tmp_path / 'run'}" in shown
    assert "positive class: 'well' (the last of 'ill', 'well'; choose with --positive)" in shown
    assert "validation: AUROC (well)" in shown
    assert "test: AUROC (well)" in shown
    held = {path.name for path in (tmp_path / "run").iterdir()}
    wanted = {"checkpoint.safetensors", "log.jsonl", "model.json", "model.safetensors", "split.parquet", "tensorboard"}
    assert held == wanted
    parts = pl.read_parquet(tmp_path / "run/split.parquet")["part"].value_counts()
    assert dict(parts.iter_rows()) == {"train": 48, "val": 6, "test": 6}


@pytest.mark.slow
def test_settings_come_from_the_preset_a_file_and_words_the_last_one_wins(ask: Ask, data: Path, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("[train]\nepochs = 1\nbatch_size = 20\n[model]\nhidden = 6\n")
    asked = (
        "--config",
        tmp_path / "c.toml",
        "--set",
        "train.batch_size=30",
        "train.metric=log_loss",
        "--split",
        "none",
    )
    code, _, errors = ask("train", data, "--out", tmp_path / "run", *asked, "--seed", 5, "--label", "ward")
    assert code == 1
    assert "'ward' is the label; as a static it would give the answer away" in errors
    code, _, errors = ask(
        "train", data, "--out", tmp_path / "run", *asked, "--seed", 5, "--label", "ward", "--statics", "age"
    )
    assert (code, errors) == (0, "")
    about = json.loads((tmp_path / "run/model.json").read_text())
    assert (about["config"]["train"]["epochs"], about["config"]["train"]["batch_size"]) == (1, 30)
    assert about["config"]["model"]["hidden"] == 6
    assert (about["seed"], about["task"]["label"], about["task"]["classes"]) == (5, "ward", ["north", "south"])
    assert [column["name"] for column in about["scaler"]["statics"]] == ["age"]


@pytest.mark.slow
def test_evaluate_stays_away_from_training_samples_and_agrees_with_the_library(
    ask: Ask, data: Path, run: Path, tmp_path: Path
) -> None:
    out = tmp_path / "figures.json"
    code, shown, errors = ask("evaluate", run, data, "--hide-sensors", 0.3, 0.6, "--out", out)
    assert (code, errors) == (0, "")
    assert "leaving out 54 samples that the run was trained or validated on" in shown
    assert "6 samples, label label (ill 50.0%, well 50.0%)" in shown
    assert "60% hidden" in shown
    held = json.loads(out.read_text())
    assert [row["hidden"] for row in held["results"]] == [0.0, 0.3, 0.6]
    assert held["about"] == "label label (ill 50.0%, well 50.0%)"
    test = pl.read_parquet(run / "split.parquet").filter(pl.col("part") == "test")["sample"].to_list()
    expected = load(run).evaluate(EventTable.read(data)[test])
    assert {name: held["results"][0][name] for name in expected} == pytest.approx(expected, abs=tolerance())
    assert held["results"][0] != held["results"][2] | {"hidden": 0.0}
    title = load(run).task_.title
    for name, value in expected.items():  # no metric is cut off; those of a class are in a table of their own
        _, of_class, row = name.partition("/")
        wanted = (f"│ {row} ", f"{value:.3f}") if of_class else (title(name), f"{value:.4f}")
        assert any(all(text in line for text in wanted) for line in shown.splitlines()), name


@pytest.mark.slow
@pytest.mark.parametrize(("part", "samples"), [("all", 60), ("train", 48), ("val", 6), ("test", 6)])
def test_a_part_is_that_of_the_run(part: str, samples: int, ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    code, shown, _ = ask("evaluate", run, data, "--part", part)
    assert code == 0
    assert f"{samples} samples, label" in shown
    code, shown, _ = ask("predict", run, data, "--part", part, "--out", tmp_path / "p.csv")
    assert code == 0
    assert f"wrote {samples} predictions to {tmp_path / 'p.csv'}" in shown


def test_other_samples_than_those_of_the_run_are_evaluated_whole(ask: Ask, run: Path, tmp_path: Path) -> None:
    easy_table(20, classes=("ill", "well"), prefix="new", statics=("age", "ward"), seed=3).write(tmp_path / "new")
    code, shown, _ = ask("evaluate", run, tmp_path / "new")
    assert code == 0
    assert "20 samples, label label" in shown
    assert "leaving out" not in shown


def test_new_samples_are_evaluated_beside_the_test_samples_of_the_run(
    ask: Ask, data: Path, run: Path, tmp_path: Path
) -> None:
    new = easy_table(20, classes=("ill", "well"), prefix="new", statics=("age", "ward"), seed=3)
    concatenate([EventTable.read(data), new]).write(tmp_path / "more")
    code, shown, _ = ask("evaluate", run, tmp_path / "more")
    assert code == 0
    assert "leaving out 54 samples" in shown
    assert "26 samples, label label" in shown


def test_other_samples_with_the_same_ids_are_not_taken_for_those_of_the_run(
    ask: Ask, run: Path, tmp_path: Path
) -> None:
    easy_table(60, classes=("ill", "well"), statics=("age", "ward"), seed=9).write(tmp_path / "another")
    code, shown, _ = ask("evaluate", run, tmp_path / "another")
    assert code == 0
    assert "note: 60 samples have the id of one of the run's, but none has its readings; they count as other" in shown
    assert "60 samples, label label" in shown


def test_training_samples_are_recognised_under_other_ids(ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    table = EventTable.read(data)
    renamed = replace(table, samples=table.samples.with_columns(sample="renamed " + pl.col("sample")))
    renamed.write(tmp_path / "renamed")
    code, shown, _ = ask("evaluate", run, tmp_path / "renamed")
    assert code == 0
    assert "note: 60 samples have the readings of one of the run's under another id; they count as it" in shown
    assert "leaving out 54 samples" in shown


@pytest.mark.slow
def test_a_run_without_its_split_or_with_another_one_scores_no_training_samples(
    ask: Ask, data: Path, run: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    swap = pl.col("part").replace({"train": "test", "test": "train"})
    pl.read_parquet(copy / "split.parquet").with_columns(swap).write_parquet(copy / "split.parquet")
    code, shown, errors = ask("evaluate", copy, data)
    assert (code, shown) == (1, "")
    assert "split.parquet: not the split that the model was saved with; damaged or exchanged" in errors
    (copy / "split.parquet").unlink()
    for asked in (("evaluate", copy, data), ("predict", copy, data, "--out", tmp_path / "p.csv", "--part", "test")):
        code, shown, errors = ask(*asked)
        assert (code, shown) == (1, "")
        assert "split.parquet: missing. It lists the samples that the model was trained on" in errors
        assert "use --part all if no sample of this table was used for training" in errors
    code, shown, _ = ask("evaluate", copy, data, "--part", "all")
    assert code == 0
    assert "60 samples, label label" in shown
    assert ask("predict", copy, data, "--out", tmp_path / "p.csv")[0] == 0  # a model is used without its split


@pytest.mark.slow
def test_every_damage_to_the_split_of_a_run_is_one_sentence(ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    copy, rng = shutil.copytree(run, tmp_path / "run"), np.random.default_rng(0)
    content = (copy / "split.parquet").read_bytes()
    for how in ("cut", "flip") * 10:
        at = int(rng.integers(len(content)))
        rest = b"" if how == "cut" else bytes([content[at] ^ 1]) + content[at + 1 :]
        (copy / "split.parquet").write_bytes(content[:at] + rest)
        code, shown, errors = ask("evaluate", copy, data)
        assert (code, shown) == (1, "")
        assert "not the split that the model was saved with" in errors


@pytest.mark.parametrize("name", ["p.parquet", "p.csv"])
def test_predict_writes_what_the_library_predicts(name: str, ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    assert ask("predict", run, data, "--out", tmp_path / name)[0] == 0
    frame = pl.read_parquet(tmp_path / name) if name == "p.parquet" else pl.read_csv(tmp_path / name)
    table = EventTable.read(data)
    assert frame.columns == ["sample", "predicted", "probability_ill", "probability_well"]
    assert frame["sample"].to_list() == table.ids
    assert_close(frame.select(pl.col("^probability.*$")), load(run).predict_proba(table), dtype=np.float32)


def test_predict_with_a_coverage_says_what_is_possible(ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.parquet"
    code, shown, _ = ask("predict", run, data, "--out", out, "--coverage", 0.9, "--by-class")
    assert code == 0
    sets = load(run).predict_sets(EventTable.read(data), 0.9, by_class=True)
    back = pl.read_parquet(out)
    assert back.select("possible_ill", "possible_well").to_numpy().tolist() == sets.tolist()
    assert f"abstains for {back['abstain'].sum()} of 60 samples" in shown


@pytest.mark.slow
def test_a_calibrated_blend_is_trained_and_tells_what_each_part_adds(ask: Ask, data: Path, tmp_path: Path) -> None:
    settings = ["train.epochs=1", "train.batch_size=16", "model.trees.rounds=5", "model.raindrop.observation_dim=4"]
    code, shown, errors = ask(
        "train", data, "--out", tmp_path / "run", "--model", "blend", "--calibrate", "isotonic", "--set", *settings
    )
    assert (code, errors) == (0, "")
    clf = load(tmp_path / "run")
    assert clf.calibrate == clf.calibrator_.method == "isotonic"
    share, figures = clf.notes_["share_of_raindrop"], clf.notes_["validation"]
    _, again, _ = ask("evaluate", tmp_path / "run", data)
    for text in (shown, again):
        assert f"mixed of {share:.1%} raindrop and {1 - share:.1%} trees" in text
        last = clf.notes_["weights"][-1]
        assert f"{last['missing']:.0%} of the usual sensors are missing" in " ".join(text.split())
        for name in ("raindrop", "trees", "robust_trees", "blend"):
            assert f"validation, {name}: auroc {figures[name]['auroc']:.4f}" in text
    assert "calibration error" in again


def test_prediction_needs_no_label_and_evaluation_does(ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    table = EventTable.read(data)
    (tmp_path / "bare").mkdir()
    table.events().write_csv(tmp_path / "bare/events.csv")
    table.samples.drop("label").write_csv(tmp_path / "bare/samples.csv")
    assert ask("predict", run, tmp_path / "bare", "--out", tmp_path / "p.csv")[0] == 0
    code, _, errors = ask("evaluate", run, tmp_path / "bare")
    assert code == 1
    assert errors.startswith("error: The table has no label.")


def test_unknown_sensors_are_an_error_or_ignored(ask: Ask, data: Path, run: Path, tmp_path: Path) -> None:
    table = EventTable.read(data)
    renamed = table.events().with_columns(pl.col("sensor").cast(pl.String).replace("pressure", "blood pressure"))
    EventTable.from_frames(renamed, table.samples, statics=["age", "ward"]).write(tmp_path / "data")
    code, _, errors = ask("predict", run, tmp_path / "data", "--out", tmp_path / "p.csv")
    assert code == 1
    assert "1 sensor was not read in training (first: 'blood pressure'" in errors
    assert not (tmp_path / "p.csv").exists()
    asked = ("--unknown-sensors", "ignore")
    assert ask("predict", run, tmp_path / "data", "--out", tmp_path / "p.csv", *asked)[0] == 0
    assert ask("evaluate", run, tmp_path / "data", *asked)[0] == 0


@pytest.mark.slow
def test_a_sensor_read_in_test_samples_only_does_not_stop_training(ask: Ask, data: Path, tmp_path: Path) -> None:
    table = EventTable.read(data)
    rare = table.split(seed=0)[2].ids
    extra = pl.DataFrame({"sample": rare, "time": 1.0, "sensor": "rare", "value": 1.0})
    events = pl.concat([table.events().with_columns(pl.col("sensor").cast(pl.String)), extra])
    EventTable.from_frames(events, table.samples, statics=["age", "ward"]).write(tmp_path / "data")
    code, shown, _ = ask("train", tmp_path / "data", "--out", tmp_path / "run", *TRAIN)
    assert code == 0
    assert "test: AUROC" in shown
    code, _, errors = ask("evaluate", tmp_path / "run", tmp_path / "data")
    assert code == 1
    assert f"1 sensor was not read in training (first: 'rare'; {len(rare)} of" in errors


@pytest.mark.slow
def test_samples_without_a_label_are_left_out_of_training_and_it_says_so(ask: Ask, tmp_path: Path) -> None:
    table = easy_table(40)
    labels = [None if at < 4 else label for at, label in enumerate(table.labels.tolist())]
    table.with_labels(labels).write(tmp_path / "data")
    code, shown, _ = ask("train", tmp_path / "data", "--out", tmp_path / "run", *TRAIN)
    assert code == 0
    assert "leaving out 4 samples without a label 'label'" in shown
    assert len(pl.read_parquet(tmp_path / "run/split.parquet")) == 36


@pytest.mark.slow
def test_a_run_on_all_samples_has_no_test_part(ask: Ask, data: Path, tmp_path: Path) -> None:
    assert ask("train", data, "--out", tmp_path / "run", "--split", "none", *TRAIN)[0] == 0
    code, _, errors = ask("evaluate", tmp_path / "run", data)
    assert code == 1
    assert "none of the table's 60 samples was left out of training. Use --part all to take them all." in errors
    assert ask("evaluate", tmp_path / "run", data, "--part", "all")[0] == 0


COMMANDS = [
    "demo",
    "inspect",
    "train",
    "evaluate",
    "predict",
    "impute",
    "forecast",
    "explain",
    "report",
    "convert",
    "download",
    "benchmark",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, ask: Ask) -> None:
    code, shown, errors = ask(command, "--help")
    assert (code, errors) == (0, "")
    assert f"Usage: raindrop {command}" in shown
    assert "Parameters" in shown or "Commands" in shown


def test_the_commands_and_the_version_are_shown(ask: Ask) -> None:
    code, shown, _ = ask("--help")
    assert code == 0
    assert all(name in shown for name in COMMANDS)
    from raindrop import __version__

    assert ask("--version") == (0, f"{__version__}\n", "")


# ---------------------------------------------------------------- mistakes

MISTAKES = {
    "unknown command": ("traim", 'Unknown command "traim". Did you mean "train"?'),
    "unknown flag": ("train DATA --out OUT --sed 1", "Unknown option: --sed. Did you mean --seed?"),
    "flag without its word": ("train DATA --out OUT --seed", "--seed"),
    "a word that is no number": ("train DATA --out OUT --seed one", '"one"'),
    "no output": ("train DATA", "--out"),
    "no data": ("train nowhere --out OUT", "nowhere: "),
    "unknown model": ("train DATA --out OUT --model raindorp", "Unknown model 'raindorp': did you mean 'raindrop'?"),
    "unknown preset": ("train DATA --out OUT --preset papre", "no preset 'papre': did you mean 'paper'?"),
    "unknown setting": ("train DATA --out OUT --set train.epoch=2", "'train.epoch': did you mean 'train.epochs'?"),
    "unknown group": ("train DATA --out OUT --set epochs=2", "settings start with 'model.' or 'train.'"),
    "setting without a value": ("train DATA --out OUT --set train.epochs", "not of the form NAME=VALUE"),
    "setting of another type": ("train DATA --out OUT --set train.epochs=x", "Setting 'train.epochs': expected `int`"),
    "impossible setting": (
        "train DATA --out OUT --set train.epochs=0",
        "train.epochs must be at least 1 and at most 10,000,000",
    ),
    "impossible seed": ("train DATA --out OUT --seed -1", "a seed is a whole number, 0 or above"),
    "unknown label": ("train DATA --out OUT --label lable", "there is no column 'lable'"),
    "unknown split": ("train DATA --out OUT --split rndom", "--split is 'random', 'none' or FILE:1"),
    "no settings file": ("train DATA --out OUT --config none.toml", "none.toml: there is no such settings file"),
    "output below a file": ("train DATA --out DATA/table.json/run", "the folder cannot be created"),
    "output exists": ("train DATA --out DATA", "this folder exists already"),
    "loss not finite": (
        "train DATA --out OUT --set train.learning_rate=1e12 train.max_grad_norm=0.0",
        "Lower train.learning_rate",
    ),
    "no run": ("evaluate nowhere DATA", "nowhere: there is no model.json"),
    "share above one": ("evaluate RUN DATA --hide-sensors 1.5 --out OUT", "must be between 0 and 1, not 1.5"),
    "unknown part": ("evaluate RUN DATA --part tset", 'Did you mean "test"?'),
    "figures exist": ("evaluate RUN DATA --out DATA/table.json", "this file exists already"),
    "not a run": ("predict DATA DATA --out OUT.csv", "there is no model.json. Is this a run folder?"),
    "unknown kind of file": ("predict RUN DATA --out OUT.xlsx", "predictions are written as .parquet or .csv"),
    "predictions exist": ("predict RUN DATA --out DATA/samples.parquet", "this file exists already"),
    "impossible coverage": ("predict RUN DATA --out OUT.csv --coverage 90", "above 0 and below 1"),
    "blocks of a classifier": ("evaluate RUN DATA --hide-blocks 5", "--hide-blocks has no effect with the task 'clas"),
    "a classifier does not impute": ("impute apply RUN DATA --out OUT", "apply it with 'raindrop predict "),
    "by class of nothing": ("predict RUN DATA --out OUT.csv --by-class", "by_class needs a coverage"),
    "unknown calibration": ("train DATA --out OUT --calibrate platt", "platt"),
    "nothing to calibrate by": (
        "train DATA --out OUT --split none --calibrate isotonic --set train.holdout=0.0",
        "is fitted on validation samples, and there are none",
    ),
    "no table to look at": ("inspect nowhere", "nowhere: "),
    "report of no run": ("report nowhere", "nowhere: there is no model.json"),
    "report of another kind": (
        "explain RUN DATA --out OUT.pdf",
        "its name must end in .html",
    ),
    "nobody to pick": ("explain RUN DATA --out OUT.html --samples 0", "a report shows at least one sample"),
    "another seed is no run": ("explain RUN DATA --out OUT.html --seeds DATA", "there is no model.json"),
}


NOT_UNDERSTOOD = [
    MISTAKES[name][1]
    for name in ("unknown command", "unknown flag", "flag without its word", "a word that is no number", "no output")
] + ['Did you mean "test"?', "platt"]


@pytest.mark.parametrize(("asked", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_message_and_leaves_nothing(
    asked: str, message: str, ask: Ask, data: Path, run: Path, tmp_path: Path
) -> None:
    before = listing(data), listing(run)
    places = {"DATA": str(data), "RUN": str(run), "OUT": str(tmp_path / "out")}
    given = [word.replace(name, place) for word in asked.split() for name, place in [_place(word, places)]]
    code, _, errors = ask(*given)
    assert code == (2 if message in NOT_UNDERSTOOD else 1)
    assert errors.startswith("error: ")
    assert message in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 3
    assert listing(tmp_path) == []
    assert (listing(data), listing(run)) == before


def _place(word: str, places: dict[str, str]) -> tuple[str, str]:
    return next(((name, place) for name, place in places.items() if word.startswith(name)), (word, word))


# ---------------------------------------------------------------- the real command


def python(*asked: object) -> list[str]:
    return [sys.executable, "-m", "raindrop", *map(str, asked)]


@pytest.mark.slow
def test_the_real_command_succeeds_and_fails_with_the_right_code(data: Path, run: Path, tmp_path: Path) -> None:
    done = subprocess.run(python("predict", run, data, "--out", tmp_path / "p.csv"), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"wrote 60 predictions to {tmp_path / 'p.csv'}" in done.stdout
    failed = subprocess.run(
        python("predict", run, tmp_path, "--out", tmp_path / "q.csv"), capture_output=True, text=True
    )
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"error: {tmp_path}: there is no events.parquet or events.csv")
    assert "Traceback" not in failed.stderr
    assert listing(tmp_path) == ["p.csv"]


@pytest.mark.slow
def test_ctrl_c_during_training_says_how_to_go_on(data: Path, tmp_path: Path) -> None:
    heard = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # it may be ignored here
    code = f"{BY_FORK}{heard}; runpy.run_module('raindrop', run_name='__main__')"
    asked = ["train", str(data), "--out", str(tmp_path / "run"), "--set", *words(train__epochs=1000)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *asked], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "run/log.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.startswith("Stopped. What was saved is kept; a training run continues with --resume, a benchmark")
    assert errors.count("\n") == 1
    assert (tmp_path / "run/checkpoint.safetensors").exists()
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.slow
def test_quantities_and_several_labels_are_trained_evaluated_and_predicted(ask: Ask, tmp_path: Path) -> None:
    table = easy_table(80)
    days = np.exp(table.labels + np.random.default_rng(0).normal(0, 0.2, 80))
    samples = table.samples.with_columns(days=days, sick=pl.Series(table.labels == 1), old=pl.col("age") > 60)
    replace(table, samples=samples).write(tmp_path / "data")
    quick = [word for word in words(train__epochs=2) if not word.startswith("train.metric")]
    for task, labels, column in (
        ("regression", ["days"], "days_low"),
        ("multilabel", ["sick", "old"], "possible_old_yes"),
    ):
        run = tmp_path / task
        code, shown, errors = ask(
            "train",
            tmp_path / "data",
            "--out",
            run,
            "--task",
            task,
            "--label",
            *labels,
            "--preset",
            "paper",
            "--set",
            *quick,
        )
        assert code == 0, errors
        assert errors.startswith(
            "note: No two sensors are ever read at the same time, so sensors exchange few messages or none"
        )
        assert errors.count("\n") == 1
        assert ("test: MAE" if task == "regression" else "test: AUROC, mean of 2 labels") in shown
        code, shown, errors = ask("evaluate", run, tmp_path / "data", "--intervals")
        assert (code, errors) == (0, "")
        assert " to " in shown
        out = run / "predictions.parquet"
        code, _, errors = ask("predict", run, tmp_path / "data", "--out", out, "--coverage", 0.5)
        assert (code, errors) == (0, "")
        assert column in pl.read_parquet(out).columns


def test_the_help_on_tasks_is_right_and_an_unknown_one_lists_all(ask: Ask, data: Path, tmp_path: Path) -> None:
    _, shown, _ = ask("train", "--help")
    text = " ".join(shown.replace("│", " ").split())
    described = text[text.index("what is predicted") : text.index("an unknown name lists all tasks")]
    named = re.findall(r"\((\w+)\)", described)
    assert named
    assert set(named) <= set(ESTIMATORS)
    code, _, errors = ask("train", data, "--out", tmp_path / "run", "--task", "x")
    assert code == 1
    assert all(f"'{name}'" in errors for name in ESTIMATORS)


def test_an_option_that_a_task_does_not_have_is_refused(ask: Ask, data: Path, tmp_path: Path) -> None:
    for words_, message in (
        (
            ["--task", "regression", "--label", "age", "--positive", "1"],
            "'positive' has no effect with the task 'regression'",
        ),
        (["--loss", "squared"], "'loss' has no effect with the task 'classification'"),
        (["--label", "label", "ward"], "a classifier predicts one column"),
    ):
        code, _, errors = ask("train", data, "--out", tmp_path / "run", *words_)
        assert code == 1
        assert message in errors
        assert not (tmp_path / "run").exists()

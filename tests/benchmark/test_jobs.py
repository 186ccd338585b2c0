"""A job is trained once, evaluated under every setting, and identified by what determines its result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from tiny import NETWORK, TOML, finish, planned, prepare, stored_metrics, tiny_table

from raindrop.benchmark import Store, jobs, work, workers
from raindrop.benchmark.data import open_table, split_table
from raindrop.errors import ConfigError
from raindrop.estimators import load
from raindrop.version import source_checksum

pytestmark = pytest.mark.slow


def with_blend(folder: Path, text: str = TOML) -> Path:
    """The tiny table with a blend whose network is that of the row 'Net'."""
    settings = {name.replace("model.", "model.raindrop."): value for name, value in NETWORK.items()}
    settings |= {"model.trees.rounds": 4, "model.trees.min_samples": 2}
    words = ", ".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in settings.items())
    return prepare(folder, text + f'\n[[rows]]\nname = "Both"\nmodel = "blend"\nconfig = {{ {words} }}\n')


def train_and_val(job: jobs.Job):
    table = open_table(job.experiment.data, job.folder)
    return split_table(table, job.experiment.data, job.splits, job.split_number, job.folder)[:2]


# ---------------------------------------------------------------- keys and stored rows


def test_the_key_changes_with_everything_that_is_trained_and_with_nothing_else(tmp_path):
    def keys(text: str) -> list[str]:
        return [job.key for job in planned(prepare(tmp_path, text))[1]]

    first = keys(TOML)
    assert len(set(first)) == 6
    same = TOML.replace('"Net"', '"Other name"').replace("fixed = [0.34]", "fixed = [0.5]").replace("Tiny", "Title")
    assert keys(same) == first
    assert keys(TOML.replace("[data]", 'metrics = ["accuracy"]\n[data]')) == first
    assert keys(TOML.replace('"train.checkpoint_minutes" = 0.0', '"train.checkpoint_minutes" = 9.0')) == first
    for changed in (
        TOML.replace('"train.epochs" = 2', '"train.epochs" = 3').replace('"model.rounds" = 4', '"model.rounds" = 3'),
        TOML.replace("[data]", "seeds = [7]\n[data]"),
        TOML.replace("positive = 1", 'exclude_statics = ["age"]'),
        TOML.replace("numbers = [1, 2, 3]", "numbers = [4, 5, 6]"),
        TOML.replace('label = "label"\npositive = 1', 'label = "ward"\nexclude_statics = ["ward"]'),
    ):
        assert not set(keys(changed)) & set(first), changed


def test_stored_rows_say_what_they_belong_to(tmp_path):
    file = prepare(tmp_path, TOML.replace("positive = 1", 'positive = 1\nexclude_statics = ["age"]'))
    _, planned_jobs, _ = planned(file, [1])
    store, trees = Store(tmp_path / "out"), next(job for job in planned_jobs if job.row.name == "Trees")
    work([trees], store)
    rows = stored_metrics(store, trees)
    columns = ("data", "label", "excluded_statics", "model", "split")
    assert {tuple(row[name] for name in columns) for row in rows} == {("tiny", "label", "age", "trees", 1)}
    assert {row["source"] for row in rows} == {source_checksum()}
    assert [row["subset"] for row in rows] == ["val", "test"] * 3


def test_sensors_are_ranked_with_the_rotated_column_as_groups(tmp_path, monkeypatch):
    groups = []

    def rank(table):
        groups.append(table.roles.group)
        return [(sensor, 0.5) for sensor in table.sensors]

    monkeypatch.setattr(jobs, "rank_sensors", rank)
    rotated = TOML.replace("random = true\nnumbers = [1, 2, 3]", 'rotate_by = "subject"')
    for number, text in enumerate((TOML, rotated)):
        trees = next(job for job in planned(prepare(tmp_path / str(number), text), [1])[1] if job.row.name == "Trees")
        work([trees], Store(tmp_path / str(number) / "out"))
    assert groups == [None, "subject"]


def test_a_default_that_changed_since_a_job_was_run_is_refused(file, complete):
    store, (job, *_) = Store(complete), planned(file)[1]
    metrics = store.read_metrics(job.key)
    assert metrics is not None
    changed = metrics.with_columns(config=metrics["config"].str.replace('"layers": 1', '"layers": 3'))
    changed.write_parquet(store.metrics_file(job.key))
    with pytest.raises(ConfigError, match=r"was run when model.layers was 3 by default; now it is 1"):
        jobs.refuse_changed_defaults([job], Store(complete))


# ---------------------------------------------------------------- nothing runs twice


def test_finished_jobs_are_not_run_again(file, uninterrupted, complete, monkeypatch):
    monkeypatch.setattr(workers, "run_job", lambda job, store: pytest.fail(f"{job.name} is run again"))
    assert finish(file, complete) == uninterrupted


def test_a_new_setting_is_evaluated_without_training(file, complete, tmp_path, monkeypatch):
    more = prepare(tmp_path / "more", TOML.replace("random = [0.34]", "random = [0.34, 0.67]"))
    monkeypatch.setattr(jobs.SampleEstimator, "fit", lambda *_, **__: pytest.fail("trained again"))
    monkeypatch.setattr(jobs, "rank_sensors", lambda *_, **__: pytest.fail("ranked again"))
    finish(more, complete)
    _, (job, *_), _ = planned(more)
    assert [row["share"] for row in stored_metrics(Store(complete), job)] == [0, 0, 0.34, 0.34, 0.34, 0.34, 0.67, 0.67]
    assert len({job.key for job in planned(more)[1]} | {job.key for job in planned(file)[1]}) == 6


def test_a_blend_takes_the_network_that_another_row_has_trained(complete, tmp_path, monkeypatch):
    more = with_blend(tmp_path / "blend")
    monkeypatch.setattr("raindrop.estimators.base.fit_network", lambda *_, **__: pytest.fail("trained again"))
    finish(more, complete)
    by_name = {(job.row.name, job.split_number): job for job in planned(more)[1]}
    for number in (1, 2, 3):
        both, net = (load(Store(complete).run_folder(by_name[name, number].key)) for name in ("Both", "Net"))
        assert both.history_ == net.history_
        assert by_name["Both", number].network_key == by_name["Net", number].key


def test_a_network_trained_for_a_blend_is_that_of_its_own_row(file, uninterrupted, tmp_path, monkeypatch):
    by_name = {job.row.name: job for job in planned(with_blend(tmp_path / "blend"), [1])[1]}
    store = Store(tmp_path / "out")
    work([by_name["Both"]], store)
    monkeypatch.setattr("raindrop.estimators.base.fit_network", lambda *_, **__: pytest.fail("trained again"))
    work([by_name["Net"]], store)
    assert not store.failure(by_name["Net"].key)
    assert stored_metrics(store, by_name["Net"]) == stored_metrics(Store(file.parent / "complete"), by_name["Net"])


def test_a_blend_waits_while_another_process_trains_its_network(tmp_path, monkeypatch):
    both = next(job for job in planned(with_blend(tmp_path), [1])[1] if job.row.name == "Both")
    store = Store(tmp_path / "out")
    with Store(tmp_path / "out").claim(str(both.network_key), "theirs"):
        assert not workers._run_if_free(both, store)
        assert not store.run_folder(both.key).exists()
    claim = Store.claim

    @contextmanager
    def late_claim(store: Store, key: str, name: str) -> Iterator[bool]:
        """Refuse the first claim of the network, as if another process had just taken it."""
        if key == both.network_key and not refused:
            refused.append(key)
            yield False
        else:
            with claim(store, key, name) as claimed:
                yield claimed

    refused: list[str] = []
    monkeypatch.setattr(Store, "claim", late_claim)
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.0)
    assert workers._run_if_free(both, store)
    assert refused
    assert store.is_trained(str(both.network_key)), "it waited and then trained the network under its own key"
    assert not both.missing_settings(store)


# ---------------------------------------------------------------- runs begun with other settings


def test_a_blend_trains_its_network_itself_where_the_stored_one_had_other_settings(tmp_path):
    both = next(job for job in planned(with_blend(tmp_path), [1])[1] if job.row.name == "Both")
    store = Store(tmp_path / "out")
    train, val = train_and_val(both)
    other = both.estimator().network_alone().set_params(seed=99)
    other.fit(train, validation=val, run=store.run_folder(str(both.network_key)))
    work([both], store)
    assert store.failure(both.key) is None
    assert load(store.run_folder(both.key)).history_ != other.history_


def test_a_run_begun_with_other_settings_is_begun_anew(file, uninterrupted, tmp_path):
    store = Store(tmp_path)
    begun = next(job for job in planned(file)[1] if job.row.name == "Net")
    train, val = train_and_val(begun)
    begun.estimator().set_params(seed=99).fit(train, validation=val, run=store.run_folder(begun.key))
    (store.run_folder(begun.key) / "model.json").unlink()  # as if it had been killed just before its end
    assert finish(file, tmp_path) == uninterrupted


def test_a_mistake_in_the_settings_leaves_the_stored_run_untouched(tmp_path):
    """Trees have no epochs: that is a ConfigError of its own, not a run begun with other settings."""
    text = TOML.replace('"model.rounds" = 4', '"model.rounds" = 4, "train.epochs" = 7')
    trees = next(job for job in planned(prepare(tmp_path, text), [1])[1] if job.row.name == "Trees")
    store = Store(tmp_path / "out")
    stored = store.run_folder(trees.key) / "checkpoint.safetensors"
    stored.parent.mkdir()
    stored.write_text("hours of work")
    work([trees], store)
    assert "train.epochs cannot have an effect" in str(store.failure(trees.key))
    assert stored.read_text() == "hours of work"


def test_a_blend_without_a_usable_network_resumes_its_own_run(tmp_path, monkeypatch):
    both = next(job for job in planned(with_blend(tmp_path), [1])[1] if job.row.name == "Both")
    store = Store(tmp_path / "out")
    train, val = train_and_val(both)
    both.estimator().network_alone().set_params(seed=99).fit(
        train, validation=val, run=store.run_folder(str(both.network_key))
    )
    both.estimator().fit(train, validation=val, run=store.run_folder(both.key))
    (store.run_folder(both.key) / "model.json").unlink()  # as if it had been killed just before its end
    monkeypatch.setattr("raindrop.training.loop._step", lambda *_, **__: pytest.fail("trained again"))
    work([both], store)
    assert store.failure(both.key) is None


@pytest.mark.parametrize(
    ("task", "label", "metrics"),
    [("regression", '"age"', ["mae", "r2"]), ("multilabel", '["sick", "old"]', ["auroc", "auroc/old"])],
)
def test_other_tasks_have_tables_too(tmp_path, task, label, metrics):
    table = tiny_table()
    sick = table.samples["label"].cast(bool).alias("sick")
    samples = table.samples.with_columns(sick, old=pl.col("age") > 60)
    replace(table, samples=samples, roles=replace(table.roles, statics=())).write(tmp_path / "data" / "tiny")
    text = TOML.replace('label = "label"\npositive = 1', f'label = {label}\ntask = "{task}"')
    text = text.replace("fixed = [0.34]\n", "").replace(
        'title = "Tiny"', f'title = "Tiny"\nmetrics = {json.dumps(metrics)}'
    )
    text = text.replace('"train.metric" = "log_loss", ', "")
    file = tmp_path / "tiny.toml"
    file.write_text(text)
    finish(file, tmp_path / "results")
    page = (tmp_path / "results" / "tiny.md").read_text()
    assert ("R²" if task == "regression" else "AUROC (old)") in page
    assert ("quantities age (median" if task == "regression" else "labels sick 50.0%") in page

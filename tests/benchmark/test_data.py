"""The data of an experiment: where its table is, and which samples train, validate and test in each split."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import polars as pl
import pytest
from tiny import TOML, planned, prepare, tiny_table

from raindrop.benchmark import plan_jobs, read_experiments
from raindrop.benchmark.data import find_table, list_splits, open_table, positive_class, split_table
from raindrop.benchmark.parsing import parse
from raindrop.benchmark.spec import Data
from raindrop.errors import ConfigError, DataError
from raindrop.table.split_files import Split, write_splits

DATA = Data(folder="tiny", label="label")


def splits_of(text: str):
    return parse(tomllib.loads(text), "tiny", "tiny.toml").splits[0]


def ids(subsets):
    return [set(subset.ids) for subset in subsets]


def test_the_table_folder_itself_may_be_given_as_data_folder(tmp_path):
    file = prepare(tmp_path)
    (experiment,) = read_experiments([file])
    keys = [job.key for job in plan_jobs(experiment, tmp_path / "data" / "tiny", experiment.rows, ())[0]]
    assert keys == [job.key for job in planned(file)[1]]


def test_a_converter_is_advised_only_where_there_is_one(tmp_path):
    for folder in ("p12", "p19", "pam"):
        with pytest.raises(DataError, match=rf"Make it with: raindrop convert {folder} SOURCE --out .*{folder}"):
            find_table(tmp_path, Data(folder=folder, label="died"))
    with pytest.raises(DataError) as refused:
        find_table(tmp_path, Data(folder="ward", label="readmitted"))
    assert "raindrop convert" not in str(refused.value)
    assert "It must hold events.parquet or .csv (sample, time, sensor, value) and samples" in str(refused.value)
    assert "(sample, readmitted)" in str(refused.value)


def test_the_positive_class_is_the_last_of_two_unless_chosen():
    assert positive_class(Data(folder="a", label="died"), ["0", "1"]) == "1"
    assert positive_class(Data(folder="a", label="died", positive=0), ["0", "1"]) == "0"
    assert positive_class(Data(folder="a", label="activity"), ["lying", "sitting", "walking"]) is None
    with pytest.raises(ConfigError, match=r"a: data.positive is 'evnt', which is no class: did you mean 'event'"):
        positive_class(Data(folder="a", label="died", positive="evnt"), ["event", "none"])


def test_rotating_by_a_column_tests_each_value_once_and_validates_on_the_next(tmp_path):
    file = prepare(tmp_path, TOML.replace("random = true\nnumbers = [1, 2, 3]", 'rotate_by = "subject"'))
    _, jobs, _ = planned(file)
    assert [job.split_number for job in jobs] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    table = tiny_table()
    subject = table.samples["subject"]
    p0, p1, p4 = (set(table[(subject == name).to_numpy()].ids) for name in ("p0", "p1", "p4"))
    assert ids(split_table(table, jobs[0].experiment.data, jobs[0].splits, 1, tmp_path)) == [
        set(table.ids) - p0 - p1,
        p1,
        p0,
    ]
    assert ids(split_table(table, jobs[0].experiment.data, jobs[0].splits, 5, tmp_path)) == [
        set(table.ids) - p4 - p0,
        p0,
        p4,
    ]


def test_a_condition_trains_on_one_group_and_halves_the_other_anew_in_each_split(tmp_path):
    splits = splits_of(TOML.replace("random = true", 'train_where = "age < 60"'))
    table = tiny_table()
    young = set(table[(table.samples["age"] < 60).to_numpy()].ids)
    train, val, test = ids(split_table(table, DATA, splits, 1, tmp_path))
    assert train == young
    assert val | test == set(table.ids) - young
    assert not val & test
    assert abs(len(val) - len(test)) <= 1
    assert ids(split_table(table, DATA, splits, 2, tmp_path))[1] != val
    assert ids(split_table(table, DATA, splits, 1, tmp_path))[1] == val


def test_a_sample_without_the_value_of_a_condition_is_in_no_subset(tmp_path):
    table = tiny_table()
    age = pl.when(pl.col("sample") == table.ids[0]).then(None).otherwise(pl.col("age")).alias("age")
    table = replace(table, samples=table.samples.with_columns(age))
    splits = splits_of(TOML.replace("random = true", 'train_where = "age < 60"'))
    assert table.ids[0] not in set.union(*ids(split_table(table, DATA, splits, 1, tmp_path)))


def test_samples_without_a_label_are_left_out_after_the_split(tmp_path):
    table = tiny_table()
    folder = tmp_path / "data" / "tiny"
    samples = table.samples.with_columns(label=table.samples["label"].cast(float))
    samples[3, "label"] = None
    replace(table, samples=samples).write(folder)
    write_splits(folder / "splits.parquet", {1: Split.from_tables(table.split(seed=1))})
    file = tmp_path / "tiny.toml"
    file.write_text(TOML.replace("random = true\nnumbers = [1, 2, 3]", 'file = "splits.parquet"\nnumbers = [1]'))
    experiment, jobs, data = planned(file)
    opened = open_table(experiment.data, folder)
    assert sum(map(len, split_table(opened, jobs[0].experiment.data, jobs[0].splits, 1, folder))) == data.samples == 59
    assert [number for number, _ in list_splits(experiment, opened, ())] == [1]

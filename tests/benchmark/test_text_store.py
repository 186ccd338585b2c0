"""Results as text: nothing is lost on the way, lines are merged by row and split, and every mistake is named."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from results import NET, make_summary
from tiny import planned

from raindrop.benchmark import Store
from raindrop.benchmark.aggregate import summarise
from raindrop.benchmark.render import markdown
from raindrop.benchmark.text_store import read_records, records_of, write_records
from raindrop.errors import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("finished")


@pytest.fixture(scope="module")
def summary(folder):
    return make_summary(folder)


@pytest.fixture(scope="module")
def finished(summary, folder):
    """The experiment, the summary of its data, and its records."""
    experiment, jobs, data = planned(folder / "tiny.toml")
    return experiment, data, records_of(experiment, data, jobs, Store(folder / "out"))


def test_a_table_from_text_is_the_table_from_the_store(summary, finished, tmp_path):
    experiment, data, records = finished
    path = write_records(tmp_path / "text", experiment, data, records)
    assert path.name == "tiny.jsonl"
    read_data, read = read_records(path, experiment)
    assert read_data == data
    assert sorted(read, key=lambda job: job.place) == sorted(records, key=lambda job: job.place)
    table = markdown(summarise(experiment, read_data, read))
    assert table == markdown(summary)
    assert "(95 % interval" in table  # the sizes of training and test sets have come along


def test_a_line_is_a_job_with_its_key_label_base_rate_and_metrics(finished, tmp_path):
    experiment, data, records = finished
    _, *lines = write_records(tmp_path, experiment, data, records).read_text().splitlines()
    assert len(lines) == len(records) == 6
    first = json.loads(lines[0])
    assert (first["row"], first["split"], first["label"]) == ("Net", 1, "label")
    assert first["base_rate"] == dict(data.class_shares)["1"]
    assert first["key"] == next(job.key for job in records if (job.row, job.split) == ("Net", 1))
    assert first["results"][0]["test"] == {"auroc": NET[1], "auprc": NET[1] / 2}
    assert first["results"][0]["val"]["auroc"] == 0.1


def test_lines_do_not_depend_on_the_order_of_jobs(finished, tmp_path):
    experiment, data, records = finished
    path = write_records(tmp_path, experiment, data, records)
    text = path.read_text()
    path.unlink()
    assert write_records(tmp_path, experiment, data, records[::-1]).read_text() == text
    assert write_records(tmp_path, experiment, data, records[2:3]).read_text() == text  # the others stay


def test_a_new_result_replaces_the_old_one_of_its_row_and_split(finished, tmp_path):
    experiment, data, records = finished
    write_records(tmp_path, experiment, data, records)
    newer = replace(records[0], version="9.9", key="another")
    path = write_records(tmp_path, experiment, data, [newer])
    _, read = read_records(path, experiment)
    assert len(read) == len(records)
    assert [job.key for job in read if job.place == newer.place] == ["another"]


def test_a_metric_that_is_not_a_number_is_left_out_of_the_mean(summary, folder, tmp_path):
    experiment, jobs, data = planned(folder / "tiny.toml")
    job = next(job for job in jobs if (job.row.name, job.split_number) == ("Net", 3))
    store = Store(tmp_path / "another")
    row = {"subset": "test", "hidden": "none", "share": 0.0, "replace_with": "nothing", "auroc": math.nan, "auprc": 0.5}
    store.append_metrics(job.key, [row])
    (record,) = records_of(experiment, data, [job], store)
    assert record.results[0].test == {"auroc": None, "auprc": 0.5}


def test_the_caption_names_the_versions_that_were_run(finished):
    experiment, data, records = finished
    of_two = [replace(job, version="0.2.0" if job.row == "Net" else "0.3.0") for job in records]
    assert "Version 0.2.0 (Net); 0.3.0 (Trees)." in markdown(summarise(experiment, data, of_two))
    of_one = [replace(job, version="0.2.0") for job in records]
    assert "Version 0.2.0." in markdown(summarise(experiment, data, of_one))


def change(line: str, **values: object) -> str:
    return json.dumps(json.loads(line) | values)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: ["", *lines[1:]], r"tiny\.jsonl, line 1: not a line of results"),
        (lambda lines: [*lines[:2], lines[2][:40]], r"tiny\.jsonl, line 3: not a line of results"),
        (lambda lines: [*lines[:2], change(lines[2], split="two")], r"line 3: .*Expected `int`"),
        (lambda lines: [*lines, lines[1]], r"line 8: 'Net', split 1, is there twice; remove one"),
        (lambda lines: [lines[0], change(lines[1], row="Nets")], r"line 2: the table has no row 'Nets'; .*Net"),
        (lambda lines: [change(lines[0], table="other")], r"results of the table 'other' in format 1, not of 'tiny'"),
        (lambda lines: [change(lines[0], format=7)], r"in format 7, not of 'tiny' in format 1"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_the_line(finished, tmp_path, damage, message):
    experiment, data, records = finished
    path = write_records(tmp_path, experiment, data, records)
    path.write_text("\n".join(damage(path.read_text().splitlines())) + "\n")
    with pytest.raises(DataError, match=message):
        read_records(path, experiment)


def test_a_file_that_is_not_text_is_named(finished, tmp_path):
    (tmp_path / "tiny.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"tiny\.jsonl: cannot be read \(it is not text\)"):
        read_records(tmp_path / "tiny.jsonl", finished[0])

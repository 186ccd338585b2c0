"""The store: locks between processes, damaged files, and stores of an older version."""

from __future__ import annotations

import os

import pytest
from tiny import prepare

from raindrop.benchmark import Store
from raindrop.cli.app import main
from raindrop.errors import DataError


def test_a_damaged_file_is_named(tmp_path):
    store = Store(tmp_path)
    store.metrics_file("key").write_text("no")
    with pytest.raises(DataError, match=r"key\.parquet: cannot be read .* Remove it, and the job is evaluated again"):
        store.read_metrics("key")


def test_a_store_of_version_0_1_is_refused_and_left_as_it_was(tmp_path, capsys):
    file, out = prepare(tmp_path), tmp_path / "out"
    (out / "cells").mkdir(parents=True)
    (out / "cells" / "key.parquet").write_text("metrics")
    with pytest.raises(SystemExit):
        main(["benchmark", str(file), "--data", str(tmp_path / "data"), "--out", str(out)])
    message = f"{out}: holds results of raindrop 0.1, which this version cannot read. Choose another folder."
    assert message in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["cells"]


def test_a_job_is_claimed_by_one_process_at_a_time(tmp_path):
    ours, theirs = Store(tmp_path), Store(tmp_path)
    with ours.claim("key", "a job") as claimed:
        assert claimed
        assert (ours.claimed_by("key") or {})["pid"] == os.getpid()
        with theirs.claim("key", "a job") as claimed_twice:
            assert not claimed_twice
    assert ours.claimed_by("key") is None
    with theirs.claim("key", "a job") as claimed:
        assert claimed

"""The store: locks between processes, and damaged files."""

from __future__ import annotations

import os

import pytest

from raindrop.benchmark import Store
from raindrop.errors import DataError


def test_a_damaged_file_is_named(tmp_path):
    store = Store(tmp_path)
    store.metrics_file("key").write_text("no")
    with pytest.raises(DataError, match=r"key\.parquet: cannot be read .* Remove it, and the job is evaluated again"):
        store.read_metrics("key")


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

"""The state of a stream on the disk: nothing is lost, nothing counts twice, whenever the process is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fork_server import BY_FORK
from kill_points import recorded
from learnable import SENSORS, easy_table

import raindrop as rd
from raindrop.serve import state_folder
from raindrop.serve.journal import Journal, read_entries

CHILD = """
import sys
import raindrop as rd
from raindrop.serve import state_folder
state_folder.MIN_JOURNAL = 4000
model, folder = sys.argv[1:]
stream = rd.Stream.open(rd.load(model), folder)
print(stream.offset, flush=True)
for number in range(stream.offset + 1, 100_000):
    sensor = ("heart rate", "pressure", "temperature")[number % 3]
    stream.push({"sample": [f"s{number % 7}"], "time": [number // 21], "sensor": [sensor], "value": [number]},
                offset=number)
    print(number, flush=True)
"""


@pytest.fixture(scope="module")
def classifier():
    return rd.Classifier("trees", config={"model.rounds": 3, "model.min_samples": 4}).fit(easy_table(40))


def pushed(stream: rd.Stream, numbers: range) -> rd.Stream:
    for number in numbers:
        reading = {"sample": [f"s{number % 7}"], "time": [number // 21], "sensor": [SENSORS[number % 3]]}
        stream.push(reading | {"value": [number]}, offset=number)
    return stream


def assert_same(found: rd.Stream, expected: rd.Stream) -> None:
    names = sorted(expected.samples)
    assert sorted(found.samples) == names
    for name in ("time", "sensor", "value", "count"):
        np.testing.assert_array_equal(getattr(found.table(names), name), getattr(expected.table(names), name))


@pytest.mark.slow
def test_after_kill_9_and_replay_nothing_is_lost_and_nothing_counts_twice(classifier, tmp_path):
    model, folder = classifier.save(tmp_path / "model"), tmp_path / "stream"
    acknowledged = 0
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", BY_FORK + CHILD, str(model), str(folder)], stdout=subprocess.PIPE, text=True
        )
        stored = int(child.stdout.readline())
        assert stored >= acknowledged  # all that was acknowledged before the kill, and at most the push under way
        assert stored <= acknowledged + 1
        for _ in range(150):
            acknowledged = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        rest = child.communicate()[0].split()
        acknowledged = int(rest[-1]) if rest else acknowledged
    with rd.Stream.open(classifier, folder) as stream:
        assert acknowledged <= stream.offset <= acknowledged + 1
        assert_same(stream, pushed(rd.Stream(classifier), range(1, stream.offset + 1)))
        pushed(stream, range(1, stream.offset + 20))  # a producer that replays everything, and goes on
        assert_same(stream, pushed(rd.Stream(classifier), range(1, stream.offset + 1)))


@pytest.mark.slow
def test_killed_at_every_file_operation_it_has_every_push_once(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(state_folder, "MIN_JOURNAL", 300)
    (folder := tmp_path / "stream").mkdir()
    acknowledged = {}
    with recorded(folder, tmp_path / "states") as recording:
        stream = rd.Stream.open(classifier, folder)
        for number in range(1, 20):
            pushed(stream, range(number, number + 1))
            acknowledged[number] = len(recording.states)
        assert stream._folder.generation > 1  # new states were written in between
        stream.close()
    assert len(recording.states) > 30
    for at, state in enumerate(recording.states):
        with rd.Stream.open(classifier, state.folder, sync=False) as again:
            least = max((number for number, states in acknowledged.items() if states <= at), default=0)
            assert least <= again.offset <= least + 1
            if again.offset:
                assert_same(again, pushed(rd.Stream(classifier), range(1, again.offset + 1)))


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_half_an_entry_at_the_end_of_the_journal_is_cut_off(classifier, tmp_path, cut):
    stream = pushed(rd.Stream.open(classifier, tmp_path, sync=False), range(1, 30))
    journal = stream._folder.journal.path
    stream._folder.close()  # as a kill: no new state
    with open(journal, "r+b") as file:
        file.truncate(journal.stat().st_size - cut)
    with rd.Stream.open(classifier, tmp_path, sync=False) as again:
        assert again.offset == 28
        assert_same(pushed(again, range(1, 40)), pushed(rd.Stream(classifier), range(1, 40)))


def test_a_long_journal_becomes_a_new_state(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(state_folder, "MIN_JOURNAL", 2000)
    stream = pushed(rd.Stream.open(classifier, tmp_path, sync=False), range(1, 200))
    generation = stream._folder.generation
    assert generation > 3
    assert [path.name for path in tmp_path.glob("journal-*")] == [f"journal-{generation}"]
    stream._folder.close()
    assert_same(rd.Stream.restore(classifier, tmp_path), stream)


def test_a_kill_between_the_new_journal_and_the_new_state_loses_nothing(classifier, tmp_path, monkeypatch):
    stream = pushed(rd.Stream.open(classifier, tmp_path, sync=False), range(1, 50))
    monkeypatch.setattr(state_folder.State, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        stream.save(tmp_path)
    monkeypatch.undo()
    pushed(stream, range(50, 60))  # still goes to the journal that the state names
    stream._folder.close()
    assert_same(rd.Stream.restore(classifier, tmp_path), pushed(rd.Stream(classifier), range(1, 60)))


def test_a_full_disk_refuses_the_push_and_keeps_what_was_there(classifier, tmp_path, monkeypatch):
    stream = pushed(rd.Stream.open(classifier, tmp_path), range(1, 10))

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            pushed(stream, range(10, 11))
    assert stream.offset == 9
    pushed(stream, range(10, 12))
    stream._folder.close()
    assert_same(rd.Stream.restore(classifier, tmp_path), pushed(rd.Stream(classifier), range(1, 12)))


def test_statics_what_was_let_go_and_what_changed_are_kept(tmp_path):
    table = easy_table(40, statics=("age", "ward"))
    model = rd.Classifier("trees", config={"model.rounds": 3, "model.min_samples": 4}).fit(table)
    stream = pushed(rd.Stream.open(model, tmp_path, sync=False, max_samples=7, lateness=5.0), range(1, 30))
    stream.set_samples({"sample": ["s1", "new"], "age": [40, None], "ward": ["north", "west"], "cutoff": [1.5, None]})
    stream.let_go("s3")
    stream._folder.close()
    again = rd.Stream.restore(model, tmp_path)
    assert again.settings == stream.settings
    assert again.changed == stream.changed
    assert again.samples == stream.samples
    assert again.table().samples.equals(stream.table().samples)
    np.testing.assert_array_equal(again.scores().probabilities, stream.scores().probabilities)
    with pytest.raises(rd.DataError, match="of a sample that was let go"):
        again.push({"sample": ["s3"], "time": [0], "sensor": ["pressure"], "value": [1]})


def test_a_state_of_another_model_or_with_other_settings_is_refused(classifier, tmp_path):
    pushed(rd.Stream(classifier, lateness=2.0), range(1, 5)).save(tmp_path)
    other = rd.Classifier("trees", config={"model.rounds": 2, "model.min_samples": 4}).fit(easy_table(40))
    with pytest.raises(rd.ConfigError, match="belongs to another model"):
        rd.Stream.restore(other, tmp_path)
    with pytest.raises(rd.ConfigError, match=r"lateness=3.0: the stream was made with lateness=2.0"):
        rd.Stream.open(classifier, tmp_path, lateness=3.0)
    with rd.Stream.open(classifier, tmp_path) as stream:
        assert stream.settings.lateness == 2.0


def test_a_folder_without_a_state_or_with_a_damaged_one_is_refused(classifier, tmp_path):
    with pytest.raises(rd.DataError, match="there is no such file"):
        rd.Stream.restore(classifier, tmp_path)
    (tmp_path / "state.safetensors").write_bytes(b"no tensors")
    with pytest.raises(rd.DataError, match="cannot be read"):
        rd.Stream.restore(classifier, tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such locks")
def test_only_one_process_can_have_a_stream_open(classifier, tmp_path):
    first = rd.Stream.open(classifier, tmp_path)
    with pytest.raises(rd.RaindropError, match="another process has this stream open"):
        rd.Stream.open(classifier, tmp_path)
    first.close()
    rd.Stream.open(classifier, tmp_path).close()


def test_a_journal_returns_its_entries(tmp_path: Path):
    path = tmp_path / "journal"
    journal = Journal(path)
    for number in range(3):
        journal.append({"number": number, "bytes": b"\x00" * number})
    journal.close()
    assert [entry["number"] for entry in read_entries(path)] == [0, 1, 2]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert [entry["number"] for entry in read_entries(path)] == [0, 1]

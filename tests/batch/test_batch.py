"""Batch: the flat tensors against plain loops, and how samples are put into batches."""

import numpy as np
import polars as pl
import pytest
import torch
from class_tasks import labelled_collator
from closeness import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st

from raindrop.batch.collate import MIN_WIDTH, Collator, bounded, plan_batches
from raindrop.batch.ragged import BLOCK_SIZE, Blocks, Segments
from raindrop.batch.scaling import Scaler
from raindrop.errors import ConfigError, DataError
from raindrop.table.event_table import EventTable

SENSORS = ["a", "b", "c", "d"]


def make_table(seed=0, num_samples=12, most=9):
    """Samples of 0 to `most` readings at few distinct times, so that sensors often share a timestamp."""
    rng = np.random.default_rng(seed)
    cells = [rng.permutation(most * len(SENSORS))[: rng.integers(0, most + 1)] for _ in range(num_samples)]
    rows = [
        (str(at), cell // len(SENSORS) / 4, SENSORS[cell % len(SENSORS)])
        for at in range(num_samples)
        for cell in cells[at]
    ]
    columns = dict(zip(("sample", "time", "sensor"), map(list, zip(*rows, strict=True)), strict=True))
    samples = {
        "sample": [str(at) for at in range(num_samples)],
        "label": rng.choice(["no", "yes"], num_samples),
        "age": rng.normal(size=num_samples),
        "unit": rng.choice(["A", "B"], num_samples),
    }
    events = {**columns, "value": rng.normal(3, 2, len(rows))}
    return EventTable.from_frames(events, samples, statics=["age", "unit"], sensors=SENSORS)


@pytest.fixture
def table():
    return make_table()


@pytest.fixture
def scaler(table):
    return Scaler.fit(table)


@pytest.fixture
def collator(table, scaler):
    return labelled_collator(table, scaler)


def readings_of(table, scaler, at):
    """[(time, sensor code, scaled value)] of one sample, from the events frame."""
    frame = table[int(at)].events()
    codes = {name: code for code, name in enumerate(scaler.sensors)}
    return [
        (time, codes[name], (value - scaler.mean[codes[name]]) / scaler.scale[codes[name]])
        for time, name, value in frame.select("time", "sensor", "value").rows()
    ]


def contents(batch):
    """Per sample [(time, sensor, value)], read out of the flat tensors one by one."""
    samples = [[] for _ in range(batch.num_samples)]
    for value, sensor, step in zip(batch.value.tolist(), batch.sensor.tolist(), batch.step.tolist(), strict=True):
        samples[int(batch.step_sample[step])].append((float(batch.time[step]), sensor, value))
    return samples


def close(one, other):
    assert [len(sample) for sample in one] == [len(sample) for sample in other]
    for mine, theirs in zip(one, other, strict=True):
        assert_close(np.array(mine).reshape(-1, 3), np.array(theirs).reshape(-1, 3), dtype=np.float32)
    return True


# ---------------------------------------------------------------- collating


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 50), positions=st.lists(st.integers(0, 11), max_size=15))
def test_a_batch_is_what_a_loop_over_samples_and_readings_gives(seed, positions):
    table = make_table(seed)
    scaler = Scaler.fit(table)
    batch = labelled_collator(table, scaler).batch(np.array(positions, dtype=np.int64))
    assert close(contents(batch), [readings_of(table, scaler, at) for at in positions])
    known = sorted(set(table.labels.tolist()))  # a small table may have one class only
    assert batch.target.tolist() == [known.index(table.labels[at]) for at in positions]
    assert np.array_equal(batch.statics.numpy(), scaler.encode_statics(table)[positions])
    assert batch.num_sensors == 4


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 50))
def test_a_slot_is_one_distinct_timestamp_of_one_sample(seed):
    table = make_table(seed)
    batch = Collator(table, Scaler.fit(table)).batch(np.arange(len(table)))
    expected = [(at, time) for at in range(len(table)) for time in sorted(set(table[at].events()["time"]))]
    assert list(zip(batch.step_sample.tolist(), batch.time.tolist(), strict=True)) == expected
    ranks = [rank for at in range(len(table)) for rank in range(sum(owner == at for owner, _ in expected))]
    assert batch.rank.tolist() == ranks
    assert batch.samples.counts.tolist() == [sum(owner == at for owner, _ in expected) for at in range(len(table))]


def test_the_types_are_what_torch_wants(collator):
    batch = collator.batch(np.arange(5))
    assert {batch.value.dtype, batch.statics.dtype} == {torch.float32}
    assert batch.time.dtype == torch.float64
    assert {batch.sensor.dtype, batch.step.dtype, batch.step_sample.dtype, batch.target.dtype} == {torch.int64}


def test_a_batch_of_no_samples_and_of_no_readings_is_a_batch(collator, table):
    assert collator.batch(np.arange(0)).num_samples == 0
    empty = Collator(table.where(pl.col("value") > 99), collator.scaler).batch(np.arange(3))
    assert (empty.num_samples, empty.num_steps, len(empty.value)) == (3, 0, 0)
    assert empty.grid().value.shape == (3, 1, 4)
    assert not empty.grid().present.any()


def test_a_batch_reads_only_the_readings_of_its_samples(tmp_path, monkeypatch):
    table = make_table(num_samples=200)
    scaler, back = Scaler.fit(table), EventTable.read(table.write(tmp_path / "data"))
    collator, wanted, touched = Collator(back, scaler), np.array([3, 77]), []

    def watch(self, rows):
        touched.append(len(rows))
        return np.asarray(self)[rows]

    monkeypatch.setattr(np.memmap, "__getitem__", watch)
    batch = collator.batch(wanted)
    monkeypatch.undo()
    assert touched == [table.count[wanted].sum()] * 3  # time, sensor and value
    assert close(contents(batch), [readings_of(table, scaler, at) for at in wanted])


def test_the_chosen_samples_give_the_same_batch_as_their_positions(table, scaler):
    chosen = Collator(table[[7, 3, 5]], scaler).batch(np.arange(3))
    assert close(contents(chosen), contents(Collator(table, scaler).batch(np.array([7, 3, 5]))))


def test_sensors_of_another_table_are_matched_by_name(table, scaler):
    renamed = EventTable.from_frames(table.events(), table.samples, statics=["age", "unit"], sensors=SENSORS[::-1])
    ours, theirs = (contents(Collator(t, scaler).batch(np.arange(12))) for t in (table, renamed))
    assert close([sorted(sample) for sample in ours], [sorted(sample) for sample in theirs])


def test_an_unknown_sensor_is_an_error_or_ignored(table, scaler):
    frame = table.events().with_columns(sensor=pl.col("sensor").cast(pl.String).replace("b", "bb"))
    other = EventTable.from_frames(frame, table.samples, statics=["age", "unit"])
    with pytest.raises(DataError, match=r"1 sensor was not read in training \(first: 'bb'; "):
        Collator(other, scaler)
    batch = Collator(other, scaler, ignore_unknown=True).batch(np.arange(12))
    expected = [readings_of(table.where(pl.col("sensor") != "b"), scaler, at) for at in range(12)]
    assert close(contents(batch), expected)


def test_a_batch_moves_with_all_its_tensors(collator):
    batch = collator.batch(np.arange(5))
    assert batch.observed.any()  # a cached view must not stay behind on the old device
    moved = batch.to("meta")
    assert {t.device.type for t in (moved.value, moved.step, moved.statics, moved.target)} == {"meta"}
    assert moved.time.device.type == "cpu"  # not every device has double precision
    assert "observed" not in vars(moved)
    assert moved.num_sensors == 4
    assert close(contents(batch.to("cpu")), contents(batch))
    assert Collator(collator.table, collator.scaler).batch(np.arange(2)).to("cpu").target is None


# ---------------------------------------------------------------- views


def test_the_grid_holds_every_reading_in_its_place_and_zero_elsewhere(collator):
    batch = collator.batch(np.arange(12))
    grid = batch.grid()
    longest = int(batch.samples.counts.max())
    value, observed = np.zeros((12, longest, 4), np.float32), np.zeros((12, longest, 4), bool)
    time, present = np.zeros((12, longest), np.float32), np.zeros((12, longest), bool)
    for at, sample in enumerate(contents(batch)):
        times = sorted({reading[0] for reading in sample})
        time[at, : len(times)], present[at, : len(times)] = times, True
        for moment, sensor, reading in sample:
            value[at, times.index(moment), sensor], observed[at, times.index(moment), sensor] = reading, True
    for name, expected in {"value": value, "observed": observed, "time": time, "present": present}.items():
        assert np.array_equal(getattr(grid, name).numpy(), expected), name


def test_observed_says_which_sensor_was_read_when(collator):
    batch = collator.batch(np.arange(12))
    expected = np.zeros((batch.num_steps, 4), bool)
    for step, sensor in zip(batch.step.tolist(), batch.sensor.tolist(), strict=True):
        expected[step, sensor] = True
    assert np.array_equal(batch.observed.numpy(), expected)
    assert batch.observed.sum() == len(batch.value)


@pytest.mark.parametrize("most", [1, 2, 3, 5, 50])
def test_thinned_keeps_at_most_so_many_evenly_spread_timestamps(collator, most):
    batch = collator.batch(np.arange(12))
    thin = batch.thinned(most)
    assert thin.num_samples == 12
    assert thin.samples.counts.tolist() == batch.samples.counts.clamp_max(most).tolist()
    for mine, whole in zip(contents(thin), contents(batch), strict=True):
        times, kept = (sorted({reading[0] for reading in sample}) for sample in (whole, mine))
        assert mine == [reading for reading in whole if reading[0] in kept]
        assert kept[:1] == times[:1]
        gaps = np.diff([times.index(time) for time in kept])
        assert not len(gaps) or gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize("most", [1, 2, 3, 50])
def test_cut_gives_pieces_of_so_many_timestamps_and_their_owners(collator, most):
    batch = collator.batch(np.arange(12))
    pieces, owners = batch.cut(most)
    whole, cut = contents(batch), contents(pieces)
    for at in range(12):
        mine = [sample for piece, sample in enumerate(cut) if owners.index[piece] == at]
        times = sorted({reading[0] for reading in whole[at]})
        chunks = [set(times[start : start + most]) for start in range(0, len(times), most)] or [set()]
        assert mine == [[reading for reading in whole[at] if reading[0] in chunk] for chunk in chunks]
    assert pieces.statics.equal(batch.statics[owners.index])
    assert pieces.target.equal(batch.target[owners.index])
    assert pieces.num_samples == len(owners.index)


# ---------------------------------------------------------------- leaving readings out


def test_leaving_out_needs_a_generator_and_repeats_under_its_seed(collator):
    everything = contents(collator.batch(np.arange(12)))
    options = {"drop_readings": 0.6, "drop_sensors": 0.6}
    assert contents(collator.batch(np.arange(12), **options)) == everything
    one, two, other = (
        contents(collator.batch(np.arange(12), rng=np.random.default_rng(s), **options)) for s in (1, 1, 2)
    )
    assert one == two
    assert one != other


def test_dropped_readings_are_just_left_out(collator):
    whole = contents(collator.batch(np.arange(12)))
    batch = collator.batch(np.arange(12), rng=np.random.default_rng(0), drop_readings=0.9)
    assert 0 < len(batch.value) < sum(map(len, whole))
    assert all(set(kept) <= set(sample) for kept, sample in zip(contents(batch), whole, strict=True))
    assert batch.num_steps == sum(len({reading[0] for reading in sample}) for sample in contents(batch))
    assert batch.num_samples == 12


def test_the_share_of_dropped_readings_is_drawn_for_each_sample_up_to_the_largest():
    table = EventTable.from_columns(
        np.repeat(np.arange(300), 200), np.tile(np.arange(200), 300), ["x"] * 60_000, np.zeros(60_000)
    )
    collator = Collator(table, Scaler.fit(table))
    kept = collator.batch(np.arange(300), rng=np.random.default_rng(0), drop_readings=0.5).samples.counts / 200
    assert kept.min() > 0.35
    assert kept.max() > 0.95
    assert abs(kept.mean() - 0.75) < 0.03


def test_a_dropped_sensor_is_gone_from_the_whole_sample_and_only_there(collator):
    whole = contents(collator.batch(np.arange(12)))
    batch = collator.batch(np.arange(12), rng=np.random.default_rng(0), drop_sensors=0.9)
    fates = [set() for _ in SENSORS]
    for kept, sample in zip(contents(batch), whole, strict=True):
        for sensor in {reading[1] for reading in sample}:
            mine = [reading for reading in kept if reading[1] == sensor]
            assert mine in ([], [reading for reading in sample if reading[1] == sensor])
            fates[sensor].add("kept" if mine else "gone")
    assert fates == [{"kept", "gone"}] * 4


# ---------------------------------------------------------------- plans


def plan(size, seed=0, total=1000, share=0.1, **options):
    rng = np.random.default_rng(9)
    labels, lengths = (rng.random(total) < share).astype(np.int64), rng.integers(1, 200, total)
    return plan_batches(size, np.random.default_rng(seed), strata=labels, lengths=lengths, **options), labels, lengths


@pytest.mark.parametrize("options", [{}, {"balanced": True}, {"bucketed": True}])
def test_a_plan_repeats_under_its_seed_only(options):
    one, two, other = (plan(64, seed, **options)[0] for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("bucketed", [False, True])
@pytest.mark.parametrize("total", [1, 63, 64, 65, 1000, 4000])
def test_a_natural_plan_has_every_sample_once_in_batches_no_larger_than_asked(total, bucketed):
    batches, _, _ = plan(64, total=total, bucketed=bucketed)
    assert sorted(np.concatenate(batches)) == list(range(total))
    assert max(map(len, batches)) <= 64
    assert len(batches) == -(-total // 64)


def test_bucketed_batches_hold_samples_of_similar_length():
    spread = {}
    for bucketed in (False, True):
        batches, _, lengths = plan(64, total=3200, bucketed=bucketed)
        spread[bucketed] = np.mean([np.ptp(lengths[batch]) for batch in batches])
    assert spread[True] < spread[False] / 20


def test_bucketed_batches_do_not_come_in_order_of_length():
    batches, _, lengths = plan(64, total=3200, bucketed=True)
    means = [lengths[batch].mean() for batch in batches]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.5


def test_balanced_batches_hold_64_and_64_as_in_the_paper():
    batches, labels, _ = plan(128, balanced=True)
    assert len(batches) == -(-1000 // 128)
    for batch in batches:
        assert np.bincount(labels[batch]).tolist() == [64, 64]


def test_a_rare_class_is_gone_through_whole_before_it_repeats():
    batches, labels, _ = plan(128, balanced=True)
    drawn = np.concatenate([batch[labels[batch] == 1] for batch in batches])
    times = np.bincount(drawn, minlength=1000)[labels == 1]
    assert times.max() - times.min() <= 1
    common = np.concatenate([batch[labels[batch] == 0] for batch in batches])
    assert len(np.unique(common)) == len(common) == 64 * len(batches)


def test_balanced_batches_share_what_cannot_be_divided():
    labels = np.arange(90) % 3
    batches = plan_batches(10, np.random.default_rng(0), strata=labels, lengths=np.ones(90, int), balanced=True)
    assert {tuple(np.bincount(labels[batch])) for batch in batches} == {(4, 3, 3)}


def test_a_balanced_batch_too_small_for_all_classes_is_an_error():
    with pytest.raises(ConfigError, match="A balanced batch of 2 samples cannot hold all 3 classes; raise "):
        plan_batches(2, np.random.default_rng(0), strata=np.arange(3), lengths=np.ones(3, int), balanced=True)


# ---------------------------------------------------------------- ragged sums


@settings(max_examples=40, deadline=None)
@given(index=st.lists(st.integers(0, 6), max_size=40), ordered=st.booleans(), width=st.integers(0, 3))
def test_sum_spread_and_softmax_of_segments_equal_loops(index, ordered, width):
    index = torch.tensor(sorted(index) if ordered else index, dtype=torch.int64)
    segments = Segments.from_index(index, 8, is_sorted=ordered)
    generator = torch.Generator().manual_seed(len(index))
    x, y = torch.randn(len(index), width, generator=generator), torch.randn(8, width, generator=generator)
    present = torch.rand(len(index), width, generator=generator) < 0.7
    members = [[row for row in range(len(index)) if index[row] == at] for at in range(8)]
    assert segments.counts.tolist() == [len(rows) for rows in members]
    assert torch.allclose(
        segments.sum(x), torch.stack([sum((x[row] for row in rows), torch.zeros(width)) for rows in members]), atol=1e-6
    )
    assert torch.equal(segments.broadcast(y), torch.stack([y[at] for at in index]) if len(index) else y[:0])
    expected = torch.zeros(len(index), width)
    for rows in members:
        for column in range(width):
            held = [row for row in rows if present[row, column]]
            if held:
                expected[held, column] = torch.softmax(x[held, column], 0)
    assert_close(segments.softmax(x, present), expected)


def test_softmax_of_segments_survives_extreme_scores():
    segments = Segments.from_index(torch.tensor([0, 0, 1, 1]), 2, is_sorted=True)
    scores = torch.tensor([[1e30], [-1e30], [-1e38], [-1e38]])
    weight = segments.softmax(scores, torch.ones(4, 1, dtype=torch.bool))
    assert weight.flatten().tolist() == [1.0, 0.0, 0.5, 0.5]


@settings(max_examples=25, deadline=None)
@given(counts=st.lists(st.integers(0, 3 * BLOCK_SIZE), min_size=1, max_size=6))
def test_matrix_products_in_blocks_equal_loops_over_rows(counts):
    owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    blocks = Blocks.from_segments(Segments.from_index(owner, len(counts), is_sorted=True))
    generator = torch.Generator().manual_seed(sum(counts))
    weights, rows = (torch.randn(len(owner), width, generator=generator) for width in (3, 5))
    queries = torch.randn(len(counts), 3, 5, generator=generator)
    summed = torch.zeros(len(counts), 3, 5)
    for row, at in enumerate(owner.tolist()):
        summed[at] += torch.outer(weights[row], rows[row])
    assert_close(blocks.weighted_sum(weights, rows), summed)
    matched = torch.stack([queries[at] @ rows[row] for row, at in enumerate(owner.tolist())]) if len(owner) else weights
    assert_close(blocks.dot(rows, queries), matched)
    assert blocks.num_blocks == sum(-(-count // BLOCK_SIZE) for count in counts)


def test_the_following_reading_is_the_next_of_the_same_sensor_in_the_same_sample(make_table, make_batch):
    batch = make_batch(make_table())
    found = batch.following
    assert (found >= 0).any()
    for s in range(batch.num_steps):
        for v in range(batch.num_sensors):
            later = [
                n
                for n in range(len(batch.value))
                if batch.sensor[n] == v and batch.sample[n] == batch.step_sample[s] and batch.step[n] > s
            ]
            assert found[s, v] == (later[0] if later else -1)


# ---------------------------------------------------------------- memory


def test_runs_of_samples_are_bounded_by_what_a_model_allocates(monkeypatch):
    length = np.array([3, 3, 40, 3, 3, 3, 3, 3])
    table = EventTable.from_columns(
        np.repeat(np.arange(8), length), np.concatenate([np.arange(n) for n in length]), ["x"] * 61, np.zeros(61)
    )
    data = Collator(table, Scaler.fit(table))
    monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", 12 * MIN_WIDTH)
    runs = [run.tolist() for run in bounded(data, np.arange(8))]
    assert runs == [[0, 1], [2], [3, 4, 5, 6], [7]]  # a padded grid of 40 steps would hold only one sample
    assert [run.tolist() for run in bounded(data, np.array([7, 2, 0]), 2)] == [[7], [2], [0]]
    assert list(bounded(data, np.arange(0))) == []


def test_more_sensors_mean_fewer_samples_at_once_and_few_count_as_some(monkeypatch):
    monkeypatch.setattr("raindrop.batch.collate.MAX_CELLS", 6 * MIN_WIDTH)
    sizes = {}
    for sensors in (2, 10, 96):
        names = [f"s{at}" for at in range(sensors)]
        table = EventTable.from_columns(np.arange(20), np.zeros(20), ["s0"] * 20, np.zeros(20), sensors=names)
        sizes[sensors] = max(len(run) for run in bounded(Collator(table, Scaler.fit(table)), np.arange(20)))
    assert sizes == {2: 6, 10: 6, 96: 1}

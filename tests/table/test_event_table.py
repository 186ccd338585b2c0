"""EventTable: its content, selecting samples and readings, splitting, and use with scikit-learn."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hand_made import EVENTS, SAMPLES, SORTED
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, cross_val_score, train_test_split
from sklearn.utils import _safe_indexing, indexable

from raindrop.errors import DataError
from raindrop.table.event_table import EventTable

# ---------------------------------------------------------------- content


def test_offsets_and_rows_locate_the_readings_of_each_sample(table):
    assert table.offsets.tolist() == [0, 3, 5, 5]  # c has no reading
    assert table.rows().tolist() == [0, 1, 2, 3, 4]
    assert table.rows(np.array([1, 2, 0])).tolist() == [3, 4, 0, 1, 2]
    assert table.rows(np.array([], dtype=np.int64)).tolist() == []


def test_rows_equal_a_loop_over_samples(large):
    positions = np.random.default_rng(1).integers(0, len(large), 50)
    expected = [row for at in positions for row in range(large.start[at], large.start[at] + large.count[at])]
    assert large.rows(positions).tolist() == expected


def test_a_sample_without_readings_is_still_a_sample(table):
    assert len(table) == 3
    assert table.shape == (3,)
    assert table["c"].num_readings == 0
    assert table["c"].events().shape == (0, 4)


def test_the_repr_has_counts_and_the_label(table):
    assert repr(table) == "EventTable(3 samples, 2 sensors, 5 readings, label 'label')"


# ---------------------------------------------------------------- selecting


@pytest.mark.parametrize(
    ("key", "ids"),
    [
        (0, ["a"]),
        (-1, ["c"]),
        (np.int64(1), ["b"]),
        (slice(1, None), ["b", "c"]),
        (slice(None, None, -1), ["c", "b", "a"]),
        ([2, 0], ["c", "a"]),
        ([1, 1], ["b", "b"]),
        ([], []),
        (np.array([-1, 0]), ["c", "a"]),
        (np.array([2, 0], dtype=np.uint8), ["c", "a"]),
        ([True, False, True], ["a", "c"]),
        (np.array([False, False, False]), []),
        ("b", ["b"]),
        (["c", "a"], ["c", "a"]),
        (np.array(["c", "a"]), ["c", "a"]),
        (pl.Series(["c"]), ["c"]),
        (pd.Index(["c", "b"]), ["c", "b"]),
        (range(2), ["a", "b"]),
        ((np.array([2]), Ellipsis), ["c"]),
        ((slice(0, 2), Ellipsis), ["a", "b"]),
    ],
    ids=str,
)
def test_samples_are_selected_by_position_slice_mask_or_id(table, key, ids):
    selected = table[key]
    assert selected.ids == ids
    assert selected.events().rows() == [row for name in ids for row in SORTED if row[0] == name]
    assert selected.labels.tolist() == [dict(zip("abc", ["no", "yes", "no"], strict=True))[name] for name in ids]


def test_positions_in_a_selection_count_within_the_selection(table):
    assert table[1:][0].ids == ["b"]
    assert table[[2, 1]]["b"].events().rows() == SORTED[3:]


def test_selecting_samples_copies_no_reading(table):
    for selected in (table[1:], table[[2, 0]], table[table.labels == "no"]):
        assert np.shares_memory(selected.value, table.value)
        assert len(selected.value) == len(table.value)


def test_iterating_over_a_table_gives_one_table_per_sample(table):
    assert [sample.ids[0] for sample in table] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "keep",
    [
        pl.col("sensor") == "HR",
        [True, True, False, False, True],
        np.array([True, True, False, False, True]),
        lambda events: events["sensor"] == "HR",
        lambda events: pl.col("sensor") == "HR",
    ],
    ids=["expression", "list", "array", "function", "function to expression"],
)
def test_where_filters_readings_and_keeps_all_samples_and_sensors(table, keep):
    kept = table.where(keep)
    assert kept.events().rows() == [SORTED[0], SORTED[1], SORTED[4]]
    assert kept.ids == ["a", "b", "c"]
    assert kept.sensors == ("HR", "T")
    assert kept.count.tolist() == [2, 1, 0]


def test_where_applies_to_the_selected_samples_only(table):
    seen = []
    table[["b", "a"]].where(lambda events: seen.append(events["sample"].to_list()) or pl.col("value") > 1)
    assert seen == [["b", "b", "a", "a", "a"]]
    assert table[["b", "a"]].where(pl.col("value") > 2).value.tolist() == [4.0, 5.0, 3.0]


def test_where_may_remove_every_reading(table):
    nothing = table.where(pl.col("value") > 99)
    assert (len(nothing), nothing.num_readings) == (3, 0)
    assert nothing.events().schema == table.events().schema


def test_a_position_outside_the_table_is_an_index_error_that_names_it(table):
    for key in (3, -4, [0, 3], [-4, 2]):
        with pytest.raises(IndexError, match=r"Sample position (3|-4) is outside a table of 3 samples"):
            table[key]


@pytest.mark.parametrize(
    "key", [1.5, [0.5], None, [[0, 1]], [[0], [1, 2]], {"a"}, [None], dt.date(2024, 1, 1)], ids=str
)
def test_an_invalid_key_is_an_error(table, key):
    with pytest.raises(DataError, match="Samples are selected by position, slice, mask or id"):
        table[key]


# ---------------------------------------------------------------- splitting


def test_a_split_is_stratified_and_has_every_sample_once(large):
    parts = large.split(seed=0)
    assert [len(part) for part in parts] == [160, 20, 20]
    assert sorted(int(name) for part in parts for name in part.ids) == list(range(200))
    for part in parts:
        assert abs(part.labels.mean() - large.labels.mean()) < 0.06


def test_a_split_depends_on_the_seed(large):
    assert large.split(seed=1)[2].ids == large.split(seed=1)[2].ids
    assert large.split(seed=1)[2].ids != large.split(seed=2)[2].ids


@pytest.mark.parametrize("how", ["by", "role"])
def test_a_split_by_group_keeps_every_group_whole(large, how):
    parts = large.split(by="site") if how == "by" else large.with_roles(group="site").split()
    sites = [set(part.samples["site"]) for part in parts]
    assert sum(map(len, sites)) == len(set.union(*sites)) == 50
    assert all(abs(len(part) - share) <= 8 for part, share in zip(parts, (160, 20, 20), strict=True))


def test_samples_without_a_label_are_a_stratum_of_their_own():
    columns = {"sample": range(60), "label": [None, 0, 1] * 20}
    table = EventTable.from_columns([0], [0], ["x"], [1], columns)
    for part in table.split((0.5, 0.5)):
        assert part.labelled.sum() == 20
        assert len(part) == 30


# ---------------------------------------------------------------- fingerprint


def test_the_fingerprint_does_not_depend_on_the_order_of_the_given_rows(table):
    shuffled = pl.DataFrame(EVENTS).sample(fraction=1, shuffle=True, seed=1)
    assert EventTable.from_frames(shuffled, SAMPLES, statics=["age"]).fingerprint == table.fingerprint
    assert table[[2, 1, 0]][[2, 1, 0]].fingerprint == table.fingerprint
    assert table.where(pl.col("value") > 0).fingerprint == table.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t[[1, 0, 2]],
        lambda t: t[:2],
        lambda t: t.where(pl.col("value") < 5),
        lambda t: t.in_unit("minutes"),
        lambda t: t.with_labels(["no", "no", "no"]),
        lambda t: t.with_roles(statics=[]),
        lambda t: EventTable.from_frames({**EVENTS, "value": [5, 3, 1, 2, 4.001]}, SAMPLES, statics=["age"]),
        lambda t: EventTable.from_frames({**EVENTS, "time": [2, 1.5, 0, 1.5, 0.51]}, SAMPLES, statics=["age"]),
        lambda t: EventTable.from_frames({**EVENTS, "sensor": ["HR", "T", "HR", "HR", "HR"]}, SAMPLES, statics=["age"]),
        lambda t: EventTable.from_frames(EVENTS, {**SAMPLES, "age": [50, 60, 71]}, statics=["age"]),
        lambda t: EventTable.from_frames(EVENTS, {**SAMPLES, "sample": ["a", "b", "d"]}, statics=["age"]),
    ],
)
def test_any_change_of_the_data_changes_the_fingerprint(table, change):
    assert change(table).fingerprint != table.fingerprint


# ---------------------------------------------------------------- scikit-learn


class Threshold(ClassifierMixin, BaseEstimator):
    """Says yes where the mean reading is high."""

    def fit(self, X, y):
        assert isinstance(X, EventTable)
        self.classes_ = np.unique(y)
        self.threshold_ = X.value[X.rows()].mean()
        return self

    def predict(self, X):
        means = [sample.value[sample.rows()].mean() if sample.num_readings else 0.0 for sample in X]
        return self.classes_[(np.array(means) > self.threshold_).astype(int)]


def test_scikit_learn_splits_a_table(large):
    assert len(list(KFold(5).split(large))) == 5
    for train, test in StratifiedKFold(5).split(large, large.labels):
        assert len(large[train]) + len(large[test]) == 200
    sites = large.samples["site"].to_numpy()
    for train, test in GroupKFold(5).split(large, large.labels, groups=sites):
        assert not set(large[train].samples["site"]) & set(large[test].samples["site"])


def test_scikit_learn_indexes_a_table(large):
    train, test, y_train, y_test = train_test_split(large, large.labels, test_size=0.25, random_state=0)
    assert isinstance(train, EventTable)
    assert (len(train), len(test)) == (150, 50)
    assert train.labels.tolist() == y_train.tolist()
    assert test.labels.tolist() == y_test.tolist()
    assert _safe_indexing(large, np.array([3, 1])).ids == ["3", "1"]
    assert _safe_indexing(large, slice(0, 2)).ids == ["0", "1"]
    assert indexable(large, large.labels)[0] is large


def test_cross_val_score_works_on_a_table(large):
    scores = cross_val_score(Threshold(), large, large.labels, cv=4, error_score="raise")
    assert scores.shape == (4,)
    loop = []
    for train, test in StratifiedKFold(4).split(large, large.labels):
        model = Threshold().fit(large[train], large.labels[train])
        loop.append(np.mean(model.predict(large[test]) == large.labels[test]))
    assert scores.tolist() == loop

"""Files that declare a table of results: those that are shipped, one's own, and every mistake in them."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import fields, replace
from pathlib import Path

import polars as pl
import pytest
from tiny import FILE, planned, prepare, tiny_table

from raindrop.benchmark.data import numbered, open_table, parts_of
from raindrop.benchmark.jobs import classifier_of, plan
from raindrop.benchmark.spec import Setting, Splits, parse, read_experiments, shipped
from raindrop.benchmark.store import Store
from raindrop.cli.app import main
from raindrop.errors import ConfigError, DataError
from raindrop.models.registry import MODELS
from raindrop.table.split_files import Split, write_splits

PAPER_ABLATIONS = ("R_u", "e", "r_v", "p", "alpha", "temporal attention", "concatenation", "L_r")


def read(text: str):
    return parse(tomllib.loads(text), "tiny", "tiny.toml")


# ---------------------------------------------------------------- shipped


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_table_can_be_read_and_its_rows_exist(name):
    for experiment in read_experiments([name]):
        for row in experiment.rows:
            assert classifier_of(row, 0, 1).resolved()
        assert any(row.model == "trees" for row in experiment.rows), "trees stand beside every network"


def test_table1_is_both_labels_of_p12_and_p19_with_and_without_iculos():
    found = {experiment.name: experiment for experiment in read_experiments(["table1"])}
    assert {name: (e.data.folder, e.data.label, e.data.leave_out) for name, e in found.items()} == {
        "table1_p12": ("p12", "mortality", ()),
        "table1_p12_los": ("p12", "length_of_stay_gt_3", ()),
        "table1_p19": ("p19", "sepsis", ()),
        "table1_p19_no_iculos": ("p19", "sepsis", ("ICULOS",)),
    }
    raindrop = next(row for row in found["table1_p19"].rows if row.name == "Raindrop")
    assert found["table1_p19"].published_for(raindrop, "", Setting(), "auprc") == (51.8, 5.5)
    assert found["table1_p12_los"].published_for(raindrop, "", Setting(), "auroc") == (72.1, 1.3)
    assert found["table1_p12"].published_for(raindrop, "", Setting(), "auprc") == (44.0, None)


def test_published_figures_of_settings_2_to_4_and_the_ablation_are_those_of_the_paper():
    (hidden,) = read_experiments(["table2_3_p19"])
    rows = {row.name: row for row in hidden.rows}
    half = Setting(hidden="fixed", share=0.5)
    assert hidden.published_for(rows["Raindrop tuned"], "", half, "auroc") == (79.7, 1.9)
    assert hidden.published_for(rows["SeFT"], "", Setting(hidden="random", share=0.3), "auprc") == (22.5, 3.0)
    (zeros,) = read_experiments(["table2_3_p19_zeros"])
    for setting, same in zip(zeros.settings, hidden.settings, strict=True):
        assert setting.hidden == "none" or setting.instead == "zeros"
        for metric in ("auroc", "auprc"):
            paper = zeros.published_for(zeros.rows[0], "", setting, metric)
            assert paper == hidden.published_for(rows["Raindrop"], "", same, metric)
    (pam,) = read_experiments(["pam"])
    rows = {row.name: row for row in pam.rows}
    assert pam.published_for(rows["DGM2-O"], "", Setting(), "f1") == (84.3, 1.8)
    assert pam.published_for(rows["GRU-D"], "", Setting(hidden="fixed", share=0.4), "precision") == (64.5, 6.8)
    assert pam.published_for(rows["Raindrop tuned"], "", Setting(hidden="random", share=0.5), "f1") == (47.6, 5.2)
    assert not pam.published.same_data
    (groups,) = read_experiments(["setting4_p19"])
    rows = {row.name: row for row in groups.rows}
    assert groups.published_for(rows["Raindrop w/o graph"], "male to female", Setting(), "auprc") == (36.8, 1.7)
    (ablation,) = read_experiments(["ablation_activity"])
    rows = {row.name: row for row in ablation.rows}
    assert {f"w/o {part}" for part in PAPER_ABLATIONS} <= set(rows)
    assert ablation.published_for(rows["w/o p"], "", Setting(), "accuracy") == (79.8, 2.7)
    assert not ablation.published.same_data


def test_the_file_and_the_names_in_the_documents_are_right(monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "reproducing.md").read_text()
    text = re.search(r"```toml\n(.*?)```", page, re.S)[1]
    monkeypatch.setattr("raindrop.benchmark.plugins.OwnModel.register", lambda model: None)
    example = read(text)
    assert [(model.name, model.target) for model in example.models] == [("mine", "my_model:ENTRY")]
    assert [setting.name for setting in example.settings] == ["all sensors", "fixed 10 %", "fixed 50 %", "random 50 %"]
    assert {field.name for field in fields(Splits)} - {"name", "numbers"} <= set(re.findall(r"\w+", text))
    named = set(re.findall(r"`((?:table|setting|ablation|activity|pam)\w*)`", page))
    assert named == set(shipped()), "each shipped table is in the page, and no other"


# ---------------------------------------------------------------- one's own


def test_a_file_may_name_other_files_beside_it_and_shipped_ones(tmp_path):
    prepare(tmp_path)
    (tmp_path / "all.toml").write_text('tables = ["tiny.toml", "table1_p12", "table1"]')
    names = [experiment.name for experiment in read_experiments([tmp_path / "all.toml"])]
    assert names == ["tiny", "table1_p12", "table1_p12_los", "table1_p19", "table1_p19_no_iculos"]


STUMP = """
from raindrop.models import MODELS, Entry
from raindrop.models.trees import Trees, TreesConfig
class Stump(Trees): pass
ENTRY = Entry(Stump, TreesConfig, {"paper": {"model": {"rounds": 1}}})
"""
OWN = FILE.replace("[data]", '[models]\nstump = "my_model:ENTRY"\n\n[data]').replace('"trees"', '"stump"')


@pytest.fixture
def own(tmp_path):
    """A file whose row 'Trees' is a model of one's own; nothing of it stays in this process."""
    (tmp_path / "my_model.py").write_text(STUMP)
    path = list(sys.path)
    yield prepare(tmp_path, OWN)
    MODELS.pop("stump", None)
    sys.modules.pop("my_model", None)
    sys.path[:] = path


@pytest.mark.slow
def test_a_file_may_bring_its_own_model(own, capsys):
    words = ["benchmark", str(own), "--data", str(own.parent / "data"), "--out", str(own.parent / "out")]
    main([*words, "--rows", "stump", "--splits", "1", "2"])
    assert "| Trees | 2 |" in capsys.readouterr().out


def test_what_is_wrong_with_ones_own_model_is_said_in_a_sentence(own):
    for module, error in (
        ("nowhere", "No module named"),
        ("broken", "invalid syntax"),
        ("raising", "division by zero"),
    ):
        (own.parent / "broken.py").write_text("def")
        (own.parent / "raising.py").write_text("1 / 0")
        own.write_text(OWN.replace("my_model:", f"{module}:"))
        with pytest.raises(ConfigError, match=rf"models.stump: '{module}:ENTRY' cannot be imported \({error}"):
            read_experiments([own])
    own.write_text(OWN.replace("my_model:ENTRY", "my_model:Stump"))
    with pytest.raises(ConfigError, match=r"is not a raindrop.models.Entry, but ABCMeta"):
        read_experiments([own])
    own.write_text(OWN.replace("stump =", "trees ="))
    with pytest.raises(ConfigError, match=r"models.trees: there is a model of that name already"):
        read_experiments([own])


def test_a_module_of_the_same_name_elsewhere_is_not_taken_for_ones_own(own):
    read_experiments([own])
    (own.parent / "other").mkdir()
    other = prepare(own.parent / "other", OWN.replace("stump", "twig").replace("Tiny", "Other"))
    (own.parent / "other" / "my_model.py").write_text(STUMP)
    with pytest.raises(ConfigError, match=r"other/my_model.py is not what 'my_model' means already; rename that file"):
        read_experiments([other])


@pytest.mark.slow
def test_rows_of_another_file_come_with_the_models_it_brings(own, capsys):
    more = FILE[: FILE.index("[[rows]]")].replace('title = "Tiny"', 'title = "More"\nrows_of = "tiny.toml"')
    (own.parent / "more.toml").write_text(more)
    words = ["benchmark", str(own.parent / "more.toml"), "--data", str(own.parent / "data")]
    main([*words, "--out", str(own.parent / "out"), "--rows", "stump", "--splits", "1"])
    assert "| Trees | 1 |" in capsys.readouterr().out
    keys = {cell.row.name: cell.key for cell in planned(own.parent / "more.toml", [1])[1]}
    assert keys == {cell.row.name: cell.key for cell in planned(own, [1])[1]}


def test_a_change_of_ones_own_model_is_another_cell(own):
    keys = {cell.row.name: cell.key for cell in planned(own, [1])[1]}
    (own.parent / "my_model.py").write_text(STUMP + "# changed\n")
    changed = {cell.row.name: cell.key for cell in planned(own, [1])[1]}
    assert changed["Net"] == keys["Net"]
    assert changed["Trees"] != keys["Trees"]


def test_a_file_that_names_itself_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text('tables = ["b.toml"]')
    (tmp_path / "b.toml").write_text('tables = ["table1_p12", "a.toml"]')
    with pytest.raises(ConfigError, match=r"a.toml: this file is among its own tables"):
        read_experiments([tmp_path / "a.toml"])


def test_two_files_of_one_name_are_refused_and_one_file_named_twice_is_one_table(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        prepare(tmp_path / folder)
    twice = [tmp_path / "a" / "tiny.toml", tmp_path / "b" / ".." / "a" / "tiny.toml"]
    assert len(read_experiments(twice)) == 1
    with pytest.raises(ConfigError, match=r"a/tiny.toml and .*b/tiny.toml would both be the table 'tiny'"):
        read_experiments([tmp_path / "a" / "tiny.toml", tmp_path / "b" / "tiny.toml"])


def test_what_is_trained_has_its_own_key_and_what_is_not_trained_has_none(tmp_path):
    def keys(text: str) -> list[str]:
        return [cell.key for cell in planned(prepare(tmp_path, text))[1]]

    first = keys(FILE)
    assert len(set(first)) == 6
    same = FILE.replace('"Net"', '"Other name"').replace("fixed = [0.34]", "fixed = [0.5]").replace("Tiny", "Title")
    assert keys(same) == first
    assert keys(FILE.replace("[data]", 'metrics = ["accuracy"]\n[data]')) == first
    assert keys(FILE.replace('"train.checkpoint_minutes" = 0.0', '"train.checkpoint_minutes" = 9.0')) == first
    for changed in (
        FILE.replace('"train.epochs" = 2', '"train.epochs" = 3').replace('"model.rounds" = 4', '"model.rounds" = 3'),
        FILE.replace("[data]", "seeds = [7]\n[data]"),
        FILE.replace("positive = 1", 'leave_out = ["age"]'),
        FILE.replace("numbers = [1, 2, 3]", "numbers = [4, 5, 6]"),
        FILE.replace('label = "label"\npositive = 1', 'label = "ward"\nleave_out = ["ward"]'),
    ):
        assert not set(keys(changed)) & set(first), changed


# ---------------------------------------------------------------- splits


def ids(parts):
    return [set(part.ids) for part in parts]


def test_by_a_column_each_value_is_tested_once_and_the_next_one_validates(tmp_path):
    file = prepare(tmp_path, FILE.replace("random = true\nnumbers = [1, 2, 3]", 'by = "subject"'))
    _, cells, _ = planned(file)
    assert [cell.number for cell in cells] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    table = tiny_table()
    of = {name: set(table[(table.samples["subject"] == name).to_numpy()].ids) for name in ("p0", "p1", "p4")}
    first = ids(parts_of(table, cells[0].splits, 1, tmp_path))
    assert first == [set(table.ids) - of["p0"] - of["p1"], of["p1"], of["p0"]]
    last = ids(parts_of(table, cells[0].splits, 5, tmp_path))
    assert last == [set(table.ids) - of["p4"] - of["p0"], of["p0"], of["p4"]]


def test_a_condition_trains_on_one_group_and_halves_the_other_anew_in_each_split(tmp_path):
    way = read(FILE.replace("random = true", 'train = "age < 60"')).splits[0]
    table = tiny_table()
    young = set(table[(table.samples["age"] < 60).to_numpy()].ids)
    train, val, test = ids(parts_of(table, way, 1, tmp_path))
    assert train == young
    assert val | test == set(table.ids) - young
    assert not val & test
    assert abs(len(val) - len(test)) <= 1
    assert ids(parts_of(table, way, 2, tmp_path))[1] != val
    assert ids(parts_of(table, way, 1, tmp_path))[1] == val


def test_a_sample_without_the_value_of_a_condition_is_in_no_part(tmp_path):
    table = tiny_table()
    gone = pl.when(pl.col("sample") == table.ids[0]).then(None).otherwise(pl.col("age")).alias("age")
    table = replace(table, samples=table.samples.with_columns(gone))
    way = read(FILE.replace("random = true", 'train = "age < 60"')).splits[0]
    assert table.ids[0] not in set.union(*ids(parts_of(table, way, 1, tmp_path)))


def test_samples_without_a_label_are_left_out_after_the_split(tmp_path):
    table = tiny_table()
    folder = tmp_path / "data" / "tiny"
    unknown = table.samples.with_columns(label=table.samples["label"].cast(float))
    unknown[3, "label"] = None
    replace(table, samples=unknown).write(folder)
    write_splits(folder / "splits.parquet", {1: Split.of(table.split(seed=1))})
    file = tmp_path / "tiny.toml"
    file.write_text(FILE.replace("random = true\nnumbers = [1, 2, 3]", 'file = "splits.parquet"\nnumbers = [1]'))
    experiment, cells, facts = planned(file)
    opened = open_table(experiment.data, folder)
    parts = parts_of(opened, cells[0].splits, 1, folder)
    assert sum(map(len, parts)) == facts.samples == 59
    assert [n for n, _ in numbered(experiment, opened, ())] == [1]


def test_a_table_takes_the_rows_of_another_and_adds_its_own(tmp_path):
    (tmp_path / "rows.toml").write_text(FILE)
    (tmp_path / "more.toml").write_text(
        'title = "More"\nrows_of = "rows.toml"\ndata = {folder = "tiny", label = "label"}\nsplits = [{random = true}]\n'
        '[[rows]]\nname = "GRU"\nmodel = "grud"\n'
    )
    (rows,), (more,) = (read_experiments([tmp_path / name]) for name in ("rows.toml", "more.toml"))
    assert more.rows[:-1] == rows.rows
    assert more.rows[-1].name == "GRU"
    text = (tmp_path / "more.toml").read_text()
    (tmp_path / "shipped.toml").write_text(text.replace("rows.toml", "ablation_p12"))
    assert [row.name for row in read_experiments([tmp_path / "shipped.toml"])[0].rows][-2:] == ["Trees", "GRU"]


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[settings]", "[setings]", r"Unknown setting 'setings': did you mean 'settings'\?"),
        ("label = ", "lable = ", r"Unknown setting 'data.lable': did you mean 'label'\?"),
        ('model = "raindrop"\n', "", "rows 1 has no 'model'"),
        ('name = "Trees"', 'name = "Net"', "The row 'Net' is there twice"),
        ("random = true", 'random = true\nby = "subject"', "give exactly one of file, by, train and random, not 2"),
        ("random = true", "", "give exactly one of file, by, train and random, not 0"),
        ("random = [0.34]", "random = [1.5]", "a share of hidden sensors lies above 0 and up to 1, not at 1.5"),
        ("[data]", 'metrics = ["auroc", "aucprc"]\n[data]', r"Unknown metric 'aucprc': did you mean 'auprc'\?"),
        ("[[splits]]", "[splits]", r"'splits' is a list of sections; write \[\[splits\]\]"),
        (
            "[data]",
            'rows_of = "ablation_p13"\n[data]',
            r"There is no table 'ablation_p13': did you mean 'ablation_p12'",
        ),
        ("[data]", 'rows_of = "table1"\n[data]', r"rows_of: the table 'table1' has no \[\[rows\]\] of its own"),
        ("[data]", "rows_of = 3\n[data]", "rows_of is the name of another table, not 3"),
        ("[data]", 'reference = "Tree"\n[data]', r"reference: there is no row 'Tree'; did you mean 'Trees'\?"),
        ("[data]", "[[data]]", r"'data' is a section; write \[data\]"),
        ('title = "Tiny"', "", "'title' is missing"),
        (
            "[data]",
            '[published.figures."Nett"."all sensors"]\nauroc = [1, 2]\n[data]',
            "no row 'Nett'; did you mean 'Net'",
        ),
        ("[data]", '[published.figures."Net"."all sensor"]\nauroc = [1, 2]\n[data]', "did you mean 'all sensors'"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_the_file(old, new, message):
    with pytest.raises(ConfigError, match=r"^tiny\.toml: .*" + message):
        read(FILE.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('model = "trees"', 'model = "treees"', r"tiny, row 'Trees': Unknown model 'treees': did you mean 'trees'\?"),
        ('preset = "paper"', 'preset = "papers"', "row 'Trees': Model 'trees' has no preset 'papers'"),
        ('"model.rounds"', '"model.round"', r"row 'Trees': Unknown setting 'model.round': did you mean 'rounds'"),
        ("positive = 1", "positive = 0", "data.positive is '0', but of the classes of 'label' the last"),
        ("positive = 1", 'leave_out = ["agee"]', r"no static 'agee' to leave out; did you mean 'age'\?"),
        ("random = true", 'by = "subjct"', r"no column 'subjct' to split by; did you mean 'subject'\?"),
        ("random = true", 'by = "ward"', "'ward' has 2 values; at least three are needed"),
        ("random = true", 'train = "agee < 60"', "'agee < 60' is no condition on the samples"),
        ("random = true", 'train = "age + 1"', "'age \\+ 1' is neither true nor false"),
        ("random = true", 'train = "age > 900"', "holds for 0 of 60 samples; that is no split"),
        ("random = true", 'file = "splits.parquet"', "splits.parquet: there is no such split file"),
        ('folder = "tiny"', 'folder = "tinny"', "there is no folder 'tinny'; did you mean 'tiny'"),
        ('label = "label"', 'label = "labell"', "labell"),
    ],
)
def test_a_mistake_about_the_data_is_one_sentence(tmp_path, old, new, message):
    with pytest.raises((ConfigError, DataError), match=message):
        planned(prepare(tmp_path, FILE.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table11"], "There is no table 'table11': did you mean 'table1'?"),
        (["nothing.toml"], "nothing.toml: there is no such settings file."),
        ([], "Which table? There are: ablation,"),
        (["table1_p12", "--rows", "treess"], "There is no row 'treess': did you mean 'Trees'?"),
        (["table1_p12", "--workers", "0"], "--workers 0: at least 1"),
        (["table1_p12"], "there is no folder 'p12'"),
        (["{file}", "--splits", "9"], "tiny has no split 9; there are 1, 2, 3."),
    ],
)
def test_a_mistake_on_the_command_line_is_one_message_and_exit_code_1(tmp_path, capsys, words, message):
    file = prepare(tmp_path)
    words = [word.format(file=file) for word in words]
    with pytest.raises(SystemExit) as ended:
        main(["benchmark", *words, "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")])
    assert ended.value.code == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_folder_of_the_one_table_may_be_given_itself(tmp_path):
    file = prepare(tmp_path)
    (experiment,) = read_experiments([file])
    inside = [cell.key for cell in plan(experiment, tmp_path / "data" / "tiny", experiment.rows, ())[0]]
    assert inside == [cell.key for cell in planned(file)[1]]


def test_a_damaged_file_of_the_store_is_named(tmp_path):
    store = Store(tmp_path)
    (tmp_path / "cells" / "key.parquet").write_text("no")
    with pytest.raises(DataError, match=r"key\.parquet: cannot be read .* Remove it, and the cell is evaluated again"):
        store.read("key")

"""TOML files that declare a results table: the shipped ones, a user's own, plugins, and every mistake in them."""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from tiny import TOML, planned, prepare

from raindrop.benchmark.jobs import row_estimator
from raindrop.benchmark.parsing import parse, read_experiments, shipped_tables
from raindrop.benchmark.spec import Data, Published, Row, Setting, Settings, Splits
from raindrop.cli.app import main
from raindrop.errors import ConfigError, DataError
from raindrop.models.registry import MODELS

PAPER_ABLATIONS = ("R_u", "e", "r_v", "p", "alpha", "temporal attention", "concatenation", "L_r")


def parse_tiny(text: str):
    return parse(tomllib.loads(text), "tiny", "tiny.toml")


# ---------------------------------------------------------------- shipped tables


@pytest.mark.parametrize("name", shipped_tables())
def test_every_shipped_table_can_be_read_and_its_rows_are_valid(name):
    for experiment in read_experiments([name]):
        for row in experiment.rows:
            assert row_estimator(experiment.data, row, 0, 1).resolved()
        assert any(row.model == "trees" for row in experiment.rows), "every table has trees as a baseline"


def test_table1_has_both_labels_of_p12_and_p19_with_and_without_iculos():
    tables = {experiment.name: experiment for experiment in read_experiments(["table1"])}
    assert {name: (e.data.folder, e.data.label, e.data.exclude_statics) for name, e in tables.items()} == {
        "table1_p12": ("p12", "mortality", ()),
        "table1_p12_los": ("p12", "length_of_stay_gt_3", ()),
        "table1_p19": ("p19", "sepsis", ()),
        "table1_p19_no_iculos": ("p19", "sepsis", ("ICULOS",)),
    }
    raindrop = next(row for row in tables["table1_p19"].rows if row.name == "Raindrop")
    assert tables["table1_p19"].published_metric(raindrop, "", Setting(), "auprc") == (51.8, 5.5)
    assert tables["table1_p12_los"].published_metric(raindrop, "", Setting(), "auroc") == (72.1, 1.3)
    assert tables["table1_p12"].published_metric(raindrop, "", Setting(), "auprc") == (44.0, None)


def test_published_metrics_of_settings_2_to_4_and_the_ablation_match_the_paper():
    (hidden,) = read_experiments(["table2_3_p19"])
    rows = {row.name: row for row in hidden.rows}
    half = Setting(hidden="fixed", share=0.5)
    assert hidden.published_metric(rows["Raindrop tuned"], "", half, "auroc") == (79.7, 1.9)
    assert hidden.published_metric(rows["SeFT"], "", Setting(hidden="random", share=0.3), "auprc") == (22.5, 3.0)
    (zeros,) = read_experiments(["table2_3_p19_zeros"])
    for setting, removed in zip(zeros.settings, hidden.settings, strict=True):
        assert setting.hidden == "none" or setting.replace_with == "zeros"
        for metric in ("auroc", "auprc"):
            published = zeros.published_metric(zeros.rows[0], "", setting, metric)
            assert published == hidden.published_metric(rows["Raindrop"], "", removed, metric)
    (pam,) = read_experiments(["pam"])
    rows = {row.name: row for row in pam.rows}
    assert pam.published_metric(rows["DGM2-O"], "", Setting(), "f1") == (84.3, 1.8)
    assert pam.published_metric(rows["GRU-D"], "", Setting(hidden="fixed", share=0.4), "precision") == (64.5, 6.8)
    assert pam.published_metric(rows["Raindrop tuned"], "", Setting(hidden="random", share=0.5), "f1") == (47.6, 5.2)
    assert not pam.published.same_data
    (groups,) = read_experiments(["setting4_p19"])
    rows = {row.name: row for row in groups.rows}
    assert groups.published_metric(rows["Raindrop w/o graph"], "male to female", Setting(), "auprc") == (36.8, 1.7)
    (ablation,) = read_experiments(["ablation_activity"])
    rows = {row.name: row for row in ablation.rows}
    assert {f"w/o {component}" for component in PAPER_ABLATIONS} <= set(rows)
    assert ablation.published_metric(rows["w/o p"], "", Setting(), "accuracy") == (79.8, 2.7)
    assert not ablation.published.same_data


def test_the_documented_file_is_valid_and_the_schema_is_complete(monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "reproducing.md").read_text()
    text = re.search(r"```toml\n(.*?)```", page, re.S)[1]
    monkeypatch.setattr("raindrop.benchmark.spec.Plugin.register", lambda plugin: None)
    example = parse_tiny(text)
    assert [(plugin.name, plugin.target) for plugin in example.plugins] == [("mine", "my_model:ENTRY")]
    assert [setting.name for setting in example.settings] == ["all sensors", "fixed 10 %", "fixed 50 %", "random 50 %"]
    for section, kind in {
        "data": Data, "splits": Splits, "settings": Settings, "rows": Row, "published": Published
    }.items():  # fmt: skip
        for field in fields(kind):
            assert f"| `{section}.{field.name}` |" in page, "every key of the schema is documented"
    named = set(re.findall(r"`((?:table\d|setting\d|ablation|activity|pam|regression_|multilabel_)\w*)`", page))
    assert named == set(shipped_tables()), "the page names exactly the shipped tables"


# ---------------------------------------------------------------- a user's own files


def test_a_file_may_list_other_files_and_shipped_tables(tmp_path):
    prepare(tmp_path)
    (tmp_path / "all.toml").write_text('tables = ["tiny.toml", "table1_p12", "table1"]')
    names = [experiment.name for experiment in read_experiments([tmp_path / "all.toml"])]
    assert names == ["tiny", "table1_p12", "table1_p12_los", "table1_p19", "table1_p19_no_iculos"]


def test_a_file_that_lists_itself_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text('tables = ["b.toml"]')
    (tmp_path / "b.toml").write_text('tables = ["table1_p12", "a.toml"]')
    with pytest.raises(ConfigError, match=r"a.toml: this file lists itself"):
        read_experiments([tmp_path / "a.toml"])


def test_two_files_with_one_name_are_refused_and_a_file_given_twice_is_read_once(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        prepare(tmp_path / folder)
    twice = [tmp_path / "a" / "tiny.toml", tmp_path / "b" / ".." / "a" / "tiny.toml"]
    assert len(read_experiments(twice)) == 1
    with pytest.raises(ConfigError, match=r"a/tiny.toml and .*b/tiny.toml both define the table 'tiny'"):
        read_experiments([tmp_path / "a" / "tiny.toml", tmp_path / "b" / "tiny.toml"])


def test_a_table_takes_the_rows_of_another_and_adds_its_own(tmp_path):
    (tmp_path / "rows.toml").write_text(TOML)
    (tmp_path / "more.toml").write_text(
        'title = "More"\nrows_from = "rows.toml"\ndata = {folder = "tiny", label = "label"}\n'
        'splits = [{random = true}]\n[[rows]]\nname = "GRU"\nmodel = "grud"\n'
    )
    (rows,), (more,) = (read_experiments([tmp_path / name]) for name in ("rows.toml", "more.toml"))
    assert more.rows[:-1] == rows.rows
    assert more.rows[-1].name == "GRU"
    text = (tmp_path / "more.toml").read_text()
    (tmp_path / "shipped.toml").write_text(text.replace("rows.toml", "ablation_p12"))
    assert [row.name for row in read_experiments([tmp_path / "shipped.toml"])[0].rows][-2:] == ["Trees", "GRU"]


# ---------------------------------------------------------------- plugins

STUMP = """
from raindrop.models import MODELS, Entry
from raindrop.models.trees import Trees, TreesConfig
class Stump(Trees): pass
ENTRY = Entry(Stump, TreesConfig, {"paper": {"model": {"rounds": 1}}})
"""
WITH_PLUGIN = TOML.replace("[data]", '[plugins]\nstump = "my_model:ENTRY"\n\n[data]').replace('"trees"', '"stump"')


@pytest.fixture
def plugin_file(tmp_path):
    """A TOML file whose row 'Trees' is a plugin; everything it registers in this process is removed afterwards."""
    (tmp_path / "my_model.py").write_text(STUMP)
    path = list(sys.path)
    yield prepare(tmp_path, WITH_PLUGIN)
    MODELS.pop("stump", None)
    sys.modules.pop("my_model", None)
    sys.path[:] = path


@pytest.mark.slow
def test_a_file_may_bring_a_model_as_a_plugin(plugin_file, capsys):
    folder = plugin_file.parent
    words = ["benchmark", str(plugin_file), "--data", str(folder / "data"), "--out", str(folder / "out")]
    main([*words, "--rows", "stump", "--splits", "1", "2"])
    assert "| Trees | 2 |" in capsys.readouterr().out


def test_a_mistake_in_a_plugin_is_one_sentence(plugin_file):
    for module, error in (
        ("nowhere", "No module named"),
        ("broken", "invalid syntax"),
        ("raising", "division by zero"),
    ):
        (plugin_file.parent / "broken.py").write_text("def")
        (plugin_file.parent / "raising.py").write_text("1 / 0")
        plugin_file.write_text(WITH_PLUGIN.replace("my_model:", f"{module}:"))
        with pytest.raises(ConfigError, match=rf"plugins.stump: '{module}:ENTRY' cannot be imported \({error}"):
            read_experiments([plugin_file])
    plugin_file.write_text(WITH_PLUGIN.replace("my_model:ENTRY", "my_model:Stump"))
    with pytest.raises(ConfigError, match=r"is not a raindrop.models.Entry, but ABCMeta"):
        read_experiments([plugin_file])
    plugin_file.write_text(WITH_PLUGIN.replace("stump =", "trees ="))
    with pytest.raises(ConfigError, match=r"plugins.trees: a model of that name exists already"):
        read_experiments([plugin_file])


def test_a_plugin_is_never_confused_with_another_module_of_the_same_name(plugin_file):
    read_experiments([plugin_file])
    other_folder = plugin_file.parent / "other"
    other_folder.mkdir()
    other = prepare(other_folder, WITH_PLUGIN.replace("stump", "twig").replace("Tiny", "Other"))
    (other_folder / "my_model.py").write_text(STUMP)
    message = r"'my_model' is already imported from elsewhere, so .*other/my_model.py cannot be; rename that file"
    with pytest.raises(ConfigError, match=message):
        read_experiments([other])


@pytest.mark.slow
def test_rows_from_another_file_come_with_its_plugins(plugin_file, capsys):
    folder = plugin_file.parent
    more = TOML[: TOML.index("[[rows]]")].replace('title = "Tiny"', 'title = "More"\nrows_from = "tiny.toml"')
    (folder / "more.toml").write_text(more)
    words = ["benchmark", str(folder / "more.toml"), "--data", str(folder / "data")]
    main([*words, "--out", str(folder / "out"), "--rows", "stump", "--splits", "1"])
    assert "| Trees | 1 |" in capsys.readouterr().out
    keys = {job.row.name: job.key for job in planned(folder / "more.toml", [1])[1]}
    assert keys == {job.row.name: job.key for job in planned(plugin_file, [1])[1]}


def test_editing_a_plugin_makes_it_another_job(plugin_file):
    keys = {job.row.name: job.key for job in planned(plugin_file, [1])[1]}
    (plugin_file.parent / "my_model.py").write_text(STUMP + "# changed\n")
    changed = {job.row.name: job.key for job in planned(plugin_file, [1])[1]}
    assert changed["Net"] == keys["Net"]
    assert changed["Trees"] != keys["Trees"]


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[settings]", "[setings]", r"Unknown setting 'setings': did you mean 'settings'\?"),
        ("label = ", "lable = ", r"Unknown setting 'data.lable': did you mean 'data.label'\?"),
        ('model = "raindrop"\n', "", "rows 1 has no 'model'"),
        ('name = "Trees"', 'name = "Net"', "There are two rows named 'Net'"),
        ("random = true", 'random = true\nrotate_by = "subject"', "give exactly one of file, .* and random, not 2"),
        ("random = true", "", "give exactly one of file, rotate_by, train_where and random, not 0"),
        ("random = [0.34]", "random = [1.5]", "a share of hidden sensors must be above 0 and at most 1, not 1.5"),
        ("[data]", 'metrics = ["auroc", "aucprc"]\n[data]', r"Unknown metric 'aucprc': did you mean 'auprc'\?"),
        ("[[splits]]", "[splits]", r"'splits' is a list of sections; write \[\[splits\]\]"),
        (
            "[data]",
            'rows_from = "ablation_p13"\n[data]',
            r"There is no table 'ablation_p13': did you mean 'ablation_p12'",
        ),
        ("[data]", 'rows_from = "table1"\n[data]', r"rows_from: the table 'table1' has no \[\[rows\]\] of its own"),
        ("[data]", "rows_from = 3\n[data]", "rows_from is the name of another table, not 3"),
        ("[data]", 'reference = "Tree"\n[data]', r"reference: there is no row 'Tree'; did you mean 'Trees'\?"),
        ("[data]", "[[data]]", r"'data' is a section; write \[data\]"),
        ('title = "Tiny"', "", "'title' is missing"),
        (
            "[data]",
            '[published.metrics."Nett"."all sensors"]\nauroc = [1, 2]\n[data]',
            "no row 'Nett'; did you mean 'Net'",
        ),
        ("[data]", '[published.metrics."Net"."all sensor"]\nauroc = [1, 2]\n[data]', "did you mean 'all sensors'"),
    ],
)
def test_a_mistake_in_a_file_is_reported_with_the_file_name(old, new, message):
    with pytest.raises(ConfigError, match=r"^tiny\.toml: .*" + message):
        parse_tiny(TOML.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('model = "trees"', 'model = "treees"', r"tiny, row 'Trees': Unknown model 'treees': did you mean 'trees'\?"),
        ('preset = "paper"', 'preset = "papers"', "row 'Trees': Model 'trees' has no preset 'papers'"),
        ('"model.rounds"', '"model.round"', r"row 'Trees': Unknown setting 'model.round': did you mean 'model.rounds'"),
        ("positive = 1", "positive = 2", "data.positive is '2', which is no class"),
        ("positive = 1", 'exclude_statics = ["agee"]', r"no static attribute 'agee' to exclude; did you mean 'age'\?"),
        ("random = true", 'rotate_by = "subjct"', r"no column 'subjct' to split by; did you mean 'subject'\?"),
        ("random = true", 'rotate_by = "ward"', "'ward' has 2 values; training, validation and test need"),
        ("random = true", 'train_where = "agee < 60"', "'agee < 60' is not a condition on the samples"),
        ("random = true", 'train_where = "age + 1"', "'age \\+ 1' is neither true nor false"),
        ("random = true", 'train_where = "age > 900"', "is true for 0 of 60 samples, so it does not split them"),
        ("random = true", 'file = "splits.parquet"', "splits.parquet: there is no such split file"),
        ('folder = "tiny"', 'folder = "tinny"', "there is no folder 'tinny'; did you mean 'tiny'"),
        ('label = "label"', 'label = "labell"', "labell"),
    ],
)
def test_a_mistake_about_the_data_is_one_sentence(tmp_path, old, new, message):
    with pytest.raises((ConfigError, DataError), match=message):
        planned(prepare(tmp_path, TOML.replace(old, new, 1)))


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

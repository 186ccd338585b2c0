"""From figures of cells to tables: means, distances, tests and captions, against numbers worked out by hand."""

from __future__ import annotations

import csv
import io
import re
import sys
import tomllib
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import stats
from tiny import FILE, finish, planned, prepare

from raindrop.benchmark.aggregate import Summary, against, best_row, shown, summarise_cells, verdicts
from raindrop.benchmark.figures import bars, curves, write_figures
from raindrop.benchmark.jobs import Facts
from raindrop.benchmark.render import caption, latex, markdown
from raindrop.benchmark.spec import parse
from raindrop.benchmark.store import Store
from raindrop.errors import DataError, MissingExtraError

PUBLISHED = """
[published]
source = "Someone, Table 1"
[published.figures."Net"]
"all sensors" = { auroc = [80.0, 1.5], auprc = [40.0, 2.0] }
"fixed 34 %" = { auroc = [70.0, 1.0] }
"""
NET = {1: 0.90, 2: 0.80, 3: 0.85}
TREES = {1: 0.92, 2: 0.81, 3: 0.88}


def made(net=None, trees=None, *, text=FILE + PUBLISHED, tmp_path):
    """A summary of figures that we choose: `all sensors` of two rows, auroc as given and auprc half of it."""
    file = prepare(tmp_path, text)
    experiment, cells, facts = planned(file)
    store = Store(tmp_path / "out")
    for cell in cells:
        value = (NET if net is None else net) if cell.row.name == "Net" else (TREES if trees is None else trees)
        if cell.number in value:
            record = {"part": "test", "hidden": "none", "share": 0.0, "instead": "nothing", "config": "{}"}
            figures = {"auroc": value[cell.number], "auprc": value[cell.number] / 2, "log_loss": value[cell.number]}
            store.write(cell.key, [{**record, **figures}, {**record, **figures, "part": "val", "auroc": 0.1}])
    return summarise_cells(experiment, facts, cells, store)


def row(summary: Summary, name: str, metric: str = "auroc", setting: str = "all sensors"):
    chosen = (pl.col("row") == name) & (pl.col("metric") == metric) & (pl.col("setting") == setting)
    return summary.figures.row(by_predicate=chosen, named=True)


def test_means_spreads_and_differences_are_those_of_the_test_parts(tmp_path):
    net = row(made(tmp_path=tmp_path), "Net")
    assert net["mean"] == pytest.approx(85.0)
    assert net["sd"] == pytest.approx(5.0)
    assert (net["published"], net["published_sd"]) == (80.0, 1.5)
    assert net["difference"] == pytest.approx(5.0)
    assert (net["splits"], net["split_numbers"]) == (3, "1 2 3")


def test_a_mean_of_nothing_differs_from_the_published_too(tmp_path):
    assert row(made(net={1: 0.0}, tmp_path=tmp_path), "Net")["difference"] == pytest.approx(-80.0)


def test_the_distance_from_the_best_is_paired_by_split(tmp_path):
    summary = made(tmp_path=tmp_path)
    net, trees = row(summary, "Net"), row(summary, "Trees")
    assert (trees["best"], trees["behind"], trees["p"]) == (True, None, None)
    assert net["behind"] == pytest.approx(2.0)
    assert net["p"] == pytest.approx(stats.ttest_rel(list(TREES.values()), list(NET.values())).pvalue)


def test_a_mean_over_fewer_splits_is_not_called_the_best_but_compared_where_it_can_be(tmp_path):
    summary = made(net={1: 0.99}, tmp_path=tmp_path)
    assert row(summary, "Trees")["best"]
    net = row(summary, "Net")
    assert (net["splits"], net["sd"], net["common_splits"], net["p"]) == (1, None, 1, None)
    assert net["behind"] == pytest.approx(-7.0)


def test_a_table_may_measure_from_a_row_of_its_choice(tmp_path):
    summary = made(text='reference = "Net"\n' + FILE + PUBLISHED, tmp_path=tmp_path)
    net, trees = row(summary, "Net"), row(summary, "Trees")
    assert (net["best"], net["behind"], net["p"]) == (False, None, None)
    assert trees["best"]
    assert trees["behind"] == pytest.approx(-2.0)
    assert trees["p"] == pytest.approx(stats.ttest_rel(list(TREES.values()), list(NET.values())).pvalue)
    assert "the mean distance from 'Net' (negative: ahead of it; bold: the best" in caption(summary)


def test_two_common_splits_or_equal_distances_allow_no_test():
    assert against({1: 0.9, 2: 0.8}, {1: 0.8, 2: 0.9}, "auroc") == (pytest.approx(0.0), 2, None)
    assert against({1: 0.9, 2: 0.8, 3: 0.7}, {1: 0.8, 2: 0.7, 3: 0.6}, "auroc")[2] is None
    assert against({1: 0.9}, {2: 0.8}, "auroc") == (None, 0, None)


def test_where_lower_is_better_the_lowest_wins_and_the_others_are_behind():
    block = {"a": {1: 0.3, 2: 0.3}, "b": {1: 0.2, 2: 0.3}}
    assert best_row(block, "log_loss") == "b"
    assert best_row(block, "auroc") == "a"
    assert against(block["b"], block["a"], "log_loss")[0] == pytest.approx(0.05)


def test_the_table_says_when_the_trees_win_and_when_they_do_not(tmp_path):
    summary = made(tmp_path=tmp_path)
    assert summary.verdicts[0] == "all sensors, AUROC: the trees win; Net comes closest, 2.0 behind (3 common splits)."
    ahead = made(trees={1: 0.8}, tmp_path=tmp_path / "other")
    assert ahead.verdicts[0] == "all sensors, AUROC: Net is ahead of the trees by 10.0 (1 common split)."
    assert "the trees win" in markdown(summary)
    assert verdicts(summary.experiment, {}) == []


def test_a_row_with_fewer_splits_does_not_speak_for_all(tmp_path):
    experiment, _, _ = planned(prepare(tmp_path, FILE + '\n[[rows]]\nname = "Short"\nmodel = "grud"\n'))
    known = {"Net": NET, "Trees": TREES, "Short": {1: 0.99}}
    said = verdicts(experiment, {(name, "", "all sensors", "auroc"): found for name, found in known.items()})
    closest = "Net comes closest, 2.0 behind (3 common splits, rows on fewer left aside)"
    assert said == [f"all sensors, AUROC: the trees win; {closest}."]


def test_a_blend_is_no_network_that_beats_the_trees(tmp_path):
    experiment, _, _ = planned(prepare(tmp_path, FILE + '\n[[rows]]\nname = "Both"\nmodel = "blend"\n'))

    def said(both: float, **others: dict[int, float]) -> list[str]:
        known = {"Trees": TREES, "Both": {n: value + both for n, value in TREES.items()}, **others}
        return verdicts(experiment, {(name, "", "all sensors", "auroc"): found for name, found in known.items()})

    win = "all sensors, AUROC: the trees win; Net comes closest, 2.0 behind (3 common splits)"
    assert said(0.01, Net=NET) == [f"{win}; Both, which contains trees, is 1.0 ahead of them (3 common splits)."]
    assert said(-0.02, Net=NET) == [f"{win}; Both, which contains trees, is 2.0 behind them (3 common splits)."]
    assert said(0.01) == ["all sensors, AUROC: Both, which contains trees, is 1.0 ahead of them (3 common splits)."]


def test_a_distance_of_nearly_nothing_has_no_sign():
    assert [shown(value, "auroc") for value in (-0.04, -0.06)] == ["0.0", "-0.1"]
    assert shown(-0.0004, "log_loss") == "0.000"


def test_a_distance_of_losses_is_shown_as_losses_are(tmp_path):
    experiment, _, _ = planned(prepare(tmp_path, FILE.replace("[data]", 'metrics = ["log_loss"]\n[data]')))
    known = {"Net": {1: 0.521}, "Trees": {1: 0.5}}
    said = verdicts(experiment, {(name, "", "all sensors", "log_loss"): found for name, found in known.items()})
    assert said == ["all sensors, log loss: the trees win; Net comes closest, 0.021 behind (1 common split)."]


def test_of_several_rows_of_trees_the_best_is_the_one_to_beat(tmp_path):
    experiment, _, _ = planned(prepare(tmp_path, FILE + '\n[[rows]]\nname = "Few trees"\nmodel = "trees"\n'))
    known = {"Net": NET, "Trees": TREES, "Few trees": {1: 0.1, 2: 0.1, 3: 0.1}}
    said = verdicts(experiment, {(name, "", "all sensors", "auroc"): found for name, found in known.items()})
    assert said == ["all sensors, AUROC: the trees win; Net comes closest, 2.0 behind (3 common splits)."]


def test_a_figure_that_is_younger_than_a_cell_is_not_there(tmp_path):
    text = FILE.replace("[data]", 'metrics = ["auroc", "brier"]\n[data]')
    summary = made(text=text, tmp_path=tmp_path)
    assert row(summary, "Net", "brier")["mean"] is None
    assert row(summary, "Net", "auroc")["splits"] == 3


def test_a_tiny_p_is_not_shown_as_nothing(tmp_path):
    trees = {n: value + shift for (n, value), shift in zip(NET.items(), (0.02, 0.02001, 0.01999), strict=True)}
    summary = made(trees=trees, tmp_path=tmp_path)
    assert "| 2.0 (< 0.001) |" in markdown(summary)
    assert "& 2.0 ($<$ 0.001) &" in latex(summary)


def test_a_published_mean_without_a_spread_stands_alone(tmp_path):
    text = markdown(made(text=FILE + PUBLISHED.replace("[80.0, 1.5]", "80.0"), tmp_path=tmp_path))
    assert "| Net | 3 | 85.0 ± 5.0 | 80.0 | +5.0 |" in text


def test_markdown_has_the_figures_the_published_ones_and_the_test(tmp_path):
    text = markdown(made(tmp_path=tmp_path))
    p = stats.ttest_rel(list(TREES.values()), list(NET.values())).pvalue
    assert f"| Net | 3 | 85.0 ± 5.0 | 80.0 ± 1.5 | +5.0 | 2.0 ({p:.3f}) | 42.5 ± 2.5 |" in text
    assert "| Trees | 3 | **87.0 ± 5.6** |  |  |  | **43.5 ± 2.8** |" in text
    assert "### fixed sensors hidden, AUROC" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) > 3


def test_the_caption_says_label_base_rate_and_source(tmp_path):
    text = caption(made(tmp_path=tmp_path))
    assert "Label 'label' (60 samples; 50.0% are '1', so that is the AUPRC of chance)" in text
    assert "Published: Someone, Table 1." in text
    several = Facts(9, 3, 99, "activity", (("lying", 0.2), ("sitting", 0.5), ("walking", 0.3)))
    experiment = parse(tomllib.loads(FILE), "tiny", "tiny.toml")
    assert "3 classes, the most frequent 'sitting' with 50.0%" in caption(
        Summary(experiment, several, pl.DataFrame(), ())
    )


def test_figures_of_other_data_have_no_difference(tmp_path):
    summary = made(text=FILE + PUBLISHED.replace("[published]", "[published]\nsame_data = false"), tmp_path=tmp_path)
    assert row(summary, "Net")["published"] == 80.0
    assert row(summary, "Net")["difference"] is None
    assert "| published | behind (p) |" in markdown(summary)
    assert "| difference |" not in markdown(summary)
    assert "Those are of other data" in caption(summary)


def test_names_are_shown_literally_in_latex_and_markdown(tmp_path):
    odd = FILE.replace('name = "Net"', 'name = "50 % of A_b | {c} & \\\\\\\\d"')
    summary = made(net={}, text=odd, tmp_path=tmp_path)
    assert "50 \\% of A\\_b | \\{c\\} \\& " in latex(summary)
    assert "50 % of A_b \\| {c} & " in markdown(summary)


def test_latex_has_a_table_per_block_with_the_same_number_of_columns_in_each_line(tmp_path):
    text = latex(made(tmp_path=tmp_path))
    assert "\\item all sensors, AUROC: the trees win; Net comes closest" in text
    assert text.count("\\begin{table}") == text.count("\\end{table}") == 4 + 2  # overviews; all, and one published
    for body in re.findall(r"\\begin\{tabular\}\{(l r*)\}(.*?)\\end".replace(" ", ""), text, re.S):
        for line in re.findall(r"^(.*) \\\\$", body[1], re.M):
            assert len(re.split(r"(?<!\\)&", line)) == len(body[0])


def test_blocks_of_which_nothing_is_finished_are_left_out(tmp_path):
    summary = made(net={}, trees={}, text=FILE, tmp_path=tmp_path)
    assert "|" not in markdown(summary)
    assert "table" not in latex(summary)


def test_a_figure_with_fewer_splits_than_its_row_says_so(tmp_path):
    experiment, cells, facts = planned(prepare(tmp_path))
    store = Store(tmp_path / "out")
    for cell in cells:
        record = {"part": "test", "share": 0.0, "instead": "nothing", "config": "{}", "auroc": 0.9, "auprc": 0.5}
        fixed = [{**record, "hidden": "fixed", "share": 0.34}] if cell.number < 3 else []
        store.write(cell.key, [{**record, "hidden": "none"}, *fixed])
    summary = summarise_cells(experiment, facts, cells, store)
    assert "| Net | 3 | **90.0 ± 0.0** | **90.0 ± 0.0** [2] |" in markdown(summary)
    assert "[n] behind a figure that has fewer" in caption(summary)


def test_the_csv_has_everything_in_numbers(tmp_path):
    tables = finish(prepare(tmp_path), tmp_path / "out")
    records = list(csv.DictReader(io.StringIO(tables[".csv"])))
    assert len(records) == 3 * 2 * 2  # settings, rows, metrics
    assert {record["splits"] for record in records} == {"3"}
    assert {record["setting"] for record in records} == {"all sensors", "fixed 34 %", "random 34 %"}
    assert all(0 <= float(record["mean"]) <= 100 for record in records)


def test_several_seeds_of_a_split_are_averaged_before_splits_are(tmp_path):
    file = prepare(tmp_path, FILE.replace("[data]", "seeds = [0, 10]\n[data]"))
    experiment, cells, facts = planned(file)
    store = Store(tmp_path / "out")
    for cell in cells:
        record = {"part": "test", "hidden": "none", "share": 0.0, "instead": "nothing", "config": "{}"}
        store.write(cell.key, [{**record, "auroc": 0.5 + cell.number / 10 + cell.seed / 100, "auprc": 0.5}])
    net = row(summarise_cells(experiment, facts, cells, store), "Net")
    assert net["mean"] == pytest.approx(75.0)
    assert net["sd"] == pytest.approx(100 * np.std([0.65, 0.75, 0.85], ddof=1))
    assert net["splits"] == 3


# ---------------------------------------------------------------- pictures


def test_bars_are_as_long_as_the_means_and_published_ones_stand_beside_them(tmp_path):
    figure = bars(made(tmp_path=tmp_path))
    panel = figure.axes[0]
    assert panel.get_title() == "all sensors: AUROC"
    assert [round(bar.get_width(), 3) for bar in panel.patches] == [85.0, 87.0, 80.0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["Net", "Trees"]
    assert len(figure.axes) == 3 * 2


def test_curves_run_over_the_hidden_share(tmp_path):
    summary = made(tmp_path=tmp_path)
    fixed = (pl.col("setting") == "fixed 34 %") & (pl.col("row") == "Net") & (pl.col("metric") == "auroc")
    figures = summary.figures.with_columns(mean=pl.when(fixed).then(pl.lit(61.0)).otherwise(pl.col("mean")))
    panel = curves(replace(summary, figures=figures)).axes[0]
    assert panel.get_title() == "fixed sensors hidden: AUROC"
    net, trees = (container[0] for container in panel.containers)
    assert net.get_xydata().tolist() == [[0.0, pytest.approx(85.0)], [pytest.approx(34.0), 61.0]]
    assert trees.get_xydata().tolist() == [[0.0, pytest.approx(87.0)]]
    dashed = next(line for line in panel.get_lines() if line.get_linestyle() == "--")
    assert dashed.get_ydata().tolist() == [80.0, 70.0]


def test_pictures_are_written_and_a_table_without_hidden_sensors_has_no_curves(tmp_path):
    summary = made(tmp_path=tmp_path)
    assert [path.name for path in write_figures(summary, tmp_path)] == ["tiny_bars.png", "tiny_curves.png"]
    assert (tmp_path / "tiny_bars.png").read_bytes().startswith(b"\x89PNG")
    plain = FILE.replace("fixed = [0.34]\nrandom = [0.34]", "")
    summary = made(text=plain, tmp_path=tmp_path / "plain")
    assert [path.name for path in write_figures(summary, tmp_path / "plain")] == ["tiny_bars.png"]
    with pytest.raises(DataError, match="hides no sensors"):
        curves(summary)


def test_without_matplotlib_a_picture_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'raindrop-ts\[plot\]'"):
        bars(made(tmp_path=tmp_path))

"""A results table as Markdown, LaTeX, CSV and figures."""

from __future__ import annotations

import csv
import io
import re
import sys
import tomllib
from dataclasses import replace

import polars as pl
import pytest
from results import NET, PUBLISHED, make_summary, p_value_by_hand
from tiny import TOML, planned, prepare

from raindrop.benchmark import Store, Summary, summarise_jobs
from raindrop.benchmark.figures import bars, curves, write_figures
from raindrop.benchmark.jobs import DataSummary
from raindrop.benchmark.parsing import parse
from raindrop.benchmark.render import caption, comparison_note, latex, markdown
from raindrop.errors import DataError, MissingExtraError

pytestmark = pytest.mark.slow

# ---------------------------------------------------------------- text


def test_markdown_has_means_published_values_and_comparisons(tmp_path):
    text = markdown(make_summary(tmp_path))
    assert f"| Net | 3 | 85.0 ± 5.0 | 80.0 ± 1.5 | +5.0 | 2.0 ({p_value_by_hand(48, 6):.3f}) | 42.5 ± 2.5 |" in text
    assert "| Trees | 3 | **87.0 ± 5.6** |  |  |  | **43.5 ± 2.8** |" in text
    assert "### fixed sensors hidden, AUROC" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) > 3


def test_the_caption_names_label_base_rate_and_source(tmp_path):
    text = caption(make_summary(tmp_path))
    assert "Label 'label' (60 samples; 50.0% are '1', which is the AUPRC of random guessing)" in text
    assert "Published: Someone, Table 1." in text
    several = DataSummary(9, 3, 99, "activity", (("lying", 0.2), ("sitting", 0.5), ("walking", 0.3)))
    experiment = parse(tomllib.loads(TOML), "tiny", "tiny.toml")
    text = caption(Summary(experiment, several, pl.DataFrame(), ()))
    assert "3 classes, the most frequent 'sitting' with 50.0%" in text


def test_the_note_below_the_table_names_the_test_and_how_it_applies_to_the_splits(tmp_path):
    summary = make_summary(tmp_path)
    note = comparison_note(summary)
    assert "Nadeau and Bengio's corrected resampled t-test" in note
    assert "1/k + n_test/n_train" in note
    assert markdown(summary).index("| Trees | 3 |") < markdown(summary).index(note)
    assert latex(summary).count("\\par\\footnotesize Note: 'behind' is") == 2, "below each block with comparisons"
    with_reference = make_summary(tmp_path / "reference", text='reference = "Net"\n' + TOML)
    assert "the mean distance from 'Net' (negative: ahead of it; bold: the best" in comparison_note(with_reference)
    rotated = TOML.replace("random = true\nnumbers = [1, 2, 3]", 'rotate_by = "subject"')
    assert "rotate through the values of 'subject'" in comparison_note(make_summary(tmp_path / "rotated", text=rotated))
    shared = TOML.replace("random = true", 'train_where = "age < 60"')
    assert "so there is no p-value" in comparison_note(make_summary(tmp_path / "shared", text=shared))
    assert "Note:" not in markdown(make_summary(tmp_path / "empty", net={}, trees={}, text=TOML))


def test_a_tiny_p_value_is_not_printed_as_zero(tmp_path):
    shifts = (0.02, 0.02001, 0.01999)
    trees = {number: value + shift for (number, value), shift in zip(NET.items(), shifts, strict=True)}
    summary = make_summary(tmp_path, trees=trees)
    assert "| 2.0 (< 0.001) |" in markdown(summary)
    assert "& 2.0 ($<$ 0.001) &" in latex(summary)


def test_a_published_mean_may_have_no_deviation(tmp_path):
    text = markdown(make_summary(tmp_path, text=TOML + PUBLISHED.replace("[80.0, 1.5]", "80.0")))
    assert "| Net | 3 | 85.0 ± 5.0 | 80.0 | +5.0 |" in text


def test_without_differences_there_is_no_such_column(tmp_path):
    summary = make_summary(tmp_path, text=TOML + PUBLISHED.replace("[published]", "[published]\nsame_data = false"))
    assert "| published | behind (p) |" in markdown(summary)
    assert "| difference |" not in markdown(summary)
    assert "Those were measured on other data" in caption(summary)


def test_special_characters_in_names_are_escaped(tmp_path):
    odd = TOML.replace('name = "Net"', 'name = "50 % of A_b | {c} & \\\\\\\\d"')
    summary = make_summary(tmp_path, text=odd)
    assert "50 \\% of A\\_b | \\{c\\} \\& " in latex(summary)
    assert "50 % of A_b \\| {c} & " in markdown(summary)


def test_every_line_of_a_latex_table_has_the_same_number_of_columns(tmp_path):
    text = latex(make_summary(tmp_path))
    assert "\\item all sensors, AUROC: the trees and Net, the best network, tie" in text
    num_overviews, num_blocks = 4, 2  # 'all sensors' was run, 'fixed 34 %' was published
    assert text.count("\\begin{table}") == text.count("\\end{table}") == num_overviews + num_blocks
    for columns, body in re.findall(r"\\begin\{tabular\}\{(lr*)\}(.*?)\\end", text, re.S):
        for line in re.findall(r"^(.*) \\\\$", body, re.M):
            assert len(re.split(r"(?<!\\)&", line)) == len(columns)


def test_blocks_without_any_result_are_left_out(tmp_path):
    summary = make_summary(tmp_path, net={}, trees={}, text=TOML)
    assert "|" not in markdown(summary)
    assert "table" not in latex(summary)


def test_a_value_from_fewer_splits_than_its_row_is_marked(tmp_path):
    experiment, jobs, data = planned(prepare(tmp_path))
    store = Store(tmp_path / "out")
    for job in jobs:
        metrics = {"config": "{}", "auroc": 0.9, "auprc": 0.5}
        record = {"subset": "test", "hidden": "none", "share": 0.0, "replace_with": "nothing", **metrics}
        fixed = [{**record, "hidden": "fixed", "share": 0.34}] if job.split_number < 3 else []
        store.append_metrics(job.key, [record, *fixed])
    summary = summarise_jobs(experiment, data, jobs, store)
    assert "| Net | 3 | **90.0 ± 0.0** | **90.0 ± 0.0** [2] |" in markdown(summary)
    assert "[n] marks a value from fewer splits" in caption(summary)


def test_the_csv_has_one_line_per_setting_row_and_metric(uninterrupted):
    records = list(csv.DictReader(io.StringIO(uninterrupted[".csv"])))
    assert len(records) == 3 * 2 * 2
    assert {record["splits"] for record in records} == {"3"}
    assert {record["setting"] for record in records} == {"all sensors", "fixed 34 %", "random 34 %"}
    assert all(0 <= float(record["mean"]) <= 100 for record in records)


# ---------------------------------------------------------------- figures


def test_bars_are_as_long_as_the_means_with_the_published_ones_beside_them(tmp_path):
    figure = bars(make_summary(tmp_path))
    panel = figure.axes[0]
    assert panel.get_title() == "all sensors: AUROC"
    assert [round(bar.get_width(), 3) for bar in panel.patches] == [85.0, 87.0, 80.0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["Net", "Trees"]
    assert len(figure.axes) == 3 * 2


def test_curves_run_over_the_hidden_share(tmp_path):
    summary = make_summary(tmp_path)
    fixed = (pl.col("setting") == "fixed 34 %") & (pl.col("row") == "Net") & (pl.col("metric") == "auroc")
    results = summary.results.with_columns(mean=pl.when(fixed).then(pl.lit(61.0)).otherwise(pl.col("mean")))
    panel = curves(replace(summary, results=results)).axes[0]
    assert panel.get_title() == "fixed sensors hidden: AUROC"
    net, trees = (container[0] for container in panel.containers)
    assert net.get_xydata().tolist() == [[0.0, pytest.approx(85.0)], [pytest.approx(34.0), 61.0]]
    assert trees.get_xydata().tolist() == [[0.0, pytest.approx(87.0)]]
    dashed = next(line for line in panel.get_lines() if line.get_linestyle() == "--")
    assert dashed.get_ydata().tolist() == [80.0, 70.0]


def test_figures_are_written_and_a_table_without_hidden_sensors_has_no_curves(tmp_path):
    summary = make_summary(tmp_path)
    assert [path.name for path in write_figures(summary, tmp_path)] == ["tiny_bars.png", "tiny_curves.png"]
    assert (tmp_path / "tiny_bars.png").read_bytes().startswith(b"\x89PNG")
    plain = TOML.replace("fixed = [0.34]\nrandom = [0.34]", "")
    summary = make_summary(tmp_path / "plain", text=plain)
    assert [path.name for path in write_figures(summary, tmp_path / "plain")] == ["tiny_bars.png"]
    with pytest.raises(DataError, match="hides no sensors"):
        curves(summary)


def test_without_matplotlib_a_figure_names_the_extra_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'raindrop-ts\[plot\]'"):
        bars(make_summary(tmp_path))

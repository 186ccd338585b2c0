"""What the documents say is true: names exist, commands run, examples work."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fork_server import BY_FORK
from waves import QUICK, wave_table

import raindrop
from raindrop.batch import batch
from raindrop.cli.app import app
from raindrop.estimators import classifier
from raindrop.explain import information as explain
from raindrop.models import base, registry
from raindrop.models.raindrop import config, messages, temporal
from raindrop.models.raindrop import model as model
from raindrop.table.cells import MISSING_MARKERS
from raindrop.table.constructors import Constructors
from raindrop.training import loop as training

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DATA_FORMAT = (ROOT / "docs" / "data_format.md").read_text()
IMPUTATION = (ROOT / "docs" / "imputation.md").read_text()
MAP = (ROOT / "docs" / "paper_map.md").read_text()
RESULTS = ROOT / "docs" / "results.md"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(code_or_file: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *code_or_file], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_runs(example, tmp_path):
    done = run([str(example)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("page", "most"), [("README.md", 6), ("docs/start.md", 13)])
def test_the_python_of_the_first_pages_runs(page, most, tmp_path):
    from raindrop.datasets.synthetic import planted_graph

    planted_graph(120, times=15).table.write(tmp_path / "demo" / "data")
    code = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)[1]
    code = code.replace("Classifier(seed=0)", "Classifier(config=QUICK)")
    assert "QUICK" in code
    assert len([line for line in code.splitlines() if line.strip()]) <= most  # with the import
    done = run(["-c", f'{BY_FORK}QUICK = {{"train.epochs": 1}}\n{code}'], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "mine").exists()
    assert (tmp_path / "predictions.parquet").exists() == (page != "README.md")


def test_the_python_example_on_imputation_runs(tmp_path, monkeypatch):
    code = re.search(r"```python\n(.*?)```", IMPUTATION, re.S)[1].replace("seed=0).fit", "config=QUICK).fit")
    assert code.count("QUICK") == 2
    assert len([line for line in code.splitlines() if line.strip()]) <= 11  # an import and ten lines
    wave_table().write(tmp_path / "data" / "stations")
    monkeypatch.chdir(tmp_path)
    names = {"QUICK": QUICK}
    exec(code, names)
    assert names["filled"].filled.any()
    assert names["readings"].columns == ["sample", "time", "sensor", "value", "low", "high"]
    assert names["senders"]["weight"].max() > 0
    assert (tmp_path / "forecasts.parquet").exists()


@pytest.mark.slow
def test_the_plots_of_the_page_on_imputation_are_drawn(tmp_path, monkeypatch):
    code = re.findall(r"```python\n(.*?)```", IMPUTATION, re.S)[1]
    monkeypatch.chdir(tmp_path)
    exec(code, {"imputer": raindrop.Imputer(config=QUICK).fit(wave_table()), "test": wave_table(5, seed=1)})
    assert {path.name for path in tmp_path.iterdir()} == {"gaps.png", "hidden.png"}


def test_the_gaps_and_forecasts_of_the_readme_run():
    code = re.findall(r"```python\n(.*?)```", README, re.S)[1].replace("Imputer()", "Imputer(config=QUICK)")
    code = code.replace("horizon=24", "horizon=6, config=QUICK")
    assert code.count("QUICK") == 2
    train, test = wave_table().split((0.7, 0.3), seed=0)
    exec(code, {"QUICK": QUICK, "rd": raindrop, "train": train, "test": test})


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/start.md", "docs/commands.md",
                                  "docs/imputation.md", "docs/data_format.md", "docs/report.md", "docs/service.md",
                                  "docs/monitoring.md", "docs/export.md", "docs/scaling.md"])  # fmt: skip
def test_the_commands_of_a_page_exist_with_their_options(page):
    lines = re.findall(r"^raindrop (.+?)(?:\s+#.*)?$", (ROOT / page).read_text(), re.M)
    assert lines
    for line in lines:
        command, *words = shlex.split(line)
        target = app[command]
        if target.default_command is None:  # such as `convert p12`
            target = target[words[0]]
        names = {name for argument in target.assemble_argument_collection() for name in argument.names}
        for word in words:
            assert not word.startswith("--") or word in names, line


def test_the_page_on_commands_has_every_command():
    lines = re.findall(r"^raindrop (\S+)", (ROOT / "docs" / "commands.md").read_text(), re.M)
    assert set(lines) == {name for name in app if not name.startswith("-")}


def test_no_paragraph_of_the_readme_is_wider_than_a_screen():
    for line in README.splitlines():
        assert len(line) <= 126 or line.startswith(("|", "!")), line


@pytest.fixture(scope="module")
def pictures():
    """The script that draws the pictures."""
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "benchmarks" / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    return pictures


def test_the_picture_of_ranks_has_the_ranks_of_the_results_page(pictures):
    page, drawn = RESULTS.read_text(), (ROOT / "docs" / "results" / "ranks_0.1.svg").read_text()
    ranks = pictures.rank_means().ranks
    assert len(ranks) == 12
    for name, rank in ranks:
        assert {f">{name}  {rank:.1f}<", f">{rank:.1f}  {name}<"} & set(re.findall(r">[^<>]+<", drawn)), name
    named = re.search(r"mean ranks by AUROC: ([^\]]+)", page)[1].casefold()
    assert all(f"{name.casefold()} {rank:.1f}" in named for name, rank in (*ranks[:5], ranks[-1]))


def test_the_page_of_results_is_one_that_a_person_reads():
    assert len(RESULTS.read_text().splitlines()) <= 200


def test_the_picture_of_gaps_has_the_errors_of_the_page_of_readings(pictures):
    _, rows = pictures.read_gaps()
    shown = (ROOT / "docs" / "gaps.svg").read_text()
    for name, (label, _, _) in pictures.GAP_ROWS.items():
        assert f">{rows[name][-1]:.1f}  {label}<" in shown, "run: python benchmarks/pictures.py gaps docs/gaps.svg"
        assert len(rows[name]) == 7
    ours, alone, line = (
        rows[name][-1] for name in ("Raindrop with queries", "Raindrop without messages", "linear interpolation")
    )
    said = " ".join(README.split())
    assert (
        f"are off by {ours:.1f} on average, without messages by {alone:.1f}, and linear interpolation by {line:.1f}"
        in said
    )


def test_the_picture_of_hidden_sensors_has_the_figures_of_the_results_page(pictures):
    rows = pictures.read_table(pictures.SECTION, pictures.HEADING)
    shown = (ROOT / "docs" / "hidden_sensors.svg").read_text()
    for name, (label, _, _) in pictures.ROWS.items():
        assert f">{rows[name][-1][0]:.1f}  {label}<" in shown, "run: python benchmarks/pictures.py hidden-sensors ..."
    ours, trees = rows["Raindrop tuned"], rows["Trees"]
    for number in (ours[0][0], ours[-1][0], trees[0][0], trees[-1][0]):
        assert f"{number}" in README


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_text_and_loads_nothing(picture):
    text = picture.read_text()
    assert "<svg" in text
    assert "<image" not in text
    assert "<script" not in text
    assert not re.search(r"(?:href|src)=\"(?!#)", text)


def test_the_architecture_page_names_every_room_and_no_other():
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = {name for row in re.findall(r"^\| (`[^|]+)\|", page, re.M) for name in re.findall(r"`([a-z_.]+)/?`", row)}
    package = ROOT / "src" / "raindrop"
    rooms = {path.parent.name for path in package.glob("*/__init__.py")}
    files = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    assert named == rooms | files


def test_the_paper_map_names_code_and_tests_that_exist():
    places = (model, messages, temporal, config, base, registry, batch, training, explain, classifier, raindrop)
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    rows = [line for line in MAP.splitlines() if line.startswith("| ") and not line.startswith(("| paper", "| ---"))]
    assert len(rows) > 20
    for row in rows:
        code, test = row.split("|")[2:4]
        for name in re.findall(r"`([^`]+)`", code):
            owner, _, member = name.partition(".")
            found = [getattr(place, owner) for place in places if hasattr(place, owner)]
            assert found, f"paper_map names {name}, which does not exist"
            fields = getattr(found[0], "__dataclass_fields__", {})
            assert not member or hasattr(found[0], member) or member in fields, f"paper_map names {name}"
        for name in re.findall(r"`(test_[a-z0-9_]+)`", test):
            assert f"def {name}(" in tests, f"paper_map names {name}, which no test file has"


def test_links_between_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_what_is_exported_is_what_is_promised():
    promised = """ClassGraphs Classifier ConfigError CostRatio DataError EventTable Forecaster Imputer InformedGraph
    ModelFileError MultiLabelClassifier OutputExistsError Predictions RaindropError RaindropWarning Readings Regressor
    SearchResult SensorGraph SensorGraphs Sensitivity Stream __version__ auto class_graphs grid load scale sensor_graph
    tune"""
    assert sorted(raindrop.__all__) == sorted(promised.split())
    for name in raindrop.__all__:
        assert hasattr(raindrop, name)


@pytest.mark.slow
@pytest.mark.parametrize("use", ["", "raindrop.EventTable", "raindrop.cli.app.main(['--help'])"])
def test_torch_is_not_imported_before_it_is_needed(use):
    script = f"""
import sys, raindrop, raindrop.cli.app
try:
    {use or "pass"}
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == 0


@pytest.mark.slow
def test_the_list_of_commands_loads_no_data_set():
    script = """
import sys, raindrop.cli.app
try:
    raindrop.cli.app.main(["--help"])
except SystemExit:
    pass
sys.exit("polars" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script], capture_output=True).returncode == 0


def test_a_name_that_is_not_exported_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Clasifier'"):
        raindrop.Clasifier  # noqa: B018
    assert set(raindrop.__all__) <= set(dir(raindrop))


def test_every_setting_has_a_text_below_it():
    from dataclasses import fields

    from raindrop.config import describe
    from raindrop.models.registry import MODELS

    for kind in [training.TrainConfig, *(entry.config for entry in MODELS.values())]:
        told = describe(kind)
        assert [field.name for field in fields(kind) if not told.get(field.name)] == []


def test_the_page_on_data_lists_every_missing_marker_and_way_into_a_table():
    (line,) = re.findall(r"- \*\*Missing markers\*\*: (.*?) are missing", DATA_FORMAT, re.S)
    assert set(re.findall(r"`([^`]+)`", line)) == set(MISSING_MARKERS)
    constructors = {name for name in vars(Constructors) if name.startswith("from_") and name != "from_columns"}
    assert constructors == set(re.findall(r"`(from_\w+)\(", DATA_FORMAT))

"""The wheel, installed into an environment of its own, holds every file and works; the lowest versions are pinned."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import polars as pl
import pytest
from learnable import easy_table, words
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "raindrop"
FILES = {path.relative_to(ROOT / "src").as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
FILES = {name for name in FILES if "__pycache__" not in name}


def run(*command: object, folder: Path) -> str:
    """Run a command outside the source tree, without PYTHONPATH, and return what it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT, folder=folder)
    (file,) = folder.glob("raindrop_ts-*.whl")
    return file


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a new environment with the wheel; dependencies come from where the tests run.

    They come by a .pth file that names a folder. Python reads no .pth files in such a folder, so an editable install
    of this source tree that lies there is not seen.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, folder=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    shared = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in sorted(shared)))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", folder / "bin" / "python"]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=folder)
    return folder / "bin"


def test_the_lowest_versions_that_are_tested_are_those_that_are_admitted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [
        *project["dependencies"],
        *(text for name in ("pandas", "plot", "report", "log", "trees", "meds", "serve") for text in extras[name]),
    ]
    admitted = {}
    for requirement in map(Requirement, needed):
        (lowest,) = (bound.version for bound in requirement.specifier if bound.operator == ">=")
        admitted[requirement.name] = Version(lowest)
    lines = [line for line in (ROOT / "tests" / "lowest.txt").read_text().splitlines() if not line.startswith("#")]
    tested = dict(line.split("==") for line in lines)
    assert {name: Version(version) for name, version in tested.items()} == admitted


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("raindrop/")}
    assert names == FILES
    for part in ("py.typed", "report/page.html", "report/page.css", "report/page.js", "benchmark/tables/table1.toml"):
        assert f"raindrop/{part}" in names


@pytest.mark.slow
def test_the_installed_wheel_is_what_is_imported(environment: Path, tmp_path: Path) -> None:
    script = "import raindrop, sys; print(raindrop.__file__); print(*sys.path, sep='\\n')"
    file, *paths = run(environment / "python", "-c", script, folder=tmp_path).splitlines()
    assert Path(file).is_relative_to(environment.parent)
    assert str(ROOT / "src") not in paths


@pytest.mark.slow
def test_the_installed_command_helps_trains_and_predicts(environment: Path, tmp_path: Path) -> None:
    table = easy_table(48)
    (tmp_path / "data").mkdir()
    table.events().write_csv(tmp_path / "data" / "events.csv")
    table.samples.write_csv(tmp_path / "data" / "samples.csv")
    raindrop = environment / "raindrop"
    assert "Usage: raindrop" in run(raindrop, "--help", folder=tmp_path)
    trained = run(raindrop, "train", "data", "--out", "run", "--set", *words(), folder=tmp_path)
    assert "wrote the model to run" in trained
    run(raindrop, "predict", "run", "data", "--out", "predictions.csv", folder=tmp_path)
    assert pl.read_csv(tmp_path / "predictions.csv")["sample"].to_list() == table.ids


@pytest.mark.slow
def test_the_wheel_without_extras_runs_fit_on_a_csv(environment: Path, tmp_path: Path) -> None:
    """As after `pip install raindrop-ts`: what only extras bring is not there, and no page is the only difference."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    distributions = {Requirement(text).name for each in extras.values() for text in each}
    named = {"mlflow-skinny": "mlflow", "mkdocs-material": "material", "pytest-xdist": "xdist"}
    left_out = {named.get(name, name.replace("-", "_")) for name in distributions}
    assert {"bokeh", "jinja2", "lightgbm", "matplotlib", "pandas", "pyarrow", "tensorboard"} <= left_out
    bare = tmp_path / "packages"
    bare.mkdir()
    for entry in {entry for kind in ("purelib", "platlib") for entry in Path(sysconfig.get_path(kind)).iterdir()}:
        if not {re.split(r"[-.]", entry.name)[0].lower()} & (left_out | {"raindrop", "raindrop_ts"}):
            (bare / entry.name).symlink_to(entry)
    (packages,) = environment.parent.glob("lib/python*/site-packages")

    table = easy_table(48, classes=("ill", "well"))
    events = table.events().with_columns(pl.col("sensor").cast(pl.String))
    events.join(table.samples.select("sample", "label"), on="sample").write_csv(tmp_path / "readings.csv")
    script = (
        f"import sys\nsys.path[:0] = [{str(packages)!r}, {str(bare)!r}]\nfrom raindrop.cli.app import main\n"
        "main(['fit', 'readings.csv', '--label', 'label', '--minutes', '0.02', '--out', 'first'])\n"
        "assert 'pandas' not in sys.modules and 'matplotlib' not in sys.modules\n"
    )
    shown = run(environment / "python", "-S", "-c", script, folder=tmp_path)
    assert "wrote the best model, 'trees', to first" in shown
    assert "no page: Writing a report needs the package" in shown
    assert (tmp_path / "first" / "model.safetensors").exists()

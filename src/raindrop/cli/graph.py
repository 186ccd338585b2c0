"""The command `graph`: which sensors of a table inform which."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from raindrop.cli.samples import console, select_run_part
from raindrop.cli.table_options import DEFAULT, TableOptions, read_table
from raindrop.errors import ConfigError

if TYPE_CHECKING:  # torch and polars load only when a command needs them
    import polars as pl

    from raindrop.estimators.readings import ReadingsEstimator
    from raindrop.graphs.class_differences import ClassGraphs
    from raindrop.graphs.graph import SensorGraph
    from raindrop.report.graph_picture import Picture
    from raindrop.table.event_table import EventTable

Folders = Annotated[tuple[Path, ...], Parameter(consume_multiple=True)]


def graph(
    data: Path,
    *,
    out: Path,
    run: Path | None = None,
    seeds: Folders = (),
    by_class: Annotated[bool, Parameter(negative=())] = False,
    label: str | None = None,
    q: float = 0.05,
    group: str | None = None,
    positions: Path | None = None,
    seed: int = 0,
    require_signature: Path | None = None,
    options: TableOptions = DEFAULT,
) -> None:
    """Find which sensors inform which, at what lag and with what evidence; needs no labels and no model.

    Writes edges.csv and evidence.parquet (every test), graph.graphml, graph.cyjs, graph.html (hover shows the evidence)
    and, if matplotlib is installed, graph.png. With --by-class: the graph of each class and their differences.

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv; or one such file, or a MEDS folder.
        out: folder to write; must not exist yet.
        run: folder of an imputer or a forecaster: which sensors it needs to predict which, on samples that it was
            not trained on if it has a split; the page has a slider over time for long series.
        seeds: runs of the same model with other seeds; edges that do not recur in each of them are left out.
        by_class: compare the classes of the label.
        label: column of the samples table with the classes, for --by-class.
        q: share of false edges to allow (false discovery rate).
        group: column of the samples table; samples with the same value are not independent of each other.
        positions: file with the columns sensor, x and y (.csv or .parquet), to draw a map; by default the
            positions in the table.
        seed: random seed of surrogates, hidden readings and permutations.
        require_signature: file with a key; the run must have been signed with it (`raindrop sign`).
    """
    from raindrop.errors import MissingExtraError
    from raindrop.files import atomic_folder, refuse_to_overwrite
    from raindrop.graphs.export import write_frame
    from raindrop.graphs.layout import sensor_places, table_positions
    from raindrop.report.graph_page import INFORMED, SENDERS, write_graph_page
    from raindrop.table.frame_files import read_frame, require_file

    refuse_to_overwrite(out)
    if seeds and run is None:
        raise ConfigError("--seeds names runs with other seeds; name the run itself with --run.")
    if label is not None and not by_class:
        raise ConfigError("--label names the classes to compare; add --by-class, or leave it out.")
    table = read_table(data, options, group=group, label=label)
    models = [] if run is None else _load([run, *seeds], require_signature)
    if models:
        table = select_run_part(table, Path(str(run)), "auto", models[0])
    places = None if positions is None else read_frame(require_file(positions), ids=("sensor",)).frame
    if places is not None:
        sensor_places(table.sensors, places)  # raises now rather than after the work
    title = f"Sensors of {data.resolve().name}"
    found = _compute(table, models, by_class=by_class, q=q, seed=seed)
    picture = found.picture(table, places)
    drawn = table_positions(table)[0] if places is None else places
    with atomic_folder(out) as partial:
        write_frame(found.edges, partial / "edges.csv")
        write_frame(found.evidence, partial / "evidence.parquet")
        for ending in ("graphml", "cyjs"):
            for name, each in found.graphs.items():
                each.write(partial / f"{name}.{ending}")
        about = SENDERS if models else INFORMED
        write_graph_page(picture, partial / "graph.html", title=title, about=about)
        try:
            found.plot(drawn).savefig(partial / "graph.png", dpi=150)
        except MissingExtraError as error:
            console.print(f"No picture: {escape(str(error))}")
    for note in [frame.empty for frame in picture.frames if frame.empty and not frame.arrows] + picture.notes:
        console.print(escape(note.replace("DATA", str(data))))
    if len(found.edges):
        console.print(found.summary(table.time_unit))
    console.print(f"wrote the graph to {escape(str(out))}; open {escape(str(out / 'graph.html'))} in any browser")


class _Found:
    """One graph, from readings alone or from a fitted model."""

    def __init__(self, graph: Any, draw: Callable[[EventTable], Picture]):
        self.graph, self.draw = graph, draw
        self.edges: pl.DataFrame = graph.edge_evidence()
        self.evidence: pl.DataFrame = graph.evidence
        self.graphs: dict[str, SensorGraph] = {"graph": graph}

    def picture(self, table: EventTable, places: Any) -> Picture:
        from raindrop.report.graph_frames import with_places

        return with_places(self.draw(table), places, table)

    def plot(self, places: Any) -> Any:
        from raindrop.report import plots

        return plots.graph(self.graph, positions=places)

    def summary(self, unit: str) -> Table:
        lagged = "kind" in self.edges.columns
        rows = Table("edge", "kind", f"lag ({unit})", "error removed", "q") if lagged else Table("edge", "worse", "q")
        for row in self.edges.head(20).iter_rows(named=True):
            arrow = "--" if row.get("kind") == "same time" else "->"
            edge = escape(f"{row['sender']} {arrow} {row['receiver']}")
            if lagged:
                rows.add_row(edge, row["kind"], f"{row['lag'] or 0:.3g}", f"{row['gain']:.1%}", f"{row['q']:.2g}")
            else:
                rows.add_row(edge, f"{row['worse']:+.1%}", f"{row['q']:.2g}")
        return rows


class _FoundClasses(_Found):
    """The graphs of classes and their differences."""

    def __init__(self, classes: ClassGraphs, draw: Callable[[EventTable], Picture]):
        import polars as pl

        self.classes, self.draw = classes, draw
        self.evidence = classes.evidence
        kept = [
            graph.edges().select("sender", "receiver", pl.lit(str(label)).alias("class"))
            for label, graph in classes.differences.items()
        ]
        keys = ["class", "sender", "receiver"]
        self.edges = pl.concat(kept).join(self.evidence, on=keys, how="left", maintain_order="left").select(
            self.evidence.columns
        )  # fmt: skip
        numbers = {f"class-{at}": graph for at, graph in enumerate(classes.graphs.values(), start=1)}
        names = [f"difference-{at}" for at in range(1, 1 + len(classes.differences))]
        names = ["difference"] if len(names) == 1 else names
        self.graphs = dict(zip(names, classes.differences.values(), strict=True)) | numbers

    def plot(self, places: Any) -> Any:
        from raindrop.report import plots

        return plots.class_differences(self.classes, positions=places)

    def summary(self, unit: str) -> Table:
        rows = Table("class", "edge", "error removed in it", "elsewhere", "q")
        for row in self.edges.head(20).iter_rows(named=True):
            edge, shares = f"{row['sender']} -> {row['receiver']}", (row["in_class"], row["in_others"])
            rows.add_row(escape(row["class"]), escape(edge), *(f"{share:.1%}" for share in shares), f"{row['q']:.2g}")
        return rows


def _load(runs: list[Path], key: Path | None) -> list[ReadingsEstimator]:
    from raindrop.estimators import load
    from raindrop.estimators.readings import ReadingsEstimator

    models = []
    for run in runs:
        model = load(run, key=key)
        if not isinstance(model, ReadingsEstimator):
            raise ConfigError(
                f"{run}: the run holds a model for {model.task_.name}; its graphs are in the report of "
                f"'raindrop explain {run} DATA --out report.html'. --run takes an imputer or a forecaster."
            )
        models.append(model.set_params(unknown_sensors="ignore"))
    return models


def _compute(table: EventTable, models: list[Any], *, by_class: bool, q: float, seed: int) -> _Found:
    from raindrop.estimators.class_graphs import compare_effects
    from raindrop.graphs.informed import sensor_graph
    from raindrop.graphs.informed_classes import class_graphs, labelled_samples
    from raindrop.report.graph_frames import class_picture, effects_picture, graph_picture

    if by_class:
        table = labelled_samples(table)
    if not models:
        with _bar("comparing every pair of sensors") as progress:
            if by_class:
                classes = class_graphs(table, q=q, seed=seed, progress=progress)
                return _FoundClasses(classes, lambda table: class_picture(classes, unit=table.time_unit))
            informed = sensor_graph(table, q=q, seed=seed, progress=progress)
            return _Found(informed, lambda table: graph_picture(informed, unit=table.time_unit))
    effects = []
    for at, model in enumerate(models):
        with _bar("predicting without each sensor") as progress:
            effects.append(model.sender_effects(table, seed=seed + at, progress=progress))
    if by_class:
        compared = compare_effects(effects, table, q=q, seed=seed)
        return _FoundClasses(compared, lambda table: class_picture(compared, unit=table.time_unit))
    graph = effects[0].graph(q, other_seeds=effects[1:])
    return _Found(graph, lambda table: effects_picture(effects[0], graph, unit=table.time_unit))


@contextmanager
def _bar(text: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, for functions that call it with the number of steps done and the total."""
    from rich.progress import Progress

    with Progress(console=console, transient=True) as line:
        task = line.add_task(text, total=None)
        yield lambda done, total: line.update(task, completed=done, total=total)

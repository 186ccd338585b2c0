"""The command `graph`: which sensors of a table inform which."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape
from rich.table import Table

from raindrop.cli.samples import console
from raindrop.cli.table_options import DEFAULT, TableOptions, read_table


def graph(
    data: Path,
    *,
    out: Path,
    q: float = 0.05,
    group: str | None = None,
    positions: Path | None = None,
    seed: int = 0,
    options: TableOptions = DEFAULT,
) -> None:
    """Find which sensors inform which, at which lag and with what evidence; no labels and no model are needed.

    Writes edges.csv and evidence.parquet (every test), graph.graphml, graph.cyjs, graph.html (hover shows the
    evidence) and, where matplotlib is installed, graph.png.

    Args:
        data: folder with events.parquet or .csv, and samples.parquet or .csv; or one such file, or a MEDS folder.
        out: folder to write; must not exist yet.
        q: share of false edges to allow (false discovery rate).
        group: column of the samples table; samples with the same value are not independent of each other.
        positions: file with the columns sensor, x and y (.csv or .parquet), to draw a map.
        seed: of the senders whose readings are dealt anew.
    """
    from raindrop.errors import MissingExtraError
    from raindrop.files import atomic_folder, refuse_to_overwrite
    from raindrop.graphs.export import write_frame
    from raindrop.graphs.informed import sensor_graph
    from raindrop.graphs.layout import sensor_places
    from raindrop.report.graph_page import write_graph_page
    from raindrop.table.frame_files import read_frame, require_file

    refuse_to_overwrite(out)
    table = read_table(data, options, group=group)
    places = None if positions is None else read_frame(require_file(positions), ids=("sensor",)).frame
    if places is not None:
        sensor_places(table.sensors, places)  # an error now, not after the work
    with console.status("comparing every pair of sensors ..."):
        found = sensor_graph(table, q=q, seed=seed, name=f"Sensors of {data.resolve().name}")
    with atomic_folder(out) as partial:
        write_frame(found.edge_evidence(), partial / "edges.csv")
        found.write_evidence(partial / "evidence.parquet")
        found.write(partial / "graph.graphml")
        found.write(partial / "graph.cyjs")
        write_graph_page(found, partial / "graph.html", unit=table.time_unit, positions=places)
        try:
            from raindrop.report import plots

            plots.graph(found, positions=places).savefig(partial / "graph.png", dpi=150)
        except MissingExtraError as error:
            console.print(f"No picture: {escape(str(error))}")
    if found.untested:
        console.print(f"Too few readings to be tested as receivers: {escape(', '.join(found.untested))}.")
    if found.is_empty:
        console.print(escape(found.describe_empty()))
        console.print(f"Next: raindrop inspect {escape(str(data))} shows how often each sensor is read.")
    else:
        rows = Table("edge", "kind", f"lag ({table.time_unit})", "error removed", "q")
        for row in found.edge_evidence().head(20).iter_rows(named=True):
            arrow = "->" if row["kind"] == "lagged" else "--"
            lag = f"{row['lag'] or 0:.3g}"
            edge = escape(f"{row['sender']} {arrow} {row['receiver']}")
            rows.add_row(edge, row["kind"], lag, f"{row['gain']:.1%}", f"{row['q']:.2g}")
        console.print(rows)
    console.print(f"wrote the graph to {escape(str(out))}; open {escape(str(out / 'graph.html'))} in any browser")

"""Draw the pictures of README and docs as SVG, with text that stays text.

python benchmarks/pictures.py hidden-sensors docs/hidden_sensors.svg    # from the tables of docs/results/version_0.1.md
python benchmarks/pictures.py gaps docs/gaps.svg                        # from the table of docs/results_readings.md
python benchmarks/pictures.py ranks docs/results/ranks_0.1.svg          # from the same page
python benchmarks/pictures.py page docs/page.svg --demo demo            # from the folder of `make demo`
python benchmarks/pictures.py stations docs/stations.svg --stations AQI36_FOLDER    # a graph on a map, one minute
python benchmarks/pictures.py filled docs/filled.svg --stations AQI36_FOLDER --imputer RUN     # an outage, filled

RUN is what `benchmarks/imputation.py AQI36_FOLDER --models raindrop --save RUN` wrote.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from matplotlib.figure import Figure

from raindrop.benchmark.figures import rank_diagram, to_svg
from raindrop.benchmark.ranks import Block, Ranking, rank_rows

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "version_0.1.md"
SECTION, HEADING = "Settings 2 and 3: P19, sepsis, sensors hidden", "random sensors hidden, AUROC"
ROWS = {  # the row of the table: how it is drawn
    "Raindrop tuned": ("Raindrop", "#b4531a", 2.4),
    "Transformer": ("transformer (two splits)", "#9aa5b1", 1.2),
    "Blend": ("blend of Raindrop and trees", "#4b7f32", 1.2),
    "Trees": ("gradient-boosted trees", "#1f5f8b", 2.4),
}
GAP = 1.1  # points of AUROC between two labels
READINGS = RESULTS.parents[1] / "results_readings.md"
GAP_ROWS = {  # the beginning of a row of its first table: how it is drawn
    "linear interpolation": ("linear interpolation", "#9aa5b1", 1.2),
    "Raindrop without messages": ("Raindrop without messages", "#d99a6c", 2.0),
    "boosted trees": ("boosted trees with neighbours", "#1f5f8b", 1.6),
    "GRIN": ("GRIN", "#4b7f32", 1.6),
    "Raindrop with queries": ("Raindrop", "#b4531a", 2.6),
}
FILLED_HOURS, FILLED_STATIONS = (960, 1200), ["001019", "001021"]  # ten days of June, two long outages
Row = list[tuple[float, float]]


def main() -> None:
    """Draw the picture that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", choices=["hidden-sensors", "gaps", "ranks", "page", "stations", "filled"])
    parser.add_argument("out", type=Path)
    parser.add_argument("--demo", type=Path, default=Path("demo"))
    parser.add_argument("--stations", type=Path, default=Path("aqi36"))
    parser.add_argument("--imputer", type=Path, default=Path("imputer"))
    options = parser.parse_args()
    draw = {
        "hidden-sensors": draw_hidden_sensors,
        "gaps": draw_gaps,
        "ranks": lambda: to_svg(rank_diagram(rank_means()), "ranks"),
        "page": lambda: draw_page(options.demo),
        "stations": lambda: draw_stations(options.stations),
        "filled": lambda: draw_filled(options.stations, options.imputer),
    }[options.picture]
    options.out.write_text(draw(), encoding="utf-8")


def read_table(section: str, heading: str) -> dict[str, Row]:
    """The rows of a table of the page: mean and standard deviation of each column after the number of splits."""
    text = RESULTS.read_text().split(f"## {section}\n")[1].split(f"#### {heading}\n")[1]
    rows = {}
    for line in text.strip().split("\n\n")[0].splitlines()[2:]:
        name, _, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        numbers = [re.findall(r"[\d.]+", cell) for cell in cells]
        rows[name] = [(float(mean), float(deviation)) for mean, deviation in numbers]
    return rows


def draw_hidden_sensors() -> str:
    """AUROC on P19 against the share of sensors that are hidden at random in the test samples."""
    rows, shares = read_table(SECTION, HEADING), [0, 10, 20, 30, 40, 50]
    figure = Figure(figsize=(8, 3.9), layout="constrained")
    axes = figure.add_subplot()
    places: list[float] = []
    for name, (label, colour, width) in sorted(ROWS.items(), key=lambda row: -rows[row[0]][-1][0]):
        mean, deviation = (list(column) for column in zip(*rows[name], strict=True))
        axes.plot(shares, mean, "o-", color=colour, linewidth=width, markersize=4)
        if width > 2:
            bounds = [[m + sign * d for m, d in zip(mean, deviation, strict=True)] for sign in (-1, 1)]
            axes.fill_between(shares, *bounds, color=colour, alpha=0.12, linewidth=0)
        places.append(min(mean[-1], places[-1] - GAP) if places else mean[-1])
        axes.text(51.5, places[-1], f"{mean[-1]:.1f}  {label}", color=colour, va="center", fontsize=9)
    axes.set(xlim=(-1, 75), ylim=(74, 95), xticks=shares, xlabel="sensors hidden at random in each test sample, in %")
    axes.xaxis.set_label_coords(0.34, -0.11)
    axes.set_title("Sepsis (P19, 34 sensors, 4.2 % positive): AUROC in %, sensors failing after training", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    return to_svg(figure, "hidden sensors")


def read_gaps() -> tuple[list[str], dict[str, list[float]]]:
    """The lengths of gaps, and the error at each of them in the rows of GAP_ROWS."""
    lines = [line for line in READINGS.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    lengths = [name.removeprefix("gap of ").removesuffix(" h") for name in cells[0][2:9]]
    rows = {}
    for name in GAP_ROWS:
        row = next(row for row in cells if row[0].replace("*", "").startswith(name))
        rows[name] = [float(cell) for cell in row[2:9]]
    return lengths, rows


def draw_gaps() -> str:
    """Mean absolute error of filled readings against the length of the gap."""
    lengths, rows = read_gaps()
    figure = Figure(figsize=(8.6, 3.9), layout="constrained")
    axes = figure.subplots()
    height = float("-inf")
    for name in sorted(GAP_ROWS, key=lambda name: rows[name][-1]):
        label, colour, width = GAP_ROWS[name]
        axes.plot(lengths, rows[name], "o-", color=colour, linewidth=width, markersize=3 + width)
        height = max(rows[name][-1], height + 2.4)  # labels do not overlap
        axes.annotate(f"{rows[name][-1]:.1f}  {label}", (len(lengths) - 1, height), (10, 0), color=colour,
                      textcoords="offset points", va="center", fontsize=9)  # fmt: skip
    axes.set_xlim(-0.2, len(lengths) + 1.5)
    axes.set_ylim(0, 46)
    axes.set_xticks(range(len(lengths)))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("length of the gap, in hours")
    axes.set_ylabel("mean absolute error, PM2.5")
    axes.set_title("Filling gaps of 36 air-quality stations", loc="left", fontsize=11)
    return to_svg(figure, "gaps")


def rank_means() -> Ranking:
    """Ranks by AUROC of the twelve rows that version 0.1 has on splits 1 and 2 of three tables.

    Only means over the two splits are left, so each table is one observation, without a correction for its splits.
    """
    text = RESULTS.read_text().split("- **Baselines**")[1].split("\n\n")[1]
    (_, *titles), _, *rows = ([cell.strip() for cell in line.strip()[1:-1].split("|")] for line in text.splitlines())
    return rank_rows(
        [
            Block(f"{title} (AUROC)", {name: {0: float(cells[at].split(" / ")[0])} for name, *cells in rows}, {0: 0.0})
            for at, title in enumerate(titles)
        ]
    )


def draw_page(demo: Path) -> str:
    """What the demo's report shows first, as the page has it: title, metrics, missing sensors, sensor graph."""
    import raindrop as rd
    from raindrop.explain import information_graphs
    from raindrop.report import plots

    model, table = rd.load(demo / "run"), rd.EventTable.read(demo / "data")
    train, val, test = table.split(seed=0)  # as the demo splits it
    truth, trees = model.truth(test), rd.Classifier("trees", seed=0).fit(train, validation=val)
    metrics = {
        name: each.task_.bootstrap(truth, each.predictions(test)) for name, each in (("", model), ("trees ", trees))
    }
    graph = information_graphs(model, test).difference(test.labels == "coupled", "Difference, coupled minus apart")
    figures = [plots.robustness({"Raindrop": model, "Trees": trees}, test), plots.graph(graph, top=12)]
    for figure in figures:
        figure.set_size_inches(4.2, 3.9)
    parts_of_page = [
        '<rect width="900" height="620" fill="#f4f6f8"/>',
        '<rect width="900" height="112" fill="#16324a"/>',
        _text(40, 34, "RAINDROP REPORT", 11, "#b9c7d3"),
        _text(40, 66, "Demo on synthetic data with a planted sensor graph", 22, "#ffffff", "bold"),
        _text(40, 92, f"Label label, {len(test):,} samples, {len(test.sensors)} sensors.", 13, "#dfe7ee"),
    ]
    tiles = {"auroc": "AUROC (coupled)", "auprc": "AUPRC (coupled)", "accuracy": "Accuracy"}
    for at, (key, title) in enumerate(tiles.items()):
        x, own, other = 40 + 276 * at, metrics[""][key], metrics["trees "][key]
        parts_of_page += [
            f'<rect x="{x}" y="130" width="260" height="104" rx="8" fill="#fff" stroke="#d8dfe5"/>',
            _text(x + 16, 154, title, 12, "#4b5a68"),
            _text(x + 16, 188, f"{own.value:.3f}", 27, "#1a2433", "bold"),
            _text(x + 16, 208, f"95 % interval {own.low:.3f} to {own.high:.3f}", 11, "#4b5a68"),
            _text(x + 16, 224, f"trees {other.value:.3f}", 11, "#4b5a68"),
        ]
    for at, (figure, title) in enumerate(zip(figures, ("Missing sensors", "Sensor graph"), strict=True)):
        x = 40 + 414 * at
        parts_of_page += [
            f'<rect x="{x}" y="250" width="398" height="352" rx="8" fill="#fff" stroke="#d8dfe5"/>',
            _text(x + 16, 274, title, 14, "#1a2433", "bold"),
            _nested(to_svg(figure, title), x + 22, 282, 340),
        ]
    opening = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    return f'{opening}viewBox="0 0 900 620" width="900" height="620">\n' + "\n".join(parts_of_page) + "\n</svg>\n"


def draw_stations(folder: Path) -> str:
    """The graph of the stations of AQI-36 on a map; the positions are used for the drawing alone."""
    import polars as pl
    from stations import Stations

    import raindrop as rd
    from raindrop.report import plots

    stations = Stations.read(folder)
    north, east = stations.place.T
    positions = pl.DataFrame({"sensor": stations.names, "x": 0.766 * east, "y": north})  # cos 40 degrees
    graph = rd.sensor_graph(stations.whole_table())
    title = f"36 stations in Beijing: the {len(graph.edges())} edges found without positions, drawn on a map"
    figure = plots.graph(graph, top=len(graph.edges()), title=title, positions=positions)
    figure.set_size_inches(8, 7)
    return to_svg(figure, "stations")


def draw_filled(folder: Path, run: Path) -> str:
    """Two outages of June, a test month, filled by a model that was trained on other months, and what was removed."""
    import numpy as np
    import polars as pl
    from stations import Stations

    import raindrop as rd
    from raindrop.report import plots

    stations, imputer = Stations.read(folder), rd.load(run)
    start, stop = FILLED_HOURS
    visible = np.full_like(stations.visible, np.nan)
    visible[start:stop] = stations.visible[start:stop]
    removed = np.isfinite(stations.truth) & ~np.isfinite(stations.visible)
    removed[:start], removed[stop:] = False, False
    truth = stations.queries(removed).with_columns(value=pl.Series(stations.truth[removed]))
    table = stations.whole_table(np.isfinite(visible))
    figure = plots.filled(imputer, table, table.ids[0], FILLED_STATIONS, truth=truth)
    figure.set_size_inches(9.5, 4.6)
    figure.suptitle("PM2.5: readings (blue), filled with 90 % intervals (orange), what was removed (x)", fontsize=10)
    return to_svg(figure, "filled")


def _text(x: float, y: float, text: str, size: float, colour: str, weight: str = "normal") -> str:
    style = f"font: {weight} {size}px sans-serif; fill: {colour}"
    return f'<text x="{x}" y="{y}" style="{style}">{text}</text>'


def _nested(svg: str, x: float, y: float, width: float) -> str:
    """A picture as a part of another one."""
    own = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert own is not None
    height = width * float(own[2]) / float(own[1])
    opening = f'<svg x="{x}" y="{y}" width="{width}" height="{height:.1f}" viewBox="0 0 {own[1]} {own[2]}">'
    return opening + svg[svg.index(">", svg.index("<svg ")) + 1 :].strip()


if __name__ == "__main__":
    main()

"""`raindrop impute` and `raindrop forecast`: train, apply, evaluate, and what each mistake is answered with."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from closeness import assert_close
from command_line import Ask
from waves import QUICK, wave_table

from raindrop import EventTable, load
from raindrop.cli.app import main
from raindrop.cli.readings import Training
from raindrop.table.hide import hold_out_blocks, hold_out_future, hold_out_readings, hold_out_sensors
from raindrop.table.queries import spans

SET = ("--set", *(f"{name}={value}" for name, value in QUICK.items()))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = wave_table()
    half = replace(table, samples=table.samples.with_columns(admitted=pl.Series(spans(table)[1] - 6)))
    return half.write(tmp_path_factory.mktemp("readings") / "data")


@pytest.fixture(scope="module")
def imputer(data: Path) -> Path:
    """A run of an imputer; no test may change it."""
    main(["impute", "train", str(data), "--out", str(data.parent / "imputer"), *SET])
    return data.parent / "imputer"


@pytest.fixture(scope="module")
def forecaster(data: Path) -> Path:
    """A run of a forecaster; no test may change it."""
    main(["forecast", "train", str(data), "--out", str(data.parent / "forecaster"), "--horizon", "6", *SET])
    return data.parent / "forecaster"


@pytest.mark.slow
def test_training_writes_a_run_with_its_split(imputer: Path, forecaster: Path) -> None:
    for run in (imputer, forecaster):
        parts = pl.read_parquet(run / "split.parquet")["part"].value_counts()
        assert dict(parts.iter_rows()) == {"train": 16, "val": 2, "test": 2}
    assert load(imputer).resolved()["model"]["hidden"] == QUICK["model.hidden"]
    assert load(forecaster).horizon == 6


@pytest.mark.slow
def test_training_says_how_good_it_is_and_a_finished_run_can_be_resumed(ask: Ask, data: Path, tmp_path: Path) -> None:
    words = ("impute", "train", data, "--out", tmp_path / "run", "--seed", 3, *SET)
    code, shown, errors = ask(*words)
    assert (code, errors) == (0, "")
    assert "validation: MAE 0." in shown
    assert f"wrote the model to {tmp_path / 'run'}" in shown
    code, _, errors = ask(*words)
    assert code == 1
    assert "this folder exists already" in errors
    before = (tmp_path / "run/model.safetensors").read_bytes()
    assert ask(*words, "--resume")[0] == 0
    assert (tmp_path / "run/model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_one_long_series_is_trained_on_as_a_whole(ask: Ask, tmp_path: Path) -> None:
    wave_table(1, readings=1200, hours=1200).write(tmp_path / "plant")
    code, shown, errors = ask("impute", "train", tmp_path / "plant", "--out", tmp_path / "run", *SET)
    assert (code, errors) == (0, "")
    assert "training on the whole table" in shown
    assert not (tmp_path / "run/split.parquet").exists()
    code, shown, errors = ask("evaluate", tmp_path / "run", tmp_path / "plant", "--hide-blocks", 24)
    assert (code, errors) == (0, "")
    assert "note: the model was trained on this table" in shown
    assert ask("impute", "apply", tmp_path / "run", tmp_path / "plant", "--out", tmp_path / "filled")[0] == 0


def test_a_filled_table_has_its_own_readings_and_the_filled_ones_marked(
    ask: Ask, data: Path, imputer: Path, tmp_path: Path
) -> None:
    code, shown, errors = ask(
        "impute", "apply", imputer, data, "--out", tmp_path / "filled", "--readings", tmp_path / "filled.parquet"
    )
    assert (code, errors) == (0, "")
    table, filled = EventTable.read(data), EventTable.read(tmp_path / "filled")
    assert filled.filled is not None
    assert filled.measured().fingerprint == table.fingerprint
    readings = pl.read_parquet(tmp_path / "filled.parquet")
    assert f"wrote {len(readings):,} filled readings" in shown
    assert len(readings) == filled.filled.sum() > 0
    assert_close(readings["value"], load(imputer).fill_readings(table).value)
    assert readings.select((pl.col("low") <= pl.col("value")) & (pl.col("value") <= pl.col("high")))["low"].all()


def test_queries_come_from_a_grid_or_a_file(ask: Ask, data: Path, imputer: Path, tmp_path: Path) -> None:
    code, _, errors = ask(
        "impute", "apply", imputer, data, "--every", 6, "--readings", tmp_path / "grid.csv", "--part", "test"
    )
    assert (code, errors) == (0, "")
    on_grid = pl.read_csv(tmp_path / "grid.csv")
    assert on_grid["sample"].n_unique() == 2
    assert on_grid["time"].unique().to_list() == [6.0, 12.0, 18.0]  # whole steps, not from the first reading
    assert len(on_grid) == 2 * 3 * 3  # samples, times, sensors
    on_grid.select("sample", "time", "sensor").write_csv(tmp_path / "queries.csv")
    out = tmp_path / "same.csv"
    words = ("--queries", tmp_path / "queries.csv", "--readings", out, "--coverage", 0.5)
    assert ask("impute", "apply", imputer, data, *words)[0] == 0
    narrow = pl.read_csv(out)
    assert narrow["value"].equals(on_grid["value"])
    assert (narrow["high"] - narrow["low"]).mean() < (on_grid["high"] - on_grid["low"]).mean()


@pytest.mark.slow
def test_intervals_can_be_calibrated_on_the_table_that_is_filled(
    ask: Ask, data: Path, imputer: Path, tmp_path: Path
) -> None:
    for name, words in (("as_trained", ()), ("own", ("--calibrate",))):
        out = tmp_path / f"{name}.csv"
        assert ask("impute", "apply", imputer, data, "--every", 6, "--readings", out, *words)[0] == 0
    as_trained, own = (pl.read_csv(tmp_path / f"{name}.csv") for name in ("as_trained", "own"))
    assert own["value"].equals(as_trained["value"])
    assert not own["low"].equals(as_trained["low"])
    assert not own["high"].equals(as_trained["high"])


@pytest.mark.slow
def test_a_table_of_dates_is_asked_and_answered_in_dates(ask: Ask, data: Path, imputer: Path, tmp_path: Path) -> None:
    table = EventTable.read(data)
    start = pl.datetime_range(pl.datetime(2024, 3, 1), pl.datetime(2024, 3, 1), eager=True)[0]
    dated = replace(table, samples=table.samples.with_columns(time_zero=pl.lit(start)))
    dated.write(tmp_path / "dated")
    words = ("--every", 6, "--part", "test", "--readings")
    assert ask("impute", "apply", imputer, tmp_path / "dated", *words, tmp_path / "dates.csv")[0] == 0
    assert ask("impute", "apply", imputer, data, *words, tmp_path / "numbers.csv")[0] == 0
    dates, numbers = (pl.read_csv(tmp_path / f"{name}.csv", try_parse_dates=True) for name in ("dates", "numbers"))
    hours = (dates["time"] - start).dt.total_microseconds() / 3.6e9
    assert np.abs(hours.to_numpy() - numbers["time"].to_numpy()).max() < 1e-9
    assert dates["value"].equals(numbers["value"])
    dates.select("sample", "time", "sensor").write_csv(tmp_path / "asked.csv")
    asked = ("--queries", tmp_path / "asked.csv", "--part", "test", "--readings", tmp_path / "again.csv")
    assert ask("impute", "apply", imputer, tmp_path / "dated", *asked)[0] == 0
    assert (
        pl.read_csv(tmp_path / "again.csv", try_parse_dates=True)
        .drop("value", "low", "high")
        .equals(dates.select("sample", "time", "sensor"))
    )


def test_forecasts_run_from_the_cutoff_to_the_horizon(ask: Ask, data: Path, forecaster: Path, tmp_path: Path) -> None:
    table = EventTable.read(data)
    for name, words, cutoff in (
        ("last.csv", (), spans(table)[1]),
        ("fixed.csv", ("--cutoff", 12), np.full(20, 12.0)),
        ("column.csv", ("--cutoff", "admitted"), table.samples["admitted"].to_numpy()),
    ):
        code, shown, errors = ask("forecast", "apply", forecaster, data, "--every", 2, "--out", tmp_path / name, *words)
        assert (code, errors) == (0, "")
        assert "wrote 180 forecasts" in shown  # 20 samples, 3 times, 3 sensors
        times = pl.read_csv(tmp_path / name).group_by("sample", maintain_order=True).agg(pl.col("time").unique().sort())
        assert_close(np.stack(times["time"].to_list()) - cutoff[:, None], np.tile([2.0, 4.0, 6.0], (20, 1)))


def test_a_forecast_does_not_depend_on_what_follows_the_cutoff(
    ask: Ask, data: Path, forecaster: Path, tmp_path: Path
) -> None:
    table = EventTable.read(data)
    replace(table, value=np.where(table.time > 12, 1e6, table.value)).write(tmp_path / "other")
    for name, folder in (("a.csv", data), ("b.csv", tmp_path / "other")):
        words = ("--cutoff", 12, "--every", 3, "--out", tmp_path / name)
        assert ask("forecast", "apply", forecaster, folder, *words)[0] == 0
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_an_imputer_is_evaluated_on_what_is_hidden_beside_simple_baselines(
    ask: Ask, data: Path, imputer: Path, tmp_path: Path
) -> None:
    hide = ("--hide-readings", 0.2, "--hide-blocks", 6, "--hide-sensors", 0.5, "--seed", 4)
    code, shown, errors = ask("evaluate", imputer, data, *hide, "--out", tmp_path / "m.json")
    assert (code, errors) == (0, "")
    assert "leaving out 18 samples that the run was trained or validated on" in shown
    results = json.loads((tmp_path / "m.json").read_text())["results"]
    assert [row["model"] for row in results] == ["raindrop", "linear", "last", "mean"] * 3
    split = pl.read_parquet(imputer / "split.parquet")
    test = EventTable.read(data)[split.filter(pl.col("part") == "test")["sample"].to_list()]
    expected = [
        ("20% of all readings", hold_out_readings(test, 0.2, seed=4)),
        ("blocks of 6 hours", hold_out_blocks(test, 6.0, seed=4)),
        ("50% of the sensors", hold_out_sensors(test, 0.5, seed=4)),
    ]
    for row, (title, (visible, truth)) in zip(results[::4], expected, strict=True):
        assert (row["hidden"], row["readings"]) == (title, len(truth))
        assert f"{title} ({len(truth)})" in shown
        metrics = load(imputer).evaluate(visible, truth)
        assert {name: row[name] for name in metrics} == pytest.approx(metrics, rel=1e-6)
        assert f"{row['mae']:.4g}" in shown
        assert f"{row['coverage_80']:.1%}" in shown


def test_a_forecaster_is_evaluated_up_to_each_horizon(ask: Ask, data: Path, forecaster: Path, tmp_path: Path) -> None:
    code, _, errors = ask("evaluate", forecaster, data, "--horizons", 3, 6, "--out", tmp_path / "m.json")
    assert (code, errors) == (0, "")
    results = json.loads((tmp_path / "m.json").read_text())["results"]
    assert [row["model"] for row in results] == ["raindrop", "last", "mean"] * 2
    split = pl.read_parquet(forecaster / "split.parquet")
    test = EventTable.read(data)[split.filter(pl.col("part") == "test")["sample"].to_list()]
    for row, horizon in zip(results[::3], (3.0, 6.0), strict=True):
        visible, truth = hold_out_future(test, spans(test)[1] - 6, horizon)
        assert (row["hidden"], row["readings"]) == (f"up to {horizon:g} hours ahead", len(truth))
        assert row["mae"] == pytest.approx(load(forecaster).evaluate(visible, truth)["mae"], rel=1e-6)
    code, _, errors = ask("evaluate", forecaster, data, "--cutoff", "admitted", "--out", tmp_path / "column.json")
    assert (code, errors) == (0, "")
    column = json.loads((tmp_path / "column.json").read_text())["results"]
    assert column[0]["mae"] == pytest.approx(results[3]["mae"], rel=1e-6)  # the column has the same cutoffs


def test_samples_that_start_after_the_cutoff_are_left_out(ask: Ask, data: Path, forecaster: Path) -> None:
    starts = np.sort(spans(EventTable.read(data))[0])
    code, shown, _ = ask("evaluate", forecaster, data, "--part", "all", "--cutoff", float(starts[5]))
    assert code == 0
    assert "leaving out 14 samples without a reading up to the cutoff" in shown


@pytest.mark.slow
def test_sensors_that_training_never_read_are_an_error_or_ignored(
    ask: Ask, data: Path, imputer: Path, tmp_path: Path
) -> None:
    table = EventTable.read(data)
    replace(table, sensors=("u0", "u1", "new")).write(tmp_path / "data")
    code, _, errors = ask("evaluate", imputer, tmp_path / "data")
    assert code == 1
    assert "1 sensor was not read in training (first: 'new'" in errors
    words = ("--unknown-sensors", "ignore")
    assert ask("evaluate", imputer, tmp_path / "data", *words)[0] == 0
    readings = tmp_path / "r.csv"
    assert ask("impute", "apply", imputer, tmp_path / "data", "--every", 6, "--readings", readings, *words)[0] == 0
    assert set(pl.read_csv(readings)["sensor"]) == {"u0", "u1", "u2"}  # u2 was never read in these samples
    code, _, errors = ask("impute", "apply", imputer, tmp_path / "data", "--out", tmp_path / "filled", *words)
    assert (code, errors) == (0, "")
    events = EventTable.read(tmp_path / "filled").events()
    assert set(events.filter("filled")["sensor"]) == {"u0", "u1", "u2"}
    assert events.filter(~pl.col("filled"))["sensor"].n_unique() == 3  # "new" keeps its readings


def test_the_next_command_has_the_options_that_the_table_needs(ask: Ask, data: Path, tmp_path: Path) -> None:
    events = EventTable.read(data).events().rename({"time": "taken at", "sensor": "u", "value": "x"})
    events.write_csv(tmp_path / "my events.csv")
    columns = ("--time", "taken at", "--sensor", "u", "--value", "x")
    for words in (("impute", "train"), ("forecast", "train", "--horizon", 6)):
        run = tmp_path / f"{words[0]} run"
        code, shown, errors = ask(*words, tmp_path / "my events.csv", "--out", run, "--model", "mean", *columns)
        assert (code, errors) == (0, "")
        (line,) = [line for line in shown.splitlines() if line.startswith("next: raindrop evaluate")]
        assert line.endswith("my events.csv' --time 'taken at' --sensor u --value x")
        code, _, errors = ask(*shlex.split(line)[2:])
        assert (code, errors) == (0, "")


def test_an_imputer_of_readings_up_to_a_cutoff_is_evaluated_on_those(ask: Ask, data: Path, tmp_path: Path) -> None:
    words = ("--out", tmp_path / "run", "--model", "mean", "--cutoff", "admitted")
    code, shown, errors = ask("impute", "train", data, *words)
    assert (code, errors) == (0, "")
    assert f"next: raindrop evaluate {tmp_path / 'run'} {data} --cutoff admitted" in shown
    for name, more in (("early", ("--cutoff", "admitted")), ("all", ())):
        out = tmp_path / f"{name}.json"
        code, _, errors = ask("evaluate", tmp_path / "run", data, "--part", "all", "--out", out, *more)
        assert (code, errors) == (0, "")
    early, complete = (json.loads((tmp_path / f"{name}.json").read_text())["results"] for name in ("early", "all"))
    assert early[0]["readings"] < complete[0]["readings"]


@pytest.mark.parametrize("names", [("stay", "at", "what"), ("sample", "time", "sensor")])
def test_a_file_of_queries_may_have_the_columns_of_the_table(
    names: tuple[str, str, str], ask: Ask, data: Path, imputer: Path, tmp_path: Path
) -> None:
    own = {"sample": "stay", "time": "at", "sensor": "what"}
    EventTable.read(data).events().rename(own).with_columns(stay="00" + pl.col("stay").str.slice(1)).write_csv(
        tmp_path / "events.csv"
    )
    pl.DataFrame([("0003", 5.0, "u0")], schema=list(names), orient="row").write_csv(tmp_path / "q.csv")
    columns = [word for role, name in own.items() for word in (f"--{role}", name)]
    words = ("--queries", tmp_path / "q.csv", "--readings", tmp_path / "r.csv", *columns)
    code, _, errors = ask("impute", "apply", imputer, tmp_path / "events.csv", *words)
    assert (code, errors) == (0, "")
    assert pl.read_csv(tmp_path / "r.csv").select("time", "sensor").rows() == [(5.0, "u0")]


def test_readings_every_hour_of_dates_and_one_sentence_for_numbers(
    ask: Ask, data: Path, imputer: Path, tmp_path: Path
) -> None:
    table = EventTable.read(data)
    start = pl.datetime_range(pl.datetime(2024, 3, 1, 7, 25), pl.datetime(2024, 3, 1, 7, 25), eager=True)[0]
    replace(table, samples=table.samples.with_columns(time_zero=pl.lit(start))).write(tmp_path / "dated")
    words = ("--every", "6h", "--readings", tmp_path / "r.csv")
    assert ask("impute", "apply", imputer, tmp_path / "dated", *words)[0] == 0
    times = pl.read_csv(tmp_path / "r.csv", try_parse_dates=True)["time"]
    assert set(times.dt.hour()) == {0, 6, 12, 18}
    assert set(times.dt.minute()) == {0}
    (tmp_path / "r.csv").unlink()
    code, _, errors = ask("impute", "apply", imputer, data, *words)
    assert code == 1
    assert "every='6h': the times of the table are numbers, not dates. Give a number of hours." in errors
    assert len(errors.splitlines()) == 1


def test_a_forecast_from_a_date(ask: Ask, data: Path, tmp_path: Path) -> None:
    table = EventTable.read(data)
    start = pl.datetime_range(pl.datetime(2024, 3, 1), pl.datetime(2024, 3, 1), eager=True)[0]
    replace(table, samples=table.samples.with_columns(time_zero=pl.lit(start))).write(tmp_path / "dated")
    cutoff = ("--cutoff", "2024-03-01 12:00")
    words = ("--out", tmp_path / "run", "--horizon", 6, "--model", "last", *cutoff)
    code, _, errors = ask("forecast", "train", tmp_path / "dated", *words)
    assert (code, errors) == (0, "")
    for name, more in (("trained.csv", ()), ("given.csv", cutoff)):
        words = ("--every", "2h", "--out", tmp_path / name, *more)
        code, _, errors = ask("forecast", "apply", tmp_path / "run", tmp_path / "dated", *words)
        assert (code, errors) == (0, "")
        times = pl.read_csv(tmp_path / name, try_parse_dates=True)["time"]
        assert times.unique().sort().dt.hour().to_list() == [14, 16, 18]
    code, _, errors = ask("evaluate", tmp_path / "run", tmp_path / "dated", *cutoff)
    assert (code, errors) == (0, "")


QUERIES = {
    "unknown sensor": ("s00,5,u9", "the sensor of 1 of 1 rows is not a sensor of the table (first: row 1, 'u9')"),
    "unknown sample": ("x,5,u0", "the sample of 1 of 1 rows is not in the table (first: row 1, 'x')"),
    "before the table": ("s00,-5,u0", "lie before the first reading of their sample"),
    "after the table": ("s00,50,u0", "ask a Forecaster for what comes after"),
    "twice": ("s00,5,u0\ns00,5,u0", "1 of 2 rows repeat another one (first: row 2"),
    "none": ("", "There are no queries."),
    "not a time": ("s00,noon,u0", "'time' is of type String, not a number"),
    "no time": ("s00,,u0\ns00,5,u0", "1 of 2 rows have no finite time (first: row 1)"),
}


@pytest.mark.parametrize(("rows", "message"), QUERIES.values(), ids=QUERIES.keys())
def test_a_query_that_cannot_be_answered_is_one_sentence(
    rows: str, message: str, ask: Ask, data: Path, imputer: Path, tmp_path: Path
) -> None:
    (tmp_path / "q.csv").write_text(f"sample,time,sensor\n{rows}\n" if rows else "sample,time,sensor\n")
    words = ("--queries", tmp_path / "q.csv", "--readings", tmp_path / "r.csv")
    code, _, errors = ask("impute", "apply", imputer, data, *words)
    assert code == 1
    assert message in errors
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "r.csv").exists()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("s00,20,u0", "lie more than the horizon of 6 hours after the cutoff"),
        ("s00,10,u0", "lie at or before the cutoff"),
    ],
)
def test_a_forecast_outside_its_horizon_is_one_sentence(
    row: str, message: str, ask: Ask, data: Path, forecaster: Path, tmp_path: Path
) -> None:
    (tmp_path / "q.csv").write_text(f"sample,time,sensor\n{row}\n")
    words = ("--queries", tmp_path / "q.csv", "--out", tmp_path / "r.csv", "--cutoff", 12)
    code, _, errors = ask("forecast", "apply", forecaster, data, *words)
    assert code == 1
    assert message in errors
    assert len(errors.splitlines()) == 1


MISTAKES = {
    "no output": ("impute apply IMPUTER DATA", "Give --out FOLDER for the filled table, --readings FILE"),
    "coverage of nothing": ("impute apply IMPUTER DATA --out OUT --coverage 0.5", "only --readings FILE has"),
    "calibration of nothing": ("impute apply IMPUTER DATA --out OUT --calibrate", "only --readings FILE has"),
    "impossible coverage": ("impute apply IMPUTER DATA --readings OUT.csv --coverage 90", "above 0 and below 1"),
    "another kind of file": ("impute apply IMPUTER DATA --readings OUT.xlsx", "readings are written as .parquet or"),
    "output exists": ("impute apply IMPUTER DATA --out DATA", "this folder exists already"),
    "readings exist": ("impute apply IMPUTER DATA --readings DATA/samples.parquet", "this file exists already"),
    "grid and file": ("impute apply IMPUTER DATA --out OUT --every 1 --queries q.csv", "give one of them"),
    "no query file": ("impute apply IMPUTER DATA --out OUT --queries q.csv", "queries are a .parquet or .csv file"),
    "impossible grid": ("impute apply IMPUTER DATA --out OUT --every 0", "every=0.0: the time between two queries"),
    "negative grid": ("forecast apply FORECASTER DATA --out OUT.csv --every -1", "every=-1.0: the time between two"),
    "endless grid": ("impute apply IMPUTER DATA --out OUT --every 1e-9", "queries, more than 50,000,000"),
    "no forecast": ("forecast apply FORECASTER DATA --out OUT.csv", "Which readings? Give --every 1.0"),
    "unknown cutoff": ("forecast apply FORECASTER DATA --out OUT.csv --every 1 --cutoff x", "there is no column 'x'"),
    "endless cutoff": ("forecast apply FORECASTER DATA --out OUT.csv --every 1 --cutoff inf", "a finite time"),
    "no grid before horizon": ("forecast apply FORECASTER DATA --out OUT.csv --every 7", "There are no queries"),
    "no horizon": ("forecast train DATA --out OUT", "--horizon"),
    "impossible horizon": ("forecast train DATA --out OUT --horizon 0", "the horizon must be a positive number"),
    "unknown model": ("impute train DATA --out OUT --model linaer", "Unknown model 'linaer': did you mean 'linear'?"),
    "model of samples": ("impute train DATA --out OUT --model grudd", "Unknown model 'grudd'"),
    "unknown setting": ("impute train DATA --out OUT --set model.head=2", "did you mean 'model.heads'?"),
    "unknown split": ("impute train DATA --out OUT --split rndom", "--split is"),
    "output below a file": ("impute train DATA --out DATA/table.json/run", "the folder cannot be created"),
    "predict an imputer": ("predict IMPUTER DATA --out OUT.csv", "fill gaps with 'raindrop impute apply"),
    "predict a forecaster": ("predict FORECASTER DATA --out OUT.csv", "apply it with 'raindrop forecast apply"),
    "explain an imputer": ("explain IMPUTER DATA --out OUT.html", "an imputer; write its report with 'raindrop report"),
    "explain a forecaster": ("explain FORECASTER DATA --out OUT.html", "a forecaster; write its report with"),
    "report as another file": ("report IMPUTER DATA --out OUT.pdf", "its name must end in .html"),
    "report without cases": ("report IMPUTER DATA --out OUT.html --cases 0", "cases=0: a report shows at least one"),
    "forecast by an imputer": ("forecast apply IMPUTER DATA --every 1 --out OUT.csv", "the run holds an imputer"),
    "impute by a forecaster": ("impute apply FORECASTER DATA --out OUT", "the run holds a forecaster"),
    "horizons of an imputer": ("evaluate IMPUTER DATA --horizons 3", "--horizons has no effect with an imputer"),
    "label of an imputer": ("evaluate IMPUTER DATA --label x", "--label has no effect with an imputer"),
    "blocks of a forecaster": ("evaluate FORECASTER DATA --hide-blocks 3", "no effect with a forecaster"),
    "sensors of a forecaster": ("evaluate FORECASTER DATA --hide-sensors 0.5", "no effect with a forecaster"),
    "longer than the horizon": ("evaluate FORECASTER DATA --horizons 7", "at most the run's own, 6"),
    "forecast before everything": (
        "forecast apply FORECASTER DATA --out OUT.csv --every 1 --cutoff -5",
        "None of 20 samples has a reading up to the cutoff",
    ),
    "date among numbers": (
        "forecast apply FORECASTER DATA --out OUT.csv --every 1 --cutoff 2024-01-05",
        "cutoff holds date times, but the times of the table are numbers",
    ),
    "cutoff before everything": ("evaluate FORECASTER DATA --cutoff -5", "No sample has a reading up to the cutoff"),
    "cutoff after everything": ("evaluate FORECASTER DATA --cutoff 99", "None of the 120 readings would be hidden"),
    "block of no length": ("evaluate IMPUTER DATA --hide-blocks 0", "how long a block is hidden"),
    "everything hidden": ("evaluate IMPUTER DATA --hide-readings 1.0", "above 0 and below 1, not 1.0"),
    "no subcommand": ("impute DATA --out OUT", "Available commands: train, apply"),
}


NOT_UNDERSTOOD = ("--horizon", "Available commands: train, apply")  # exit code 2: the words themselves are wrong


@pytest.mark.parametrize(("words", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_message_and_leaves_nothing(
    words: str, message: str, ask: Ask, data: Path, imputer: Path, forecaster: Path, tmp_path: Path
) -> None:
    places = {"DATA": data, "IMPUTER": imputer, "FORECASTER": forecaster, "OUT": tmp_path / "out"}
    for name, place in places.items():
        words = words.replace(name, str(place))
    code, _, errors = ask(*words.split())
    assert code == (2 if message in NOT_UNDERSTOOD else 1)
    assert errors.startswith("error: ")
    assert message in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) <= 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["imputer", "forecaster"])
def test_a_report_on_the_test_samples_or_on_the_run_alone(
    kind: str, ask: Ask, data: Path, imputer: Path, forecaster: Path, tmp_path: Path
) -> None:
    run = {"imputer": imputer, "forecaster": forecaster}[kind]
    code, shown, errors = ask("report", run, data, "--out", tmp_path / "page.html", "--cases", 3)
    assert (code, errors) == (0, "")
    assert f"wrote the report to {tmp_path / 'page.html'}" in shown
    page = (tmp_path / "page.html").read_text()
    assert f"<title>{kind} on data</title>" in page
    assert "2 samples with 120 readings" in page
    code, shown, errors = ask("report", run, "--out", tmp_path / "run.html")
    assert (code, errors) == (0, "")
    assert f"raindrop report {run} DATA --out run.html" in shown
    assert 'id="cases"' not in (tmp_path / "run.html").read_text()


@pytest.mark.parametrize("command", ["impute train", "impute apply", "forecast train", "forecast apply"])
def test_every_command_has_help(command: str, ask: Ask) -> None:
    code, shown, errors = ask(*command.split(), "--help")
    assert (code, errors) == (0, "")
    assert f"Usage: raindrop {command}" in shown


def test_the_options_that_both_trainings_share_have_a_text(ask: Ask) -> None:
    for command in ("impute", "forecast"):
        shown = ask(command, "train", "--help")[1]
        text = " ".join(shown.replace("│", " ").split())
        for field in fields(Training):
            described = re.search(rf'    {field.name}: .*\n    """([^"]+?)(?:\n|""")', inspect.getsource(Training))
            assert described is not None, field.name
            assert described[1].split(",")[0][:20] in text, field.name


def test_several_processes_are_refused(ask: Ask, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    code, _, errors = ask("impute", "train", data, "--out", tmp_path / "run", *SET)
    assert code == 1
    assert "trained by one process" in errors

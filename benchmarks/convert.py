"""Raw files to a table: our converters against a plain loop with a pandas frame per file.

    python benchmarks/convert.py p12 p19 --data DIR

DIR holds p12/ and p19/ as published (default: $RAINDROP_DATA, else ../shared/data beside the repository). Both sides
read the same archives, apply the same cohort and write Parquet, each in a process of its own, one after the other.
Seconds and processor time include the imports; the latter is the fairer one on a busy machine.

Measured on two cores, from .tar.xz, a pair in one run each: P12 15.1 s against 96.7 s (6.4 times as fast), 1.1 GB; P19
on a machine busy with other work 46.5 s against 1,173.6 s (25 times), 1.3 GB. With less going on, the whole command
`raindrop convert` took 9.7 s for P12 and 16.5 s for P19.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

STATICS12 = ["RecordID", "Age", "Gender", "Height", "ICUType", "Weight"]
STATICS19 = ["Age", "Gender", "Unit1", "Unit2", "HospAdmTime", "ICULOS"]


def ours(name: str, source: Path, out: Path) -> tuple[int, int]:
    from raindrop.datasets import convert

    conversion = convert(name, source)
    conversion.write(out)
    return len(conversion.table), conversion.table.num_readings


def members(source: Path, suffix: str) -> Iterator[tuple[str, IO[bytes]]]:
    for archive in sorted(source.glob("*.tar.*")):
        with tarfile.open(archive) as tar:
            for entry in tar:
                content = tar.extractfile(entry) if entry.name.endswith(suffix) else None
                if content is not None:
                    yield Path(entry.name).stem, content


def pandas_p12(source: Path, out: Path) -> tuple[int, int]:
    import pandas as pd

    frames, about = [], []
    for record, content in members(source, ".txt"):
        frame = pd.read_csv(content)
        frame["sample"] = record
        clock = frame["Time"].str.split(":", expand=True).astype(float)
        frame["time"] = clock[0] + clock[1] / 60
        static = frame[frame["Parameter"].isin(STATICS12)]
        first = static[static["time"] == 0].drop_duplicates("Parameter").set_index("Parameter")["Value"]
        about.append(first.replace(-1, float("nan")).rename(record))
        rest = frame[~frame["Parameter"].isin(STATICS12) & frame["Parameter"].notna() & (frame["Value"] != -1)]
        frames.append(rest.drop_duplicates(["time", "Parameter"], keep="last"))
    events = pd.concat(frames)[["sample", "time", "Parameter", "Value"]]
    outcomes = pd.concat(pd.read_csv(path) for path in sorted(source.glob("Outcomes-*.txt")))
    samples = pd.DataFrame(about).merge(outcomes, on="RecordID")
    samples = samples[samples["RecordID"].astype(int).astype(str).isin(events["sample"].unique())]
    _write(events, samples, out)
    return len(samples), len(events)


def pandas_p19(source: Path, out: Path) -> tuple[int, int]:
    import pandas as pd

    frames, about = [], []
    for record, content in members(source, ".psv"):
        frame = pd.read_csv(content, sep="|")
        septic = bool(frame["SepsisLabel"].max())
        sensors = frame.columns[:34]
        observed = bool(frame[sensors].notna().any(axis=None))
        kept = frame[frame["SepsisLabel"].cumsum() == 0]
        if not 1 <= len(kept) <= 60 or not observed or frame["HospAdmTime"].isna().any():
            continue
        about.append({"sample": record, "sepsis": septic, **kept.iloc[-1][STATICS19]})
        long = kept.melt(id_vars=["ICULOS"], value_vars=list(sensors)).dropna()
        long["sample"] = record
        frames.append(long)
    events, samples = pd.concat(frames), pd.DataFrame(about)
    _write(events, samples, out)
    return len(samples), len(events)


def _write(events: Any, samples: Any, out: Path) -> None:
    out.mkdir()
    events.to_parquet(out / "events.parquet")
    samples.to_parquet(out / "samples.parquet")


PLAIN: dict[str, Callable[[Path, Path], tuple[int, int]]] = {"p12": pandas_p12, "p19": pandas_p19}


def one(name: str, side: str, source: Path) -> None:
    """Run one side and print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        convert = PLAIN[name] if side == "pandas" else lambda a, b: ours(name, a, b)
        samples, readings = convert(source, Path(folder) / "out")
        seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    took = {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "peak_mb": used.ru_maxrss / 1024}
    print(json.dumps({**took, "samples": samples, "readings": readings}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("RAINDROP_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("names", nargs="*", default=["p12", "p19"], metavar="p12|p19")
    parser.add_argument("--data", type=Path, default=Path(default))
    parser.add_argument("--side", choices=["ours", "pandas"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        one(asked.names[0], asked.side, asked.data / asked.names[0])
        return
    print(f"{'data':<5} {'side':<7} {'seconds':>8} {'cpu s':>7} {'peak MB':>8} {'samples':>8} {'readings':>11}")
    for name in asked.names:
        took = {}
        for side in ("ours", "pandas"):
            command = [sys.executable, __file__, name, "--data", str(asked.data), "--side", side]
            took[side] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            found = took[side]
            print(
                f"{name:<5} {side:<7} {found['seconds']:>8.1f} {found['cpu']:>7.1f} {found['peak_mb']:>8.0f} "
                f"{found['samples']:>8,} {found['readings']:>11,}",
                flush=True,
            )
        wall, cpu = (took["pandas"][clock] / took["ours"][clock] for clock in ("seconds", "cpu"))
        print(f"{name:<5} ours is {wall:.1f} times as fast, {cpu:.1f} times in processor time")


if __name__ == "__main__":
    main()

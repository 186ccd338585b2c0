"""Results tables: a TOML file declares one, jobs fill it, a store keeps their metrics, and it is rendered as text.

Read in this order: spec, parsing, data, jobs, workers and store, text_store, comparison and aggregate, render,
ranks, figures and pages.
To add a table, write only a file in tables/; docs/reproducing.md describes the schema.
"""

from raindrop.benchmark.aggregate import Summary, summarise_jobs
from raindrop.benchmark.jobs import Job, plan_jobs
from raindrop.benchmark.parsing import read_experiments
from raindrop.benchmark.render import write_tables
from raindrop.benchmark.spec import Experiment
from raindrop.benchmark.store import Store
from raindrop.benchmark.workers import work

__all__ = [
    "Experiment",
    "Job",
    "Store",
    "Summary",
    "plan_jobs",
    "read_experiments",
    "summarise_jobs",
    "work",
    "write_tables",
]

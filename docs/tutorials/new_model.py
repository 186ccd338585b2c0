# %% [markdown]
# # A model of your own: two files
#
# You have an idea for a model. One file holds the model, another says what to compare it with and on what. Splits,
# scaling, training loop, metrics, hidden sensors and the table come with the library, and are the same for every
# model in it.
#
# ## The first file: the model
#
# A model is a frozen config, an `nn.Module` whose `forward` turns a `Batch` into an `Output`, and an `Entry` that
# names both. A batch is flat: `value`, `sensor` and `sample` of each reading, without padding. `batch.senders` groups
# the readings of each sensor in each sample; `batch.grid()` is the dense view for models that need one.
#
# Our idea: the mean of each sensor, the mean of its squares, and whether it was read at all, through a small network.

# %%
from pathlib import Path

MODEL = '''
from dataclasses import dataclass

import torch
from torch import nn

from raindrop.models import DataSpec, Entry, Model, Output


@dataclass(frozen=True, kw_only=True)
class MomentsConfig:
    hidden: int = 32
    """Neurons of the hidden layer."""


class Moments(Model):
    """Mean and mean square of each sensor, and whether it was read, through a small network."""

    def __init__(self, config: MomentsConfig, spec: DataSpec):
        super().__init__(config, spec)
        self.body = nn.Sequential(nn.Linear(3 * spec.num_sensors + spec.static_width, config.hidden), nn.ReLU())
        self.head = nn.Linear(config.hidden, spec.num_outputs)

    def forward(self, batch):
        count = batch.senders.sum(torch.ones_like(batch.value))                       # (b sensor,)
        mean = batch.senders.sum(batch.value) / count.clamp_min(1)
        square = batch.senders.sum(batch.value.square()) / count.clamp_min(1)
        read = (count > 0).to(mean.dtype)
        features = torch.stack([mean, square, read], 1).view(batch.num_samples, -1)   # (b, 3 sensor)
        z = self.body(torch.cat([features, batch.statics], 1))
        return Output(scores=self.head(z), embedding=z, penalty=z.new_zeros(()))


ENTRY = Entry(Moments, MomentsConfig, {"tuned": {"train": {"epochs": 30, "learning_rate": 0.01, "drop_sensors": 0.5}}})
'''
Path("my_model.py").write_text(MODEL.lstrip()) and None

# %% [markdown]
# ## The second file: the table of results
#
# Data, splits, what to hide, and the rows. `[plugins]` gives the model its name.

# %%
TABLE = """
title = "My model on the ward"
metrics = ["auroc", "auprc"]

[plugins]
moments = "my_model:ENTRY"

[data]
folder = "ward"
label = "outcome"
positive = "worse"

[[splits]]
random = true
numbers = [1, 2, 3]

[settings]
random = [0.3, 0.6]

[[rows]]
name = "Moments"
model = "moments"

[[rows]]
name = "Trees"
model = "trees"
preset = "paper"
"""
Path("mine.toml").write_text(TABLE.lstrip()) and None

# %% [markdown]
# ## Run
#
# On the command line this is `raindrop benchmark mine.toml --data data --out results --pictures`, which can be
# stopped, resumed, and shared by several processes. In Python it takes a few lines. Finished jobs are kept in the
# store and not run again.

# %%
from raindrop.benchmark import Store, plan_jobs, read_experiments, summarise_jobs, work, write_tables
from raindrop.datasets.scenes import ward

ward(400, seed=1).write("data/ward")
(experiment,) = read_experiments(["mine.toml"])
jobs, data = plan_jobs(experiment, Path("data"), experiment.rows, ())
store = Store(Path("results"))
work(jobs, store)
summary = summarise_jobs(experiment, data, jobs, store)
[path.name for path in write_tables(summary, Path("results"))]

# %% [markdown]
# Mean and standard deviation over splits, in percent:

# %%
summary.results.select("setting", "row", "metric", "mean", "sd", "splits")

# %% [markdown]
# ## The picture
#
# Both models as more sensors are hidden in the test samples:

# %%
from raindrop.benchmark.figures import curves

curves(summary)

# %% [markdown]
# Next: the model is a name like any other now (`rd.Classifier("moments")`), for every task.
# [Contributing](../CONTRIBUTING.md) says how to add it to the library, where the tests of every model try it: other
# samples in the batch must not matter, every parameter must learn, one batch must be overfitted.
# [Reproducing](../reproducing.md) has all keys of the TOML file.

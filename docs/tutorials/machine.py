# %% [markdown]
# # A machine: fill what the sensors missed
#
# Eight sensors on one machine, each with a clock of its own, some out for hours. What would they have read? No
# labels, no common time axis: we learn from shifts, hide what we know, and see whether the bands hold.

# %%
import raindrop as rd
from raindrop.datasets.scenes import machine

table = machine(36, num_sensors=8, seed=0)
table

# %% [markdown]
# ## Learn
#
# Twelve shifts are kept to judge on. While it learns, the imputer hides readings, blocks and whole sensors from
# itself and predicts them. A few epochs are enough here; leave out `config` for your own data.

# %%
train, test = table.split((0.67, 0.33), seed=0)
imputer = rd.Imputer(config={"train.epochs": 25}, seed=0).fit(train)

# %% [markdown]
# ## Judge on what we know
#
# Blocks of an hour are hidden in the test shifts. The mean absolute error is in standard deviations of each sensor,
# beside the line between the readings on both sides of a gap, and coverage is the share of true values inside the 90
# % band.

# %%
import numpy as np
import polars as pl
from raindrop.table.hide import hold_out_blocks

partial, hidden = hold_out_blocks(test, 1.0, share=0.15, seed=1)
hidden = hidden.filter(pl.col("time").is_between(0.5, 7.5))  # an imputer fills in between, not before or after
line = rd.Imputer("linear").fit(train)
scale = dict(zip(table.sensors, [np.std(table.value[table.sensor == at]) for at in range(len(table.sensors))]))
rows = []
for name, model in {"Raindrop": imputer, "linear interpolation": line}.items():
    answers = model.readings_at(partial, hidden, coverage=0.9)
    truth = hidden["value"].to_numpy()
    error = np.abs(answers.value - truth) / [scale[sensor] for sensor in hidden["sensor"]]
    inside = (answers.low <= truth) & (truth <= answers.high)
    rows.append({"model": name, "MAE": error.mean(), "within 90 % band": inside.mean()})
pl.DataFrame(rows)

# %% [markdown]
# ## Fill
#
# `fill` gives the table back with its gaps filled, and marks what it added. Real readings are never changed.

# %%
filled = imputer.fill(test)
f"{test.num_readings:,} readings, {filled.filled.sum():,} filled in"

# %% [markdown]
# Any sensor at any time, with a band:

# %%
imputer.readings_at(test, rd.grid(test[:1], every=2.0, sensors=["power 1", "flow 1"]))

# %% [markdown]
# ## The picture
#
# One shift: readings in blue, filled values in orange with their 90 % band, the hidden truth as crosses. At the
# right, which sensors informed the longest gap.

# %%
from raindrop.report import plots

worst = hidden.group_by("sample").len().sort("len")["sample"].to_list()[-1]
plots.filled(imputer, partial, worst, truth=hidden, max_sensors=3)

# %% [markdown]
# Next: [gaps and forecasts](../imputation.md) has long series, forecasts and the command line; `raindrop report RUN
# DATA` makes a page with the gaps of every sensor.

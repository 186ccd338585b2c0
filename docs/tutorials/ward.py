# %% [markdown]
# # A ward: will this stay get worse?
#
# Two sites send readings of their patients: vital signs every few hours, laboratory values now and then, each at its
# own time. We learn from the site *north* who gets worse. The site *south* has no laboratory. What is the model worth
# there?
#
# The data are synthetic. An unobserved severity moves all sensors and determines the outcome.

# %%
import raindrop as rd
from raindrop.datasets.scenes import ward

table = ward(900, seed=0)
table

# %% [markdown]
# ## Look first
#
# `overview` is what `raindrop inspect` prints: how often each sensor is read, how the classes are balanced, and how
# well missingness alone predicts the outcome. Here that should be near 0.5: who is measured more often is not who
# gets worse.

# %%
from raindrop.table.overview import overview

look = overview(table)
look

# %% [markdown]
# ## Learn at one site
#
# A table is indexable by sample, like an array. We keep south apart, and split north into stays to learn from, to
# choose the epoch on, and to judge on.

# %%
site = table.samples["site"].to_numpy()
north, south = table[site == "north"], table[site == "south"]
train, val, test = north.split((0.45, 0.15, 0.4), seed=0)
len(train), len(val), len(test), len(south)

# %% [markdown]
# Trees on summaries of each sensor are the bar. Raindrop's preset `tuned` leaves out whole sensors at random while it
# trains. Twenty epochs keep this page quick; leave out `config` for your own data.

# %%
trees = rd.Classifier("trees", positive="worse", seed=0).fit(train, validation=val)
settings = {"train.epochs": 20, "train.soft_targets": 0.0}
net = rd.Classifier(positive="worse", seed=0, config=settings).fit(train, validation=val)

# %% [markdown]
# ## Judge at both
#
# AUROC of `worse`. The stays of south were measured without laboratory, so both models lose; the question is how
# much.

# %%
import polars as pl

pl.DataFrame(
    [
        {"model": name, "north": model.evaluate(test)["auroc"], "south": model.evaluate(south)["auroc"]}
        for name, model in {"trees": trees, "Raindrop": net}.items()
    ]
)

# %% [markdown]
# ## Which sensors does it need?
#
# `importances` takes each sensor away and measures how much worse the metric gets, with an interval over samples.
# Sensors that share what they know hide each other's worth.

# %%
net.importances(test)

# %% [markdown]
# ## One stay
#
# Why this probability? Each row is what one sensor's readings did to the log odds of `worse`.

# %%
from raindrop.explain import sensor_contributions

sensor_contributions(net, test[:1])

# %% [markdown]
# ## The picture
#
# The same question for any site to come: hide a random share of the sensors in every stay, and look how the score
# falls. Bands are 95 % bootstrap intervals over stays.

# %%
from raindrop.report import plots

plots.robustness({"Raindrop": net, "Trees": trees}, test, shares=(0.0, 0.2, 0.4, 0.6))

# %% [markdown]
# Next: `raindrop explain` writes all of this as one page ([the report](../report.md)); a threshold for a stated
# sensitivity is one argument ([tasks](../tasks.md)); sets of classes with a coverage are another
# ([uncertainty](../uncertainty.md)).

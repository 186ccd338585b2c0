# %% [markdown]
# # A city's stations: who informs whom
#
# Ten stations measure the air, about once an hour, each at its own minute, for weeks. Some are silent for a day. One
# long series, no labels. We ask two questions: which station says something about which, and what did the silent ones
# miss?
#
# In these synthetic data, the wind carries a field of pollution from west to east at three kilometres per hour.

# %%
import raindrop as rd
from raindrop.datasets.scenes import stations

table = stations(30, num_stations=10, seed=0)
table

# %% [markdown]
# Positions come with the table. No model sees them; they are for maps and for us to check.

# %%
table.sensor_columns

# %% [markdown]
# ## The graph, from readings alone
#
# `sensor_graph` asks of each pair: does the past of one station help to predict the next reading of the other, beyond
# its own past and that of all others? An edge has a lag, the share of the error it removes, an interval, and a
# q-value that accounts for the number of pairs tried.

# %%
graph = rd.sensor_graph(table, name="who informs whom")
graph.edge_evidence().head(8)

# %% [markdown]
# With wind from the west, true edges point east. How many of those found do?

# %%
x = dict(zip(table.sensors, table.sensor_columns["x"]))
lagged = graph.edge_evidence().filter(kind="lagged")
east = sum(x[sender] < x[receiver] for sender, receiver in lagged.select("sender", "receiver").iter_rows())
f"{east} of {len(lagged)} lagged edges point east"

# %% [markdown]
# ## Fill the silent days
#
# The same series, with more blocks of twelve hours hidden, so that there is a truth to compare with.

# %%
import polars as pl
from raindrop.table.hide import hold_out_blocks

partial, hidden = hold_out_blocks(table, 12.0, share=0.08, seed=0)
hidden = hidden.filter(pl.col("time").is_between(partial.time.min(), partial.time.max()))  # between other readings
imputer = rd.Imputer(config={"train.epochs": 20}, seed=0).fit(partial)
line = rd.Imputer("linear").fit(partial)
{
    name: f"MAE {abs(model.readings_at(partial, hidden).value - hidden['value'].to_numpy()).mean():.2f}"
    for name, model in {"Raindrop": imputer, "linear interpolation": line}.items()
}

# %% [markdown]
# ## The picture
#
# The map: an arrow is an edge with evidence, as wide as the share of what others explain of its receiver.

# %%
from raindrop.report import plots

plots.graph(graph, positions=table.sensor_columns, title="Edges with q below 0.05; the wind blows from west to east")

# %% [markdown]
# Next: [graphs](../graphs.md) says which graph answers which question and what is no evidence; `raindrop graph DATA
# --out GRAPH` writes the same as a page with the evidence on hover.

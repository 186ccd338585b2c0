"""What each model and preset is, and when to use it: `raindrop models`, `raindrop settings` and docs/models.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """A model in two lines."""

    summary: str
    """What it does."""
    when: str
    """When to use it."""


_COMPARE = "to compare with published results"

MODEL_DESCRIPTIONS: dict[str, Description] = {
    "raindrop": Description(
        "messages between sensors along a graph that is learned for each sample, and attention over time",
        "the default; sensors that are missing or fail; where the sensor graph is of interest",
    ),
    "transformer": Description(
        "a transformer encoder over the timestamps of a sample", "a strong network without a graph"
    ),
    "trans_mean": Description("the transformer, with missing values replaced by the sensor's mean", _COMPARE),
    "grud": Description("a recurrent network whose memory decays between readings", _COMPARE),
    "mtand": Description("attention from reference times to the readings around them", _COMPARE),
    "trees": Description(
        "gradient boosting on summaries of each sensor",
        "a first answer within a minute; small tables; the baseline that a network must beat",
    ),
    "blend": Description(
        "raindrop and four sets of trees, mixed on validation samples by how many sensors are missing",
        "where accuracy matters more than training time; it trains all of them",
    ),
    "seft": Description("a set function: attention over all readings of a sample, in no order", _COMPARE),
    "ipnet": Description("interpolation to reference times, then a recurrent network", _COMPARE),
    "dgm2": Description("a recurrent network over latent clusters that a sample moves between", _COMPARE),
    "mtgnn": Description("graph and temporal convolutions, with one graph for all samples", _COMPARE),
    "odernn": Description("a recurrent network whose state follows a differential equation between readings", _COMPARE),
    "evonet": Description("a recurrent network over a graph of states and the transitions between them", _COMPARE),
}
"""The models of classes, labels and quantities."""

QUERY_MODEL_DESCRIPTIONS: dict[str, Description] = {
    "raindrop": Description("messages between sensors at the asked time, and quantiles", "the default"),
    "grud": Description("a recurrent network whose memory decays, forwards and backwards in time", _COMPARE),
    "mtand": Description("attention from the asked time to the readings around it", _COMPARE),
    "ipnet": Description("interpolation within and across sensors", _COMPARE),
    "brits": Description("a recurrent network in both directions that also looks at the other sensors", _COMPARE),
    "grin": Description("a recurrent network in both directions with messages along a graph", _COMPARE),
    "mean": Description("the sensor's mean", "the lowest bar"),
    "last": Description("the sensor's latest reading", "the bar for forecasts and slowly changing sensors"),
    "linear": Description("linear interpolation between the readings around a gap", "the bar for short gaps"),
    "nearest": Description(
        "the mean of the most correlated sensors read at about this time", "the bar for similar sensors"
    ),
    "trees": Description(
        "gradient boosting on the readings around the asked time", "a baseline that learns, without a network"
    ),
}
"""The models that fill gaps and forecast."""

PRESET_DESCRIPTIONS: dict[str, str] = {
    "tuned": "to predict well; chosen on validation samples of public data",
    "paper": "to compare with published results; the settings of the publication, as far as it states them",
    "graph": "to look at the sensor graph; its messages learn to predict readings, accuracy comes second",
}
"""When to use which preset."""

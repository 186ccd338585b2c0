"""The settings of Raindrop. Every default is the paper's.

`RaindropConfig` has what the paper's text names; details, extensions and ablations are in groups below it, such as
`graph.rank` or `ablation.messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from raindrop.models.layers import Activation
from raindrop.ranges import Layers, Length, OptionalSize, Positive, Range, Ranged, Share, Size, Weight


@dataclass(frozen=True, kw_only=True)
class TimeConfig(Ranged):
    """Details of the time encoding."""

    base: Positive = 10000.0
    """Base of the wavelengths."""
    scale: Positive = 1.0
    """Times are divided by this before they are encoded; 1 keeps the table's unit."""


@dataclass(frozen=True, kw_only=True)
class GraphConfig(Ranged):
    """Details of messages and edges (Eq. 1-3)."""

    senders: Literal["observed", "embedded", "nearby"] = "observed"
    """Which sensors send at a timestamp: those with a reading ("active", Sec. 3.3); after the first layer every sensor
    with an embedding; or, not in the paper, every sensor with readings near it, weighted by their age. Nearby senders
    need layers = 1, prune = 0 and similarity = 0."""
    sides: Literal["both", "before"] = "both"
    """With nearby senders: readings on both sides of the timestamp, or before it only."""
    scales: tuple[Positive, ...] = (1.0, 4.0)
    """With nearby senders: widths of decaying averages of a sender's past readings, in its typical intervals."""
    normalise: Literal["sigmoid", "logit"] = "sigmoid"
    """What the softmax over senders is applied to: alpha of Eq. 1, or the argument of its sigmoid."""
    mixing: Literal["own", "residual"] = "own"
    """The embedding of a sensor that has a reading and receives messages: its reading alone, or both added."""
    heads: Layers = 1
    """Heads of the inter-sensor attention alpha."""
    rank: Size = 1
    """Rank of the message matrix w_u w_v^T."""
    initial_edges: tuple[tuple[str, str, float], ...] | None = None
    """Known graph as (sender, receiver, weight); only these edges exist. By default every edge exists with weight 1."""
    reconstruction: Weight = 0.0
    """Weight of an extra loss, not in the paper: predict each reading from the messages to its sensor."""
    optional: bool = False
    """Also train a network without messages, which is several times faster, and use it unless messages validate better.
    Needs validation samples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for edge in self.initial_edges or ():
            if not 0 < edge[2] <= 1:
                raise ValueError(f"initial_edges have weights above 0 and up to 1, not {edge[2]} ({edge}).")
        if self.senders == "nearby":
            self._require_defaults("heads", "normalise", "mixing")
        else:
            self._require_defaults("sides", "scales")
        if self.reconstruction and self.senders == "embedded":
            raise ValueError(
                'reconstruction needs senders = "observed"; '
                "embedded senders would carry a receiver's own reading back to it."
            )

    def _require_defaults(self, *names: str) -> None:
        changed = [name for name in names if getattr(self, name) != getattr(GraphConfig, name)]
        if changed:
            raise ValueError(f'{", ".join(changed)} has no effect with senders = "{self.senders}"; leave it out.')


@dataclass(frozen=True, kw_only=True)
class TemporalAttentionConfig(Ranged):
    """Details of the temporal attention (Eq. 4-5)."""

    heads: Layers = 1
    """Heads of the temporal attention beta."""
    s: Literal["time", "rank"] = "time"
    """The vector s of Eq. 4: a linear function of the time encoding, or one learned entry per rank of a timestamp."""
    max_rank: Length = 1000
    """Entries of s = "rank"; a longer series is an error."""
    scores: Literal["sum", "mean"] = "sum"
    """Q K^T s sums over all timestamps as written; the mean does not grow with the length of the series."""


@dataclass(frozen=True, kw_only=True)
class RaindropHeadConfig(Ranged):
    """Details of the classifier (Sec. 3.5)."""

    activation: Activation = "sigmoid"
    """Activation between the two layers."""
    dropout: Share = 0.0
    """Dropout before each layer."""
    members: OptionalSize = 0
    """Number of classifiers that share most weights and are averaged, not in the paper; 0 is the paper's single one."""


@dataclass(frozen=True, kw_only=True)
class LongSeriesConfig(Ranged):
    """Long series (end of Sec. 3.4)."""

    mode: Literal["whole", "thin", "cut"] = "whole"
    """Series longer than max_times: kept whole, evenly thinned, or cut into pieces whose embeddings are averaged."""
    max_times: Length = 1000
    """Timestamps per sample, or per piece, with mode "thin" or "cut"."""


@dataclass(frozen=True, kw_only=True)
class SlotsConfig(Ranged):
    """A vector of summaries for each sensor, beside its embedding. Not in the paper."""

    dim: OptionalSize = 0
    """Size of the vector; 0 switches slots off."""
    bins: Annotated[int, Range(1, 1024)] = 8
    """Bins of the piecewise-linear encoding of a summary."""
    dropout: Share = 0.0
    """Dropout of the encodings."""
    rank: OptionalSize = 0
    """Rank of messages between slots, from sensors with readings to all others; 0 sends none."""
    reconstruction: Weight = 0.3
    """Weight of the loss that trains these messages to predict the receiver's summaries."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank and not self.dim:
            raise ValueError("rank has no effect without slots; set dim above 0.")


@dataclass(frozen=True, kw_only=True)
class AblationConfig:
    """Parts of the model that can be switched off, as in the paper's ablation study."""

    messages: bool = True
    """False: no messages between sensors ("w/o graph")."""
    sensor_embedding: bool = True
    """False: one R for all sensors ("w/o R_u")."""
    edge_weights: bool = True
    """False: every edge has weight 1 and none is pruned ("w/o e"); with observed senders, only one layer remains."""
    receiver_vectors: bool = True
    """False: attention does not depend on the receiver ("w/o r_v")."""
    time_encoding: bool = True
    """False: no time encoding anywhere ("w/o p")."""
    inter_sensor_attention: bool = True
    """False: alpha is 1 ("w/o alpha")."""

    def __post_init__(self) -> None:
        if not (self.receiver_vectors or self.time_encoding) and self.inter_sensor_attention and self.messages:
            raise ValueError(
                "attention needs receiver_vectors or time_encoding; otherwise set inter_sensor_attention = false."
            )


@dataclass(frozen=True, kw_only=True)
class RaindropConfig(Ranged):
    """The paper's parameters, and groups of further settings."""

    observation_dim: Size = 4
    """d_h, size of an observation embedding."""
    time_dim: Size = 16
    """xi, size of the time encoding."""
    receiver_dim: Size = 16
    """d_r, size of the receiver vector r_v."""
    layers: Layers = 2
    """L, rounds of message passing; all but the last prune."""
    prune: Share = 0.5
    """K, share of all edges removed after each layer but the last."""
    temporal: Literal["attention", "mean", "lstm"] = "attention"
    """How a sensor's embeddings over time become one: Eq. 4-5, their mean, or the last state of an LSTM."""
    attention_dim: Size = 20
    """d_k of the temporal attention."""
    sensor_dim: Size = 20
    """Size of a sensor embedding, columns of W."""
    readout: Literal["concat", "mean", "squeeze"] = "concat"
    """How sensor embeddings become the sample embedding: concatenation, mean, squeeze-and-excitation."""
    sample_dim: OptionalSize = 0
    """Size of a fully-connected layer after the concatenation, which shortens the sample embedding (Appendix, sample
    embedding); 0 has none, as in the main text."""
    static_dim: Size | None = None
    """d_a, size of the projected statics; by default the number of sensors."""
    hidden: Size = 128
    """Neurons in the classifier's first layer."""
    similarity: Weight = 0.02
    """lambda, weight of L_r, which keeps the graphs of different samples similar."""
    mask_indicator: bool = False
    """Concatenate 1 to each reading (Appendix, missing pattern): gives an observation embedding a bias."""

    time: TimeConfig = TimeConfig()
    """Details of the time encoding, such as time.base."""
    graph: GraphConfig = GraphConfig()
    """Details of messages and edges, such as graph.senders."""
    temporal_attention: TemporalAttentionConfig = TemporalAttentionConfig()
    """Details of the temporal attention, such as temporal_attention.heads."""
    head: RaindropHeadConfig = RaindropHeadConfig()
    """Details of the classifier, such as head.dropout."""
    long_series: LongSeriesConfig = LongSeriesConfig()
    """What to do with long series, such as long_series.mode."""
    slots: SlotsConfig = SlotsConfig()
    """Summaries of each sensor beside its embedding, such as slots.dim."""
    ablation: AblationConfig = AblationConfig()
    """Parts that can be switched off, such as ablation.messages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.graph.initial_edges is not None and not self.ablation.edge_weights:
            raise ValueError("graph.initial_edges has no effect with ablation.edge_weights = false; drop one of them.")
        if self.sample_dim and self.readout != "concat":
            raise ValueError(f'sample_dim needs readout = "concat", not "{self.readout}"; set it to 0.')
        if self.graph.senders == "nearby":
            self._require_for_nearby_senders()
        if self.graph.reconstruction and not self.ablation.messages:
            raise ValueError("graph.reconstruction has no effect with ablation.messages = false; set it to 0.")

    def _require_for_nearby_senders(self) -> None:
        """Messages that cross time have one layer, and weights by pair of sensors that all samples share."""
        wanted = {"layers": 1, "prune": 0.0, "similarity": 0.0}
        wrong = [f"{name} = {value:g}" for name, value in wanted.items() if getattr(self, name) != value]
        parts = ("edge_weights", "receiver_vectors", "inter_sensor_attention")
        wrong += [f"ablation.{name} = true" for name in parts if not getattr(self.ablation, name)]
        if wrong:
            raise ValueError(f'graph.senders = "nearby" needs {", ".join(wrong)}.')

"""The settings of Raindrop; every default is the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from raindrop.models.layers import Activation


@dataclass(frozen=True, kw_only=True)
class RaindropConfig:
    """The paper's model; every default is the paper's."""

    observation_dim: int = 4
    """d_h, size of an observation embedding."""
    time_dim: int = 16
    """xi, size of the time encoding."""
    time_base: float = 10000.0
    """Base of the time encoding's wave lengths."""
    time_scale: float = 1.0
    """Times are divided by this before they are encoded; 1 keeps the table's unit."""
    receiver_dim: int = 16
    """d_r, size of the receiver vector r_v."""
    layers: int = 2
    """L, rounds of message passing; all but the last prune."""
    prune: float = 0.5
    """K, share of all edges removed after each layer but the last."""
    senders: Literal["observed", "embedded"] = "observed"
    """Who sends: only sensors with a reading at that time ("active", Sec. 3.3), or after the first layer every sensor
    with an embedding."""
    normalise: Literal["sigmoid", "logit"] = "sigmoid"
    """What the softmax over active senders is taken of: Eq. 1's sigmoid, or its argument."""
    mixing: Literal["own", "residual"] = "own"
    """A sensor that has a reading and receives: its own reading alone, or the message added to it."""
    heads: int = 1
    """Heads of the inter-sensor attention alpha."""
    rank: int = 1
    """Rank of the message matrix w_u w_v^T."""
    temporal: Literal["attention", "mean", "lstm"] = "attention"
    """How a sensor's embeddings become one: Eq. 4-5, their average, or an LSTM's last state."""
    attention_dim: int = 20
    """d_k of the temporal attention."""
    sensor_dim: int = 20
    """Size of a sensor embedding, columns of W."""
    time_heads: int = 1
    """Heads of the temporal attention beta."""
    s: Literal["time", "rank"] = "time"
    """The vector s of Eq. 4: a linear function of the time encoding, or one learned entry per rank of a time."""
    max_rank: int = 1000
    """Entries of s = "rank"; a longer series is an error."""
    scores: Literal["sum", "mean"] = "sum"
    """Q K^T s sums over all times as written; the mean keeps its size for series of any length."""
    readout: Literal["concat", "mean", "squeeze"] = "concat"
    """Sensor embeddings into one: concatenation, average, squeeze-and-excitation."""
    static_dim: int | None = None
    """d_a, size of the projected statics; as many as sensors where not given."""
    hidden: int = 128
    """Neurons in the classifier's first layer."""
    activation: Activation = "sigmoid"
    """Activation in the classifier."""
    dropout: float = 0.0
    """Dropout in the classifier."""
    similarity: float = 0.02
    """lambda, weight of L_r: graphs of different samples should be alike."""
    reconstruction: float = 0.0
    """Weight of a further loss, not in the paper: messages alone must tell the receiver's reading."""
    mask_indicator: bool = False
    """Concatenate 1 to each reading (Appendix, missing pattern): an observation embedding then has a bias."""
    initial_edges: tuple[tuple[str, str, float], ...] | None = None
    """Known graph as (sender, receiver, weight); other edges do not exist. Not given: all edges, weight 1."""
    long_series: Literal["whole", "thin", "cut"] = "whole"
    """Series longer than max_times: as they are, evenly thinned, or cut into pieces whose embeddings are averaged."""
    max_times: int = 1000
    """Timestamps per sample that long_series "thin" and "cut" admit."""
    slots: int = 0
    """Size of a vector of each sensor's summaries beside its embedding, not in the paper; 0 has none."""
    slot_bins: int = 8
    """Bins of the piecewise-linear code of a summary."""
    slot_dropout: float = 0.0
    """Dropout of the codes."""
    slot_rank: int = 0
    """Rank of messages between slots: what the sensors that were read tell of the others; 0 has none."""
    slot_reconstruction: float = 0.3
    """Weight of the loss by which messages between slots learn to tell the receiver's summaries."""
    members: int = 0
    """Classifiers that share most weights and are averaged, not in the paper; 0 has the paper's one."""
    messages: bool = True
    """False: sensors stay isolated ("w/o graph")."""
    sensor_embedding: bool = True
    """False: one R for all sensors ("w/o R_u")."""
    edge_weights: bool = True
    """False: every edge weighs 1 and none is pruned ("w/o e"); with observed senders one layer is then all there is."""
    receiver_vectors: bool = True
    """False: attention does not know the receiver ("w/o r_v")."""
    time_encoding: bool = True
    """False: nothing knows the time ("w/o p")."""
    inter_sensor_attention: bool = True
    """False: alpha is 1 ("w/o alpha")."""

    def __post_init__(self) -> None:
        sizes = ("observation_dim", "receiver_dim", "attention_dim", "sensor_dim", "hidden", "max_rank", "max_times")
        for name in (*sizes, "layers", "heads", "rank", "time_heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if min(self.slots, self.slot_rank, self.members) < 0 or self.slot_bins < 1 or not 0 <= self.slot_dropout < 1:
            raise ValueError(
                "slots, slot_rank and members are 0 or above, slot_bins 1 or above, slot_dropout from 0 to below 1."
            )
        if self.slot_rank and not self.slots:
            raise ValueError("slot_rank has no effect without slots; set slots above 0.")
        if not 0 <= self.prune < 1:
            raise ValueError(f"prune is a share of edges, 0 up to (not including) 1, not {self.prune}.")
        if self.initial_edges is not None:
            if not self.edge_weights:
                raise ValueError("initial_edges has no effect with edge_weights = false; give one or the other.")
            wrong = [edge for edge in self.initial_edges if not 0 < edge[2] <= 1]
            if wrong:
                raise ValueError(f"initial_edges have weights above 0 and up to 1, not {wrong[0][2]} ({wrong[0]}).")
        if self.reconstruction and (self.senders == "embedded" or not self.messages):
            raise ValueError(
                'reconstruction needs messages and senders = "observed"; '
                "embedded senders would carry the receiver's own reading back to it."
            )
        if not (self.receiver_vectors or self.time_encoding) and self.inter_sensor_attention and self.messages:
            raise ValueError(
                "attention needs receiver_vectors or time_encoding; else set inter_sensor_attention = false."
            )

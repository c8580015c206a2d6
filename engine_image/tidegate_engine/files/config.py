"""A model's shape, whichever file it was read from."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate_engine.files.families import FAMILIES, Activation, Family

_MOST_EXPERTS = 4096
"""More can only be a broken file."""


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions divided by a factor."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1's stretched rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (Peng et al., 2023): slow pairs are stretched, fast ones are not, and a ramp lies between."""

    factor: float
    original_max_position: int
    beta_fast: float
    beta_slow: float
    gain: float
    """of cosines and sines"""
    truncate: bool = True
    """whether the ramp's ends are whole numbers"""


@dataclass(frozen=True, slots=True)
class LongRopeScaling:
    """LongRoPE (Ding et al., 2024; Phi-3): each pair has a factor of its own, another where contexts are long."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    original_max_position: int
    """a model that serves longer contexts than this takes `long` for all, so that neighbours change nothing"""
    gain: float


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | LongRopeScaling


@dataclass(frozen=True, slots=True)
class LayerKind:
    """What a layer computes otherwise than the others of its model."""

    windowed: bool = False
    """its queries see only the configuration's window; in some families it also rotates at the local speed"""
    rotated: bool = True
    """False where its queries and keys are not rotated (NoPE)"""
    experts: bool = False
    """its MLP is a mixture of experts"""


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: a token goes to the few that its router finds best."""

    count: int
    per_token: int
    intermediate_size: int
    renormalised: bool
    """whether the chosen experts' weights add up to one"""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The numbers that a network is built from. Raises ValueError where they make no sense."""

    architecture: str
    """one of FAMILIES"""
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_position: int
    """tokens that a prompt and its answer may have together"""
    rope_theta: float
    norm_eps: float
    tied_embeddings: bool
    qkv_bias: bool = False
    """whether the projections to queries, keys and values have a bias"""
    output_bias: bool = False
    """whether attention's output projection has one"""
    mlp_bias: bool = False
    eos_ids: tuple[int, ...] = ()
    rope_scaling: RopeScaling | None = None
    local_rope_theta: float | None = None
    """of layers with a window, which are then not scaled either; None: as all"""
    rotated_size: int | None = None
    """of each head the first so many elements are rotated; None: all"""
    query_scalar: float | None = None
    """scores are divided by the root of this; None: of the head's size"""
    window: int | None = None
    """how many tokens a query of a windowed layer sees, itself included"""
    pattern: tuple[LayerKind, ...] = (LayerKind(),)
    """the kinds of the first layers, repeated for the others"""
    attention_softcap: float | None = None
    logit_softcap: float | None = None
    activation: Activation = Activation.SILU
    experts: Experts | None = None
    norms_less_one: bool = False
    """whether the file holds the norms' weights less one"""

    @property
    def family(self) -> Family:
        """What this architecture computes otherwise than others."""
        return FAMILIES[self.architecture]

    @property
    def rotated(self) -> int:
        """How many elements of each head are rotated."""
        return self.rotated_size or self.head_dim

    @property
    def attention_scale(self) -> float:
        """What scores are multiplied by."""
        return float((self.query_scalar or self.head_dim) ** -0.5)

    @property
    def rope_gain(self) -> float:
        """What cosines and sines are multiplied by."""
        return self.rope_scaling.gain if isinstance(self.rope_scaling, YarnScaling | LongRopeScaling) else 1.0

    @property
    def is_plain(self) -> bool:
        """Whether all layers are one: whole attention, wholly rotated at one speed, a SiLU MLP, nothing capped."""
        features = (self.window, self.attention_softcap, self.logit_softcap, self.experts, self.local_rope_theta)
        family = self.family
        return (
            all(feature is None for feature in features)
            and self.pattern == (LayerKind(),)
            and self.activation is Activation.SILU
            and not (family.post_norms or family.scaled_embedding)
            and self.rotated == self.head_dim
            and self.rope_gain == 1.0
            and self.query_scalar is None
        )

    def layer(self, index: int) -> LayerKind:
        """The kind of one layer."""
        return self.pattern[index % len(self.pattern)]

    def __post_init__(self) -> None:
        sizes = (self.num_layers, self.hidden_size, self.num_heads, self.num_kv_heads, self.head_dim, self.vocab_size)
        positive = min(*sizes, self.intermediate_size, self.max_position) > 0
        if not positive or self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ValueError(
                f"{self.num_layers} layers, hidden size {self.hidden_size}, {self.num_heads} heads over "
                f"{self.num_kv_heads} key/value heads of {self.head_dim} make no model"
            )
        if self.rotated % 2 or not 0 < self.rotated <= self.head_dim:
            raise ValueError(f"{self.rotated} of a head's {self.head_dim} elements cannot be rotated in pairs")
        if self.window is not None and self.window < 1:
            raise ValueError(f"a window of {self.window} tokens shows nothing")
        experts = self.experts
        if experts is not None and not (
            0 < experts.per_token <= experts.count <= _MOST_EXPERTS and experts.intermediate_size > 0
        ):
            raise ValueError(
                f"{experts.per_token} of {experts.count} experts of {experts.intermediate_size} make no mixture"
            )
        scaling = self.rope_scaling
        if isinstance(scaling, LongRopeScaling) and {len(scaling.short), len(scaling.long)} != {self.rotated // 2}:
            raise ValueError(
                f"{len(scaling.short)} short and {len(scaling.long)} long rope factors for {self.rotated // 2} pairs"
            )

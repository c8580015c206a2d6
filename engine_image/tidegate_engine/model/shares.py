"""What each rank holds under tensor parallelism. Shares may differ: 3 key/value heads over 2 ranks are 2 and 1."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate_engine.files import ModelFileError
from tidegate_engine.files.config import ModelConfig
from tidegate_engine.model.batch import Shard

_MLP_UNIT = 32
"""The MLP is cut at multiples of this, for the sake of aligned rows."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Ranges of one rank: rows of projections, in elements, unless it says heads."""

    kv_heads: int
    query_heads: int
    queries: slice
    keys: slice
    mlp: slice
    vocabulary: slice
    vocabulary_step: int
    """what every rank's part of the logits is padded to"""


def share(config: ModelConfig, shard: Shard) -> Shares:
    """The ranges of a rank. Raises ModelFileError where a rank would have no head."""
    if shard.size > config.num_kv_heads:
        raise ModelFileError(
            f"tensorParallel {shard.size}: the model has {config.num_kv_heads} key/value heads, one at least for each; "
            f"use {config.num_kv_heads} or fewer"
        )
    heads = _part(config.num_kv_heads, 1, shard)
    group = config.num_heads // config.num_kv_heads
    step = -(-config.vocab_size // shard.size)
    return Shares(
        kv_heads=heads.stop - heads.start,
        query_heads=(heads.stop - heads.start) * group,
        queries=slice(heads.start * group * config.head_dim, heads.stop * group * config.head_dim),
        keys=slice(heads.start * config.head_dim, heads.stop * config.head_dim),
        mlp=_part(config.intermediate_size, _MLP_UNIT, shard),
        vocabulary=slice(min(shard.rank * step, config.vocab_size), min((shard.rank + 1) * step, config.vocab_size)),
        vocabulary_step=step,
    )


def _part(total: int, unit: int, shard: Shard) -> slice:
    units = -(-total // unit)
    if units < shard.size:
        units, unit = total, 1
    each, more = divmod(units, shard.size)
    start = shard.rank * each + min(shard.rank, more)
    stop = start + each + (shard.rank < more)
    return slice(min(start * unit, total), min(stop * unit, total))

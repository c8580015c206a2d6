"""What each rank holds under tensor parallelism.

Up to as many ranks as key/value heads, each has some of these whole, and shares may differ: 3 heads over 2 ranks are 2
and 1. Beyond that each key/value head lies on several ranks, which share its query heads: 9 query heads over 3 on 6
ranks are 2 and 1 three times.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate_engine.files import ModelFileError
from tidegate_engine.files.config import ModelConfig
from tidegate_engine.model.batch import Shard

_MLP_UNIT = 32
"""MLPs are cut at multiples of this, for the sake of aligned rows."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Ranges of one rank: rows of projections, in elements, unless it says heads."""

    kv_heads: int
    query_heads: int
    queries: slice
    keys: slice
    mlp: slice
    expert: slice
    """of each expert's MLP; all of `mlp` where there are none"""
    vocabulary: slice
    vocabulary_step: int
    """what every rank's part of the logits is padded to"""


def share(config: ModelConfig, shard: Shard) -> Shares:
    """The ranges of a rank. Raises ModelFileError where a rank would have no query head, or nothing of an MLP."""
    expert_size = config.intermediate_size if config.experts is None else config.experts.intermediate_size
    most = min(config.num_heads, config.intermediate_size, expert_size)
    if shard.size > most:
        raise ModelFileError(
            f"tensorParallel {shard.size}: the model has {config.num_heads} query heads, one at least for each rank; "
            f"use {most} or fewer"
        )
    keys, queries = _heads(config, shard)
    step = -(-config.vocab_size // shard.size)
    return Shares(
        kv_heads=keys.stop - keys.start,
        query_heads=queries.stop - queries.start,
        queries=_times(queries, config.head_dim),
        keys=_times(keys, config.head_dim),
        mlp=_part(config.intermediate_size, _MLP_UNIT, shard),
        expert=_part(expert_size, _MLP_UNIT, shard),
        vocabulary=slice(min(shard.rank * step, config.vocab_size), min((shard.rank + 1) * step, config.vocab_size)),
        vocabulary_step=step,
    )


def _heads(config: ModelConfig, shard: Shard) -> tuple[slice, slice]:
    """Key/value heads and query heads of a rank."""
    group = config.num_heads // config.num_kv_heads
    if shard.size <= config.num_kv_heads:
        keys = _part(config.num_kv_heads, 1, shard)
        return keys, _times(keys, group)
    # The first `more` key/value heads lie on one rank more than the others.
    each, more = divmod(shard.size, config.num_kv_heads)
    wide = more * (each + 1)
    if shard.rank < wide:
        head, place, ranks = shard.rank // (each + 1), shard.rank % (each + 1), each + 1
    else:
        head, place, ranks = more + (shard.rank - wide) // each, (shard.rank - wide) % each, each
    within = _part(group, 1, Shard(place, ranks))
    return slice(head, head + 1), slice(head * group + within.start, head * group + within.stop)


def _times(part: slice, factor: int) -> slice:
    return slice(part.start * factor, part.stop * factor)


def _part(total: int, unit: int, shard: Shard) -> slice:
    units = -(-total // unit)
    if units < shard.size:
        units, unit = total, 1
    each, more = divmod(units, shard.size)
    start = shard.rank * each + min(shard.rank, more)
    stop = start + each + (shard.rank < more)
    return slice(min(start * unit, total), min(stop * unit, total))

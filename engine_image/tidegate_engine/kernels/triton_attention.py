"""Paged attention in Triton: which kernel computes which request of a step.

A tile's rows are pairs (token, query head of one key head): the heads that share keys read them once, and groups that
are no power of two (3 in SmolLM2) waste only the rows that are left over.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from tidegate_engine.kernels.interface import Attention, AttentionSpec, KVScales, Paging
from tidegate_engine.kernels.triton_decode import attend_short, split_context
from tidegate_engine.kernels.triton_prefill import attend_long
from tidegate_engine.kernels.triton_tiles import AttentionTiles, Scores, default_tiles

_LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class TritonAttention:
    """Plans with the tiles that were found fastest, or with sizes that fit where nothing was timed."""

    tiles: AttentionTiles | None = None

    def plan(self, paging: Paging, spec: AttentionSpec) -> Attention:
        """See Kernels.plan_attention."""
        softcap = None if spec.softcap is None else spec.softcap * _LOG2_E
        scores = Scores(spec.scale * _LOG2_E, spec.window, softcap)

        def attend(query: Tensor, key_cache: Tensor, value_cache: Tensor, scales: KVScales | None = None) -> Tensor:
            tiles = self.tiles or default_tiles(query.dtype.itemsize, query.shape[2])
            kv_heads = key_cache.shape[1]
            group = query.shape[1] // kv_heads
            short = max(1, max(triton.next_power_of_2(group), tiles.decode.rows) // group)
            requests = len(paging.context_lens)
            out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
            given = (query, key_cache, value_cache, scales, out)
            if paging.max_query_len > short:
                attend_long(paging, scores, tiles.prefill, short, *given)
            if paging.max_query_len <= short or requests > 1:
                longest = min(paging.max_context_len, spec.window or paging.max_context_len)
                parts = split_context(longest, requests * kv_heads, tiles.programs, tiles.decode.keys)
                attend_short(paging, scores, tiles.decode, parts, *given)
            return out

        return attend

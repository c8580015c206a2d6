"""What a forward pass needs to know of a step, as tensors. Shapes: T tokens, R requests, S sampled rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tidegate_engine.model.adapters import Chosen


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """One step's tokens of all requests, flattened; request r owns rows query_start[r]:query_start[r + 1]."""

    token_ids: torch.Tensor
    """int64 [T]"""
    positions: torch.Tensor
    """int64 [T], position of each token in its request"""
    slots: torch.Tensor
    """int64 [T], block * block_size + offset: where this token's key and value are written"""
    query_start: torch.Tensor
    """int32 [R + 1]"""
    context_lens: torch.Tensor
    """int32 [R], tokens in the cache after this step's are written"""
    block_tables: torch.Tensor
    """int32 [R, max blocks], padded with 0"""
    logit_rows: torch.Tensor
    """int64 [S], the rows whose logits or hidden states are wanted: sampled ones, then those of prompts to be scored"""
    max_query_len: int
    max_context_len: int
    adapters: Chosen = ()
    """which rows of the T an adapter is for, where any are"""


@dataclass(frozen=True, slots=True)
class Shard:
    """This rank's share of the model under tensor parallelism."""

    rank: int = 0
    size: int = 1

"""From settings to guesses: the draft model and its cache, or none."""

from __future__ import annotations

from tidegate_engine.core.blocks import BlockPool
from tidegate_engine.model import LoadedModel, load
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.kv import block_bytes
from tidegate_engine.runtime.draft_model import DraftModel
from tidegate_engine.runtime.errors import CannotStart
from tidegate_engine.runtime.prompt_lookup import PromptLookup
from tidegate_engine.runtime.sampler import Sampler
from tidegate_engine.runtime.settings import BLOCK_SIZE, RuntimeSettings
from tidegate_engine.runtime.speculation import Speculation
from tidegate_engine.runtime.speculation_control import SpeculationControl
from tidegate_engine.runtime.start import Clock, warm_runner


def load_draft(settings: RuntimeSettings, model: LoadedModel) -> LoadedModel | None:
    """The draft model, whole on this rank, None where none is wanted.

    Raises ModelFileError, and CannotStart for one whose tokens are not the model's.
    """
    if settings.draft_model is None:
        return None
    draft = load(settings.draft_model, Shard(), settings.dtype, None)
    own, others = draft.config, model.config
    # One file may name fewer ways to end than the other, but none that the other knows as something else.
    ends = bool(own.eos_ids and others.eos_ids) and not set(own.eos_ids) & set(others.eos_ids)
    if own.vocab_size != others.vocab_size or ends:
        raise CannotStart(
            f"draftSource {settings.draft_model}: has {own.vocab_size} tokens and ends with {sorted(own.eos_ids)}, the "
            f"model {others.vocab_size} and {sorted(others.eos_ids)}; give a smaller model with the same tokenizer"
        )
    return draft


def draft_block_bytes(draft: LoadedModel | None) -> int:
    """What the draft model's share of a block takes: its cache holds as many tokens as the model's."""
    if draft is None:
        return 0
    config = draft.config
    return block_bytes(BLOCK_SIZE, config.num_layers, draft.kv_heads, config.head_dim, draft.kv_dtype)


def speculation(
    settings: RuntimeSettings, draft: LoadedModel | None, blocks: int, sampler: Sampler, clock: Clock
) -> Speculation | None:
    """What was asked for, ready to guess; `blocks` is the size of the model's own cache."""
    control = SpeculationControl(settings.speculative_tokens)
    if draft is not None:
        runner = warm_runner(draft, blocks, clock)
        pool = BlockPool(blocks, BLOCK_SIZE, b"")
        return Speculation(DraftModel(runner, sampler, pool, settings.chunked_prefill_tokens), control)
    return Speculation(PromptLookup(), control) if settings.speculative == "ngram" else None

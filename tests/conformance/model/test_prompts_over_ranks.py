"""Embeddings and scored prompts from several ranks are those of one, answers beside them too."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from runtime_process import RuntimeProcess
from small_models import save_small_model
from tidegate_engine.core.request import SamplingParams
from tidegate_engine.link.messages import Output

PROMPT = [(at * 29 + 7) % 101 for at in range(40)]
ASKED = (
    SamplingParams(max_tokens=1, temperature=0.0, embed=True),
    SamplingParams(max_tokens=3, temperature=0.0, prompt_logprobs=2),
    SamplingParams(max_tokens=8, temperature=0.0),
)


def told(model: Path, ranks: int) -> list[Output]:
    """The first output of each request; all at once, in chunks of 16 tokens."""
    flags = ["--dtype", "float32", "--threads", "1", "--chunked-prefill-tokens", "16"]
    flags += ["--kv-cache-memory", str(8 * 2**20)]
    found: dict[int, Output] = {}
    with RuntimeProcess(model, *flags, "--tensor-parallel", str(ranks)) as runtime:
        runtime.ready()
        for id, params in enumerate(ASKED):
            runtime.submit(id, PROMPT[: 30 + id], params)
        ended = 0
        while ended < len(ASKED):
            for output in runtime.outputs().outputs:
                found.setdefault(output.id, output)
                ended += output.finish_reason is not None
        assert runtime.quit() == 0
    return [found[id] for id in range(len(ASKED))]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("small")
    save_small_model("Llama", folder)
    return folder


@pytest.fixture(scope="module")
def alone(model: Path) -> list[Output]:
    return told(model, 1)


@pytest.mark.parametrize("ranks", [2, 3], ids=["two ranks", "three ranks"])
def test_several_ranks_tell_the_same(model: Path, alone: list[Output], ranks: int) -> None:
    embedded, scored, said = told(model, ranks)
    assert alone[0].embedding is not None
    assert embedded.embedding is not None
    numbers = struct.unpack("<48f", alone[0].embedding)
    assert struct.unpack("<48f", embedded.embedding) == pytest.approx(numbers, abs=1e-5)
    assert alone[1].prompt_logprobs is not None
    assert scored.prompt_logprobs is not None
    assert len(scored.prompt_logprobs) == 30
    for ours, theirs in zip(scored.prompt_logprobs, alone[1].prompt_logprobs, strict=True):
        assert ours.top_ids == theirs.top_ids
        assert [ours.chosen, *ours.top] == pytest.approx([theirs.chosen, *theirs.top], abs=1e-4)
    assert said.tokens == alone[2].tokens

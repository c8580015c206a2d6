"""The real openai client before the real engine and model."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest
from engine_process import NAME, EngineProcess, wait_until
from model_file import smollm2
from patience import PATIENCE_S

pytestmark = pytest.mark.model

QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]
"""Its greedy answer is safe to ask for on any processor: each token is a nat ahead of the next best or more, where
roundings move a tenth. (Of France the model says "L'Étoile" where 0.1 nats fall that way.) "The capital of France is"
goes on with Paris by 2.4 nats, numbers with their successors by 1.8."""


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(smollm2(), "--max-running-requests", "8", "--max-queued-requests", "8") as engine:
        yield engine.wait_ready()


@pytest.fixture(scope="module")
def client(engine: EngineProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{engine.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_the_capital_of_japan_is_tokyo(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=NAME, messages=QUESTION, temperature=0, max_tokens=40)  # type: ignore[arg-type]
    assert "Tokyo" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_says_the_same_as_the_whole(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=NAME, messages=QUESTION, temperature=0, max_tokens=40)  # type: ignore[arg-type]
    chunks = list(
        client.chat.completions.create(
            model=NAME,
            messages=QUESTION,  # type: ignore[arg-type]
            temperature=0,
            max_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    deltas = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(delta.delta.content or "" for delta in deltas) == whole.choices[0].message.content
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == [whole.choices[0].finish_reason]
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == 1
    assert whole.usage is not None
    assert usages[0].completion_tokens == whole.usage.completion_tokens
    details = usages[0].prompt_tokens_details
    assert details is not None
    assert (details.cached_tokens or 0) > 0, "the second request of the same prompt finds it cached"


def test_choices_with_a_seed_differ_from_each_other_and_come_again(client: openai.OpenAI) -> None:
    def ask(seed: int) -> list[str | None]:
        answer = client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "Tell me a story about a fox."}],
            n=3,
            seed=seed,
            max_tokens=12,
        )
        return [choice.message.content for choice in answer.choices]

    first = ask(7)
    assert len(set(first)) == 3
    assert ask(7) == first
    assert ask(8) != first


def test_without_a_seed_answers_differ(client: openai.OpenAI) -> None:
    texts = {
        client.completions.create(model=NAME, prompt="Once upon a time", max_tokens=12).choices[0].text
        for _ in range(2)
    }
    assert len(texts) == 2


def test_log_probabilities_are_sorted_and_the_greedy_token_is_the_likeliest(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=NAME,
        messages=QUESTION,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=6,
        logprobs=True,
        top_logprobs=3,
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert len(logprobs.content) == 6
    for entry in logprobs.content:
        tops = [top.logprob for top in entry.top_logprobs]
        assert tops == sorted(tops, reverse=True)
        assert entry.token == entry.top_logprobs[0].token
        assert entry.logprob == pytest.approx(tops[0])
        assert entry.logprob <= 0
    assert "".join(entry.token for entry in logprobs.content) == answer.choices[0].message.content


def test_completions_take_text_and_ids_alike(client: openai.OpenAI) -> None:
    from tidegate_engine.server.tokenizer import load_tokenizer

    text = "The capital of France is"
    ids = load_tokenizer(smollm2()).encode(text, add_special_tokens=True)
    answer = client.completions.create(model=NAME, prompt=[text], temperature=0, max_tokens=8, logprobs=2)
    by_ids = client.completions.create(model=NAME, prompt=ids, temperature=0, max_tokens=8)
    assert answer.choices[0].text == by_ids.choices[0].text
    assert "Paris" in answer.choices[0].text
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert "".join(logprobs.tokens) == answer.choices[0].text


def test_a_biased_token_is_always_or_never_chosen(client: openai.OpenAI) -> None:
    from tidegate_engine.server.tokenizer import load_tokenizer

    token = load_tokenizer(smollm2()).encode(" banana", add_special_tokens=False)[0]
    always = client.completions.create(
        model=NAME, prompt="I like", temperature=0, max_tokens=3, logit_bias={str(token): 100}, logprobs=0
    )
    assert always.choices[0].logprobs is not None
    assert len(set(always.choices[0].logprobs.tokens or [])) == 1


def test_a_stop_string_and_a_length_are_told_apart(client: openai.OpenAI) -> None:
    stopped = client.completions.create(model=NAME, prompt="1 2 3 4 5 6", temperature=0, max_tokens=30, stop=[" 9"])
    assert stopped.choices[0].finish_reason == "stop"
    assert " 9" not in stopped.choices[0].text
    assert stopped.choices[0].text.startswith(" 7 8")
    cut = client.completions.create(model=NAME, prompt="1 2 3 4 5 6", temperature=0, max_tokens=3)
    assert cut.choices[0].finish_reason == "length"
    assert cut.usage is not None
    assert cut.usage.completion_tokens == 3


def test_the_end_token_can_be_ignored(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=NAME,
        messages=QUESTION,  # type: ignore[arg-type]
        temperature=0,
        max_tokens=24,
        extra_body={"ignore_eos": True},
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 24
    assert answer.choices[0].finish_reason == "length"


def test_errors_are_the_clients_own_classes(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=NAME, messages=QUESTION, temperature=9)  # type: ignore[arg-type]
    assert bad.value.param == "temperature"
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="other", messages=QUESTION)  # type: ignore[arg-type]
    assert [model.id for model in client.models.list()] == [NAME]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [49152]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [5] * 8192}, "prompt"),
        ({"logit_bias": {"49152": 1}}, "logit_bias"),
        ({"stop_token_ids": [10**9]}, "stop_token_ids"),
        ({"top_p": 7}, "top_p"),
        ({"beam_width": 4}, "beam_width"),
    ],
)
def test_bad_input_is_refused_while_a_stream_beside_it_goes_on(
    engine: EngineProcess, client: openai.OpenAI, bad: dict[str, object], field: str
) -> None:
    stream = client.completions.create(
        model=NAME, prompt="Once", temperature=0, max_tokens=20, stream=True, extra_body={"ignore_eos": True}
    )
    first = next(iter(stream))
    refused = engine.http.post("/v1/completions", json={"model": NAME, "prompt": "a", "max_tokens": 4, **bad})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == field
    rest = list(stream)
    assert [chunk.choices[0].finish_reason for chunk in (first, *rest) if chunk.choices[0].finish_reason] == ["length"]


@pytest.mark.parametrize("n", [1, 3])
def test_a_client_that_leaves_frees_its_blocks(engine: EngineProcess, n: int) -> None:
    body = {"model": NAME, "prompt": "Once upon", "max_tokens": 4000, "n": n, "stream": True, "ignore_eos": True}
    before = engine.generated_tokens()
    with engine.http.stream("POST", "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()  # dropping it would close the connection
        assert '"text":' in next(lines)
        assert engine.load()["running"] == 1
        assert engine.load()["kv_blocks"]["used"] > 0
    engine.wait_idle()
    assert engine.generated_tokens() < before + 4000 * n, "it went on to its end"


def test_over_the_queue_is_429_and_the_others_are_answered(engine: EngineProcess) -> None:
    body = {"model": NAME, "prompt": "One two", "max_tokens": 16, "temperature": 0, "ignore_eos": True}

    def ask(_: int) -> int:
        return engine.http.post("/v1/completions", json=body).status_code

    every_slot = body | {"n": 8, "max_tokens": 4000, "stream": True}
    with ThreadPoolExecutor(8) as pool:
        with engine.http.stream("POST", "/v1/completions", json=every_slot) as answer:
            lines = answer.iter_lines()
            assert '"text":' in next(lines)
            queued = [pool.submit(ask, number) for number in range(8)]
            wait_until(lambda: engine.load()["waiting"] == 8, "the queue is full")
            refused = engine.http.post("/v1/completions", json=body)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
        assert [one.result() for one in queued] == [200] * 8
    engine.wait_idle()


def test_sigterm_lets_a_stream_finish_and_leaves_nothing() -> None:
    with EngineProcess(smollm2(), lag=0.5) as engine, ThreadPoolExecutor(1) as pool:
        engine.wait_ready()
        body = {
            "model": NAME,
            "prompt": "Once",
            "max_tokens": 300,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "ignore_eos": True,
        }
        answer = pool.submit(engine.http.post, "/v1/completions", json=body)
        wait_until(lambda: engine.load()["running"] == 1, "running")
        children = engine.children()
        engine.process.send_signal(signal.SIGTERM)
        text = answer.result(PATIENCE_S).text
        # Not one event a token: a late server sends two in one, and a token that ends within a character waits.
        assert '"completion_tokens":300' in text
        assert text.endswith("data: [DONE]\n\n")
        assert engine.ended() == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("stage", ["importing", "loading"])
def test_sigterm_while_the_model_loads_leaves_nothing_and_is_no_failure(stage: str) -> None:
    with EngineProcess(smollm2()) as engine:
        wait_until(lambda: bool(engine.children()), "a runtime")
        if stage == "loading":
            runtime = engine.children()[0]
            wait_until(lambda: "libtorch" in Path(f"/proc/{runtime}/maps").read_text(), "torch is mapped")
        children = engine.children()
        engine.process.send_signal(signal.SIGTERM)
        assert engine.ended() == 0
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize("damage", ["cut short", "not a model"])
def test_a_damaged_model_file_is_code_3_and_one_line(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "broken.gguf"
    if damage == "cut short":
        with smollm2().open("rb") as whole:
            path.write_bytes(whole.read(4 * 2**20))
    else:
        path.write_bytes(os.urandom(100_000))
    word = tmp_path / "termination-log"
    word.touch()
    with EngineProcess(path, "--termination-log", str(word)) as engine:
        assert engine.ended() == 3
        last = engine.stderr().splitlines()[-1]
        assert "broken.gguf" in last
        assert word.read_text() == f"{last}\n"
        assert engine.children() == []

"""The real openai client before the real engine and model: embeddings, scored prompts, deadlines, priorities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from engine_process import NAME, EngineProcess, wait_until
from model_file import smollm2

pytestmark = pytest.mark.model

TEXTS = ["The cat sat on the mat.", "A cat was sitting on a rug.", "Interest rates rose by half a percent."]


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    flags = ["--max-running-requests", "8", "--max-queued-requests", "8", "--max-model-len", "1024"]
    with EngineProcess(smollm2(), *flags) as engine:
        yield engine.wait_ready()


@pytest.fixture(scope="module")
def client(engine: EngineProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{engine.port}/v1", api_key="none", max_retries=0) as client:
        yield client


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_embeddings_are_of_length_one_the_same_in_a_list_as_alone_and_in_both_encodings(client: openai.OpenAI) -> None:
    together = client.embeddings.create(model=NAME, input=TEXTS)  # the client asks for base64 by itself
    vectors = [entry.embedding for entry in together.data]
    assert [entry.index for entry in together.data] == [0, 1, 2]
    assert together.usage.prompt_tokens == together.usage.total_tokens > 15
    for text, vector in zip(TEXTS, vectors, strict=True):
        assert len(vector) == 576
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)
        alone = client.embeddings.create(model=NAME, input=text, encoding_format="float").data[0].embedding
        assert cosine(vector, alone) == pytest.approx(1, abs=1e-4)
    assert cosine(vectors[0], vectors[1]) > cosine(vectors[0], vectors[2])


def test_an_embedding_that_asks_for_fewer_dimensions_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.embeddings.create(model=NAME, input="a", dimensions=64)
    assert bad.value.param == "dimensions"


def test_a_scored_prompt_prefers_what_is_true_and_agrees_with_the_answers_own_log_probabilities(
    client: openai.OpenAI,
) -> None:
    def score(text: str) -> tuple[list[str], list[float]]:
        answer = client.completions.create(model=NAME, prompt=text, max_tokens=0, echo=True, logprobs=1)
        (choice,) = answer.choices
        assert choice.text == text
        assert choice.logprobs is not None
        assert choice.logprobs.tokens is not None
        assert choice.logprobs.token_logprobs is not None
        assert choice.logprobs.token_logprobs[0] is None
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 0
        return choice.logprobs.tokens, choice.logprobs.token_logprobs[1:]

    assert sum(score("The capital of France is Paris")[1]) > sum(score("The capital of France is London")[1])
    said = client.completions.create(model=NAME, prompt="1 2 3 4", max_tokens=6, temperature=0, logprobs=0).choices[0]
    assert said.logprobs is not None
    tokens, found = score("1 2 3 4" + said.text)
    assert tokens[-6:] == said.logprobs.tokens
    assert found[-6:] == pytest.approx(said.logprobs.token_logprobs, abs=2e-3)


def test_echo_streams_the_prompt_once_and_its_scores_with_it(client: openai.OpenAI) -> None:
    # Numbers follow each other with 1.2 nats to spare; a text by the machine's rounding might end within a character.
    asked = {"model": NAME, "prompt": "1 2 3 4", "max_tokens": 6, "temperature": 0, "echo": True, "logprobs": 2}
    whole = client.completions.create(**asked, n=2)  # type: ignore[call-overload]
    chunks = list(client.completions.create(**asked, n=2, stream=True))  # type: ignore[call-overload]
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.text for part in parts) == choice.text
        tokens = [token for part in parts if part.logprobs for token in part.logprobs.tokens]
        assert tokens == choice.logprobs.tokens
        assert "".join(tokens) == choice.text
        offsets = choice.logprobs.text_offset
        assert len(tokens) == whole.usage.prompt_tokens + 6
        assert all(choice.text[at:].startswith(token) for at, token in zip(offsets, tokens, strict=True))


def test_a_deadline_that_cannot_be_met_is_the_clients_own_error_and_is_not_asked_again(
    engine: EngineProcess,
) -> None:
    before = engine.load()["counters"]["received"]
    with (
        openai.OpenAI(base_url=f"http://127.0.0.1:{engine.port}/v1", api_key="none", max_retries=2) as client,
        pytest.raises(openai.InternalServerError) as late,
    ):
        client.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "Tell me a long story."}],
            max_tokens=900,
            extra_body={"deadline_s": 0.2, "ignore_eos": True},
        )
    assert late.value.code == "deadline_exceeded"
    assert engine.load()["counters"]["received"] == before + 1
    engine.wait_idle()


def test_the_id_of_an_answer_finds_its_course(engine: EngineProcess, client: openai.OpenAI) -> None:
    prompt = "word " * 700
    for cached in (False, True):
        answer = client.completions.create(
            model=NAME, prompt=prompt, max_tokens=3, temperature=0, extra_body={"priority": 3, "ignore_eos": True}
        )
        assert answer._request_id == answer.id
        course = engine.admin.get(f"/debug/requests/{answer.id}").json()
        (choice,) = course["choices"]
        assert (course["ended"], course["priority"], choice["tokens"]) == ("finished", 3, 3)
        assert (choice["cached_tokens"] > 0) == cached
        shares = [(chunk["start"], chunk["tokens"]) for chunk in choice["chunks"]]
        assert sum(tokens for _, tokens in shares) == choice["prompt_tokens"] - choice["cached_tokens"]
        assert len(shares) == (1 if cached else 2), "512 tokens a step"
        assert choice["queued_s"] <= choice["first_token_s"] <= choice["last_token_s"]


def test_an_urgent_request_goes_before_one_that_came_earlier_and_waits_too() -> None:
    body = {"model": NAME, "prompt": "Once", "max_tokens": 12, "temperature": 0, "ignore_eos": True}

    def ask(engine: EngineProcess, priority: int) -> str:
        answer = engine.http.post("/v1/completions", json=body | {"priority": priority})
        assert answer.status_code == 200, answer.text
        return str(answer.headers["x-request-id"])

    with EngineProcess(smollm2(), "--max-running-requests", "1") as engine, ThreadPoolExecutor(2) as pool:
        engine.wait_ready()
        with engine.http.stream("POST", "/v1/completions", json=body | {"max_tokens": 4000, "stream": True}) as stream:
            asked = []
            for count, priority in ((1, 0), (2, -1)):
                asked.append(pool.submit(ask, engine, priority))
                wait_until(lambda count=count: engine.load()["waiting"] == count, "it waits")  # type: ignore[misc]
            first = stream.headers["x-request-id"]
        ran, usual, urgent = (
            engine.admin.get(f"/debug/requests/{id}").json()["choices"][0]["chunks"][0]["step"]
            for id in (first, *(one.result() for one in asked))
        )
    assert ran < urgent < usual

"""What the command line may say, and how a mistake in it is explained."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidegate_engine.settings import Adapter, SettingsError, parse_settings


def test_only_the_model_is_required_and_the_file_names_the_service() -> None:
    settings = parse_settings(["--model", "/models/smol.gguf"])
    assert (settings.model, settings.served_name) == (Path("/models/smol.gguf"), "smol")
    assert (settings.port, settings.admin_port, settings.host) == (8000, 9000, "0.0.0.0")
    assert (settings.max_running_requests, settings.max_queued_requests, settings.chunked_prefill_tokens) == (
        32,
        256,
        512,
    )
    assert (settings.dtype, settings.tensor_parallel, settings.prefix_caching) == ("auto", 1, True)
    assert (settings.drain_timeout, settings.endpoint_lag, settings.kv_cache_memory) == (300.0, 5.0, None)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512Mi", 512 * 2**20),
        ("1Gi", 2**30),
        ("1.5Gi", 3 * 2**29),
        ("536870912", 536870912),
        ("2G", 2 * 10**9),
        ("4k", 4000),
    ],
)
def test_sizes_are_read_as_kubernetes_writes_them(text: str, size: int) -> None:
    assert parse_settings(["--model", "m", "--kv-cache-memory", text]).kv_cache_memory == size


def test_adapters_have_names_for_clients_and_numbers_for_the_runtime() -> None:
    settings = parse_settings(["--model", "m", "--lora", "sql=/adapters/sql", "--lora", "a b=rel=ative"])
    assert settings.lora == (Adapter("sql", Path("/adapters/sql")), Adapter("a b", Path("rel=ative")))
    told = settings.runtime_arguments()
    assert " ".join(told[-4:]) == "--lora /adapters/sql --lora rel=ative"


def test_the_runtime_is_told_what_is_its_business_and_no_more() -> None:
    flags = ["--model", "m", "--kv-cache-memory", "1Mi", "--no-prefix-caching", "--max-model-len", "99", "--port", "1"]
    told = parse_settings(flags).runtime_arguments()
    assert " ".join(told) == (
        "--model m --dtype auto --quantization none --kv-cache-dtype auto --tensor-parallel 1 "
        "--max-running-requests 32 --no-prefix-caching "
        "--chunked-prefill-tokens 512 --max-model-len 99 --kv-cache-memory 1048576"
    )


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        pytest.param(["--speculative", "ngram"], "--speculative ngram --speculative-tokens 4", id="by looking up"),
        pytest.param(
            ["--speculative", "draft", "--draft-model", "/d.gguf", "--speculative-tokens", "3"],
            "--speculative draft --speculative-tokens 3 --draft-model /d.gguf",
            id="by a draft model",
        ),
    ],
)
def test_the_runtime_is_told_where_guesses_come_from(flags: list[str], told: str) -> None:
    assert parse_settings(["--model", "m", *flags]).runtime_arguments()[-len(told.split()) :] == told.split()


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        pytest.param([], "--model", id="no model"),
        pytest.param(["--model", "m", "--dtype", "int3"], "--dtype", id="a dtype that there is not"),
        pytest.param(["--model", "m", "--quantization", "int3"], "--quantization", id="bits that there are not"),
        pytest.param(["--model", "m", "--kv-cache-dtype", "int4"], "--kv-cache-dtype", id="a cache too narrow"),
        pytest.param(["--model", "m", "--tensor-parallel", "0"], "--tensor-parallel", id="no process at all"),
        pytest.param(
            ["--model", "m", "--max-running-requests", "-1"], "--max-running-requests", id="a negative number"
        ),
        pytest.param(["--model", "m", "--kv-cache-memory", "lots"], "--kv-cache-memory", id="a size in words"),
        pytest.param(["--model", "m", "--kv-cache-memory", "0"], "--kv-cache-memory", id="a size of nothing"),
        pytest.param(["--model", "m", "--speculative", "magic"], "--speculative", id="guesses from nowhere"),
        pytest.param(["--model", "m", "--speculative-tokens", "0"], "--speculative-tokens", id="no guess"),
        pytest.param(["--model", "m", "--speculative-tokens", "17"], "--speculative-tokens", id="too many guesses"),
        pytest.param(["--model", "m", "--lora", "sql"], "NAME=PATH", id="an adapter without a name"),
        pytest.param(["--model", "m", "--lora", "=p"], "printable", id="an adapter with an empty name"),
        pytest.param(["--model", "m", "--lora", "m=p"], "--lora m", id="an adapter called as the model is"),
        pytest.param(["--model", "m", "--lora", "a=p", "--lora", "a=q"], "--lora a", id="two adapters of one name"),
        pytest.param(["--model", "m", "--speculative", "draft"], "--draft-model PATH", id="no model to guess"),
        pytest.param(["--model", "m", "--draft-model", "d"], "--speculative draft", id="a draft model for nothing"),
        pytest.param(["--model", "m", "--port", "70000"], "--port", id="a port beyond the last"),
        pytest.param(["--model", "m", "--admin-port", "8000"], "--admin-port", id="one port for both listeners"),
        pytest.param(["--model", "m", "--drain-timeout", "soon"], "--drain-timeout", id="a time in words"),
        pytest.param(["--model", "m", "--drain-timeout", "nan"], "--drain-timeout", id="a time that is no number"),
        pytest.param(["--model", "m", "--served-name", " "], "--served-name", id="a name of nothing"),
        pytest.param(["--model", "m", "--max-runing-requests", "4"], "--max-runing-requests", id="a misspelt flag"),
        pytest.param(["--model", "m", "--max-queued", "4"], "--max-queued", id="an abbreviated flag"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_flag(flags: list[str], named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(flags)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)

"""`GET /metrics`: Prometheus families as vLLM has them, named `tidegate_…`, from a registry of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tidegate_engine.link.messages import Drafts
from tidegate_engine.server.engine import Engine
from tidegate_engine.server.telemetry import Histogram, Telemetry


class EngineCollector(Collector):
    """Reads the telemetry when it is asked, so that nothing is paid for between scrapes."""

    def __init__(self, telemetry: Telemetry, engine: Callable[[], Engine | None], model_name: str) -> None:
        self._telemetry = telemetry
        self._engine = engine
        self._model_name = model_name

    def collect(self) -> Iterator[Metric]:
        """Every family, labelled with the served model's name."""
        counts, stats, engine = self._telemetry, self._telemetry.stats, self._engine()
        answers = list(engine.answers) if engine else []
        waiting = sum(1 for answer in answers if answer.first_at is None)
        blocks = engine.ready.kv_blocks if engine and engine.ready else 0
        yield self._gauge("num_requests_running", "Requests that have their first token", len(answers) - waiting)
        yield self._gauge("num_requests_waiting", "Requests that wait for their first token", waiting)
        yield self._gauge(
            "kv_cache_usage_perc", "Share of the cache in use, 0 to 1", stats.kv_blocks_used / max(1, blocks)
        )
        yield self._counter("prompt_tokens", "Tokens of prompts, cached ones included", counts.prompt_tokens)
        yield self._counter("generation_tokens", "Tokens of answers", counts.generated_tokens)
        queries = stats.prompt_tokens + stats.cached_tokens
        yield self._counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache", queries)
        yield self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache", stats.cached_tokens)
        yield self._counter("num_preemptions", "Requests put back into the queue for want of cache", stats.preemptions)
        yield self._counter("engine_steps", "Steps of the runtime", stats.steps)
        yield self._counter("requests_received", "Requests admitted or rejected", counts.received)
        yield self._counter("requests_rejected", "Requests refused because the queue was full", counts.rejected)
        yield self._counter("requests_expired", "Requests ended because their deadline was over", counts.expired)
        yield from self._speculation(stats.drafts)
        success = CounterMetricFamily(
            "tidegate_request_success", "Finished answers by reason", labels=["model_name", "finished_reason"]
        )
        for reason, number in counts.finish_reasons.items():
            success.add_metric([self._model_name, reason], number)
        yield success
        yield self._histogram("time_to_first_token_seconds", "Arrival to first token", counts.ttft_histogram)
        yield self._histogram("inter_token_latency_seconds", "Between two tokens of an answer", counts.token_histogram)
        yield self._histogram("time_per_output_token_seconds", "An answer's mean pace", counts.tpot_histogram)
        yield self._histogram("e2e_request_latency_seconds", "Arrival to last token", counts.e2e_histogram)

    def _speculation(self, drafts: Drafts) -> Iterator[Metric]:
        guessed, true = drafts.draft_tokens, drafts.accepted_tokens
        yield self._counter("spec_decode_num_drafts", "Times that next tokens were guessed", drafts.drafts)
        yield self._counter("spec_decode_num_draft_tokens", "Tokens guessed", guessed)
        yield self._counter("spec_decode_num_accepted_tokens", "Guesses that came true", true)
        yield self._gauge(
            "spec_decode_draft_acceptance_rate", "Share of guesses that came true", true / max(1, guessed)
        )
        positions = CounterMetricFamily(
            "tidegate_spec_decode_num_accepted_tokens_per_pos",
            "Guesses that came true, by their place in a row from 0",
            labels=["model_name", "position"],
        )
        for position, number in enumerate(drafts.accepted_by_position):
            positions.add_metric([self._model_name, str(position)], number)
        yield positions

    def _gauge(self, name: str, meaning: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"tidegate_{name}", meaning, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family

    def _counter(self, name: str, meaning: str, value: float) -> Metric:
        family = CounterMetricFamily(f"tidegate_{name}", meaning, labels=["model_name"])
        family.add_metric([self._model_name], value)
        return family

    def _histogram(self, name: str, meaning: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(f"tidegate_{name}", meaning, labels=["model_name"])
        below, buckets = 0, []
        for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric([self._model_name], buckets, histogram.total)
        return family


def exposition(collector: EngineCollector) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)

"""What a run measured, as text for people and JSON for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidegate_lab.load.run import Plan
from tidegate_lab.load.samples import Quantiles
from tidegate_lab.load.stream import Outcome

ROWS = (("TTFT", "ttft"), ("TPOT", "tpot"), ("between chunks", "inter_token"), ("end to end", "e2e"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Latencies are of completed requests, seconds; failures are counted apart and never enter a quantile."""

    shape: str
    took_s: float
    sent: int
    completed: int
    failed: int
    failures: dict[str, int]
    """How many of each kind."""
    first_failure: str
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    late_max_s: float
    """The latest that a request was sent after it was due; where this is large, the generator was the bottleneck."""
    ttft: Quantiles | None
    tpot: Quantiles | None
    inter_token: Quantiles | None
    e2e: Quantiles | None

    @classmethod
    def of(cls, plan: Plan, outcomes: Sequence[Outcome], took_s: float) -> Report:
        """Sum up a finished run."""
        good = [o for o in outcomes if o.failure is None]
        bad = [o for o in outcomes if o.failure is not None]
        return cls(
            shape=plan.shape,
            took_s=took_s,
            sent=len(outcomes),
            completed=len(good),
            failed=len(bad),
            failures=dict(Counter(o.failure or "" for o in bad)),
            first_failure=f"request {bad[0].number}: {bad[0].failure}: {bad[0].detail}" if bad else "",
            prompt_tokens=sum(o.prompt_tokens for o in good),
            cached_tokens=sum(o.cached_tokens for o in good),
            generated_tokens=sum(o.tokens for o in good),
            late_max_s=max((o.late_s for o in outcomes), default=0.0),
            ttft=Quantiles.of(o.ttft_s for o in good if o.ttft_s is not None),
            tpot=Quantiles.of(t for o in good if (t := o.tpot_s) is not None),
            inter_token=Quantiles.of(gap for o in good for gap in o.gaps_s),
            e2e=Quantiles.of(o.e2e_s for o in good),
        )

    @property
    def served_per_s(self) -> float:
        """Completed requests a second, waiting for the last ones included."""
        return self.completed / self.took_s if self.took_s else 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values; a quantile that was not measured is null."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Report:
        """Read back what `as_json` wrote."""
        measured = {key: Quantiles(**value[key]) if value[key] else None for _, key in ROWS}
        return cls(**(value | measured))

    def text(self) -> str:
        """A few aligned lines."""
        lines = [
            f"{self.shape}, {self.took_s:.1f} s",
            f"sent {self.sent}, completed {self.completed}, failed {self.failed}"
            + (f" ({', '.join(f'{n} {kind}' for kind, n in self.failures.items())})" if self.failures else ""),
        ]
        if self.first_failure:
            lines.append(f"first failure: {self.first_failure}")
        rate = self.generated_tokens / self.took_s if self.took_s else 0.0
        lines.append(
            f"prompt tokens {self.prompt_tokens} ({self.cached_tokens} from cache), generated {self.generated_tokens} "
            f"({rate:.1f} a second); sent at most {self.late_max_s * 1e3:.0f} ms late"
        )
        lines.append(f"{'':16}{'p50':>10}{'p90':>10}{'p95':>10}{'p99':>10}{'max':>10}{'samples':>9}")
        for title, key in ROWS:
            measured: Quantiles | None = getattr(self, key)
            if measured is None:
                lines.append(f"{title:16}{'nothing measured':>20}")
                continue
            values = (measured.p50, measured.p90, measured.p95, measured.p99, measured.max)
            lines.append(f"{title:16}" + "".join(f"{seconds(v):>10}" for v in values) + f"{measured.count:>9}")
        return "\n".join(lines)


def seconds(value: float) -> str:
    """Three digits of it, with its unit."""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"

"""Quality of the default path: perplexity of two texts, ours beside the float32 reference of the same weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

TEXTS = tuple(Path(__file__).parents[1] / "texts" / f"{name}.txt" for name in ("prose", "code"))
"""More than 10,000 tokens each; their licences lie beside them."""


@dataclass(frozen=True, slots=True)
class TextQuality:
    """One text. Perplexity is exp of the mean loss in nats; `mean_kl` is KL(reference || ours) in nats a token."""

    text: str
    tokens: int
    reference: float
    ours: float
    mean_kl: float
    same_choice: float
    """share of positions at which both have the same likeliest token"""

    @property
    def ratio(self) -> float:
        """Ours over the reference's: 1.01 is one per cent worse."""
        return self.ours / self.reference


def quality_of(printed: str) -> list[TextQuality]:
    """What the worker has printed: a line of JSON for each text."""
    return [TextQuality(**json.loads(line)) for line in printed.splitlines()]


def quality_command(python: str, model: Path, threads: int) -> list[str]:
    """The worker's command line, which reads both texts."""
    return [
        python, "-m", "tidegate_bench.workers.quality", "--model", str(model), "--threads", str(threads),
        *map(str, TEXTS),
    ]  # fmt: skip

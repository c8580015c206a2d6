"""What a load measured of each request, as a file: `tidegate calibrate` and `tidegate simulate` read it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tidegate_lab.load.stream import Outcome


def write_samples(path: Path, outcomes: Iterable[Outcome]) -> int:
    """One line of JSON for each completed request, in order of arrival; how many. Seconds since the run began."""
    lines = [
        json.dumps(
            {
                "arrived_s": round(outcome.due_s, 6),
                "prompt_tokens": outcome.prompt_tokens,
                "cached_tokens": outcome.cached_tokens,
                "output_tokens": outcome.tokens,
                "first_token_s": round(outcome.due_s + outcome.ttft_s, 6),
                "last_token_s": round(outcome.due_s + outcome.ttft_s + sum(outcome.gaps_s), 6),
            }
        )
        for outcome in sorted(outcomes, key=lambda outcome: outcome.due_s)
        if outcome.failure is None and outcome.ttft_s is not None
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return len(lines)

"""llama.cpp under mixed traffic, without a server around it: requests in as JSON on stdin, their course out.

`python -m tidegate_bench.workers.llama_cpp_mixed --model PATH --threads N`
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tidegate_bench.workers.continuous_batching import serve_all
from tidegate_bench.workers.llama_cpp import BATCH, Model

SLOTS = 32


def main() -> None:
    """Serve what stdin says: {"requests": [[ids, tokens wanted], …], "arrivals": [seconds, …]}."""
    parser = argparse.ArgumentParser(prog="python -m tidegate_bench.workers.llama_cpp_mixed")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    found = parser.parse_args()
    asked = json.load(sys.stdin)
    requests = [(list(prompt), int(wanted)) for prompt, wanted in asked["requests"]]
    context = Model(found.model, found.threads).context(SLOTS, max(len(prompt) + wanted for prompt, wanted in requests))
    serve_all(context, [(requests[0][0], 2)], [0.0], 1, BATCH, time.monotonic, time.sleep)  # to warm up
    course = serve_all(context, requests, asked["arrivals"], SLOTS, BATCH, time.monotonic, time.sleep)
    sys.stdout.write(json.dumps(asdict(course)))


if __name__ == "__main__":
    main()

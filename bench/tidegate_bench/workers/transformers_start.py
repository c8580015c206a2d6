"""transformers' generate on the same file, from nothing to one token: the start of what many would use first.

`python -m tidegate_bench.workers.transformers_start --model PATH --threads N`
"""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:
    """Load the file and generate one token."""
    parser = argparse.ArgumentParser(prog="python -m tidegate_bench.workers.transformers_start")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    found = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(found.threads)
    network = AutoModelForCausalLM.from_pretrained(str(found.model.parent), gguf_file=found.model.name)
    network.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=1, do_sample=False)


if __name__ == "__main__":
    main()

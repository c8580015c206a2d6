"""Record the token ids that llama.cpp gives 3,000 random texts, for tests/conformance/tokenizer.

llama-cpp-python is not among the requirements: it takes minutes to build. In a virtual environment of its own:

    python -m venv ~/.cache/tidegate/llama-cpp-venv
    ~/.cache/tidegate/llama-cpp-venv/bin/pip install llama-cpp-python==0.3.36
    ~/.cache/tidegate/llama-cpp-venv/bin/python scripts/record_llama_cpp_ids.py MODEL.gguf
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from llama_cpp import Llama, __version__

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "tests/conformance/tokenizer/llama_cpp_ids.json.gz"
COUNT, SEED = 3000, 3


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from random_texts import random_texts

    model = Llama(sys.argv[1], vocab_only=True, verbose=False)
    ids = [model.tokenize(text.encode(), add_bos=False, special=True) for text in random_texts(COUNT, SEED)]
    record = {"llama_cpp_python": __version__, "model": Path(sys.argv[1]).name, "seed": SEED, "ids": ids}
    RECORD.write_bytes(gzip.compress(json.dumps(record, separators=(",", ":")).encode(), mtime=0))
    print(f"{len(ids)} texts, {sum(map(len, ids))} ids, {RECORD.stat().st_size} bytes")


if __name__ == "__main__":
    main()

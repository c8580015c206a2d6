"""Check the Triton kernels against the plain reference on this machine's GPU, run a model of random weights through
them, measure, and write one JSON file. Needs torch and triton only. Exit code 1 where anything differs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernel_cases
import torch
from forward_steps import Sequences
from kernel_cases import STEPS, TOLERANCE, Step
from tidegate_engine.files.config import ModelConfig
from tidegate_engine.kernels.cpu import cpu_kernels
from tidegate_engine.kernels.grouped import GroupedMatrix
from tidegate_engine.kernels.interface import AttentionSpec, Kernels, Paging
from tidegate_engine.model.batch import Shard
from tidegate_engine.model.build import build
from tidegate_engine.model.load import LoadedModel
from tidegate_engine.model.weights import Weights

LARGE = {
    "32 requests decode 4,096 tokens each": Step((1,) * 32, (4096,) * 32, 32, 8, 128, 16),
    "one request decodes 16,384 tokens": Step((1,), (16384,), 32, 8, 128, 16),
    "a chunk of 512 after 1,500 tokens": Step((512,), (2012,), 9, 3, 64, 16),
    "everything in one step": Step((512, 1, 77, 1), (512, 3000, 1000, 17), 32, 8, 128, 16),
}
SMALL = ModelConfig("llama", 4, 576, 1536, 9, 3, 64, 49152, 8192, 1e5, 1e-5, True)


class RandomSource:
    """Weights drawn by name: the same on every device."""

    path = Path("random")

    def __init__(self, config: ModelConfig) -> None:
        hidden, width, keys = config.hidden_size, config.intermediate_size, config.num_kv_heads * config.head_dim
        queries = config.num_heads * config.head_dim
        self._shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
        self._shapes["model.norm.weight"] = (hidden,)
        for layer in range(config.num_layers):
            for name, shape in {
                "input_layernorm": (hidden,),
                "post_attention_layernorm": (hidden,),
                "self_attn.q_proj": (queries, hidden),
                "self_attn.k_proj": (keys, hidden),
                "self_attn.v_proj": (keys, hidden),
                "self_attn.o_proj": (hidden, queries),
                "mlp.gate_proj": (width, hidden),
                "mlp.up_proj": (width, hidden),
                "mlp.down_proj": (hidden, width),
            }.items():
                self._shapes[f"model.layers.{layer}.{name}.weight"] = shape

    def names(self) -> Iterable[str]:
        """See Source."""
        return self._shapes

    def shape(self, name: str) -> tuple[int, ...]:
        """See Source."""
        return self._shapes[name]

    def read(self, name: str, rows: slice, out: torch.Tensor) -> None:
        """See Source."""
        made = torch.Generator().manual_seed(sum(name.encode()))
        shape = self._shapes[name]
        values = torch.randn(shape, generator=made) * (0.04 if len(shape) > 1 else 0.2) + (len(shape) == 1)
        out.copy_(values[rows])

    def grouped(self, name: str, rows: slice) -> GroupedMatrix | None:
        """See Source."""
        return None


def model_on(device: str, dtype: torch.dtype, config: ModelConfig, kernels: Kernels) -> LoadedModel:
    """A model of random weights."""
    network = build(config, Weights(RandomSource(config), dtype, device), Shard(), kernels, device)
    return LoadedModel(config, dtype, device, kernels.description, config.num_kv_heads, dtype, network)


def logits_error(device: str, config: ModelConfig) -> float:
    """Largest difference, relative to the largest logit, of a prefill and a decode here and on the CPU, in float32."""
    prompts = [[(7 * at) % config.vocab_size for at in range(length)] for length in (33, 5, 1)]
    here = Sequences(model_on(device, torch.float32, config, triton_set(device)), prompts, 64)
    there = Sequences(model_on("cpu", torch.float32, config, cpu_kernels()), prompts, 64)
    worst = 0.0
    for _ in range(2):
        found, wanted = here.step().cpu(), there.step()
        worst = max(worst, float((found - wanted).abs().max() / wanted.abs().max()))
        for sequences in (here, there):
            for tokens in sequences.tokens:
                tokens.append(11)
    return worst


def triton_set(device: str) -> Kernels:
    """The set under test."""
    return kernel_cases.kernel_set("triton", device)


def checks(device: str, tiny: bool) -> Iterable[dict[str, Any]]:
    """Each kernel, each type, each case; then whole logits."""
    steps = dict(list(STEPS.items())[-3:]) if tiny else STEPS | LARGE
    for dtype in ("float32", "float16") if tiny else TOLERANCE:
        tolerance = TOLERANCE[dtype]
        for name, step in steps.items():
            error = kernel_cases.attention_error("triton", step, dtype, device)
            yield verdict(f"attention: {name}", dtype, error, tolerance)
        for shape in ((5, 576), (3, 4, 64)):
            error = kernel_cases.rms_norm_error("triton", shape, dtype, device)
            yield verdict(f"rms_norm {shape}", dtype, error, tolerance * 4)
        yield verdict(
            "add_rms_norm", dtype, kernel_cases.add_rms_norm_error("triton", (5, 576), dtype, device), tolerance * 4
        )
        yield verdict("rotate", dtype, kernel_cases.rotate_error("triton", (6, 12, 64), dtype, device), tolerance)
        error = kernel_cases.write_kv_error("triton", [7, 3, 4, 11], (3, 3, 4, 16), dtype, device)
        yield verdict("write_kv", dtype, error, 0.0)
    config = replace(SMALL, num_layers=1, vocab_size=64, intermediate_size=64) if tiny else SMALL
    yield verdict("logits of a random model against the CPU", "float32", logits_error(device, config), 1e-3)


def verdict(name: str, dtype: str, error: float, tolerance: float) -> dict[str, Any]:
    """One line of the report; an error that is not a number is a failure."""
    return {"check": name, "dtype": dtype, "error": error, "tolerance": tolerance, "ok": error <= tolerance}


def seconds(work: Callable[[], object], repeats: int = 20) -> float:
    """The shortest of several runs, on the GPU's own clock; the first ones compile and are not counted."""
    work(), work()
    found: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / 1e3)
    return min(found)


def attention_seconds(device: str, step: Step) -> float:
    """One layer's attention in bfloat16."""
    blocks = [-(-length // step.block_size) for length in step.context]
    shape = (sum(blocks), step.kv_heads, step.block_size, step.head_dim)
    caches = [torch.randn(shape, dtype=torch.bfloat16, device=device) for _ in range(2)]
    query = torch.randn(sum(step.new), step.heads, step.head_dim, dtype=torch.bfloat16, device=device)
    tables = torch.zeros(len(blocks), max(blocks), dtype=torch.int32)
    first = 0
    for row, count in enumerate(blocks):
        tables[row, :count] = torch.arange(first, first + count, dtype=torch.int32)
        first += count
    starts = torch.tensor([0, *step.new]).cumsum(0).to(torch.int32)
    lengths = torch.tensor(step.context, dtype=torch.int32)
    paging = Paging(
        starts.to(device), lengths.to(device), tables.to(device), max(step.new), max(step.context), step.block_size
    )
    attend = triton_set(device).plan_attention(paging, AttentionSpec(step.head_dim**-0.5))
    return seconds(lambda: attend(query, *caches))


def speeds(device: str) -> dict[str, float]:
    """What a later change is measured against."""
    decode, prefill = LARGE["32 requests decode 4,096 tokens each"], Step((4096,), (4096,), 32, 8, 128, 16)
    decode_seconds, prefill_seconds = attention_seconds(device, decode), attention_seconds(device, prefill)
    read = 2 * 2 * sum(decode.context) * decode.kv_heads * decode.head_dim
    operations = 4 * prefill.heads * prefill.head_dim * 4096 * 4096 / 2
    config = replace(SMALL, num_layers=30)
    sequences = Sequences(
        model_on(device, torch.bfloat16, config, triton_set(device)), [[1] * 100 for _ in range(32)], 128
    )
    sequences.step()

    def one_more() -> None:
        for tokens in sequences.tokens:
            tokens.append(5)
        sequences.step()

    return {
        "decode_attention_seconds": decode_seconds,
        "decode_attention_bytes_per_second": read / decode_seconds,
        "prefill_attention_seconds": prefill_seconds,
        "prefill_attention_operations_per_second": operations / prefill_seconds,
        "decode_step_of_32_smollm2_seconds": seconds(one_more, 10),
    }


def main() -> int:
    """Run everything; a path to the report is printed last."""
    tiny = "--tiny" in sys.argv[1:]
    if tiny:
        kernel_cases.interpret_triton()
    elif not torch.cuda.is_available():
        print("no GPU: --tiny runs a few cases under Triton's interpreter", file=sys.stderr)
        return 2
    device = "cpu" if tiny else "cuda:0"
    began = time.monotonic()
    found = []
    for check in checks(device, tiny):
        found.append(check)
        print(("ok  " if check["ok"] else "FAIL"), check["dtype"], check["check"], check["error"], flush=True)
    report = {
        "kernels": triton_set(device).description,
        "torch": torch.__version__,
        "checks": found,
        "speeds": {} if tiny else speeds(device),
        "seconds": time.monotonic() - began,
    }
    path = Path(os.environ["OUT"]) / "gpu_acceptance.json"
    path.write_text(json.dumps(report, indent=1))
    print(json.dumps(report["speeds"]), path)
    return 0 if all(check["ok"] for check in found) else 1


if __name__ == "__main__":
    sys.exit(main())

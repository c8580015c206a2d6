"""Each kernel, type and case against the plain reference, for gpu_acceptance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import kernel_cases
import sampling_cases
from kernel_cases import HEADS, PRODUCTS, STEPS, TOLERANCE, Heads, Product, Step

LARGE = {
    "32 requests decode 4,096 tokens each": Step((1,) * 32, (4096,) * 32, 32, 8, 128, 16),
    "one request decodes 16,384 tokens": Step((1,), (16384,), 32, 8, 128, 16),
    "a chunk of 512 after 1,500 tokens": Step((512,), (2012,), 9, 3, 64, 16),
    "everything in one step": Step((512, 1, 77, 1), (512, 3000, 1000, 17), 32, 8, 128, 16),
    "Qwen3, some tokens each": Step((5, 1, 8), (700, 2000, 90), 16, 8, 128, 16),
    "Gemma 2": Step((200, 1), (300, 900), 8, 4, 256, 16, window=128, softcap=50.0),
}
QWEN3 = Heads(16, 8, 128, (7, 3, 11))


def checks(device: str, tiny: bool) -> Iterable[dict[str, Any]]:
    """Every check, the types that are served first; one that raises says so and does not end the others."""
    steps = dict(list(STEPS.items())[6:9]) if tiny else STEPS | LARGE
    for dtype in ("float32", "float16") if tiny else ("bfloat16", "float16", "float32"):
        tolerance = TOLERANCE[dtype]
        for name, step in steps.items():
            yield measured(f"attention: {name}", dtype, tolerance, kernel_cases.attention_error, step, dtype, device)
        for codes in ("int8", "float8_e4m3fn"):
            for name in list(steps)[:8:4]:
                what = f"attention over {codes}: {name}"
                yield measured(what, dtype, tolerance, kernel_cases.attention_error, steps[name], dtype, device, codes)
        heads = dict(list(HEADS.items())[:1]) if tiny else HEADS | {"Qwen3": QWEN3}
        for codes in (None, "int8", "float8_e4m3fn"):
            for name, one in heads.items():
                what = f"rotate and write {codes or 'as it is'}: {name}"
                error = kernel_cases.rotate_and_write_error
                yield measured(what, dtype, tolerance * 4, error, one, dtype, True, device, codes)
        for name, product in PRODUCTS.items() if tiny else PRODUCTS.items() | _PRODUCTS.items():
            yield measured(f"linear: {name}", dtype, tolerance, kernel_cases.linear_error, product, dtype, device)
        for shape in ((5, 576), (3, 4, 64)):
            yield measured(f"rms_norm {shape}", dtype, tolerance * 4, kernel_cases.rms_norm_error, shape, dtype, device)
        error = kernel_cases.add_rms_norm_error
        yield measured("add_rms_norm", dtype, tolerance * 4, error, (5, 576), dtype, device)
        yield measured("silu_and_mul", dtype, tolerance * 4, kernel_cases.silu_and_mul_error, (3, 2100), dtype, device)
        yield measured("rotate", dtype, tolerance * 4, kernel_cases.rotate_error, (6, 12, 64), dtype, device)
        error = kernel_cases.write_kv_error
        yield measured("write_kv", dtype, 0.0, error, [7, 3, 4, 11], (3, 3, 4, 16), dtype, device)
    for vocabulary in (70,) if tiny else (70, 5000, 151936):
        count = 20 if tiny else 200
        # The exponential of a GPU may be off by a last place, and a draw just at an edge fall on its other side.
        found = attempt(sampling_cases.differing_tokens, vocabulary, count, device)
        yield verdict(
            f"sampled tokens that differ, of {count} from {vocabulary}", "float32", found, 0.0 if tiny else 1.0
        )


_PRODUCTS = {
    "Qwen3's gate and up, one row": Product(1, 6144, 1024, 32, 4),
    "Qwen3's gate and up, 200 rows": Product(200, 6144, 1024, 128, 4),
    "eight bits, 70 rows": Product(70, 1024, 3072, 32, 8),
}


def measured(name: str, dtype: str, tolerance: float, measure: Any, *arguments: Any) -> dict[str, Any]:
    """A check of Triton's kernels by one of kernel_cases' measures."""
    return verdict(name, dtype, attempt(measure, "triton", *arguments), tolerance)


def attempt(measure: Any, *arguments: Any) -> float | str:
    """The error measured, or what was raised instead."""
    try:
        return float(measure(*arguments))
    except Exception as error:  # noqa: BLE001  the report is of whatever goes wrong on a machine seen once
        return f"{type(error).__name__}: {str(error)[:400]}"


def verdict(name: str, dtype: str, error: float | str, tolerance: float) -> dict[str, Any]:
    """One line of the report; an error that is not a number is a failure."""
    ok = not isinstance(error, str) and error <= tolerance
    return {"check": name, "dtype": dtype, "error": error, "tolerance": tolerance, "ok": ok}

"""How a Hugging Face folder's matrices are stored: `quantization_config` of config.json.

Formats as their writers define them: GPTQ (AutoGPTQ, GPTQModel), AWQ (AutoAWQ), compressed-tensors, and float8 as
DeepSeek, Qwen and vLLM write it. Each says in its tensors how they are cut; what the configuration has to say besides
is here, and what cannot be computed from it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tidegate_engine.files.errors import ModelFileError

Quantization = Literal["none", "int8", "int4", "fp8"]
"""What weights may be quantized to when they are loaded."""
Kind = Literal["gptq", "awq", "compressed", "float8"]
_INSTEAD = "use the original weights with spec.model.quantization, a GGUF file, or one of GPTQ, AWQ, fp8"


@dataclass(frozen=True, slots=True)
class StoredQuantization:
    """What reading the tensors of a quantized folder needs beside their shapes."""

    kind: Kind
    bits: int = 8
    zeros_less_one: bool = False
    """GPTQ's first format stores each zero point less one"""
    block: tuple[int, int] | None = None
    """rows and columns that share one scale of a float8 matrix; None: the shape of the scales says it"""


def stored_quantization(folder: Path) -> StoredQuantization | None:
    """What the folder's config.json says of quantization; None where it says nothing.

    Raises ModelFileError for a format that is not supported. That config.json can be read is known by then.
    """
    path = folder / "config.json"
    raw = json.loads(path.read_text()).get("quantization_config")
    if not raw:
        return None
    try:
        method = raw["quant_method"]
        read = _READERS.get(method)
        if read is not None:
            return read(path, raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelFileError(
            f"{path}: quantization_config cannot be read ({error!r}); download the file again"
        ) from None
    raise ModelFileError(f"{path}: quantization {method!r} is not supported; {_INSTEAD}")


def _gptq(path: Path, raw: dict[str, Any]) -> StoredQuantization:
    bits = int(raw["bits"])
    form = raw.get("checkpoint_format") or "gptq"
    _refuse(path, "bits", bits, bits not in (4, 8), "4 and 8 are")
    _refuse(path, "checkpoint_format", form, form not in ("gptq", "gptq_v2"), "gptq and gptq_v2 are")
    _refuse(path, "is_marlin_format", True, bool(raw.get("is_marlin_format")), "use the folder it was made from")
    _refuse(path, "dynamic", raw.get("dynamic"), bool(raw.get("dynamic")), "one setting for all matrices is")
    return StoredQuantization("gptq", bits, zeros_less_one=form == "gptq")


def _awq(path: Path, raw: dict[str, Any]) -> StoredQuantization:
    bits = int(raw.get("bits", raw.get("w_bit", 4)))
    version = str(raw.get("version", "gemm")).lower()
    _refuse(path, "bits", bits, bits != 4, "4 is")
    _refuse(path, "version", version, version != "gemm", "gemm is")
    _refuse(path, "zero_point", False, not raw.get("zero_point", True), "true is")
    return StoredQuantization("awq", bits)


def _float8(path: Path, raw: dict[str, Any]) -> StoredQuantization:
    form = raw.get("fmt") or "e4m3"
    _refuse(path, "fmt", form, form not in ("e4m3", "float8_e4m3fn"), "e4m3 is")
    block = raw.get("weight_block_size")
    return StoredQuantization("float8", block=None if block is None else (int(block[0]), int(block[1])))


def _compressed(path: Path, raw: dict[str, Any]) -> StoredQuantization:
    groups = raw["config_groups"].values()
    forms = {str(raw.get("format")), *(str(group["format"]) for group in groups if group.get("format"))}
    for form in sorted(forms):
        _refuse(path, "format", form, form not in _COMPRESSED, f"{', '.join(_COMPRESSED)} are")
    for group in groups:
        bits = int(group["weights"]["num_bits"])
        _refuse(path, "num_bits", bits, bits not in (4, 8), "4 and 8 are")
        kind = group["weights"].get("type", "int")
        _refuse(path, "type", kind, kind not in ("int", "float") or (kind == "float" and bits != 8), "int, float8 are")
    return StoredQuantization("compressed")


def _refuse(path: Path, field: str, value: Any, wrong: bool, instead: str) -> None:
    if wrong:
        raise ModelFileError(f"{path}: quantization_config.{field} {value!r} is not supported; {instead}")


_COMPRESSED = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")
_READERS: dict[str, Callable[[Path, dict[str, Any]], StoredQuantization]] = {
    "gptq": _gptq,
    "awq": _awq,
    "fp8": _float8,
    "fbgemm_fp8": _float8,
    "compressed-tensors": _compressed,
}

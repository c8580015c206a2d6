"""What `quantization_config` may say, and what is refused with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tidegate_engine.files import ModelFileError
from tidegate_engine.files.quantization import StoredQuantization, stored_quantization

GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True}
PACKED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
}


def read(folder: Path, quantization: Any) -> StoredQuantization | None:
    (folder / "config.json").write_text(json.dumps({"quantization_config": quantization}))
    return stored_quantization(folder)


@pytest.mark.parametrize(
    ("quantization", "wanted"),
    [
        pytest.param(None, None, id="nothing"),
        pytest.param(GPTQ, StoredQuantization("gptq", 4, zeros_less_one=True), id="GPTQ's first format"),
        pytest.param(
            GPTQ | {"bits": 8, "checkpoint_format": "gptq_v2"}, StoredQuantization("gptq", 8), id="GPTQ's second format"
        ),
        pytest.param({"quant_method": "awq", "bits": 4, "version": "GEMM"}, StoredQuantization("awq", 4), id="AWQ"),
        pytest.param(
            {"quant_method": "fp8", "weight_block_size": [128, 128]},
            StoredQuantization("float8", block=(128, 128)),
            id="float8 in blocks",
        ),
        pytest.param(PACKED, StoredQuantization("compressed"), id="compressed-tensors"),
    ],
)
def test_formats_that_are_read(quantization: Any, wanted: StoredQuantization | None, tmp_path: Path) -> None:
    assert read(tmp_path, quantization) == wanted


@pytest.mark.parametrize(
    ("quantization", "wanted"),
    [
        pytest.param(
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            "quantization 'bitsandbytes' is not supported; use the original weights with spec.model.quantization",
            id="bitsandbytes",
        ),
        pytest.param(GPTQ | {"bits": 3}, "quantization_config.bits 3 is not supported; 4 and 8 are", id="three bits"),
        pytest.param(GPTQ | {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin'", id="GPTQ for one kernel"),
        pytest.param(GPTQ | {"dynamic": {"-:.*": {}}}, "dynamic", id="GPTQ of several settings"),
        pytest.param({"quant_method": "gptq"}, "quantization_config cannot be read", id="GPTQ without bits"),
        pytest.param({"quant_method": "awq", "version": "gemv"}, "version 'gemv'.*; gemm is", id="AWQ for one kernel"),
        pytest.param({"quant_method": "awq", "zero_point": False}, "zero_point", id="AWQ without zero points"),
        pytest.param({"quant_method": "fp8", "fmt": "e5m2"}, "fmt 'e5m2'", id="another float8"),
        pytest.param(
            PACKED | {"format": "nvfp4-pack-quantized"}, "format 'nvfp4-pack-quantized'", id="floats of four bits"
        ),
        pytest.param([1], "quantization_config cannot be read", id="a list"),
        pytest.param({"bits": 4}, "quantization_config cannot be read", id="no method"),
    ],
)
def test_a_format_that_is_not_supported_is_one_line(quantization: Any, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=wanted) as caught:
        read(tmp_path, quantization)
    assert str(tmp_path / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)

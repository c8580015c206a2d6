"""A path to a network that is ready to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from tidegate_engine.files import ModelFileError
from tidegate_engine.files.config import ModelConfig
from tidegate_engine.files.config_gguf import from_gguf
from tidegate_engine.files.config_json import from_folder
from tidegate_engine.files.gguf import read_gguf
from tidegate_engine.files.quantization import Quantization
from tidegate_engine.kernels.choice import choose
from tidegate_engine.model.batch import ForwardBatch, Shard
from tidegate_engine.model.build import build
from tidegate_engine.model.calibration import widen_outliers
from tidegate_engine.model.gguf_source import GGUFSource
from tidegate_engine.model.kv import KVCache
from tidegate_engine.model.native import native_network
from tidegate_engine.model.parts import Parts
from tidegate_engine.model.quantized_source import DESCRIPTIONS, QuantizedSource
from tidegate_engine.model.source import Source
from tidegate_engine.model.weights import Weights

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_KV_DTYPES = _DTYPES | {"int8": torch.int8, "fp8": torch.float8_e4m3fn}


class Network(Protocol):
    """One rank's network, whichever family it is of."""

    def forward(self, batch: ForwardBatch, kv: KVCache) -> Tensor:
        """Logits float32 [S, V], the whole vocabulary on every rank; the batch's keys and values go into `kv`."""
        ...

    def hidden(self, batch: ForwardBatch, kv: KVCache) -> Tensor:
        """The half of it before the head: what the head is given, [S, H], the same on every rank."""
        ...

    def logits(self, x: Tensor) -> Tensor:
        """The head alone: [S, H] to float32 [S, V]; every rank is called with the same rows."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """One rank's model, ready to compute."""

    config: ModelConfig
    """the model's; `max_position` is lowered to the `max_model_len` asked for"""
    dtype: torch.dtype
    """of plain weights and activations"""
    device: str
    kernels: str
    """one line for the log: which kernels were chosen"""
    kv_heads: int
    """this rank's key/value heads"""
    kv_dtype: torch.dtype
    """what the cache of keys and values holds"""
    network: Network

    def forward(self, batch: ForwardBatch, kv: KVCache) -> Tensor:
        """Logits float32 [S, vocabulary], whole on every rank; the batch's keys and values are written into `kv`."""
        return self.network.forward(batch, kv)

    def hidden(self, batch: ForwardBatch, kv: KVCache) -> Tensor:
        """The first half of `forward`: the network's last hidden states [S, hidden size], as the head is given them."""
        return self.network.hidden(batch, kv)

    def logits(self, hidden: Tensor) -> Tensor:
        """The second half of `forward`. Every rank calls it with the same rows."""
        return self.network.logits(hidden)


def load(
    path: Path,
    shard: Shard,
    dtype: str,
    max_model_len: int | None,
    quantization: Quantization = "none",
    kv_cache_dtype: str = "auto",
    adapters: Sequence[Path] = (),
) -> LoadedModel:
    """Load a GGUF file or a Hugging Face folder onto this rank's device; "auto" is float32 on CPU, bfloat16 on CUDA.

    `quantization` is of the weights, besides what the file has done itself; the cache's "auto" is the model's dtype.
    `adapters` are PEFT folders, which a step's rows name by number from 1 on.
    Raises ModelFileError: one line naming the file, what is wrong and what to do. With more than one rank the default
    process group must be there before the first forward pass.
    """
    device = f"cuda:{shard.rank}" if torch.cuda.is_available() else "cpu"
    usual = torch.bfloat16 if device != "cpu" else torch.float32
    number = usual if dtype == "auto" else _DTYPES[dtype]
    config, source = _open(path)
    if max_model_len is not None:
        if max_model_len > config.max_position:
            raise ModelFileError(
                f"maxModelLen {max_model_len}: {path} was made for {config.max_position} tokens; ask for that or fewer"
            )
        config = replace(config, max_position=max_model_len)
    # Asked for by name, a type is exact: activations are not rounded, nor keys and values kept in another one.
    kernels = choose(device, compiled=dtype == "auto")
    compiled = kernels.kv_dtype is not None
    usual_kv = kernels.kv_dtype if kernels.kv_dtype is not None and config.head_dim % 16 == 0 else number
    kv_number = usual_kv if kv_cache_dtype == "auto" else _KV_DTYPES[kv_cache_dtype]
    if device != "cpu" and kv_number not in (number, torch.int8, torch.float8_e4m3fn):
        raise ModelFileError(
            f"kvCacheDtype {kv_cache_dtype}: on a GPU this model's keys and values are kept in {str(number)[6:]}, "
            "int8 or fp8; use auto or one of them"
        )
    if quantization != "none":
        source = QuantizedSource(source, quantization)
    keep = compiled or device != "cpu" or quantization in ("int8", "int4")
    network = build(config, Weights(source, number, device, keep), shard, kernels, device)
    if compiled and shard.size == 1:
        widen_outliers(network)
    if adapters:
        # Imported here, so that a model without adapters needs no safetensors.
        from tidegate_engine.model.adapter_files import load_adapters

        network = replace(network, adapters=load_adapters(adapters, config, network.shares, number, device))
    native = native_network(network) if compiled else None
    rate = f", a token's pass reads weights at {native.read_rate() / 1e9:.0f} GB/s" if native else ""
    description = kernels.description + rate
    return LoadedModel(
        config,
        number,
        device,
        description + DESCRIPTIONS[quantization],
        network.shares.kv_heads,
        kv_number,
        native or network,
    )


def _open(path: Path) -> tuple[ModelConfig, Source]:
    if path.is_dir():
        # Imported here, so that a GGUF file needs no safetensors.
        from tidegate_engine.model.folder_source import FolderSource

        config = from_folder(path)
        return config, Parts(FolderSource(path), config)
    file = read_gguf(path)
    config = from_gguf(file)
    return config, Parts(GGUFSource(file, config), config)

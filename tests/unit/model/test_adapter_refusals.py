"""What load() says of adapters that it cannot use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_adapters import CONFIG, save_small_adapter
from small_models import save_small_model
from tidegate_engine.files import ModelFileError
from tidegate_engine.model import load
from tidegate_engine.model.batch import Shard

FIRST = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def _says(**changes: object) -> Callable[[Path], None]:
    return lambda folder: (folder / "adapter_config.json").write_text(json.dumps(CONFIG | changes)) and None


def _tensors(**changes: torch.Tensor | None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        path = folder / "adapter_model.safetensors"
        tensors = load_file(path) | {name: tensor for name, tensor in changes.items() if tensor is not None}
        save_file({name: tensors[name] for name in tensors if changes.get(name, tensors) is not None}, path)

    return write


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no configuration": (
        lambda folder: (folder / "adapter_config.json").unlink(),
        "does not exist; an adapter's folder",
    ),
    "no weights": (lambda folder: (folder / "adapter_model.safetensors").unlink(), "does not exist; download"),
    "another method": (_says(peft_type="IA3"), "peft_type 'IA3' is not supported; LORA is"),
    "weights that are decomposed": (_says(use_dora=True), "use_dora True is not supported; merge"),
    "ranks of layers": (_says(rank_pattern={"q_proj": 2}), "rank_pattern .* is not supported"),
    "modules trained whole": (_says(modules_to_save=["lm_head"]), "modules_to_save .* is not supported"),
    "biases": (_says(bias="all"), "bias 'all' is not supported"),
    "a base model that was changed": (_says(init_lora_weights="pissa"), "'pissa' changes the model's own weights"),
    "another rank": (_says(r=8), r"lora_[AB] of .* where the model and r say"),
    "a rank of nothing": (_says(r=0), "does not describe an adapter"),
    "an embedding": (
        _tensors(**{"base_model.model.model.embed_tokens.lora_embedding_A": torch.zeros(4, 101)}),
        "embed_tokens.lora_embedding_A' adapts no part of this model that may be adapted; these are q_proj",
    ),
    "a layer that there is not": (
        _tensors(**{FIRST.replace(".0.", ".7."): torch.zeros(4, 48)}),
        "in its 2 layers",
    ),
    "half a pair": (_tensors(**{FIRST: None}), "layer 0's q_proj lacks lora_A"),
    "another model's size": (_tensors(**{FIRST: torch.zeros(4, 50)}), r"lora_A of \[4, 50\] where .* say \[4, 48\]"),
}


@pytest.mark.parametrize(("spoil", "wanted"), [pytest.param(*case, id=name) for name, case in REFUSED.items()])
def test_an_adapter_that_cannot_be_used(spoil: Callable[[Path], None], wanted: str, tmp_path: Path) -> None:
    save_small_model("Llama", tmp_path / "base")
    adapter = save_small_adapter(tmp_path / "base", tmp_path / "adapter", 1, ("q_proj",))
    load(tmp_path / "base", Shard(), "float32", None, adapters=[adapter])
    spoil(adapter)
    with pytest.raises(ModelFileError, match=wanted) as caught:
        load(tmp_path / "base", Shard(), "float32", None, adapters=[adapter])
    assert str(adapter) in str(caught.value)
    assert "\n" not in str(caught.value)

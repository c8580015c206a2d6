"""Which instruction sets a process uses, and how many threads."""

from __future__ import annotations

import pytest
import torch
from compiled_kernels import team_of
from tidegate_engine.kernels.choice import choose
from tidegate_engine.kernels.native_library import Isa, available, open_library


@pytest.mark.parametrize(
    ("capability", "most"),
    [
        pytest.param("DEFAULT", -1, id="a processor without AVX2, or ATEN_CPU_CAPABILITY=default"),
        pytest.param("AVX2", Isa.AVX2, id="AVX2 alone, or ATEN_CPU_CAPABILITY=avx2"),
        pytest.param("AVX512", Isa.AVX512_VNNI, id="AVX-512"),
        pytest.param("a newer one", Isa.AVX512_VNNI, id="one of a newer torch"),
    ],
)
def test_no_instructions_are_used_that_torch_does_not_use_nor_the_processor_has(
    monkeypatch: pytest.MonkeyPatch, capability: str, most: int
) -> None:
    library = open_library()
    assert library is not None, "scripts/setup.sh builds the library"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert available() == [isa for isa in Isa if isa <= min(most, library.tg_best_isa())]
    assert ("compiled" in choose("cpu", compiled=True).description) == bool(available())


def test_a_machine_of_more_processors_than_a_team_has_places_gets_a_full_team() -> None:
    assert team_of(384).threads == 256

"""The compiled kernels for tests, where there are any for this process."""

from __future__ import annotations

import pytest
from tidegate_engine.kernels.native import Team, native_team
from tidegate_engine.kernels.native_library import available, open_library


def skip_without_them() -> None:
    """Skip where AVX2 is not to be used, which ATEN_CPU_CAPABILITY=default asks for on any processor."""
    assert open_library() is not None, "scripts/setup.sh builds the library"
    if not available():
        pytest.skip("neither of the compiled kernels' instruction sets may be used here")


def team_of(threads: int) -> Team:
    """A team of its own."""
    skip_without_them()
    team = native_team(threads)
    assert team is not None
    return team

"""How the attention kernels are cut: sizes of tiles, warps and pipeline stages, and the choice of the fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

_Choice = TypeVar("_Choice")


@dataclass(frozen=True, slots=True)
class Scores:
    """An AttentionSpec as the kernels take it: `scale` and `softcap` for powers of two, which the hardware computes."""

    scale: float
    window: int | None
    softcap: float | None


@dataclass(frozen=True, slots=True)
class Tile:
    """One kernel's: rows of queries (pairs of token and head) by keys, and how a program is run."""

    rows: int
    keys: int
    warps: int
    stages: int
    """iterations of the loop over keys in flight, loads of later ones included"""


@dataclass(frozen=True, slots=True)
class AttentionTiles:
    """What a step's attention runs with."""

    prefill: Tile
    decode: Tile
    programs: int = 1056
    """Contexts are split until about so many programs run: eight for each of an H200's 132 multiprocessors."""


def default_tiles(itemsize: int, width: int) -> AttentionTiles:
    """Sizes that fit the 227 KiB of shared memory of a multiprocessor, for elements of `itemsize` bytes, heads of
    `width`."""
    if itemsize > 2 or width > 128:
        return AttentionTiles(Tile(64, 32, 4, 2), Tile(16, 32, 4, 3))
    return AttentionTiles(Tile(128, 64, 8, 3), Tile(16, 64, 4, 4))


def candidates(start: AttentionTiles, decoding: bool) -> list[AttentionTiles]:
    """What is worth timing beside `start`, itself first: changes to its decode tile, or to its prefill tile."""
    if decoding:
        tiles = [Tile(16, keys, warps, stages) for keys, warps, stages in _DECODE]
        return [start, *(replace(start, decode=tile) for tile in tiles if tile != start.decode)]
    tiles = [Tile(rows, keys, warps, stages) for rows, keys, warps, stages in _PREFILL]
    return [start, *(replace(start, prefill=tile) for tile in tiles if tile != start.prefill)]


def splits(start: AttentionTiles) -> list[AttentionTiles]:
    """Finer and coarser splits of the context: the last step of a search."""
    return [start, *(replace(start, programs=count) for count in (264, 528, 2112, 4224) if count != start.programs)]


def fastest(choices: Iterable[_Choice], seconds: Callable[[_Choice], float | None]) -> tuple[_Choice, float]:
    """The choice that took least time; one whose time is None could not run here. ValueError where none could."""
    timed = [(taken, index, choice) for index, choice in enumerate(choices) if (taken := seconds(choice)) is not None]
    if not timed:
        raise ValueError("none of the tile sizes could run on this device")
    taken, _, choice = min(timed, key=lambda entry: entry[:2])
    return choice, taken


_DECODE = ((32, 4, 4), (64, 4, 3), (64, 4, 5), (128, 4, 3), (128, 8, 3), (64, 2, 4), (32, 2, 5))
_PREFILL = ((128, 64, 4, 2), (64, 64, 4, 3), (128, 128, 8, 2), (64, 32, 4, 3))

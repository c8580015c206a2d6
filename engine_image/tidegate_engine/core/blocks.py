"""The pool of KV cache blocks: who holds each, which are free, and which free ones still hold a known prefix."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

ROOT = b""
"""The parent of a prompt's first block."""


class OutOfBlocks(RuntimeError):
    """Every block is held by a running request."""


class IntegrityError(AssertionError):
    """The pool contradicts itself: a fault of ours, never of a user."""


class BlockPool:
    """Reference-counted blocks. A cached block is a free block that still has its digest, so caching costs no memory.

    Free blocks form one queue: those without a digest in front, then cached ones, least recently used first.
    """

    def __init__(self, num_blocks: int, block_size: int, hash_key: bytes) -> None:
        """`hash_key` is secret and random by process, so that nobody can make two prompts collide."""
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"a pool of {num_blocks} blocks of {block_size} tokens holds nothing")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._hash_key = hash_key
        self._references = [0] * num_blocks
        self._digests: list[bytes | None] = [None] * num_blocks
        self._by_digest: dict[bytes, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now, cached ones included."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks held by requests."""
        return self.num_blocks - len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks that many tokens take."""
        return -(-num_tokens // self.block_size)

    def digest(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        """The name of one full block's content: its own tokens and, through `parent`, all before them."""
        return hashlib.blake2b(parent + array("q", tokens).tobytes(), key=self._hash_key, digest_size=16).digest()

    def allocate(self) -> int:
        """Take the free block least worth keeping, forgetting what it cached; raises OutOfBlocks."""
        if not self._free:
            raise OutOfBlocks(f"all {self.num_blocks} blocks are held")
        block, _ = self._free.popitem(last=False)
        digest = self._digests[block]
        if digest is not None:
            del self._by_digest[digest]
            self._digests[block] = None
        self._references[block] = 1
        return block

    def find(self, digest: bytes) -> int | None:
        """The block that holds this content, free or in use."""
        return self._by_digest.get(digest)

    def is_free(self, block: int) -> bool:
        """Whether nobody holds the block, so that holding it makes one fewer free."""
        return self._references[block] == 0

    def hold(self, block: int) -> None:
        """Share a block that `find` named."""
        if self._digests[block] is None:
            raise IntegrityError(f"block {block} holds no known content to share")
        if self._references[block] == 0:
            del self._free[block]
        self._references[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """Let go of a request's blocks. The last are freed first: a prefix is worth more than what followed it."""
        for block in reversed(blocks):
            if self._references[block] == 0:
                raise IntegrityError(f"block {block} is released by somebody who does not hold it")
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free[block] = None
                if self._digests[block] is None:
                    self._free.move_to_end(block, last=False)

    def publish(self, block: int, digest: bytes) -> None:
        """Make a full block findable, once its keys and values are really written. A second copy stays private."""
        if self._references[block] == 0:
            raise IntegrityError(f"block {block} is published by somebody who does not hold it")
        if self._digests[block] is None and digest not in self._by_digest:
            self._digests[block] = digest
            self._by_digest[digest] = block

    def check_integrity(self) -> None:
        """Raise IntegrityError where counts, queue and cache disagree. O(blocks): for tests and idle moments."""
        for block, references in enumerate(self._references):
            if references < 0 or (references == 0) != (block in self._free):
                raise IntegrityError(f"block {block} has {references} references, free: {block in self._free}")
            digest = self._digests[block]
            if digest is not None and self._by_digest.get(digest) != block:
                raise IntegrityError(f"block {block} has a digest that finds {self._by_digest.get(digest)}")
        for digest, block in self._by_digest.items():
            if self._digests[block] != digest:
                raise IntegrityError(f"a digest finds block {block}, which holds something else")

    def reference_counts(self) -> list[int]:
        """By block, how many requests hold it; for checks against the requests' own tables."""
        return list(self._references)

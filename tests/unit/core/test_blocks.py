"""The block pool: what is kept, what is given away first, and what is an error of ours."""

from __future__ import annotations

import pytest
from tidegate_engine.core.blocks import ROOT, BlockPool, IntegrityError, OutOfBlocks


def test_blocks_that_cache_nothing_are_used_before_blocks_that_do() -> None:
    pool = BlockPool(3, 2, b"key")
    cached, plain = pool.allocate(), pool.allocate()
    pool.publish(cached, pool.digest(ROOT, [1, 2]))
    pool.release([cached])
    pool.release([plain])
    assert [pool.allocate(), pool.allocate()] == [plain, 2]
    assert pool.find(pool.digest(ROOT, [1, 2])) == cached


def test_the_least_recently_used_prefix_is_forgotten_first_and_its_end_before_its_beginning() -> None:
    pool = BlockPool(4, 1, b"key")
    old = [pool.allocate(), pool.allocate()]
    new = [pool.allocate(), pool.allocate()]
    for blocks, token in ((old, 1), (new, 2)):
        first = pool.digest(ROOT, [token])
        pool.publish(blocks[0], first)
        pool.publish(blocks[1], pool.digest(first, [token]))
    pool.release(old)
    pool.release(new)
    assert [pool.allocate() for _ in range(4)] == [old[1], old[0], new[1], new[0]]
    assert pool.find(pool.digest(ROOT, [1])) is None


def test_a_shared_block_is_free_only_when_the_last_holder_lets_go() -> None:
    pool = BlockPool(1, 2, b"key")
    block = pool.allocate()
    pool.publish(block, pool.digest(ROOT, [1, 2]))
    pool.hold(block)
    pool.release([block])
    with pytest.raises(OutOfBlocks):
        pool.allocate()
    pool.release([block])
    assert pool.num_free == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param((b"a", ROOT, [1, 2]), (b"b", ROOT, [1, 2]), id="processes with different keys name nothing alike"),
        pytest.param((b"a", ROOT, [1, 2]), (b"a", b"parent", [1, 2]), id="another beginning counts"),
        pytest.param((b"a", ROOT, [1, 2]), (b"a", ROOT, [258]), id="tokens do not run into each other"),
        pytest.param((b"a", ROOT, [1, 2]), (b"a", ROOT, [2, 1]), id="order counts"),
    ],
)
def test_digests_differ(one: tuple[bytes, bytes, list[int]], other: tuple[bytes, bytes, list[int]]) -> None:
    digests = [BlockPool(1, 2, key).digest(parent, tokens) for key, parent, tokens in (one, other)]
    assert digests[0] != digests[1]


def test_a_second_copy_of_known_content_stays_private() -> None:
    pool = BlockPool(2, 1, b"key")
    first, second = pool.allocate(), pool.allocate()
    name = pool.digest(ROOT, [5])
    pool.publish(first, name)
    pool.publish(second, name)
    assert pool.find(name) == first
    pool.check_integrity()


def test_misuse_is_noticed_at_once() -> None:
    pool = BlockPool(2, 1, b"key")
    block = pool.allocate()
    pool.release([block])
    with pytest.raises(IntegrityError):
        pool.release([block])
    with pytest.raises(IntegrityError):
        pool.publish(block, b"name")
    with pytest.raises(IntegrityError):
        pool.hold(block)

"""Leadership over a lease in memory: work begins with it, and ends with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from tidegate_operator.world.leader import LeaseLost, lead


class Lease:
    """What the election asks of a lock; anybody may write `record`."""

    name, namespace = "lease", "ns"

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.record: LeaderElectionRecord | None = None
        self.unreachable = False
        self.released = False

    async def get(self, name: str, namespace: str) -> Any:
        if self.unreachable:
            return False, ApiException(status=0, reason="unreachable")
        if self.record is None:
            return False, ApiException(http_resp=NotThere())
        return True, self.record

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        self.record = election_record
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        if self.unreachable:
            return False
        self.record = updated_record
        return True

    async def release(self) -> None:
        self.released = True


class NotThere:
    """The API server's answer about a lease that does not exist."""

    status, reason, data, headers = 404, "Not Found", b'{"code": 404}', {}

    def getheaders(self) -> dict[str, str]:
        return {}


async def test_work_begins_with_the_lease_and_gives_it_back_at_its_end() -> None:
    lease, began = Lease("a"), []

    async def work() -> None:
        began.append(lease.record and lease.record.holder_identity)

    async with asyncio.timeout(10):
        await lead(lease, 3, work)  # type: ignore[arg-type]
    assert began == ["a"]
    assert lease.released


@pytest.mark.parametrize("how", ["stolen", "unreachable"])
async def test_work_is_cancelled_once_the_lease_cannot_be_renewed(how: str) -> None:
    lease, ended = Lease("a"), asyncio.Event()

    async def work() -> None:
        if how == "stolen":
            lease.record = LeaderElectionRecord("thief", "3600", "2026-11-30 06:00:00.1", "2026-11-30 06:00:00.1")
        else:
            lease.unreachable = True
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(15):
        with pytest.raises(LeaseLost):
            await lead(lease, 3, work)  # type: ignore[arg-type]
    assert ended.is_set()
    assert not lease.released


async def test_a_defect_in_the_work_is_not_hidden_by_the_lease() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    async with asyncio.timeout(10):
        with pytest.raises(ZeroDivisionError):
            await lead(Lease("a"), 3, work)  # type: ignore[arg-type]

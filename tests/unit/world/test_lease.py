"""Leadership over a lease in memory: work begins with it, and ends with it."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.client.models.v1_lease import V1Lease
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from tidegate_operator.errors import RetryLater, Stall
from tidegate_operator.world.leader import ADDRESS, Holder, LeaseLost, TimedLease, lead


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


class Leases:
    """The API server's one lease, behind the calls that a TimedLease makes."""

    def __init__(self) -> None:
        self.live: V1Lease | None = None
        self.refuses: ApiException | None = None

    async def read_namespaced_lease(self, _name: str, _namespace: str) -> V1Lease:
        if self.refuses is not None:
            raise self.refuses
        if self.live is None:
            raise ApiException(http_resp=NotThere())
        return copy.deepcopy(self.live)

    async def create_namespaced_lease(self, _namespace: str, body: V1Lease) -> None:
        self.live = copy.deepcopy(body)

    async def replace_namespaced_lease(self, name: str, namespace: str, body: V1Lease) -> None:
        assert (name, namespace) == ("lease", "ns")
        self.live = copy.deepcopy(body)

    def of(self, identity: str, address: str | None) -> TimedLease:
        """The lease as this operator sees and takes it."""
        lock = TimedLease("lease", "ns", identity, None, patience=5, address=address)  # type: ignore[arg-type]
        lock.api_instance = self
        return lock

    @property
    def annotations(self) -> dict[str, str]:
        assert self.live is not None
        assert self.live.metadata is not None
        return self.live.metadata.annotations or {}


def record(identity: str) -> LeaderElectionRecord:
    return LeaderElectionRecord(identity, "15", "2026-11-30 06:00:00.1", "2026-11-30 06:00:00.1")


async def test_the_others_learn_from_the_lease_who_leads_and_where_to_ask_it() -> None:
    leases = Leases()
    a, b = leases.of("a", "10.0.0.1:8443"), leases.of("b", "10.0.0.2:8443")
    assert b.holder is None
    assert await a.create("lease", "ns", record("a"))
    await b.get("lease", "ns")
    assert b.holder == Holder("a", "10.0.0.1:8443")

    assert leases.live is not None
    assert leases.live.metadata is not None
    leases.live.metadata.annotations = leases.annotations | {"a person's": "note"}
    await b.get("lease", "ns")
    assert b.holder == Holder("a", "10.0.0.1:8443"), "b did not take it yet"
    assert await b.update("lease", "ns", record("b"))
    await a.get("lease", "ns")
    assert a.holder == Holder("b", "10.0.0.2:8443")
    assert leases.annotations["a person's"] == "note"

    await b.release()
    await a.get("lease", "ns")
    assert a.holder is None
    assert ADDRESS not in leases.annotations


async def test_one_that_serves_no_external_metrics_does_not_lead_under_the_former_ones_address() -> None:
    leases = Leases()
    a, plain = leases.of("a", "10.0.0.1:8443"), leases.of("plain", None)
    await a.create("lease", "ns", record("a"))
    await plain.get("lease", "ns")
    await plain.update("lease", "ns", record("plain"))
    await a.get("lease", "ns")
    assert a.holder == Holder("plain", None)


@pytest.mark.parametrize(
    ("refuses", "raises", "words"),
    [
        pytest.param(None, None, "", id="not there yet: the first to lead creates it"),
        pytest.param(
            ApiException(status=403, reason="Forbidden"), Stall, "get lease ns/lease: Forbidden", id="no right to it"
        ),
        pytest.param(
            ApiException(status=500, reason="busy"), RetryLater, "get lease ns/lease: busy", id="a bad moment"
        ),
    ],
)
async def test_one_that_may_not_read_the_lease_says_so(
    refuses: ApiException | None, raises: type[Exception] | None, words: str
) -> None:
    leases = Leases()
    leases.refuses = refuses
    lock = leases.of("a", None)
    if raises is None:
        await lock.probe()
        return
    with pytest.raises(raises, match=words):
        await lock.probe()

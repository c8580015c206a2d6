"""Leadership by a Lease: at most one process acts, and one that cannot renew in time stops acting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.client.models.v1_lease import V1Lease
from kubernetes.aio.client.models.v1_object_meta import V1ObjectMeta
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from tidegate_operator.errors import RetryLater, Stall

ADDRESS = "tidegate.dev/external-metrics-address"
"""The Lease's annotation: where its holder serves external metrics. With it no right is needed to find the leader."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who leads, and as IP:PORT where it serves external metrics."""

    identity: str
    address: str | None


class LeaseLost(Exception):
    """The lease could not be renewed in time: another process may lead by now, so this one must end."""


class TimedLease(LeaseLock):
    """A lease whose requests cannot outlast it: the library's default of five minutes would keep two leaders alive."""

    def __init__(
        self, name: str, namespace: str, identity: str, client: ApiClient, patience: float, address: str | None = None
    ) -> None:
        super().__init__(name, namespace, identity, client)
        self._patience, self._address = patience, address
        self.holder: Holder | None = None
        """As last read, which is once in every retry period."""

    async def get(self, name: str, namespace: str) -> Any:
        """(True, record) or (False, exception), as the election expects."""
        try:
            async with asyncio.timeout(self._patience):
                found = await super().get(name, namespace)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)
        if found[0]:
            self.holder = _holder(self.lease_reference)
        return found

    async def probe(self) -> None:
        """Raises a WorldError where the lease cannot be asked for; that it is not there yet is well."""
        found, answer = await self.get(self.name, self.namespace)
        if found or answer.status == 404:
            return
        what = f"get lease {self.namespace}/{self.name}: {answer.reason}"
        raise Stall("Forbidden", what) if answer.status == 403 else RetryLater("ApiUnreachable", what)

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Whether the lease was created. (The library's own passes `pretty=True`, which its client refuses.)"""
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        self._sign(body, self._address)
        return await self._tried(self._created(namespace, body))

    async def _created(self, namespace: str, body: V1Lease) -> bool:
        try:
            await self.api_instance.create_namespaced_lease(namespace, body)
        except ApiException:
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Whether the lease was taken or renewed."""
        if self.lease_reference is not None:
            self._sign(self.lease_reference, self._address)
        return await self._tried(super().update(name, namespace, updated_record))

    async def release(self) -> None:
        """Give the lease back, so that the next process need not wait for it to run out."""
        held, record = await self.get(self.name, self.namespace)
        lease = self.lease_reference
        if not held or record.holder_identity != self.identity or lease is None or lease.spec is None:
            return
        lease.spec.holder_identity = ""
        lease.spec.lease_duration_seconds = 1
        self._sign(lease, None)
        replace = self.api_instance.replace_namespaced_lease(self.name, self.namespace, lease)
        try:
            async with asyncio.timeout(self._patience):
                await replace
        except (TimeoutError, aiohttp.ClientError, OSError, ApiException):
            return  # it runs out by itself

    @staticmethod
    def _sign(lease: V1Lease, address: str | None) -> None:
        """The address changes in the same write as the holder, so that it is never another one's."""
        assert lease.metadata is not None
        others = {key: value for key, value in (lease.metadata.annotations or {}).items() if key != ADDRESS}
        lease.metadata.annotations = others | ({} if address is None else {ADDRESS: address})

    async def _tried(self, call: Awaitable[bool]) -> bool:
        try:
            async with asyncio.timeout(self._patience):
                return await call
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False


def _holder(lease: V1Lease | None) -> Holder | None:
    if lease is None or lease.spec is None or not lease.spec.holder_identity:
        return None
    annotations = (lease.metadata.annotations if lease.metadata else None) or {}
    return Holder(lease.spec.holder_identity, annotations.get(ADDRESS))


async def lead(lock: TimedLease, duration: int, work: Callable[[], Awaitable[None]]) -> None:
    """Wait for the lease, then work until the work ends. Raises LeaseLost where the lease goes first."""
    leading = asyncio.Event()

    async def started() -> None:
        leading.set()

    async def stopped() -> None:
        """The end of the election's task says it."""

    # As in client-go's defaults (15, 10, 2): a leader gives up well before others may take over.
    config = Config(
        lock,
        lease_duration=duration,
        renew_deadline=duration * 2 / 3,
        retry_period=max(1.0, duration * 2 / 15),
        onstarted_leading=started,
        onstopped_leading=stopped,
    )
    election = asyncio.create_task(LeaderElection(config).run(), name="lease")
    waiting = asyncio.create_task(leading.wait(), name="wait for the lease")
    working: asyncio.Task[None] | None = None
    try:
        await asyncio.wait((election, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            election.result()
        working = asyncio.ensure_future(_run(work))
        await asyncio.wait((election, working), return_when=asyncio.FIRST_COMPLETED)
        if election.done():
            election.result()
            raise LeaseLost(f"lease {lock.namespace}/{lock.name} was lost by {lock.identity}")
        await working
    finally:
        for task in (election, waiting, working):
            if task is not None and not task.done():
                task.cancel()
        await asyncio.gather(*(task for task in (election, waiting, working) if task), return_exceptions=True)
    await lock.release()


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()

"""Leadership by a Lease: at most one process acts, and one that cannot renew in time stops acting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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


class LeaseLost(Exception):
    """The lease could not be renewed in time: another process may lead by now, so this one must end."""


class TimedLease(LeaseLock):
    """A lease whose requests cannot outlast it: the library's default of five minutes would keep two leaders alive."""

    def __init__(self, name: str, namespace: str, identity: str, client: ApiClient, patience: float) -> None:
        super().__init__(name, namespace, identity, client)
        self._patience = patience

    async def get(self, name: str, namespace: str) -> Any:
        """(True, record) or (False, exception), as the election expects."""
        try:
            async with asyncio.timeout(self._patience):
                return await super().get(name, namespace)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return False, ApiException(status=0, reason=str(error) or type(error).__name__)

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        """Whether the lease was created. (The library's own passes `pretty=True`, which its client refuses.)"""
        body = V1Lease(metadata=V1ObjectMeta(name=name), spec=self.update_lease(election_record))
        return await self._tried(self._created(namespace, body))

    async def _created(self, namespace: str, body: V1Lease) -> bool:
        try:
            await self.api_instance.create_namespaced_lease(namespace, body)
        except ApiException:
            return False
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Whether the lease was taken or renewed."""
        return await self._tried(super().update(name, namespace, updated_record))

    async def release(self) -> None:
        """Give the lease back, so that the next process need not wait for it to run out."""
        held, record = await self.get(self.name, self.namespace)
        lease = self.lease_reference
        if not held or record.holder_identity != self.identity or lease is None or lease.spec is None:
            return
        lease.spec.holder_identity = ""
        lease.spec.lease_duration_seconds = 1
        replace = self.api_instance.replace_namespaced_lease(self.name, self.namespace, lease)
        try:
            async with asyncio.timeout(self._patience):
                await replace
        except (TimeoutError, aiohttp.ClientError, OSError, ApiException):
            return  # it runs out by itself

    async def _tried(self, call: Awaitable[bool]) -> bool:
        try:
            async with asyncio.timeout(self._patience):
                return await call
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False


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

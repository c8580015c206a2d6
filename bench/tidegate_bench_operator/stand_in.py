"""The other core: a cluster of ready pods that answer `/load`, and the API server that tells of them.

Run as a process; it ends with its standard input, and answers each line read there with a line of JSON on what it saw.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass

import uvloop
from aiohttp import web

from tidegate_bench_operator import kinds, load_server
from tidegate_bench_operator.api_server import Objects, application
from tidegate_bench_operator.pod_load import PodLoad, Pool

SPARE = 64
"""Addresses beyond one for each pod, so that a new pod seldom gets one that was just left."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The cluster to play."""

    services: int
    replicas: int
    silent: int
    """Pods that take a connection and never answer."""
    churn: float
    """Pods replaced in a minute."""
    seed: int


class Cluster:
    """Pods appear as soon as their Deployment is applied, ready; some are replaced now and then."""

    def __init__(self, wanted: Wanted) -> None:
        self.pods, self.objects = load_server.Pods(), Objects()
        self.objects.applied = self._applied
        self._wanted, self._pool = wanted, Pool(wanted.seed)
        self._draw = random.Random(wanted.seed)
        self._numbers = itertools.count(1)
        self.addresses = [load_server.address(n) for n in range(wanted.replicas + SPARE)]
        self._free = list(reversed(self.addresses))
        self._of: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self._hash: dict[str, str] = {}
        self._silent_left = wanted.silent
        each, more = divmod(wanted.replicas, wanted.services)
        self._size = {f"svc-{n:04}": each + (n < more) for n in range(wanted.services)}
        for name, size in self._size.items():
            self.objects.put("inferenceservices", kinds.service(name, size))

    def _applied(self, plural: str, body: kinds.Body) -> None:
        if plural != "deployments":
            return
        name, meta = body["metadata"]["name"], body["metadata"]
        if name not in self._hash:
            self._hash[name] = body["spec"]["template"]["metadata"]["annotations"]["tidegate.dev/template-hash"]
            for _ in range(self._size[name]):
                self._start(name)
            self._list(name)
        body["status"] = kinds.deployment_status(meta["generation"], len(self._of[name]))
        self.objects.put("deployments", body)

    def _start(self, name: str) -> None:
        ip, uid = self._free.pop(), f"{next(self._numbers):06}"
        self.pods.loads[ip] = PodLoad(self._pool, f"boot-{uid}", time.monotonic())
        if self._silent_left:
            self._silent_left -= 1
            self.pods.silent.add(ip)
        self._of[name].append((uid, ip))
        self.objects.put("pods", kinds.pod(name, uid, ip, self._hash[name]))

    def _list(self, name: str) -> None:
        self.objects.put("endpointslices", kinds.endpoint_slice(name, self._of[name]))

    async def churn(self) -> None:
        """Replace a pod now and then."""
        while self._wanted.churn:
            await asyncio.sleep(60 / self._wanted.churn)
            if not self._hash:
                continue
            name = self._draw.choice(list(self._hash))
            uid, ip = self._of[name].pop(0)
            self.objects.remove("pods", "bench", f"{name}-1-{uid}")
            self.pods.remove(ip)
            self._free.insert(0, ip)
            self._start(name)
            self._list(name)

    def told(self) -> dict[str, object]:
        """What was seen since this was last asked."""
        calls, self.objects.calls = dict(self.objects.calls), type(self.objects.calls)()
        return {"pods": len(self.pods.loads), "cpu_s": time.process_time(), "calls": calls} | self.pods.told()


async def run(wanted: Wanted) -> None:
    """Serve until standard input ends."""
    cluster = Cluster(wanted)
    servers = await load_server.serve(cluster.pods, cluster.addresses)
    runner = web.AppRunner(application(cluster.objects), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    print(json.dumps({"port": port}), flush=True)
    churning = asyncio.create_task(cluster.churn())
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(cluster.told()), flush=True)
    churning.cancel()
    for server in servers:
        server.close()
    await runner.cleanup()


def main() -> None:
    """Flags have the names of the fields of `Wanted`."""
    parser = argparse.ArgumentParser()
    for name, kind in (("services", int), ("replicas", int), ("silent", int), ("churn", float), ("seed", int)):
        parser.add_argument(f"--{name}", type=kind, default=kind(0))
    uvloop.run(run(Wanted(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()

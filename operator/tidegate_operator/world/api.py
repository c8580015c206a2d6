"""One request to the API server: authenticated by the `kubernetes` package, checked against the table of calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from tidegate_operator.errors import Gone, RetryLater, Stall
from tidegate_operator.world.calls import CLUSTER_CALLS, Kind

JSON = "application/json"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"

METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH"}
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

Body = dict[str, Any]


class NotFound(Exception):
    """The object, the kind or the namespace is not there; the caller knows which it means."""


class Api(Protocol):
    """What `world` needs of an API server; tests have one in memory."""

    async def request(
        self,
        verb: str,
        kind: Kind,
        namespace: str | None = None,
        name: str | None = None,
        *,
        subresource: str | None = None,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> Body:
        """The answer's JSON. Raises NotFound, Gone, Stall or RetryLater."""
        ...


class HttpApi:
    """The real one."""

    def __init__(self, client: ApiClient, timeout: float = 10.0) -> None:
        self._client = client
        self._timeout = timeout

    async def request(
        self,
        verb: str,
        kind: Kind,
        namespace: str | None = None,
        name: str | None = None,
        *,
        subresource: str | None = None,
        query: Mapping[str, str] | None = None,
        body: Body | None = None,
        content_type: str = JSON,
    ) -> Body:
        call = kind.call(verb, subresource)
        if call not in CLUSTER_CALLS:
            raise RuntimeError(f"{call} is not in the table of calls, so the chart gives no right to it")
        what = f"{verb} {kind.path(namespace, name, subresource)}"
        try:
            method, url, headers, data, _ = await self._client.param_serialize(
                METHODS[verb],
                kind.path(namespace, name, subresource),
                query_params=list((query or {}).items()),
                header_params={"Content-Type": content_type, "Accept": JSON},
                body=body,
                auth_settings=["BearerToken"],
            )
            response = await self._client.call_api(method, url, headers, data, _request_timeout=self._timeout)
            text: bytes = await response.read()  # type: ignore[no-untyped-call]
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise RetryLater("ApiUnreachable", f"{what}: {error or type(error).__name__}") from error
        if not 200 <= response.status < 300:
            raise failure(what, response.status, text)
        answer: Body = json.loads(text)
        return answer


def failure(what: str, status: int, text: bytes) -> Exception:
    """The error to raise for an answer that is not 2xx, by what to do about it."""
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    message = answer.get("message") or f"{what}: HTTP {status} {text[:200].decode(errors='replace')}".rstrip()
    causes = {cause.get("reason") for cause in (answer.get("details") or {}).get("causes") or ()}
    if status == 404:
        return NotFound(message)
    if "NamespaceTerminating" in causes:
        return Gone("NamespaceTerminating", message)
    if status in (400, 403, 422):
        return Stall({403: "Forbidden"}.get(status, "Refused"), message)
    return RetryLater(str(answer.get("reason") or f"Http{status}"), message)


async def connect() -> ApiClient:
    """A client for the cluster this process runs in, else for the kubeconfig's current context."""
    configuration = Configuration()
    if await asyncio.to_thread(SERVICE_ACCOUNT.exists):
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return ApiClient(configuration)

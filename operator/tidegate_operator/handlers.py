"""What kopf calls. Law: kopf, the cache and the queue; a few lines each, no business rule.

Only `on.event` handlers: kopf writes nothing to any object (no finalizer, no annotation, no event), so that objects
can be deleted while the operator is away, and a missed event costs no more than the next refresh.
"""

from __future__ import annotations

import logging
from typing import Any

import kopf

from tidegate_operator.queue import KeyedQueue
from tidegate_operator.world.calls import WATCHED, Kind
from tidegate_operator.world.pods import SERVICE_LABEL
from tidegate_operator.world.view import View


def registry(view: View, queue: KeyedQueue) -> kopf.OperatorRegistry:
    """One handler for each watched kind: remember the object, ask for a look at its service."""
    handlers = kopf.OperatorRegistry()
    kopf.on.login(registry=handlers)(log_in)
    for kind in WATCHED:

        async def seen(*, event: kopf.RawEvent, param: Any = None, **_: Any) -> None:
            key = view.see(param, dict(event["object"]), deleted=event["type"] == "DELETED")
            if key is not None:
                queue.add(key)

        kopf.on.event(kind.group, kind.version, kind.plural, id=kind.plural, param=kind, registry=handlers)(seen)
    return handlers


def log_in(**context: Any) -> kopf.ConnectionInfo | None:
    """The pod's service account, else the kubeconfig's current context."""
    return kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context)


def settings() -> kopf.OperatorSettings:
    """kopf as a watcher and nothing more."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.scanning.disabled = True
    chosen.peering.standalone = True
    for kind in WATCHED:
        if kind is not Kind.INFERENCE_SERVICE:
            chosen.watching.label_selectors[kind.group, kind.version, kind.plural] = SERVICE_LABEL
    logging.getLogger("kopf.objects").setLevel(logging.WARNING)
    # A watch that fails would be told with two tracebacks of sixty lines, before the line that says what to do.
    for name in ("orchestration", "running"):
        logging.getLogger(f"kopf._core.reactor.{name}").setLevel(logging.CRITICAL)
    return chosen

"""What the cache believes when events come late, twice, out of order, or not at all."""

from __future__ import annotations

from typing import Any

import recorded_pods as r
from tidegate_operator.observed import ServiceKey
from tidegate_operator.world.cache import Store
from tidegate_operator.world.pods import PodRecord, read_pod

WEB = ServiceKey("ns", "web")


def pod(uid: str, version: int, status: dict[str, Any] = r.SERVING) -> dict[str, Any]:
    return r.pod(status, uid=uid, resourceVersion=str(version))


def uids(store: Store[PodRecord]) -> set[str]:
    return {record.uid for record in store.of(WEB)}


def test_an_old_event_does_not_undo_a_newer_one() -> None:
    store = Store(read_pod)
    store.see(pod("a", 20))
    store.see(pod("a", 10, r.STARTING))
    (record,) = store.of(WEB)
    assert record.version == 20


def test_a_list_forgets_what_was_deleted_unseen_and_names_the_service() -> None:
    store = Store(read_pod)
    store.see(pod("a", 1))
    store.see(pod("b", 2))
    store.begin_list()
    assert store.end_list([pod("a", 1)]) == {WEB}
    assert uids(store) == {"a"}


def test_a_list_that_tells_nothing_new_changes_nothing() -> None:
    store = Store(read_pod)
    store.see(pod("a", 1))
    store.begin_list()
    assert store.end_list([pod("a", 1)]) == set()


def test_a_pod_deleted_while_the_list_was_under_way_stays_gone() -> None:
    store = Store(read_pod)
    store.see(pod("a", 1))
    store.begin_list()
    store.lose(pod("a", 3))
    store.end_list([pod("a", 1)])
    assert uids(store) == set()


def test_a_pod_made_while_the_list_was_under_way_stays() -> None:
    store = Store(read_pod)
    store.begin_list()
    store.see(pod("b", 5))
    store.end_list([])
    assert uids(store) == {"b"}


def test_a_pod_that_no_longer_is_ours_is_dropped() -> None:
    store = Store(read_pod)
    store.see(pod("a", 1))
    assert store.see(r.pod(r.SERVING, uid="a", resourceVersion="2", labels={})) == WEB
    assert store.keys() == ()

"""What was last seen of every watched object, reduced to the fields in use, so that a look needs no list call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from tidegate_operator.observed import ServiceKey

Json = dict[str, Any]


class Record(Protocol):
    """An object of one service, at one version."""

    @property
    def key(self) -> ServiceKey: ...
    @property
    def uid(self) -> str: ...
    @property
    def version(self) -> int: ...


R = TypeVar("R", bound=Record)


class Store(Generic[R]):
    """The objects of one kind, by service. An older version never replaces a newer one."""

    def __init__(self, read: Callable[[Json], R | None]) -> None:
        self._read = read
        self._by_uid: dict[str, R] = {}
        self._by_key: dict[ServiceKey, dict[str, R]] = {}
        self._listing: set[str] | None = None
        """While a list is under way: the objects that events have told of since it began."""

    def of(self, key: ServiceKey) -> tuple[R, ...]:
        """The objects of one service."""
        return tuple(self._by_key.get(key, {}).values())

    def keys(self) -> tuple[ServiceKey, ...]:
        """The services that have any."""
        return tuple(self._by_key)

    def all(self) -> Iterable[R]:
        """Every object."""
        return self._by_uid.values()

    def see(self, body: Json) -> ServiceKey | None:
        """An object as it is now; returns the service to look at."""
        if self._listing is not None:
            self._listing.add(body["metadata"]["uid"])
        return self._put(body)

    def lose(self, body: Json) -> ServiceKey | None:
        """An object that is gone; returns the service to look at."""
        uid = body["metadata"]["uid"]
        if self._listing is not None:
            self._listing.add(uid)
        return self._drop(uid)

    def begin_list(self) -> None:
        """A list of the whole kind was asked for; what events tell from now on is newer than it may be."""
        self._listing = set()

    def end_list(self, bodies: Iterable[Json]) -> set[ServiceKey]:
        """The list has come: forget what it lacks (its events were missed). Returns the services that changed."""
        told, self._listing = self._listing or set(), None
        listed, changed = set(), set()
        for body in bodies:
            uid = body["metadata"]["uid"]
            listed.add(uid)
            if uid not in told:
                before = self._by_uid.get(uid)
                key = self._put(body)
                if key is not None and self._by_uid.get(uid) != before:
                    changed.add(key)
        for uid in set(self._by_uid) - listed - told:
            key = self._drop(uid)
            if key is not None:
                changed.add(key)
        return changed

    def _put(self, body: Json) -> ServiceKey | None:
        record = self._read(body)
        if record is None:
            return self._drop(body["metadata"]["uid"])
        known = self._by_uid.get(record.uid)
        if known is None or known.version <= record.version:
            if known is not None and known.key != record.key:
                self._drop(record.uid)
            self._by_uid[record.uid] = record
            self._by_key.setdefault(record.key, {})[record.uid] = record
        return record.key

    def _drop(self, uid: str) -> ServiceKey | None:
        record = self._by_uid.pop(uid, None)
        if record is None:
            return None
        mine = self._by_key[record.key]
        mine.pop(uid)
        if not mine:
            del self._by_key[record.key]
        return record.key

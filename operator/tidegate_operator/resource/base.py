"""How the object's parts are read: camelCase outside, frozen inside."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


def camel(name: str) -> str:
    """`min_replicas` is `minReplicas`. (pydantic's own makes `e2E` of `e2e`.)"""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


class Asked(BaseModel):
    """A part of `spec`: a field it does not know is an error, since ignoring it would not be what was asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=camel, populate_by_name=True)


class Told(BaseModel):
    """A part of `status`: fields of another version are skipped."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=camel, populate_by_name=True)

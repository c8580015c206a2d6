"""How the object's parts are read: camelCase outside, frozen inside."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Asked(BaseModel):
    """A part of `spec`: a field it does not know is an error, since ignoring it would not be what was asked for."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Told(BaseModel):
    """A part of `status`: fields of another version are skipped."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

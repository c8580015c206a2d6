"""A model's chat template: messages to the text the model was trained to answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplateError(Exception):
    """The template refuses these messages; the text says why, in the template's own words where it has some."""


class ChatTemplate:
    """A compiled template with the names that Hugging Face templates rely on. The sandbox keeps it from the process."""

    def __init__(self, source: str, special_names: Mapping[str, str]) -> None:
        """Raises ChatTemplateError where the source is not a template."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _strftime_now
        self._special_names = dict(special_names)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ChatTemplateError(f"chat template: {error}; convert the model again") from error

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """The prompt that ends where the assistant's answer begins; `tools` in the shape of OpenAI's field."""
        # Templates ask whether there are tools; some only whether the name is known.
        offered = {"tools": list(tools)} if tools else {}
        try:
            turns = [dict(message) for message in messages]
            return self._template.render(messages=turns, add_generation_prompt=True, **offered, **self._special_names)
        except (jinja2.TemplateError, TypeError, AttributeError, KeyError, IndexError, ValueError) as error:
            raise ChatTemplateError(str(error)) from error


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    """Jinja's own `tojson` escapes for HTML, which no model was trained on."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

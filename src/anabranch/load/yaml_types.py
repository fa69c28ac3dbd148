"""Values of project files: text, settings, durations."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from anabranch.load.durations import parse_duration


def _text(value: Any) -> Any:
    """Spark settings are text; a plain YAML number or truth value is taken as it would be typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _seconds(value: Any) -> float:
    try:
        return parse_duration(str(value) if isinstance(value, int | float) else value)
    except (ValueError, TypeError) as error:
        reason = str(error) if isinstance(value, str | int | float) else "must be a duration"
        raise PydanticCustomError("duration", "{reason}", {"reason": reason, "hint": 'such as "10 seconds"'}) from error


def _longer_than_nothing(value: Any) -> float:
    seconds = _seconds(value)
    if seconds <= 0:
        raise PydanticCustomError("duration", "must be longer than nothing", {"hint": 'such as "30 seconds"'})
    return seconds


def _not_blank(value: Any) -> Any:
    if isinstance(value, str) and not value.strip():
        raise PydanticCustomError("blank", "must not be empty", {"hint": "write some text"})
    return value


_AS_TYPED = WithJsonSchema({"type": ["string", "number", "boolean"]})
_DURATION = WithJsonSchema({"type": ["string", "number"], "description": 'a duration such as "10 seconds"'})

SettingText = Annotated[str, BeforeValidator(_text), _AS_TYPED]
Text = Annotated[str, BeforeValidator(_not_blank)]
Seconds = Annotated[float, BeforeValidator(_seconds), _DURATION]
SomeSeconds = Annotated[float, BeforeValidator(_longer_than_nothing), _DURATION]

"""What a project file, or `dp.detect`, may say of a detector and of where alerts go. Unknown keys are errors."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from anabranch.load.durations import parse_duration
from anabranch.load.yaml_types import SettingText, SomeSeconds, Text

#: A stretch of time that rows are counted over is at least so long, in seconds.
_SHORTEST = 60.0


def _wrong(reason: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError("value", "{reason}", {"reason": reason, "hint": hint})


def _number(value: Any, hint: str) -> float:
    """A number that is one: YAML's `.nan` and `true` are not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _wrong("must be a number", hint)
    return float(value)


def _share(value: Any) -> float:
    hint = "a share such as 50%, or 0.5"
    if isinstance(value, str) and (said := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", value)):
        share = float(said[1]) / 100
    else:
        share = _number(value, hint)
    if share <= 0:
        raise _wrong("must be more than nothing", hint)
    return share


def _positive(value: Any) -> float:
    number = _number(value, "a number such as 0.5")
    if number <= 0:
        raise _wrong("must be more than 0", "a number such as 0.5")
    return number


def _percent(value: Any) -> float:
    number = _number(value, "a number such as 95")
    if not 0 < number <= 100:
        raise _wrong("must be more than 0 and at most 100", "a number such as 95")
    return number


def _most(value: Any) -> float | str:
    """A count, or a duration, which `unit: time` needs."""
    if isinstance(value, str):
        try:
            parse_duration(value)
        except ValueError as error:
            raise _wrong(str(error), 'a number such as 500, or a duration such as "10 minutes"') from error
        return value
    number = _number(value, 'a number such as 500, or a duration such as "10 minutes"')
    if number < 0:
        raise _wrong("must not be negative", "a number such as 500")
    return number


def _moment(value: Any) -> float:
    hint = "a date such as 2026-11-20, or a time such as 2026-11-20T08:00+01:00; without a zone it is UTC"
    if not isinstance(value, str):
        raise _wrong("must be a date", hint)
    try:
        found = datetime.fromisoformat(value)
    except ValueError as error:
        raise _wrong(f'"{value}" is no date', hint) from error
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _over(value: Any) -> str | float:
    words = ("runs", "epochs", "partitions", "source")
    if value in words:
        return str(value)
    hint = f'{", ".join(words)}, or a duration such as "1 hour"'
    try:
        seconds = parse_duration(value if isinstance(value, str) else str(value))
    except ValueError as error:
        raise _wrong(f"must be {hint}", "rows are compared over it") from error
    if seconds < _SHORTEST:
        raise _wrong("must be at least a minute", "rows are compared over it")
    return seconds


def _lulls(value: Any) -> bool:
    if value in ("allowed", "none"):
        return bool(value == "allowed")
    raise _wrong("must be allowed or none", "`none` if rows must be written all the time")


_COUNT_OR_DURATION = WithJsonSchema({"type": ["string", "number"]})
_DATE = WithJsonSchema({"type": "string", "description": "a date such as 2026-11-20"})
Share = Annotated[float, BeforeValidator(_share), _COUNT_OR_DURATION]
Positive = Annotated[float, BeforeValidator(_positive), WithJsonSchema({"type": "number"})]
Percent = Annotated[float, BeforeValidator(_percent), WithJsonSchema({"type": "number"})]
Moment = Annotated[float, BeforeValidator(_moment), _DATE]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PeriodSpec(_Strict):
    """Days on which another tolerance holds."""

    begin: Moment = Field(alias="from")
    end: Moment = Field(alias="until")
    tolerance: Share | None = None


class DetectorSpec(_Strict):
    """One detector; which keys it may have depends on its kind."""

    kind: Literal["interruption", "skew", "lag", "sla"]
    on: Text
    name: Text | None = None
    severity: Literal["warn", "error"] = "warn"
    within: SomeSeconds | None = None
    lulls: Annotated[bool, BeforeValidator(_lulls), WithJsonSchema({"enum": ["allowed", "none"]})] | None = None
    over: Annotated[str | float, BeforeValidator(_over), _COUNT_OR_DURATION] | None = None
    tolerance: Share | None = None
    ratio: Positive | None = None
    at_least: int | None = Field(default=None, ge=0, strict=True)
    since: Moment | None = None
    periods: list[PeriodSpec] | None = None
    unit: Literal["time", "offsets", "files", "versions"] | None = None
    most: Annotated[float | str, BeforeValidator(_most), _COUNT_OR_DURATION] | None = None
    percentile: Percent | None = None
    ask: dict[str, SettingText] | None = None
    processing: SomeSeconds | None = None
    event_time: SomeSeconds | None = None
    per: Literal["epoch", "run"] | None = None
    rows: Literal["newest", "oldest", "mean"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _on_is_a_word(cls, said: Any) -> Any:
        """YAML takes `on` for a way to write `true`, also before a colon."""
        if isinstance(said, dict) and True in said and "on" not in said:
            return {"on" if key is True else key: value for key, value in said.items()}
        return said


class AlertSpec(_Strict):
    """Where alerts go; which keys it may have depends on `to`."""

    to: Literal["terminal", "log", "webhook", "command"]
    name: Text | None = None
    least: Literal["warn", "error"] = "warn"
    path: Text | None = None
    url: Text | None = None
    headers: dict[str, SettingText] | None = None
    command: list[Text] | None = Field(default=None, min_length=1)
    timeout: SomeSeconds | None = None


#: The keys of each kind, beside those that all have.
OF_DETECTORS: Mapping[str, tuple[str, ...]] = {
    "interruption": ("within", "lulls"),
    "skew": ("over", "tolerance", "ratio", "at_least", "since", "periods", "within"),
    "lag": ("unit", "most", "percentile", "ask"),
    "sla": ("processing", "event_time", "per", "rows", "percentile"),
}
OF_TARGETS: Mapping[str, tuple[str, ...]] = {
    "terminal": (),
    "log": ("path",),
    "webhook": ("url", "headers", "timeout"),
    "command": ("command", "timeout"),
}
#: Those without which there is nothing to do.
NEEDED_BY_TARGETS = {"log": "path", "webhook": "url", "command": "command"}

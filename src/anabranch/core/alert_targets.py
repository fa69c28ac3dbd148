"""Where alerts go, as the project declares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from anabranch.core.detectors import Severity
from anabranch.core.where import Where


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the watching command prints."""

    kind: ClassVar[str] = "terminal"
    name: str = "terminal"
    least: Severity = Severity.WARN
    where: Where | None = None


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that gets a line of JSON for each alert."""

    kind: ClassVar[str] = "log"
    name: str
    path: str
    least: Severity = Severity.WARN
    where: Where | None = None


@dataclass(frozen=True, slots=True)
class Webhook:
    """An address that gets each alert as JSON; address and headers may refer to secrets."""

    kind: ClassVar[str] = "webhook"
    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 10.0
    least: Severity = Severity.WARN
    where: Where | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A program that is started for each alert and reads it as JSON; no shell looks at its words."""

    kind: ClassVar[str] = "command"
    name: str
    words: tuple[str, ...]
    timeout: float = 10.0
    least: Severity = Severity.WARN
    where: Where | None = None


Target = Terminal | LogFile | Webhook | Command

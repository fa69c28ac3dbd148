"""What the project file says of those who watch: where lineage and spans are sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from anabranch.core.secrets import has_secret
from anabranch.load.yaml_types import Text


@dataclass(frozen=True, slots=True)
class LineageTarget:
    """Where OpenLineage events go: a file, or an address with a token that is a reference to a secret."""

    namespace: str
    file: Path | None = None
    url: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class SpanTarget:
    """Where OpenTelemetry spans go, and the name of the service there."""

    endpoint: str
    service: str


class OpenLineageSpec(BaseModel):
    """`open_lineage:` of the project file."""

    model_config = ConfigDict(extra="forbid")

    file: Text | None = None
    url: Text | None = None
    token: Text | None = None
    namespace: Text = "anabranch"

    @model_validator(mode="after")
    def _one_way(self) -> OpenLineageSpec:
        if (self.file is None) == (self.url is None):
            raise _said("needs either a file or a url", "such as `file: lineage.jsonl`")
        if self.url is not None and not _is_address(self.url):
            raise _said(f"url: {self.url} is not an address", "such as http://marquez:5000/api/v1/lineage")
        if self.token is not None and (self.url is None or not has_secret(self.token)):
            raise _said("token goes with a url, and names a secret", "such as `token: ${env:LINEAGE_TOKEN}`")
        return self

    def target(self, root: Path) -> LineageTarget:
        """What it says, with the path made absolute."""
        file = root / Path(self.file).expanduser() if self.file else None
        return LineageTarget(self.namespace, file, self.url, self.token)


class SpansSpec(BaseModel):
    """`spans:` of the project file."""

    model_config = ConfigDict(extra="forbid")

    endpoint: Text
    service: Text = "anabranch"

    @model_validator(mode="after")
    def _an_address(self) -> SpansSpec:
        if not _is_address(self.endpoint):
            raise _said(f"endpoint: {self.endpoint} is not an address", "such as http://localhost:4318")
        return self

    def target(self) -> SpanTarget:
        """What it says; an address without a path gets the one that collectors listen at."""
        bare = not urlsplit(self.endpoint).path.strip("/")
        return SpanTarget(f"{self.endpoint.rstrip('/')}/v1/traces" if bare else self.endpoint, self.service)


def _is_address(text: str) -> bool:
    """Whether something can be sent there.

    >>> _is_address("http://localhost:4318"), _is_address("localhost:4318"), _is_address("http://:x")
    (True, False, False)
    """
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _said(reason: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError("watch", "{reason}", {"reason": reason, "hint": hint})

"""A schema registry, asked over HTTP as Confluent's is: the newest schema of a subject, and what frames its values.

A framed value begins with a zero byte and the schema's id in four bytes.
"""

from __future__ import annotations

import base64
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from anabranch.core.secrets import hide, keep_hidden
from anabranch.errors import ProjectError, SinkError

_ANSWER_SECONDS = 20.0

#: A zero byte and the id of the schema.
FRAME = struct.Struct(">bI")


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema of a registry. `kind` is AVRO, PROTOBUF or JSON."""

    id: int
    version: int
    kind: str
    text: str

    @property
    def frame(self) -> bytes:
        """What values of this schema begin with.

        >>> Registered(7, 1, "AVRO", "{}").frame
        b'\\x00\\x00\\x00\\x00\\x07'
        """
        return FRAME.pack(0, self.id)


def newest(url: str, subject: str, auth: str = "") -> Registered:
    """The newest schema of a subject; `auth` is `user:password`."""
    found = _get(url, f"subjects/{urllib.parse.quote(subject, safe='')}/versions/latest", auth, subject)
    if found.get("references"):
        raise ProjectError(
            "REGISTRY_SCHEMA",
            f'the schema of "{subject}" refers to others, which are not looked up',
            hint="register it as one schema, or name a file with all of it: value.schema",
        )
    return Registered(int(found["id"]), int(found["version"]), found.get("schemaType", "AVRO"), found["schema"])


def _get(url: str, path: str, auth: str, subject: str) -> dict[str, Any]:
    parts = urllib.parse.urlsplit(url)
    user = (
        f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}" if parts.username else ""
    )
    bare = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(f"{bare.rstrip('/')}/{path}", headers={"Accept": "application/json"})
    if login := auth or user:
        keep_hidden(login.partition(":")[2])
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except urllib.error.HTTPError as error:
        raise _refused(bare, subject, error) from error
    except (OSError, ValueError) as error:
        raise SinkError(
            "REGISTRY_UNREACHABLE",
            f"the schema registry at {bare} does not answer: {hide(str(error))}",
            hint="check the address and that it runs; a schema in a file needs no registry: value.schema",
            retryable=True,
        ) from error


def _refused(bare: str, subject: str, error: urllib.error.HTTPError) -> SinkError | ProjectError:
    if error.code == 404:
        return ProjectError(
            "REGISTRY_SCHEMA",
            f'the registry at {bare} has no schema for "{subject}"',
            hint="register it first: schemas are looked up, never written",
        )
    login = error.code in (401, 403)
    return SinkError(
        "REGISTRY_UNREACHABLE",
        f"the schema registry at {bare} answers {error.code} {error.reason}",
        hint="give user and password with value.registry.auth, as user:${env:REGISTRY_PASSWORD}"
        if login
        else "look into the registry's log, and run again",
        retryable=not login,
    )

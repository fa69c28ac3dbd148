"""Tables in an object store: how it is reached, and what its refusals mean.

Whoever touches a table there, pyarrow, delta-rs or a worker, reads the same environment variables: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlencode, urlsplit

import pyarrow as pa
from pyarrow import fs

from anabranch.errors import ProjectError, SinkError

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_ANSWERS = (re.compile(r"<Code>(\w+)</Code>"), re.compile(r"AWS Error (\w+)"))
_REFUSED = {"accessdenied", "invalidaccesskeyid", "signaturedoesnotmatch", "expiredtoken", "invalidtoken", "forbidden"}


def system_at(url: str) -> tuple[fs.FileSystem, str]:
    """The file system at a URL and the path in it; the store itself is not asked yet."""
    try:
        system, root = fs.FileSystem.from_uri(_with_options(url))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ProjectError(
            "LOCATION_NOT_SUPPORTED",
            f"{url} is no place for a table: {plain(error)}",
            hint="write s3://BUCKET/FOLDER, or the path of a folder",
        ) from error
    except OSError as error:
        raise store_trouble(url, error) from error
    return system, root


def _with_options(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "s3":
        return url
    if not parts.netloc:
        raise pa.ArrowInvalid("it names no bucket")
    # A small file is then one request instead of three, and is not there at all before it is whole.
    options = {"allow_delayed_open": "true"}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return f"{url}?{urlencode(options | ({'region': region} if region else {}))}"


def store_trouble(location: str, error: Exception) -> SinkError:
    """What a store refused, with a way out."""
    answer = next((m[1] for form in _ANSWERS if (m := form.search(str(error)))), "")
    word = answer.replace("_", "").lower()
    if word == "nosuchbucket":
        return SinkError(
            "BUCKET_MISSING",
            f"there is no bucket for {location}",
            hint="make the bucket, or correct the table's path or AWS_ENDPOINT_URL",
        )
    if word in _REFUSED or re.search(r"\b403\b|ACCESS_DENIED", str(error)):
        return SinkError(
            "STORE_FORBIDDEN",
            f"the store does not let us at {location}: {answer or 'forbidden'}",
            hint="check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what they may do: list, read, write, delete",
        )
    return SinkError(
        "STORE_UNAVAILABLE",
        f"the store did not answer for {location}: {answer or plain(error)}",
        hint="check AWS_ENDPOINT_URL, AWS_REGION and the network, then run again",
        retryable=True,
        details={"answer": plain(error)},
    )


def plain(error: Exception) -> str:
    """What a library said of an error, on one line and without colours.

    >>> plain(OSError("Generic S3 error\\n  \\x1b[31m↳\\x1b[0m refused"))
    'Generic S3 error ↳ refused'
    """
    return " ".join(_COLOURS.sub("", str(error)).split())

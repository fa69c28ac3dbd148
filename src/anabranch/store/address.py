"""Where a ledger is: a SQLite file or a Postgres database. A password goes to the driver and nowhere else."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_plus

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from anabranch.errors import SetupError, StateError


@dataclass(frozen=True, slots=True)
class Address:
    """A ledger's address; `shown` is the form for people."""

    shown: str
    url: URL = field(repr=False)
    file: Path | None = None
    secret: str | None = field(default=None, repr=False)

    def without_secret(self, message: str) -> str:
        """A message of the driver's, with the password blotted out should it ever be in there."""
        if self.secret:
            for form in {self.secret, quote(self.secret, safe=""), quote_plus(self.secret)}:
                message = message.replace(form, "***")
        return message


def parse_address(text: str) -> Address:
    """The address a user wrote: a path, `sqlite:///path` or `postgresql://user@host/database`.

    >>> parse_address("postgresql://ann:s3cret@db/prod?sslmode=require")
    Address(shown='postgresql://ann:***@db/prod', file=None)
    >>> parse_address("sqlite:///state/ledger.db").file
    PosixPath('state/ledger.db')
    """
    if "://" not in text:
        return _file(text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise _invalid("it cannot be read as a URL") from None  # the cause would show the text, password and all
    kind = url.drivername.partition("+")[0]
    if kind == "sqlite":
        return _file(url.database or "")
    if kind not in ("postgresql", "postgres"):
        raise _invalid(f'"{kind}" is neither sqlite nor postgresql')
    if "@" in (url.host or ""):
        raise _invalid("there is an @ too many; inside a password it is written %40")
    if importlib.util.find_spec("psycopg") is None:
        raise SetupError(
            "POSTGRES_DRIVER_MISSING",
            "a ledger in Postgres needs the driver psycopg",
            hint="pip install 'anabranch[postgres]'",
        )
    asked = url.query.get("password")
    secret = url.password or (asked if isinstance(asked, str) else None)
    shown = url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
    return Address(shown, url.set(drivername="postgresql+psycopg"), None, secret)


def _file(path: str) -> Address:
    if path in ("", ":memory:"):
        raise _invalid("a ledger must be a file: it has to outlive the process")
    file = Path(path).expanduser()
    return Address(str(file), URL.create("sqlite", database=str(file)), file)


def _invalid(reason: str) -> StateError:
    return StateError(
        "LEDGER_URL_INVALID",
        f"the ledger's address is not usable: {reason}",
        hint="write a file path, sqlite:///path/to/ledger.db or postgresql://user:password@host/database",
    )

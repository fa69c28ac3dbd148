"""Secrets: options name where a secret is kept, and what was looked up is never printed.

    password: ${env:WAREHOUSE_PASSWORD}      an environment variable
    password: ${file:/run/secrets/warehouse} the first line of a file
    password: ${keyring:warehouse/loader}    the system's keyring: service/user

Declarations, plans and the ledger keep the reference; `reveal` looks it up when a connection is opened, and remembers
the value so that `hide` can take it out of whatever is about to be shown or written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from anabranch.core.hidden import hide, keep_hidden
from anabranch.errors import ProjectError

__all__ = ["has_secret", "hide", "keep_hidden", "only_references", "reveal", "secret"]

_REFERENCE = re.compile(r"\$\{(env|file|keyring):([^}]+)\}")

_only_references: ContextVar[bool] = ContextVar("_only_references", default=False)


def has_secret(text: str) -> bool:
    """Whether a text refers to a secret.

    >>> has_secret("postgresql://loader:${env:PW}@db/shop"), has_secret("db/shop")
    (True, False)
    """
    return _REFERENCE.search(text) is not None


def reveal(text: str) -> str:
    """The text with every reference looked up; raises when one cannot be had.

    >>> os.environ["ANABRANCH_DOC_PW"] = "tulip-77"
    >>> reveal("password=${env:ANABRANCH_DOC_PW}")
    'password=tulip-77'
    >>> hide("could not connect with tulip-77")
    'could not connect with ***'
    """
    return _REFERENCE.sub(lambda found: _looked_up(found[1], found[2]), text)


def secret(reference: str) -> str:
    """A secret for use in a pipeline's own code, by where it is kept; it will not be printed.

    A pipeline that is only looked at (`anabranch check`, `plan --static`) gets the reference instead, so that this
    needs no secrets; options of sinks and readers take either.

    >>> os.environ["ANABRANCH_DOC_PW"] = "tulip-77"
    >>> secret("env:ANABRANCH_DOC_PW")
    'tulip-77'
    """
    written = f"${{{reference}}}"
    if not _REFERENCE.fullmatch(written):
        raise ProjectError(
            "SECRET_MISSING",
            f'secret("{hide(reference)}") does not say where the secret is kept',
            hint='secret("env:NAME"), secret("file:/path/to/it") or secret("keyring:service/user")',
        )
    return written if _only_references.get() else reveal(written)


@contextmanager
def only_references() -> Iterator[None]:
    """Inside, `secret` looks nothing up."""
    before = _only_references.set(True)
    try:
        yield
    finally:
        _only_references.reset(before)


def _looked_up(kind: str, name: str) -> str:
    if kind == "env":
        value = os.environ.get(name)
        missing = f"the environment variable {name} is not set"
    elif kind == "file":
        value, missing = _first_line(name)
    else:
        value, missing = _from_keyring(name)
    if not value:
        raise ProjectError(
            "SECRET_MISSING",
            f"${{{kind}:{name}}}: {missing}",
            hint="set it where the pipeline runs; the project keeps the reference only",
        )
    return keep_hidden(value)


def _first_line(path: str) -> tuple[str | None, str]:
    try:
        with Path(path).expanduser().open(encoding="utf-8") as file:
            return file.readline().rstrip("\r\n"), f"the first line of {path} is empty"
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return None, f"{path} is not text"


def _from_keyring(name: str) -> tuple[str | None, str]:
    service, _, user = name.rpartition("/")
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return None, "the keyring is not installed: pip install 'anabranch[keyring]'"
    try:
        return keyring.get_password(service, user), f'the keyring has no password of "{user}" for "{service}"'
    except KeyringError as error:
        return None, f"the keyring cannot be asked: {error}"

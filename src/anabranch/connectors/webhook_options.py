"""The options of a webhook, checked and with their secrets looked up."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from anabranch.core.hidden import keep_hidden
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from anabranch.connectors.contract import SinkSpec

_HEADERS = "headers."
_METHODS = ("POST", "PUT", "PATCH")
_ON_FAILURE = ("keep", "block")


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """How to reach the receiver, and how hard to try."""

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    method: str = "POST"
    batch: int = 100  # rows in a request
    timeout: float = 10.0  # seconds for one request
    tries: int = 5  # for one request, as far as `patience` allows
    patience: float = 5.0  # seconds that an epoch is held up by a receiver that does not take a request
    blocks: bool = False  # an epoch waits until the receiver has its rows


def options_of(spec: SinkSpec) -> WebhookOptions:
    """What a sink was declared with; raises `ProjectError` for what makes no sense."""
    url, headers = _address(spec)
    for name in spec.options:
        if name.startswith(_HEADERS):
            headers[name.removeprefix(_HEADERS)] = spec.option(name)
    for name, value in headers.items():
        if not (name + value).isprintable() or not (name + value).isascii():
            # Told here without the value: the library's own words would repeat it.
            raise _invalid(spec, f"{_HEADERS}{name}", "has characters that a header cannot carry", "use plain ASCII")
    method = spec.option("method", "POST").upper()
    if method not in _METHODS:
        raise _invalid(spec, "method", f'is "{method}"', f"one of {', '.join(_METHODS)}")
    on_failure = spec.option("on_failure", "keep")
    if on_failure not in _ON_FAILURE:
        raise _invalid(spec, "on_failure", f'is "{on_failure}"', "keep (the epoch goes on) or block (it waits)")
    return WebhookOptions(
        url,
        headers,
        method,
        batch=int(_number(spec, "batch", 100, least=1)),
        timeout=_number(spec, "timeout", 10.0, least=0.001),
        tries=int(_number(spec, "tries", 5, least=1)),
        patience=_number(spec, "patience", 5.0, least=0.001),
        blocks=on_failure == "block",
    )


def _address(spec: SinkSpec) -> tuple[str, dict[str, str]]:
    """The URL, and headers with the name and password that stand in it."""
    try:
        parts = urlsplit(spec.option("url"))
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its words repeat the address
        usable = False
    if not usable:
        raise _invalid(spec, "url", "is not the address of a receiver", "such as https://host/path")
    if parts.username is None:
        return urlunsplit(parts), {}
    user, password = unquote(parts.username), keep_hidden(unquote(parts.password or ""))
    token = keep_hidden(base64.b64encode(f"{user}:{password}".encode()).decode())
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), {"Authorization": f"Basic {token}"}


def _number(spec: SinkSpec, name: str, usual: float, *, least: float) -> float:
    text = spec.option(name, str(usual))
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value < 1e9 or (isinstance(usual, int) and value != int(value)):
        raise _invalid(spec, name, f'is "{text}"', f"a {'whole ' if isinstance(usual, int) else ''}number above 0")
    return value


def _invalid(spec: SinkSpec, option: str, what: str, hint: str) -> ProjectError:
    return ProjectError("OPTION_INVALID", f'"{spec.name}" (webhook): the option "{option}" {what}', hint=hint)

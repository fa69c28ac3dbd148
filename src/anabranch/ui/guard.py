"""Who may ask: only pages that this server has sent itself, by a name that cannot be anybody else's.

A page of another site can make a browser send requests to this machine. Its own name may even lead here for a moment
(DNS rebinding), so the name in `Host` is checked: a name that leads elsewhere is refused, and so is anything that comes
from another origin. Nothing on the page writes; methods that could are refused for foreign origins all the same.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Sent with every answer. Nothing but what this server sends is loaded, run or framed.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_SAFE = ("GET", "HEAD", "OPTIONS")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_is_ours(host: str, bound: str) -> bool:
    """Whether the name in a request is this machine's own.

    An address is: nobody else can give it a meaning. A name is only if it is one that this machine calls itself by,
    and the server is to be reached from others at all.

    >>> host_is_ours("127.0.0.1:4040", "127.0.0.1"), host_is_ours("evil.example:4040", "127.0.0.1")
    (True, False)
    >>> host_is_ours("192.168.1.7:4040", "127.0.0.1"), host_is_ours("192.168.1.7:4040", "0.0.0.0")
    (False, True)
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if is_loopback(name):
        return True
    if is_loopback(bound):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() in {bound.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
    return True


@dataclass
class Guard:
    """Middleware: refuse what is not ours, and put the headers on every answer."""

    app: ASGIApp
    bound: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        await (refusal or self.app)(scope, receive, guarded)

    def _refusal(self, method: str, headers: Headers) -> PlainTextResponse | None:
        host = headers.get("host", "")
        if not host_is_ours(host, self.bound):
            return PlainTextResponse(
                "This page is for the machine it runs on: ask for it by 127.0.0.1 or localhost.\n", 421
            )
        # Browsers say where a request comes from; a link that somebody follows is the only one from elsewhere we take.
        site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
        foreign = site not in ("none", "same-origin") and not (method in _SAFE and mode == "navigate")
        origin = headers.get("origin")
        if method not in _SAFE and origin is not None:
            foreign = foreign or urlsplit(origin).netloc != host
        return PlainTextResponse("Requests from other pages are refused.\n", 403) if foreign else None

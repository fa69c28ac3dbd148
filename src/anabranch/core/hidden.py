"""What must not be shown: values that are known to be secret, and passwords that stand in addresses.

`hide` is asked by whatever prints or writes: errors when they are made, events, the command's output, Spark's log.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

HIDDEN = "***"
_SHORTEST = 4  # what is shorter is no secret, and would be found in half of all words

#: `scheme://user:password@host`; a reference to a secret is not one.
ADDRESS = r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@\"']*:)(?!\$\{|\*\*\*@)[^\s/\"']+(?=@)"
#: `?password=...` and its like.
ARGUMENT = r"(?i)([?&;](?:[a-z_.-]*(?:password|passwd|pwd|secret|token)|access_key|api_?key|sig)=)(?!\$\{)[^&\s\"';]+"

_PATTERNS = tuple(re.compile(each) for each in (ADDRESS, ARGUMENT))

_forms: dict[str, None] = {}
_watchers: list[Callable[[tuple[str, ...]], None]] = []
_lock = threading.Lock()


def keep_hidden(value: str) -> str:
    """Remember a value as a secret; the value.

    >>> keep_hidden("tulip 77")
    'tulip 77'
    >>> hide("at https://h/?q=tulip%2077 with tulip 77")
    'at https://h/?q=*** with ***'
    """
    if len(value) < _SHORTEST:
        return value
    with _lock:
        new = [form for form in _ways_to_write(value) if form not in _forms]
        _forms.update(dict.fromkeys(new))
        known, watchers = _longest_first(), tuple(_watchers) if new else ()
    for watcher in watchers:
        watcher(known)
    return value


def hide(text: str) -> str:
    """The text without any secret that is known by now, and without passwords in addresses.

    >>> hide("cannot reach postgresql://ann:s3cret@db/shop?sslpassword=x")
    'cannot reach postgresql://ann:***@db/shop?sslpassword=***'
    >>> hide("postgresql://ann:${env:PW}@db/shop")
    'postgresql://ann:${env:PW}@db/shop'
    """
    with _lock:
        known = _longest_first()
    for form in known:
        text = text.replace(form, HIDDEN)
    if "://" in text or "=" in text:
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def hidden(value: Any) -> Any:
    """The value with `hide` done to every text in it; names of fields are not looked at.

    >>> hidden({"url": "https://a:bcde@h/", "tries": [1, "x"]})
    {'url': 'https://a:***@h/', 'tries': [1, 'x']}
    """
    match value:
        case str():
            return hide(value)
        case Mapping():
            return {key: hidden(each) for key, each in value.items()}
        case list() | tuple():
            return type(value)(map(hidden, value)) if type(value) in (list, tuple) else value
        case _:
            return value


def watch(watcher: Callable[[tuple[str, ...]], None]) -> None:
    """Have `watcher` called with everything that is to be hidden, now and whenever something is added."""
    with _lock:
        _watchers.append(watcher)
        known = _longest_first()
    if known:
        watcher(known)


def unwatch(watcher: Callable[[tuple[str, ...]], None]) -> None:
    """Call it no more."""
    with _lock:
        _watchers.remove(watcher)


def _longest_first() -> tuple[str, ...]:
    """One secret may be a part of another."""
    return tuple(sorted(_forms, key=len, reverse=True))


def _ways_to_write(value: str) -> set[str]:
    """As it is, in an address, in JSON, in Python's own notation."""
    plain = json.dumps(value), json.dumps(value, ensure_ascii=False), repr(value)
    return {value, quote(value, safe=""), quote(value), quote_plus(value), *(form[1:-1] for form in plain)}

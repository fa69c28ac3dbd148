"""Secrets in Spark's log: the JVM is told what to blot out, whenever something is added to that.

The pattern of `log4j2.properties` replaces what the property below matches, in messages and in traces. Its name is one
that Spark itself does not show.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from anabranch.core.hidden import watch

_PROPERTY = "anabranch.log.secret"


def mask_log(gateway: Any) -> None:
    """Keep secrets out of the log of a JVM that was started with our configuration of it."""
    from py4j.protocol import Py4JError

    def tell(known: tuple[str, ...]) -> None:
        with suppress(Py4JError, OSError):  # the JVM is gone, and logs no more
            gateway.jvm.java.lang.System.setProperty(_PROPERTY, java_pattern(known))
            gateway.jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure()

    watch(tell)


def java_pattern(texts: tuple[str, ...]) -> str:
    r"""A pattern of Java's that matches any of the texts, without a character that log4j would read as its own.

    >>> java_pattern(("a}b", "c"))
    'a\\u007db|c'
    """
    return "|".join(re.sub(r"[^A-Za-z0-9]", _escaped, text) for text in texts)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))

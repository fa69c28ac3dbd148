"""Settings of Kafka's clients: as Spark and Java spell them on one side, as librdkafka does on the other.

Options that begin with `kafka.` are handed on. Most are spelled alike. What Java spells otherwise is translated, as far
as librdkafka has it at all; the rest is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from anabranch.core.secrets import keep_hidden, reveal
from anabranch.errors import ProjectError

PREFIX = "kafka."

#: What the sink itself decides.
_OURS = frozenset({"transactional.id", "enable.idempotence", "group.id", "isolation.level", "on_delivery", "error_cb"})

#: Java's name, librdkafka's name.
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "max.request.size": "message.max.bytes",
    "ssl.enabled.protocols": "",  # librdkafka takes what OpenSSL allows
    "ssl.protocol": "",
    "ssl.truststore.password": "",  # certificates in PEM form have none
    "ssl.truststore.type": "",
    "ssl.keystore.type": "",
}

_SECRET = re.compile(r"password|secret|jaas|\.key$|key\.pem|\.token")
_LOGIN = re.compile(r"\.(?:plain\.PlainLoginModule|scram\.ScramLoginModule)\s")
_QUOTED = r'{}\s*=\s*(?:"([^"]*)"|\'([^\']*)\')'


def client_settings(options: Mapping[str, str], sink: str) -> dict[str, str]:
    """The settings for librdkafka of the options that begin with `kafka.`, with their secrets looked up.

    >>> client_settings({"topic": "t", "kafka.bootstrap.servers": "h:9092", "kafka.max.request.size": "7"}, "out")
    {'bootstrap.servers': 'h:9092', 'message.max.bytes': '7'}
    """
    given = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    for name in sorted(_OURS & given.keys()):
        raise _refused(sink, name, "is set by Anabranch itself", f'leave the option "{PREFIX}{name}" out')
    settings: dict[str, str] = {}
    for name, text in given.items():
        value = reveal(text)
        if _SECRET.search(name):
            keep_hidden(value)
        settings |= _translated(name, value, given, sink)
    return settings


def _translated(name: str, value: str, given: Mapping[str, str], sink: str) -> dict[str, str]:
    if name == "sasl.jaas.config":
        return _login(value, sink)
    if name == "ssl.truststore.location":
        if given.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise _refused(
                sink,
                name,
                "is a Java keystore, which librdkafka cannot read",
                "export the certificates (keytool -exportcert -rfc -file ca.pem) and name them with "
                f'"{PREFIX}ssl.ca.location"; or set "{PREFIX}ssl.truststore.type" to PEM if the file is one',
            )
        return {"ssl.ca.location": value}
    if name == "ssl.keystore.location":
        return _key(value, given.get("ssl.keystore.type", "JKS").upper(), sink)
    if name == "ssl.keystore.password":
        return {name: value} if given.get("ssl.keystore.type", "").upper() == "PKCS12" else {}
    if name == "ssl.endpoint.identification.algorithm":
        return {name: value or "none"}
    if name in _RENAMED:
        return {_RENAMED[name]: value} if _RENAMED[name] else {}
    return {name: value}


def _key(path: str, kind: str, sink: str) -> dict[str, str]:
    if kind == "PKCS12":
        return {"ssl.keystore.location": path}
    if kind == "PEM":  # one file has both
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    raise _refused(
        sink,
        "ssl.keystore.location",
        "is a Java keystore, which librdkafka cannot read",
        "convert it (keytool -importkeystore -deststoretype PKCS12) and set "
        f'"{PREFIX}ssl.keystore.type" to PKCS12; PEM is taken as well',
    )


def _login(text: str, sink: str) -> dict[str, str]:
    """User and password of a JAAS line: librdkafka has settings for them."""
    user, password = (re.search(_QUOTED.format(word), text) for word in ("username", "password"))
    if not _LOGIN.search(text) or user is None or password is None:
        raise _refused(
            sink,
            "sasl.jaas.config",
            "is not a user with a password (PlainLoginModule, ScramLoginModule)",
            f'use the settings of librdkafka in its place: "{PREFIX}sasl.kerberos.*", "{PREFIX}sasl.oauthbearer.*"',
        )
    return {
        "sasl.username": user[1] or user[2] or "",
        "sasl.password": keep_hidden(password[1] or password[2] or ""),
    }


def _refused(sink: str, name: str, why: str, hint: str) -> ProjectError:
    return ProjectError("OPTION_INVALID", f'"{sink}" (kafka): "{PREFIX}{name}" {why}', hint=hint)

"""Where data is, in names that other systems know it by: those of OpenLineage's naming conventions.

A place is a namespace, which is the system, and a name within it: `kafka://broker:9092` and `orders`, `file` and
`/lake/tables/orders`, `postgres://db:5432` and `shop.public.orders`. Passwords never become part of one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

#: For what is kept in no system that has names of its own.
IN_MEMORY = "inmemory://"

_PORTS = {"postgres": 5432, "mysql": 3306, "mssql": 1433, "sqlserver": 1433, "oracle": 1521}
_DATABASES = {"postgresql": "postgres", "mariadb": "mysql", "sqlserver": "mssql"}

#: `SELECT * FROM orders`: a query that is nothing but a table.
_WHOLE_TABLE = re.compile(r'\s*select\s+\*\s+from\s+([\w."`]+)\s*', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where data is."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Written:
    """An output of a channel and where it is kept."""

    dataset: str
    format: str
    place: Place


@dataclass(frozen=True, slots=True)
class Judged:
    """A rule of a dataset, and what becomes of a row that breaks it."""

    dataset: str
    rule: str
    action: str


@dataclass(frozen=True, slots=True)
class ChannelParts:
    """What a channel of a run reads, writes and judges. `named` has what it reads by the names of column lineage."""

    channel: str
    reads: tuple[Place, ...] = ()
    writes: tuple[Written, ...] = ()
    rules: tuple[Judged, ...] = ()
    named: Mapping[str, tuple[Place, ...]] = field(default_factory=dict)


def places_of_source(source: str, options: Mapping[str, str]) -> tuple[Place, ...]:
    """What a source of this format reads; names of options are in lower case.

    >>> places_of_source("kafka", {"kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "orders,users"})[1]
    Place(namespace='kafka://a:9092', name='users')
    >>> places_of_source("json", {"path": "file:/in/orders"})
    (Place(namespace='file', name='/in/orders'),)
    >>> places_of_source("rate", {})
    (Place(namespace='inmemory://', name='rate'),)
    """
    if servers := options.get("kafka.bootstrap.servers"):
        topics = options.get("subscribe") or options.get("subscribepattern") or options.get("assign") or "?"
        named = topics.split(",") if "subscribe" in options else [topics]
        return tuple(Place(_broker(servers), topic.strip()) for topic in named)
    if url := options.get("url"):
        return (_table(url, options.get("dbtable") or options.get("query") or ""),)
    if path := options.get("path"):
        return (place_of_path(path),)
    return (Place(IN_MEMORY, source),)


def place_of_output(dataset: str, kind: str, location: str, options: Mapping[str, str]) -> Place:
    """Where an output of format `kind` is kept; `location` is absolute.

    >>> place_of_output("orders", "delta", "/lake/tables/orders", {})
    Place(namespace='file', name='/lake/tables/orders')
    >>> place_of_output("orders", "postgres", "postgres://orders", {"url": "postgresql://ann:pw@db/shop"})
    Place(namespace='postgres://db:5432', name='shop.public.orders')
    >>> place_of_output("calls", "webhook", "webhook://calls", {"url": "https://ann:pw@ops.example/hook?team=a"})
    Place(namespace='https://ops.example', name='/hook')
    """
    if servers := options.get("kafka.bootstrap.servers"):
        return Place(_broker(servers), options.get("topic") or dataset)
    url = options.get("url", "")
    if url.startswith(("http://", "https://")):
        parts = urlsplit(url)
        return Place(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}", parts.path or "/")
    if url:
        return _table(url, options.get("table") or dataset)
    return place_of_path(location) if kind not in ("foreach_batch", "memory") else Place(IN_MEMORY, dataset)


def place_of_path(path: str) -> Place:
    """A path or an address of files.

    >>> place_of_path("s3a://bucket/raw/orders"), place_of_path("hdfs://name:8020/raw").name
    (Place(namespace='s3://bucket', name='raw/orders'), '/raw')
    """
    scheme, colon, rest = path.partition(":")
    if not colon or "/" in scheme:
        return Place("file", path)
    if scheme == "file":
        return Place("file", "/" + unquote(rest).lstrip("/"))
    parts = urlsplit(path)
    scheme = "s3" if scheme in ("s3a", "s3n") else scheme
    host = parts.netloc if scheme in ("abfss", "wasbs") else parts.netloc.rpartition("@")[2]
    return Place(f"{scheme}://{host}", parts.path.lstrip("/") if scheme in ("s3", "gs") else parts.path or "/")


def _broker(servers: str) -> str:
    return f"kafka://{servers.split(',')[0].strip()}"


def _table(url: str, table: str) -> Place:
    """A table of a database, by an address of SQLAlchemy's or JDBC's kind."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    scheme = _DATABASES.get(parts.scheme.partition("+")[0], parts.scheme.partition("+")[0])
    host, _, port = parts.netloc.partition(";")[0].rpartition("@")[2].partition(":")  # settings may follow a ";"
    namespace = f"{scheme}://{host or 'localhost'}:{port or _PORTS.get(scheme, '')}".rstrip(":")
    found = _WHOLE_TABLE.fullmatch(table)
    name = (found[1] if found else table.strip()).replace('"', "").replace("`", "")
    if scheme == "postgres" and "." not in name and " " not in name:
        name = f"public.{name}"
    database = unquote(parts.path).strip("/").partition(";")[0]
    return Place(namespace, f"{database}.{name}" if database else name)

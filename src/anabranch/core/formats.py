"""The formats of outputs: what each promises, which options it takes, and where its code is.

A format of another package is found by its entry point in the group `anabranch.formats`, which names a `Format`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata

from anabranch.core.where import Where
from anabranch.errors import ProjectError

#: The group of entry points under which other packages name their formats.
GROUP = "anabranch.formats"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a sink guarantees; `plan` and the docs print it."""

    exactly_once: bool  # no row lost, no row twice, whatever crashes
    idempotent_by: str  # where the sink remembers the last epoch it took
    pinned_reads: bool  # old versions can be read: the sink takes part in the cut
    schema_evolution: str  # "additive", "any" (it keeps no schema) or "none"
    replaces: bool = True  # it can take rows instead of all it holds, as a full refresh needs
    merges: bool = False  # it takes changes by key
    exceptions: tuple[str, ...] = ()  # what holds for other sinks and not for this one, in words


@dataclass(frozen=True, slots=True)
class Format:
    """One format. `opens` and `reads` are written as an entry point is: `module:function`.

    `place` says where an output is kept, as the ledger remembers it; an option `path` says otherwise. `spooled` tells
    that rows wait below the storage until the sink has taken them.

    >>> Format("log", "acme.log:open_log", DELTA.capabilities, place="log://{name}").where("errors", {})
    'log://errors'
    """

    name: str
    opens: str  # (SinkSpec) -> Sink
    capabilities: Capabilities
    options: tuple[str, ...] = ()  # "kafka.*" stands for all that begin so
    required: tuple[str, ...] = ()
    place: str = "tables/{name}"
    defaults: Mapping[str, str] | None = None  # of options that `place` names; {name} stands for the output's
    spooled: bool = False
    reads: str | None = None  # (location, version) -> an Arrow dataset, for formats with pinned reads

    def where(self, name: str, options: Mapping[str, str]) -> str:
        """Where an output is kept, as the ledger remembers it."""
        said = {key: value.format(name=name) for key, value in (self.defaults or {}).items()}
        return options.get("path") or self.place.format(**{**said, **options, "name": name})

    def takes(self, option: str) -> bool:
        """Whether there is such an option."""
        known = (*self.options, *self.required, "path")
        return any(option == name or (name.endswith("*") and option.startswith(name[:-1])) for name in known)

    def problems(self, options: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        """What is wrong with the options of an output, each with a hint."""
        for name in self.required:
            if not options.get(name):
                yield f'lacks the option "{name}"', f'add the option "{name}"'
        for name in options:
            if not self.takes(name):
                known = ", ".join((*self.required, *self.options))
                yield f'has no option "{name}"', f"options of format {self.name}: {known or 'path'}"


DELTA = Format(
    "delta",
    "anabranch.connectors.delta_tables:open_delta",
    Capabilities(True, "transaction marker in the table's log", True, "additive", merges=True),
    options=("*",),  # Spark's options of a Delta sink have no effect here and do no harm
    reads="anabranch.connectors.delta:read_version",
)

ICEBERG = Format(
    "iceberg",
    "anabranch.connectors.iceberg_tables:open_iceberg",
    Capabilities(
        True,
        "a record beside the SQL catalogue's pointers, moved in one transaction with them; in a REST catalogue, a "
        "property of the table",
        True,
        "additive",
        merges=True,
        exceptions=(
            "changes by key: not in a REST catalogue, which cannot move a table and the log of its changes together",
        ),
    ),
    options=("catalog", "catalog.*", "table"),
    reads="anabranch.connectors.iceberg_versions:read_version",
)

FOREACH_BATCH = Format(
    "foreach_batch",
    "anabranch.connectors.foreach_batch:open_function",
    Capabilities(
        False,
        "a marker in the sink's folder, written after the function has returned",
        False,
        "any",
        replaces=False,
        exceptions=(
            "exactly once: the function is called again, with the same rows, for an epoch whose answer was lost",
            "reading at the cut: where the rows go is known to the function only",
        ),
    ),
    options=("*",),
    place="staged/{name}",
    spooled=True,
)

WEBHOOK = Format(
    "webhook",
    "anabranch.connectors.webhook:WebhookSink",
    Capabilities(
        False,
        "the Idempotency-Key of each request, the same at every try",
        False,
        "any",
        replaces=False,
        exceptions=(
            "exactly once: a request whose answer was lost is sent again, with the same Idempotency-Key",
            "all outputs at one epoch: rows that the receiver does not take are kept and sent later, unless on_failure "
            'is "block"',
            "reading at the cut: the rows are with the receiver",
        ),
    ),
    options=("method", "headers.*", "batch", "timeout", "tries", "patience", "on_failure"),
    required=("url",),
    place="webhook://{name}",
    spooled=True,
)

POSTGRES = Format(
    "postgres",
    "anabranch.connectors.postgres:open_postgres",
    Capabilities(
        True,
        "row in anabranch_epochs, same transaction",
        False,
        "additive",
        merges=True,
        exceptions=("reading at the cut: Postgres keeps no old versions",),
    ),
    options=("table", "on_violation", "create"),
    required=("url",),
    place="postgres://{table}",
    defaults={"table": "{name}"},
    spooled=True,
)

MEMORY = Format(
    "memory",
    "anabranch.connectors.memory:open_memory",
    Capabilities(
        False,
        "a mark in the memory of the process",
        False,
        "any",
        exceptions=(
            "keeping rows: they are gone when the process ends, and not given again",
            "reading at the cut: `memory_table` gives the rows there are",
        ),
    ),
    place="memory://{name}",
    spooled=True,
)

KAFKA = Format(
    "kafka",
    "anabranch.connectors.kafka:open_kafka",
    Capabilities(
        True,
        "a marker in a compacted topic, in the transaction of the rows",
        False,
        "any",
        replaces=False,
        exceptions=(
            "each row once: for consumers that read what is committed (isolation.level=read_committed)",
            "a full refresh: a topic cannot take rows back, so they are sent again",
            "reading at the cut: a topic is read by its consumers only",
        ),
    ),
    options=(
        "kafka.*",
        "key",
        "headers",
        "origin.headers",
        "partition",
        "timestamp",
        "value.format",
        "value.schema",
        "value.message",
        "value.registry",
        "value.registry.auth",
        "marker.topic",
        "create",
    ),
    required=("topic", "kafka.bootstrap.servers"),
    place="kafka://{topic}",
    spooled=True,
)

_GLOBBED = (
    "all outputs at one epoch: whoever globs the folder may see files of an epoch just before its manifest is there, "
    "and old and new ones together while a full refresh takes the place of all rows"
)

PARQUET = Format(
    "parquet",
    "anabranch.connectors.file_sink:open_parquet",
    Capabilities(True, "a manifest in the folder", True, "additive", exceptions=(_GLOBBED,)),
    spooled=True,
    reads="anabranch.connectors.file_sink_manifest:read_version",
)

_TEXT = Capabilities(
    True,
    "a manifest in the folder",
    False,
    "additive",
    exceptions=(_GLOBBED, "reading at the cut: text has no types; the manifests say which files belong to an epoch"),
)
JSON = Format("json", "anabranch.connectors.file_sink:open_json", _TEXT, options=("compression",), spooled=True)
CSV = Format("csv", "anabranch.connectors.file_sink:open_csv", _TEXT, options=("compression", "header"), spooled=True)

#: The formats that come with Anabranch.
OURS: Mapping[str, Format] = {
    each.name: each for each in (DELTA, ICEBERG, FOREACH_BATCH, WEBHOOK, POSTGRES, MEMORY, KAFKA, PARQUET, JSON, CSV)
}


@dataclass(frozen=True, slots=True)
class Plugin:
    """A format that another package names; `format` is None if it could not be loaded, and `fault` says why."""

    name: str
    package: str  # with its version
    entry: str
    format: Format | None
    fault: str = ""


@cache
def plugins() -> tuple[Plugin, ...]:
    """The formats of other packages; one that is broken is told when it is used, and keeps no other from working."""
    found = []
    for entry in metadata.entry_points(group=GROUP):
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown package"
        try:
            loaded = entry.load()
            fault = "" if isinstance(loaded, Format) else f"{entry.value} is no Format"
        except Exception as error:  # noqa: BLE001 the boundary around another package's code
            loaded, fault = None, f"{type(error).__name__}: {error}"
        found.append(Plugin(entry.name, package, entry.value, None if fault else loaded, fault))
    return tuple(found)


def plugin_fault(plugin: Plugin, output: str, where: Where | None = None) -> ProjectError:
    """That an output's format is there, and cannot be used."""
    return ProjectError(
        "FORMAT_BROKEN",
        f'"{output}" has format "{plugin.name}" of the package {plugin.package}, which does not work: {plugin.fault}',
        where=where,
        hint=f"mend or uninstall {plugin.package.partition(' ')[0]}; `anabranch doctor` lists all such formats",
    )


def broken(name: str) -> Plugin | None:
    """The package whose format of this name cannot be used, if that is so."""
    return next((each for each in plugins() if each.name == name and each.fault and name not in OURS), None)


@cache
def formats() -> Mapping[str, Format]:
    """Every format there is, by its name; those of other packages do not hide ours.

    >>> formats()["delta"].capabilities.exactly_once
    True
    """
    found = {each.name: each.format for each in plugins() if each.format}
    return {**found, **OURS}

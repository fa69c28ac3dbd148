"""The formats of outputs: what each promises, which options it takes, and where its code is.

A format of another package is found by its entry point in the group `anabranch.formats`, which names a `Format`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata

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

#: The formats that come with Anabranch.
OURS: Mapping[str, Format] = {each.name: each for each in (DELTA, FOREACH_BATCH)}


@cache
def formats() -> Mapping[str, Format]:
    """Every format there is, by its name; those of other packages do not hide ours.

    >>> formats()["delta"].capabilities.exactly_once
    True
    """
    found: dict[str, Format] = {}
    for entry in metadata.entry_points(group=GROUP):
        found[entry.name] = entry.load()
    return {**found, **OURS}

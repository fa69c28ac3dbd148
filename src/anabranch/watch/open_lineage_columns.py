"""The facet `columnLineage` of OpenLineage: what the columns of an output are computed from, as the run has found it.

A job is a channel, so origins are what the channel reads: its own tables and views are looked through. Columns that
give values are `fields`; those that decide which rows there are stand once, under `dataset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, How, Influence, in_words, through
from anabranch.core.places import ChannelParts, Place
from anabranch.watch.open_lineage_facets import Facet, facet

#: The specification has no words of its own for the last ones: keys of a merge and arrays are joined to the rows.
_SUBTYPES = {
    How.IDENTITY: "IDENTITY",
    How.TRANSFORMED: "TRANSFORMATION",
    How.AGGREGATED: "AGGREGATION",
    How.FILTER: "FILTER",
    How.JOIN: "JOIN",
    How.GROUP: "GROUP_BY",
    How.SORT: "SORT",
    How.WINDOW: "WINDOW",
    How.UNKNOWN: "TRANSFORMATION",
    How.EXPLODE: "JOIN",
    How.MERGE: "JOIN",
}
_DESCRIBED = {
    How.UNKNOWN: "unknown: handed to code that cannot be looked into",
    How.EXPLODE: "explode",
    How.MERGE: "merge key",
}


def of_columns(known: Mapping[str, DatasetColumns], dataset: str, part: ChannelParts) -> dict[str, Facet]:
    """The facet of an output of a channel; nothing if nobody has looked at it.

    A column without an origin that others can know has words instead: it is constant, or made by a function, or
    unknown, or from something that has no place.
    """
    if dataset not in known:
        return {}
    found = through(known, dataset, [name for name in known if name not in part.named])
    fields = {name: _field(origins, part.named) for name, origins in found.columns.items()}
    said: dict[str, Any] = {"fields": fields, "dataset": _inputs(found.rows.indirect, part.named)}
    if found.rows.unknown:
        said["anabranch_unknown"] = sorted(found.rows.unknown)
    return {"columnLineage": facet("columnLineage", **said)}


def _field(origins: ColumnOrigins, named: Mapping[str, tuple[Place, ...]]) -> dict[str, Any]:
    placed = {f"{i.input}.{i.column}" for i in (*origins.direct, *origins.indirect) if named.get(i.input)}
    words = [f"{name} ({how})" if name else how for name, how in in_words(origins) if name not in placed]
    said: dict[str, Any] = {"inputFields": _inputs(origins.direct | origins.indirect, named)}
    return {**said, "transformationDescription": "; ".join(words)} if words else said


def _inputs(influences: Iterable[Influence], named: Mapping[str, tuple[Place, ...]]) -> list[dict[str, Any]]:
    """Each column that is read once, with all it does."""
    found: dict[tuple[Place, str], list[dict[str, str]]] = {}
    for each in sorted(influences):
        for place in named.get(each.input, ()):
            found.setdefault((place, each.column), []).append(_transformation(each.how))
    return [
        {"namespace": place.namespace, "name": place.name, "field": column, "transformations": does}
        for (place, column), does in found.items()
    ]


def _transformation(how: How) -> dict[str, str]:
    said = {"type": "DIRECT" if how.is_direct else "INDIRECT", "subtype": _SUBTYPES[how]}
    return {**said, "description": _DESCRIBED[how]} if how in _DESCRIBED else said

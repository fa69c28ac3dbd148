"""The facets of OpenLineage: what is told of a run and of a dataset. See https://openlineage.io/spec/2-0-2.

Each names the version of its schema that it was written to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.core.epoch import Receipt
from anabranch.core.quality import FlowQuality
from anabranch.watch.version import version

Facet = dict[str, Any]

PRODUCER = f"urn:anabranch:{version()}"
CORE = "https://openlineage.io/spec/2-0-2/OpenLineage.json"

_FACETS = {
    "schema": "1-2-0/SchemaDatasetFacet",
    "version": "1-0-1/DatasetVersionDatasetFacet",
    "dataQualityMetrics": "1-0-0/DataQualityMetricsDatasetFacet",
    "dataQualityAssertions": "1-1-0/DataQualityAssertionsDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "parent": "1-2-0/ParentRunFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
}


def facet(name: str, **said: Any) -> Facet:
    """A facet with the marks of who has made it, and by which schema. Those that are our own are plain run facets.

    >>> facet("version", datasetVersion="7")["_schemaURL"].rpartition("#")[2]
    '/$defs/DatasetVersionDatasetFacet'
    """
    if name in _FACETS:
        schema = _FACETS[name]
        url = f"https://openlineage.io/spec/facets/{schema}.json#/$defs/{schema.rpartition('/')[2]}"
    else:
        url = f"{CORE}#/$defs/RunFacet"
    return {"_producer": PRODUCER, "_schemaURL": url, **said}


def of_receipt(receipt: Receipt) -> tuple[dict[str, Facet], dict[str, Facet]]:
    """What a sink was given: facets of the dataset, and facets of it as an output."""
    size = sum(f.size for f in receipt.files)
    written = facet("outputStatistics", rowCount=receipt.rows, size=size, fileCount=len(receipt.files))
    metrics = facet(
        "dataQualityMetrics",
        rowCount=receipt.rows,
        bytes=size,
        fileCount=len(receipt.files),
        columnMetrics=_columns(receipt),
    )
    facets = {"dataQualityMetrics": metrics}
    if fields := _fields(_parsed(receipt.schema)):
        facets["schema"] = facet("schema", fields=fields)
    return facets, {"outputStatistics": written}


def of_quality(dataset: str, found: Iterable[FlowQuality], actions: Mapping[tuple[str, str], str]) -> dict[str, Facet]:
    """Whether the rows of an epoch kept the rules of a dataset; nothing for one without rules."""
    judged: dict[str, tuple[int, int]] = {}
    for one in found:
        for rule, count in one.broken.items() if one.dataset == dataset else ():
            broken, rows = judged.get(rule, (0, 0))
            judged[rule] = broken + count, rows + one.rows
    if not judged:
        return {}
    assertions = []
    for rule, (broken, rows) in judged.items():
        action = actions.get((dataset, rule), "")
        assertions.append(
            {
                "assertion": "expectation",
                "name": rule,
                "success": broken == 0,
                "severity": "error" if action == "fail" else "warn",
                "expected": "0",
                "actual": str(broken),
                "params": {"rows": rows, **({"action": action} if action else {})},
            }
        )
    return {"dataQualityAssertions": facet("dataQualityAssertions", assertions=assertions)}


def _parsed(schema: str) -> Mapping[str, Any]:
    """The schema of a receipt. Delta and Iceberg word it alike as far as this goes; a plugin may have its own way."""
    try:
        said = json.loads(schema)
    except ValueError:
        return {}
    return said if isinstance(said, Mapping) else {}


def _fields(struct: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of a struct, and of structs within.

    >>> _fields({"fields": [{"name": "at", "type": {"type": "struct", "fields": [{"name": "x", "type": "long"}]}}]})
    [{'name': 'at', 'type': 'struct<x:long>', 'fields': [{'name': 'x', 'type': 'long'}]}]
    """
    found = []
    for said in struct.get("fields") or ():
        if isinstance(said, Mapping) and "name" in said:
            kind = said.get("type")
            inner = _fields(kind) if isinstance(kind, Mapping) else []
            found.append({"name": str(said["name"]), "type": _type(kind), **({"fields": inner} if inner else {})})
    return found


def _type(kind: Any) -> str:
    match kind:
        case {"type": "struct", "fields": list(fields)}:
            return f"struct<{','.join(str(f['name']) + ':' + _type(f['type']) for f in fields)}>"
        case {"type": "array", "elementType": element} | {"type": "list", "element": element}:
            return f"array<{_type(element)}>"
        case {"type": "map", "keyType": key, "valueType": value} | {"type": "map", "key": key, "value": value}:
            return f"map<{_type(key)},{_type(value)}>"
        case _:
            return str(kind)


def _columns(receipt: Receipt) -> dict[str, dict[str, float]]:
    """What the files say of their columns: nulls, and the least and the greatest of numbers."""
    found: dict[str, dict[str, float]] = {}
    for file in receipt.files:
        for column, nulls in _plain(file.stats.get("nullCount")).items():
            of = found.setdefault(column, {"nullCount": 0})
            of["nullCount"] += nulls
        for stat, name, choose in (("minValues", "min", min), ("maxValues", "max", max)):
            for column, value in _plain(file.stats.get(stat)).items():
                of = found.setdefault(column, {"nullCount": 0})
                of[name] = choose(of.get(name, value), value)
    return found


def _plain(values: Any) -> dict[str, Any]:
    """The numbers among the values of the columns; what is nested is left out."""
    return {
        str(column): value
        for column, value in (values.items() if isinstance(values, Mapping) else ())
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value
    }

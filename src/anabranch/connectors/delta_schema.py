"""Which rows a Delta table can take: Arrow schemas put into Delta's types, and compared with a table that exists."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import Schema

from anabranch.connectors.variants import VARIANT, is_variant, marked
from anabranch.core.declarations import Unique
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_SAME = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_date32,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_decimal128,
)


def delta_arrow_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that staged files and the table have: Delta's types only, everything nullable.

    >>> delta_arrow_schema(pa.schema([pa.field("t", pa.timestamp("ns", "Etc/UTC"), nullable=False)]))
    t: timestamp[us, tz=UTC]
    """
    fields = [pa.field(f.name, _delta_type(f.type, f.name)) for f in schema]
    folded: dict[str, str] = {}
    for f in fields:
        if other := folded.get(f.name.lower()):
            raise ProjectError(
                "SCHEMA_UNSUPPORTED",
                f'columns "{other}" and "{f.name}" differ in case only',
                hint="rename one of them: Delta tables do not tell such columns apart",
            )
        folded[f.name.lower()] = f.name
        if bad := set(f.name) & set(" ,;{}()\n\t="):
            raise ProjectError(
                "SCHEMA_UNSUPPORTED",
                f'column "{f.name}" has characters a Delta column cannot have: {sorted(bad)}',
                hint="rename the column in the flow",
            )
    return pa.schema(fields)


def _delta_type(kind: pa.DataType, path: str) -> pa.DataType:
    if any(same(kind) for same in _SAME):
        return kind
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_dictionary(kind):
        return _delta_type(kind.value_type, path)
    if pa.types.is_map(kind):
        return pa.map_(_delta_type(kind.key_type, f"{path}.key"), _delta_type(kind.item_type, f"{path}.value"))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _delta_type(kind.value_type, f"{path}.element")))
    if mark := marked(kind):
        if mark == "variant":
            return VARIANT
        raise _no_place(path, mark, f"keep its well-known binary form: ST_AsBinary({path})")
    if pa.types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(f.name, _delta_type(f.type, f"{path}.{f.name}")) for f in kind])
    raise _no_place(path, str(kind), f"cast it in the flow, for example CAST({path} AS STRING)")


def _no_place(path: str, kind: str, hint: str) -> ProjectError:
    return ProjectError(
        "SCHEMA_UNSUPPORTED", f'column "{path}" is of type {kind}, which Delta has no place for', hint=hint
    )


def delta_json(schema: pa.Schema) -> str:
    """A schema of Delta's types in Delta's JSON form.

    >>> [f["type"] for f in json.loads(delta_json(pa.schema([("i", pa.int64()), ("v", VARIANT)])))["fields"]]
    ['long', 'variant']
    """
    found = json.loads(Schema.from_arrow(schema).to_json())
    _say_variant(found["fields"], schema)
    return json.dumps(found, separators=(",", ":"))


def _say_variant(fields: Iterable[Any], types: Iterable[pa.Field]) -> None:
    for said, own in zip(fields, types, strict=True):
        said["type"] = _said(said["type"], own.type)


def _said(said: Any, kind: pa.DataType) -> Any:
    if is_variant(kind):
        return "variant"
    if pa.types.is_struct(kind):
        _say_variant(said["fields"], kind)
    elif pa.types.is_map(kind):
        said["keyType"] = _said(said["keyType"], kind.key_type)
        said["valueType"] = _said(said["valueType"], kind.item_type)
    elif pa.types.is_nested(kind):
        said["elementType"] = _said(said["elementType"], kind.value_type)
    return said


def arrow_schema(schema: Schema) -> pa.Schema:
    """A table's schema as its files are read: variants marked, and their two fields as Spark orders them.

    >>> inner = {"name": "v", "type": "variant", "nullable": True, "metadata": {}}
    >>> arrow_schema(Schema.from_json(json.dumps({"type": "struct", "fields": [inner]}))).field("v").type == VARIANT
    True
    """
    said = json.loads(schema.to_json())
    kinds = pa.schema(schema.to_arrow())
    return pa.schema([_field(f["type"], own) for f, own in zip(said["fields"], kinds, strict=True)])


def _field(said: Any, own: pa.Field) -> pa.Field:
    return own.with_type(_type(said, own.type))


def _type(said: Any, kind: pa.DataType) -> pa.DataType:
    if said == "variant":
        return VARIANT
    if isinstance(said, str):
        return kind
    if said["type"] == "struct":
        return pa.struct([_field(f["type"], own) for f, own in zip(said["fields"], kind, strict=True)])
    if said["type"] == "map":
        item = kind.item_field.with_type(_type(said["valueType"], kind.item_type))
        return pa.map_(kind.key_field.with_type(_type(said["keyType"], kind.key_type)), item)
    return pa.list_(kind.value_field.with_type(_type(said["elementType"], kind.value_type)))


@dataclass(slots=True)
class Difference:
    """What stands between a table and the rows it is to take."""

    added: list[str] = field(default_factory=list)  # columns the table lacks
    missing: list[str] = field(default_factory=list)  # columns the rows lack; they become null
    problems: list[str] = field(default_factory=list)


def compare(table: str, rows: str) -> Difference:
    """Compare two schemas in Delta's JSON form.

    >>> field = '{"name":"%s","type":"%s","nullable":true,"metadata":{}}'
    >>> wrap = lambda *fields: '{"type":"struct","fields":[%s]}' % ",".join(field % f for f in fields)
    >>> compare(wrap(("a", "long"), ("b", "date")), wrap(("a", "string"), ("c", "long")))
    Difference(added=['c'], missing=['b'], problems=['column "a" is long in the table, string in the rows'])
    """
    difference = Difference()
    _compare_struct(json.loads(table), json.loads(rows), "", difference)
    return difference


def _compare_struct(table: Any, rows: Any, path: str, difference: Difference) -> None:
    theirs = {f["name"]: f for f in table["fields"]}
    folded = {name.lower(): name for name in theirs}
    ours = {f["name"] for f in rows["fields"]}
    for f in rows["fields"]:
        name = path + f["name"]
        if f["name"] in theirs:
            _compare_type(theirs[f["name"]]["type"], f["type"], name, difference)
        elif other := folded.get(f["name"].lower()):
            difference.problems.append(f'column "{name}" is called "{path}{other}" in the table')
        else:
            difference.added.append(name)
    for f in table["fields"]:
        name = path + f["name"]
        if not f["nullable"]:
            difference.problems.append(f'column "{name}" may not be null in the table')
        elif f["name"] not in ours and f["name"].lower() not in {o.lower() for o in ours}:
            difference.missing.append(name)


def _compare_type(table: Any, rows: Any, path: str, difference: Difference) -> None:
    kinds = [kind["type"] if isinstance(kind, dict) else kind for kind in (table, rows)]
    if kinds[0] != kinds[1]:
        difference.problems.append(f'column "{path}" is {kinds[0]} in the table, {kinds[1]} in the rows')
    elif kinds[0] == "struct":
        _compare_struct(table, rows, f"{path}.", difference)
    elif kinds[0] == "array":
        _compare_type(table["elementType"], rows["elementType"], f"{path}.element", difference)
        if not table["containsNull"]:
            difference.problems.append(f'elements of "{path}" may not be null in the table')
    elif kinds[0] == "map":
        _compare_type(table["keyType"], rows["keyType"], f"{path}.key", difference)
        _compare_type(table["valueType"], rows["valueType"], f"{path}.value", difference)
        if not table["valueContainsNull"]:
            difference.problems.append(f'values of "{path}" may not be null in the table')


#: Writer features that delta-rs takes and that ask nothing of someone who only adds files; those that may ask
#: something only where a column or property uses them are looked for below.
_HARMLESS = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
    }
)
_FIELD_RULES = {
    "delta.generationExpression": "generated column",
    "delta.invariants": "invariant on column",
}


def demands(schema: str, configuration: Mapping[str, str], writer_features: Sequence[str]) -> list[str]:
    """What a table asks of its writers that ready-made files cannot promise."""
    found = [f"table feature {name}" for name in sorted(set(writer_features) - _HARMLESS)]
    found += [f"constraint {key[18:]}" for key in sorted(configuration) if key.startswith("delta.constraints.")]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        found.append("column mapping")
    for f in _fields(json.loads(schema)):
        found += [f'{rule} "{f["name"]}"' for key, rule in _FIELD_RULES.items() if key in f["metadata"]]
    return found


def _fields(kind: Any) -> Iterator[Any]:
    if isinstance(kind, dict):
        for f in kind.get("fields", ()):
            yield f
            yield from _fields(f["type"])
        for inner in ("elementType", "keyType", "valueType"):
            yield from _fields(kind.get(inner))


def check_unique(name: str, rules: Iterable[Unique], columns: Iterable[str]) -> None:
    """Refuse a rule on columns that the rows do not have."""
    known = {column.lower() for column in columns}
    for rule in rules:
        if lacking := [c for c in rule.columns if c.lower() not in known]:
            raise ProjectError(
                "EXPECTATION_INVALID",
                f'the expectation "{rule.name}" of "{name}" is about {", ".join(lacking)}, which is no column of it',
                where=rule.where,
                hint=f"columns there: {', '.join(columns)}",
            )


_RETENTION = "delta.setTransactionRetentionDuration"


def check_retention(name: str, properties: Mapping[str, str]) -> None:
    """Refuse a table that forgets which epochs it took."""
    if _RETENTION in properties:
        raise ProjectError(
            "TRANSACTION_RETENTION",
            f'table "{name}" forgets transaction markers after {properties[_RETENTION]}',
            hint=f"remove {_RETENTION}: without the markers an epoch could be added twice",
        )


def check_table(name: str, table: DeltaTable, rows: str, partition_by: tuple[str, ...]) -> Difference:
    """Refuse what a table cannot take; returns what is different and harmless. `rows` is a schema in Delta's JSON."""
    about = table.metadata()
    check_retention(name, about.configuration)
    if tuple(about.partition_columns) != partition_by:
        raise ProjectError(
            "PARTITIONING_CHANGED",
            f'table "{name}" is partitioned by {", ".join(about.partition_columns) or "nothing"}, '
            f"the rows by {', '.join(partition_by) or 'nothing'}",
            hint="a table's partitioning is fixed: put it back, or write to a new table",
        )
    there = table.schema().to_json()
    if asked := demands(there, about.configuration, table.protocol().writer_features or ()):
        raise ProjectError(
            "TABLE_FEATURE_UNSUPPORTED",
            f'table "{name}" asks of its writers what is not supported here: {", ".join(asked)}',
            hint="drop that feature from the table, or write to a new table",
        )
    difference = compare(there, rows)
    if difference.problems:
        raise ProjectError(
            "SCHEMA_INCOMPATIBLE",
            f'table "{name}" cannot take the rows: {"; ".join(difference.problems)}',
            hint="cast or rename in the flow so that types match; new columns are fine, missing ones become null",
            details={"problems": difference.problems, "added": difference.added, "missing": difference.missing},
        )
    return difference

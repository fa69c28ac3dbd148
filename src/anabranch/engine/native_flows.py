"""Compile row-wise flows for the native pass: those of a read group that parse JSON and use known expressions only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from anabranch.engine.catalyst import METADATA_COLUMN, Catalyst, Node, identity, items, type_of
from anabranch.engine.chains import Chain, Part, Projection
from anabranch.engine.native_files import FileFeed
from anabranch.engine.native_json_files import DOCUMENT, LINE, JsonFiles, is_json, is_lines, json_files
from anabranch.engine.native_sql import FlowSql, Group, needed_of, raw_name
from anabranch.native.program import NativeFlow, NativeProgram, Parse
from anabranch.native.tree import NotKnown


@dataclass(frozen=True)
class NativeChains:
    """The native flows of a group: what workers run, the columns of the base that they read, and why others are not.

    Where the base is files of JSON, `document` is how a line of them is parsed; its columns are then not read raw.
    """

    program: NativeProgram
    chains: tuple[Chain, ...]
    raw: tuple[tuple[int, Node], ...]
    why: Mapping[Part, str]
    document: JsonFiles | None = None
    fields: tuple[tuple[int, Node], ...] = ()  # the columns of the base that are fields of the document


def native_chains(catalyst: Catalyst, chains: Sequence[Chain], schemas: Mapping[Part, pa.Schema]) -> NativeChains:
    """Compile what can be; `schemas` are those that the parts of flows have in Arrow."""
    base = chains[0].base
    group = Group(catalyst, {identity(a): a for a in items(base.output())}, is_json(base))
    why: dict[Part, str] = {}
    found: list[Chain] = []
    for chain in chains:
        try:
            flow = FlowSql(group)
            flow.compiled(chain, schemas[chain.part])
            if not flow.parses and not group.of_json:
                raise NotKnown(PLAIN)
        except NotKnown as reason:
            why[chain.part] = str(reason)
        else:
            found.append(chain)
    parsing = [part for part, reason in why.items() if reason != PLAIN]
    if len(found) < _WORTH * len(parsing):
        beside = f"Spark parses the same records for {parsing[0][0]}"
        return _nothing({**why, **{chain.part: beside for chain in found}})
    if not found:
        return _nothing(why)
    document = None
    shared, names = _shared(group, found)
    flows = []
    for chain in found:
        flow = FlowSql(group, names)
        flows.append(flow.compiled(chain, schemas[chain.part]))
        group.keep(flow)
    if group.of_json:
        try:
            document = json_files(catalyst, base, [group.base[n] for n in sorted(group.fields)])
        except NotKnown as reason:
            return _nothing({c.part: str(reason) for c in chains})
        group.parses[LINE] = Parse(LINE, DOCUMENT, document.shape)
    raw, fields = (tuple((number, group.base[number]) for number in sorted(some)) for some in (group.raw, group.fields))
    program = NativeProgram(
        (*([LINE] if document else []), *(raw_name(number) for number, _ in raw)),
        tuple(group.parses.values()),
        tuple(flows),
        shared,
        group.asks_time,
        skips_blank=document is not None,
    )
    return NativeChains(program, tuple(found), raw, why, document, fields)


#: Native flows for each one that Spark must parse the same records for, from which on both ways side by side pay.
_WORTH = 3


def _nothing(why: Mapping[Part, str]) -> NativeChains:
    return NativeChains(NativeProgram((), (), ()), (), (), why)


def _shared(group: Group, chains: Sequence[Chain]) -> tuple[NativeFlow | None, dict[int, str]]:
    """What several flows compute of every record, to be computed once; and the names that it then has."""
    steps: dict[int, Projection] = {}
    counts: dict[int, int] = {}
    needed: set[int] = set()
    for chain in chains:
        needed |= needed_of(chain)
        for step in chain.steps:
            if not isinstance(step, Projection):
                break  # what comes after is computed for chosen rows only
            steps[id(step)] = step
            counts[id(step)] = counts.get(id(step), 0) + 1
    flow = FlowSql(group)
    for key, step in steps.items():
        if counts[key] > 1:
            flow.project(step, needed)
    if not flow.computed:
        return None, {}
    group.keep(flow)
    return flow.shared(), {number: f"c{number}" for number in flow.computed}


#: Why a flow that parses nothing is left to Spark, which is as fast there.
PLAIN = "parses no JSON"


def native_types(rows: StructType) -> pa.Schema:
    """The types of a flow's rows, its columns named by their place: names may be doubled."""
    fields = [StructField(f"o{i}", field.dataType) for i, field in enumerate(rows.fields)]
    return to_arrow_schema(StructType(fields))


def file_feed(native: NativeChains) -> FileFeed | None:
    """How workers could read the files of a group themselves; None where its records are no lines of files."""
    base = native.chains[0].base
    names = {attribute.name(): number for number, attribute in native.raw}
    if native.document is None and not (is_lines(base) and "value" in names):
        return None
    if not names.keys() <= {"value", METADATA_COLUMN}:
        return None
    line = LINE if native.document else raw_name(names["value"])
    if METADATA_COLUMN not in names:
        return FileFeed(line)
    number = names[METADATA_COLUMN]
    kind = to_arrow_schema(StructType().add("of", type_of(dict(native.raw)[number]))).field(0).type
    return FileFeed(line, (raw_name(number), kind))


#: The raw records of a group, as if they were those of a flow.
RAW: Part = ("", 0)


def raw_records(base: Node, native: NativeChains) -> Chain:
    """What the native flows of a group need of its base."""
    return Chain(RAW, base, base, (), native.raw, None)

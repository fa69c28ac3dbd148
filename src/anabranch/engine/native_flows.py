"""Compile row-wise flows for the native pass: those of a read group that are known, and for which it pays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from anabranch.engine.catalyst import METADATA_COLUMN, Catalyst, source_options
from anabranch.engine.catalyst_nodes import Node, identity, items, type_of
from anabranch.engine.chains import Chain, Generation, Part, Projection, Selection
from anabranch.engine.native_documents import DOCUMENT, LINE, Documents, documents, is_documents, is_lines
from anabranch.engine.native_files import Feed, FileFeed, asks_for_part, parts_as_usual
from anabranch.engine.native_parquet import ParquetFeed, is_parquet, parquet_feed
from anabranch.engine.native_sql import FlowSql, Group, made, needed_of, raw_name
from anabranch.native.program import NativeProgram, Parse, Taken
from anabranch.native.tree import NotKnown


@dataclass(frozen=True)
class NativeChains:
    """The native flows of a group: what workers run, the columns of the base that they read, and why others are not.

    Where the base is files of JSON or CSV, `document` is how a line is parsed; its columns are then not read raw.
    """

    program: NativeProgram
    chains: tuple[Chain, ...]
    raw: tuple[tuple[int, Node], ...]
    why: Mapping[Part, str]
    document: Documents | None = None
    fields: tuple[tuple[int, Node], ...] = ()  # the columns of the base that are fields of the document
    columns: ParquetFeed | None = None  # where the raw records are columns of files that workers read

    @property
    def of_files(self) -> bool:
        """Whether workers read all of it from files, or nothing."""
        return self.document is not None or self.columns is not None


def native_chains(
    catalyst: Catalyst, chains: Sequence[Chain], schemas: Mapping[Part, pa.Schema], *, alone: bool = True
) -> NativeChains:
    """Compile what can be; `schemas` are those that the parts of flows have in Arrow.

    `alone`: no other source is read in the same channel.
    """
    base = chains[0].base
    if not (is_parquet(base) or is_documents(base)):
        return _compiled(catalyst, chains, schemas)
    if not alone:
        found = _compiled(catalyst, chains, schemas)
        beside = f"reads files of {source_options(base)[0].upper()} in a channel that reads more than these once"
        return replace(found, why={part: beside if reason == PLAIN else reason for part, reason in found.why.items()})
    whole = _compiled(catalyst, chains, schemas, of_columns=is_parquet(base), of_documents=is_documents(base))
    if whole.chains:
        return whole
    parsing = _compiled(catalyst, chains, schemas)  # of records that come through the JVM
    return parsing if parsing.chains else whole


def _compiled(
    catalyst: Catalyst,
    chains: Sequence[Chain],
    schemas: Mapping[Part, pa.Schema],
    *,
    of_columns: bool = False,
    of_documents: bool = False,
) -> NativeChains:
    """With `of_columns` the records are columns of files, with `of_documents` lines of them that become columns.

    Flows then need not parse anything.
    """
    base = chains[0].base
    group = Group(catalyst, {identity(a): a for a in items(base.output())}, of_documents)
    found, why = _tried(group, chains, schemas, of_files=of_columns or of_documents)
    if not found:
        return _nothing(why)
    document = None
    shared = _shared(group, found)
    names = {number: f"c{number}" for number in shared.named}
    group.masks.clear()  # of flows that were only tried
    flows = []
    for chain in found:
        flow = FlowSql(group, names)
        flows.append(flow.compiled(chain, schemas[chain.part]))
        group.keep(flow)
    if of_documents:
        try:
            document = documents(catalyst, base, [group.base[n] for n in sorted(group.fields)])
        except NotKnown as reason:
            return _nothing({c.part: str(reason) for c in chains})
        group.parses[LINE] = Parse(LINE, DOCUMENT, document.shape)
    raw, fields = (tuple((number, group.base[number]) for number in sorted(some)) for some in (group.raw, group.fields))
    program = NativeProgram(
        (*([LINE] if document else []), *(raw_name(number) for number, _ in raw)),
        tuple(group.parses.values()),
        tuple(flows),
        shared.shared(),
        tuple(shared.instants),
        tuple(Taken(name, place) for name, place in group.reads.items()),
        group.asks_time,
        skips_blank=document is not None,
    )
    asks = any(node.name() == METADATA_COLUMN and asks_for_part(program, raw_name(number)) for number, node in raw)
    if document and asks and not document.has_letters and not parts_as_usual(catalyst.setting):
        return _nothing({c.part: "asks where in a file a record is" for c in chains})
    try:
        if of_columns:
            _check_choices(found, raw)
        columns = parquet_feed(catalyst, base, [node for _, node in raw], program) if of_columns else None
    except NotKnown as reason:
        return _nothing({c.part: str(reason) for c in chains})
    return NativeChains(program, tuple(found), raw, why, document, fields, columns)


#: Types of which Spark may leave out rows of Parquet files that it would choose: what is said of a row group, or is in
#: its dictionary, knows nothing of NaN, tells zero from minus zero, or is in milliseconds.
_SKIPPED = ("float", "double", "timestamp")


def _check_choices(chains: Sequence[Chain], raw: Sequence[tuple[int, Node]]) -> None:
    """Refuse to choose rows of Parquet files where Spark does it as it reads: below an outer generator."""
    if not any(kind in type_of(node).simpleString() for _, node in raw for kind in _SKIPPED):
        return
    for chain in chains:
        outer = [i for i, step in enumerate(chain.steps) if isinstance(step, Generation) and step.outer]
        if outer and any(isinstance(step, Selection) for step in chain.steps[: outer[-1]]):
            raise NotKnown("chooses rows before it explodes them, which Spark does as it reads files of Parquet")


def _tried(
    group: Group, chains: Sequence[Chain], schemas: Mapping[Part, pa.Schema], *, of_files: bool
) -> tuple[list[Chain], dict[Part, str]]:
    """The flows that can be compiled, if it pays, and why the others are left to Spark."""
    why: dict[Part, str] = {}
    found: list[Chain] = []
    for chain in chains:
        try:
            flow = FlowSql(group)
            flow.compiled(chain, schemas[chain.part])
            if not (flow.parses or of_files):
                raise NotKnown(PLAIN)
        except NotKnown as reason:
            why[chain.part] = str(reason)
        else:
            found.append(chain)
    parsing = [part for part, reason in why.items() if reason != PLAIN]
    if parsing and (of_files or len(found) < _WORTH * len(parsing)):
        beside = f"Spark {'reads the same files' if of_files else 'parses the same records'} for {parsing[0][0]}"
        return [], {**why, **{chain.part: beside for chain in found}}
    return found, why


#: Native flows for each one that Spark must parse the same records for, from which on both ways side by side pay.
_WORTH = 3


def _nothing(why: Mapping[Part, str]) -> NativeChains:
    return NativeChains(NativeProgram((), (), ()), (), (), why)


def _shared(group: Group, chains: Sequence[Chain]) -> FlowSql:
    """What is computed of every record: for several flows, or for one that has a row for each."""
    steps: dict[int, Projection] = {}
    counts: dict[int, int] = {}
    needed: set[int] = set()
    for chain in chains:
        needed |= needed_of(chain)
        every = all(isinstance(step, Projection) for step in chain.steps)
        for step in chain.steps:
            if not isinstance(step, Projection):
                break  # what comes after is computed for chosen rows only
            steps[id(step)] = step
            counts[id(step)] = counts.get(id(step), 0) + (2 if every else 1)
    flow = FlowSql(group, whole=True)
    needed -= _ambiguous(chains)
    for key, step in steps.items():
        if counts[key] > 1:
            flow.project(step, needed)
    group.keep(flow)
    return flow


def _ambiguous(chains: Sequence[Chain]) -> set[int]:
    """Columns that are not the same in all flows, with those that stand on them: the sides of a union share numbers."""
    steps = {id(step): step for chain in chains for step in chain.steps}
    columns = [column for step in steps.values() for column in made(step)]
    times = Counter(number for number, _ in columns)
    found = {number for number, count in times.items() if count > 1}
    while more := {number for number, refers in columns if number not in found and not found.isdisjoint(refers)}:
        found |= more
    return found


#: Why a flow that parses nothing is left to Spark, which is as fast there.
PLAIN = "parses no JSON"


def native_types(rows: StructType) -> pa.Schema:
    """The types of a flow's rows, its columns named by their place: names may be doubled."""
    fields = [StructField(f"o{i}", field.dataType) for i, field in enumerate(rows.fields)]
    return to_arrow_schema(StructType(fields))


def file_feed(native: NativeChains) -> Feed | None:
    """How workers could read the files of a group themselves; None where they cannot."""
    if native.columns:
        return native.columns
    base = native.chains[0].base
    names = {attribute.name(): number for number, attribute in native.raw}
    if native.document is None and not (is_lines(base) and "value" in names):
        return None
    if not names.keys() <= {"value", METADATA_COLUMN}:
        return None
    line = LINE if native.document else raw_name(names["value"])
    heading = native.document.heading if native.document else None
    if METADATA_COLUMN not in names:
        return FileFeed(line, None, native.document is not None, heading)
    number = names[METADATA_COLUMN]
    asks = asks_for_part(native.program, raw_name(number))
    if asks and native.document is None:
        return None  # what comes through the JVM is told as Spark parts it
    whole = asks and native.document is not None and not native.document.has_letters
    kind = to_arrow_schema(StructType().add("of", type_of(dict(native.raw)[number]))).field(0).type
    return FileFeed(line, (raw_name(number), kind), native.document is not None, heading, whole)


#: The raw records of a group, as if they were those of a flow.
RAW: Part = ("", 0)


def raw_records(base: Node, native: NativeChains) -> Chain:
    """What the native flows of a group need of its base."""
    return Chain(RAW, base, base, (), native.raw, None)

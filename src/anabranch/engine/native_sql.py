"""One row-wise flow as SQL of DuckDB over the records of a batch.

Its steps become nested SELECTs. What is computed is a column of its level; what is only a field of a record, under
whatever name, is taken from the record at the end. What Spark would explode is unnested. A row that is in doubt passes
every filter, so that it is seen at the end; see `native.run`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from anabranch.engine.catalyst import CLOCKS, METADATA_COLUMN, Catalyst
from anabranch.engine.catalyst_nodes import Node
from anabranch.engine.catalyst_tree import tree
from anabranch.engine.chains import Chain, Defined, Generation, Projection, Selection, Step
from anabranch.engine.native_documents import DOCUMENT, json_shape
from anabranch.engine.paths import Path
from anabranch.native.expressions import compile_expr
from anabranch.native.expressions_numbers import check_order, in_full
from anabranch.native.expressions_sql import UTC, identifier, text
from anabranch.native.program import DOUBT, NOW, RECORD, RECORDS, Instant, NativeFlow, Parse, Taken
from anabranch.native.tree import Compiled, Expr, NotKnown


@dataclass
class Group:
    """What the flows of a group have in common."""

    catalyst: Catalyst
    base: Mapping[int, Node]
    of_documents: bool  # its columns are fields of a document
    raw: set[int] = field(default_factory=set)
    fields: set[int] = field(default_factory=set)
    parses: dict[str, Parse] = field(default_factory=dict)
    reads: dict[str, tuple[str, ...]] = field(default_factory=dict)
    masks: dict[str, list[Compiled]] = field(default_factory=dict)  # which records flows take that compute nothing else
    asks_time: bool = False
    sums: dict[str, str] = field(default_factory=dict)  # of several numbers, in the order in which they are added
    meanings: dict[str, Expr] = field(default_factory=dict)  # of columns that are computed for all flows
    _trees: dict[int, tuple[object, Expr]] = field(default_factory=dict)
    _types: dict[int, str] = field(default_factory=dict)

    def tree(self, owner: object, node: Node) -> Expr:
        """An expression as a tree; steps that several flows share are looked at once."""
        if id(owner) not in self._trees:
            self._trees[id(owner)] = owner, tree(node, self._types)
        return self._trees[id(owner)][1]

    def keep(self, flow: FlowSql) -> None:
        """Take over what a flow needs, now that it is compiled."""
        self.raw |= flow.raw
        self.fields |= flow.fields
        self.parses |= flow.parses
        self.reads |= flow.reads
        self.asks_time |= flow.asks_time


def needed_of(chain: Chain) -> set[int]:
    """The columns of a chain that its output or its choice of rows stand on."""
    return Path(chain).needed


def raw_name(number: int) -> str:
    """What a column of the base is called among the records of a batch."""
    return f"raw_{number}"


@dataclass(frozen=True, slots=True)
class _Named:
    """A column of a flow: its SQL, and its place in a record if it is nothing else than that."""

    sql: str
    place: tuple[str, ...] | None = None


class FlowSql:
    """A flow while it is compiled; `names` are columns that are computed already, for all flows.

    Of `whole`, the columns that are computed for all records, instants that are only read are not computed by SQL.
    """

    def __init__(self, group: Group, names: Mapping[int, str] | None = None, *, whole: bool = False) -> None:
        self.group = group
        self.reads: dict[str, tuple[str, ...]] = {}
        self.instants: list[Instant] = []
        self._whole = whole
        self.raw: set[int] = set()
        self.fields: set[int] = set()
        self.parses: dict[str, Parse] = {}
        self.asks_time = False
        self.computed: list[int] = []
        self.named: list[int] = []  # columns that are computed, by SQL or not
        self._names = {number: _Named(name, (name,)) for number, name in (names or {}).items()}
        self._renamed: dict[int, int] = {}
        self._meanings: dict[int, Expr] = {}  # of columns that are computed
        self._sql = RECORDS
        self._doubts = False
        self._chosen = False  # not every record is a row
        self._exploded = 0
        self._conditions: list[Compiled] = []

    def compiled(self, chain: Chain, schema: pa.Schema) -> NativeFlow:
        """The flow as SQL, for what must be computed, and places in the record."""
        needed = needed_of(chain)
        for step in _filters_first(chain.steps):
            match step:
                case Projection():
                    self.project(step, needed)
                case Selection():
                    self._select(self._compile(step, step.condition.node))
                case Generation():
                    self._generate(step)
        columns, taken = [], []
        for name, (number, _) in zip(schema.names, chain.output, strict=True):
            found = self._column(number)
            if found.place:
                taken.append(Taken(name, found.place))
            else:
                columns.append(f"{found.sql} AS {identifier(name)}")
        if self._conditions and not self.computed and not self._exploded:
            mask = f"m{len(self.group.masks)}"
            self.group.masks[mask] = self._conditions
            return NativeFlow(None, schema, tuple(taken), chosen=True, mask=mask)
        return NativeFlow(self._select_of(columns), schema, tuple(taken), self._chosen)

    def shared(self) -> NativeFlow | None:
        """What was projected, and which records flows choose, as columns of records."""
        names = [f"c{number}" for number in self.computed]
        masks, doubts = [], []
        for name, conditions in self.group.masks.items():
            mask, doubted = _mask(conditions)
            masks.append(f"{mask} AS {name}")
            doubts += doubted
        self._level(masks, doubts)
        names += self.group.masks
        if not names:
            return None
        return NativeFlow(self._select_of(names), pa.schema([(name, pa.null()) for name in names]))

    def _select_of(self, columns: Sequence[str]) -> str | None:
        told = [*([RECORD] if self._chosen or self._doubts else []), *([DOUBT] if self._doubts else [])]
        return f"SELECT {', '.join([*columns, *told])} FROM {self._sql}" if columns or told else None

    def project(self, step: Projection, needed: set[int]) -> None:
        """Add the columns of a projection."""
        added, doubts = [], []
        for column in step.defined:
            if column.number not in needed or column.number in self._names:
                continue
            place = self._place(self._known(self.group.tree(column, column.expression.node)))
            if place:
                self._names[column.number] = place
                continue
            if self._whole and (instant := self._instant(column)):
                self.instants.append(instant)
                self.named.append(column.number)
                self._names[column.number] = _Named(instant.name, (instant.name,))
                continue
            found = self._compile(column, column.expression.node)
            self.computed.append(column.number)
            self.named.append(column.number)
            self._names[column.number] = _Named(f"c{column.number}")
            added.append(f"{found.sql} AS c{column.number}")
            if found.doubt:
                doubts.append(found.doubt)
        self._renamed |= {renamed.number: renamed.of for renamed in step.renamed}
        self._level(added, doubts)

    def _instant(self, column: Defined) -> Instant | None:
        """A column that is the instant written in a field: SQL would take ten times as long to read it."""
        expression = self._known(self.group.tree(column, column.expression.node))
        if expression.kind != "Cast" or expression.type != "timestamp" or expression.children[0].type != "string":
            return None
        found = self._place(expression.children[0])
        if found is None or found.place is None or "never" in expression.detail:
            return None
        return Instant(f"c{column.number}", found.place, expression.detail.get("zone") in UTC)

    def _place(self, expression: Expr) -> _Named | None:
        """A column that is only a field of another, or another name for it."""
        if expression.kind == "AttributeReference":
            return self._attribute(expression.name)
        if expression.kind != "GetStructField":
            return None
        within = self._place(expression.children[0])
        if within is None:
            return None
        place = (*within.place, expression.name) if within.place else None
        return _Named(f"struct_extract({within.sql}, {text(expression.name)})", place)

    def _select(self, condition: Compiled) -> None:
        self._conditions.append(condition)
        if condition.doubt:
            self._level([], [condition.doubt])
        kept = f"coalesce({condition.sql}, false)"
        self._chosen = True
        self._sql = f"(SELECT * FROM {self._sql} WHERE {f'{kept} OR {DOUBT}' if self._doubts else kept})"

    def _generate(self, step: Generation) -> None:
        if step.of_map:
            raise NotKnown("explodes a map")
        if NOW in _attributes(self._known(self.group.tree(step, step.array.node))):
            raise NotKnown("explodes what time it is")  # `Catalyst.at_time` answers that in other steps only
        array = self._compile(step, step.array.node)
        self._exploded += 1
        self._chosen = True
        name, element, place = (f"{word}{self._exploded}" for word in ("list_", "element_", "place_"))
        self._level([f"{array.sql} AS {name}"], [array.doubt] if array.doubt else [])
        # A row that is in doubt stays, and so does one without elements if it is asked for.
        empty = f"coalesce(len({name}), 0) = 0"
        keeps = empty if step.outer else f"{empty} AND {DOUBT}" if self._doubts else None
        listed = f"CASE WHEN {keeps} THEN [NULL] ELSE {name} END" if keeps else name
        added = [f"unnest({listed}) AS {element}"]
        values = [element]
        if step.how == "Inline":
            fields = step.array.node.dataType().elementType().fieldNames()
            values = [f"struct_extract({element}, {text(f)})" for f in fields]
        if step.how == "PosExplode":
            places = f"range(len({name}))"
            added.append(
                f"unnest({f'CASE WHEN {keeps} THEN [NULL] ELSE {places} END' if keeps else places}) AS {place}"
            )
            values.insert(0, f"CAST({place} AS INTEGER)")
        self._sql = f"(SELECT *, {', '.join(added)} FROM {self._sql})"
        for (number, _), value in zip(step.added, values, strict=True):
            self._names[number] = _Named(value)

    def _level(self, added: Sequence[str], doubts: Sequence[str]) -> None:
        """One more SELECT, that adds columns and doubts."""
        if not added and not doubts:
            return
        what = "*"
        if doubts and self._doubts:
            what = f"* REPLACE ({DOUBT} OR {' OR '.join(doubts)} AS {DOUBT})"
        elif doubts:
            what = f"*, ({' OR '.join(doubts)}) AS {DOUBT}"
        self._doubts = self._doubts or bool(doubts)
        self._sql = f"(SELECT {', '.join([what, *added])} FROM {self._sql})"

    def _compile(self, owner: Defined | Selection | Generation, node: Node) -> Compiled:
        expression = self._read(self._known(self.group.tree(owner, node)))
        check_order(expression, self._meaning, self.group.sums)
        if isinstance(owner, Defined):
            self._meanings[owner.number] = expression
            if self._whole:
                self.group.meanings[f"c{owner.number}"] = expression
        expression = self._read(in_full(expression, self._meaning))
        return compile_expr(expression, {name: self._attribute(name).sql for name in set(_attributes(expression))})

    def _meaning(self, name: str) -> Expr | None:
        """What a column was computed as, if it was."""
        if name.isdigit():
            root = self._root(int(name))
            return self._meanings.get(root) or self.group.meanings.get(f"c{root}")
        return self.group.meanings.get(name)

    def _read(self, expression: Expr) -> Expr:
        """The expression with columns for the fields of records that are in it; such columns stay as they are."""
        if expression.kind == "AttributeReference" and (
            expression.name in self.reads or expression.name in self.group.reads
        ):
            return expression
        found = self._place(expression) if expression.kind in ("AttributeReference", "GetStructField") else None
        if found and found.place:
            name = ".".join(part.replace("\\", "\\\\").replace(".", "\\.") for part in found.place)
            self.reads[name] = found.place
            return Expr("AttributeReference", expression.type, name=name)
        children = tuple(self._read(child) for child in expression.children)
        return expression if children == expression.children else replace(expression, children=children)

    def _known(self, expression: Expr) -> Expr:
        """The expression with what is parsed, and what time it is, as columns."""
        if expression.kind == "JsonToStructs":
            return self._parse(expression)
        if expression.kind in CLOCKS:
            self.asks_time = True
            return Expr("AttributeReference", expression.type, name=NOW)
        children = tuple(self._known(child) for child in expression.children)
        return expression if children == expression.children else replace(expression, children=children)

    def _parse(self, expression: Expr) -> Expr:
        (value,) = expression.children
        while value.kind == "Cast" and value.type == "string" and value.children[0].type in ("string", "binary"):
            (value,) = value.children
        number = self._root(int(value.name)) if value.kind == "AttributeReference" else -1
        if self.group.of_documents or number not in self.group.base or value.type not in ("string", "binary"):
            raise NotKnown("parses JSON that is computed")
        detail = expression.detail
        shape = json_shape(self.group.catalyst, detail["schema"], json.loads(detail["options"]), detail["zone"])
        self.raw.add(number)
        key = f"{number} {shape}"
        known = self.group.parses.get(key) or self.parses.get(key)
        taken = len(self.group.parses | self.parses)
        self.parses[key] = known or Parse(raw_name(number), f"parsed_{taken}", shape)
        return Expr("AttributeReference", expression.type, name=self.parses[key].name)

    def _attribute(self, name: str) -> _Named:
        return self._column(int(name)) if name.isdigit() else _Named(identifier(name), (name,))

    def _root(self, number: int) -> int:
        while number in self._renamed:
            number = self._renamed[number]
        return number

    def _column(self, number: int) -> _Named:
        """A column of the flow, where it stands now."""
        root = self._root(number)
        if root in self._names:
            return self._names[root]
        if root not in self.group.base:
            raise NotKnown(f"reads a column that is not known: {number}")
        name = self.group.base[root].name()
        if self.group.of_documents and name != METADATA_COLUMN:
            self.fields.add(root)
            return _Named(f"struct_extract({DOCUMENT}, {text(name)})", (DOCUMENT, name))
        self.raw.add(root)
        return _Named(raw_name(root), (raw_name(root),))


def _filters_first(steps: Sequence[Step]) -> list[Step]:
    """The steps as Spark takes them: a filter that does not ask for elements stands before the generator.

    So it is asked of rows that have no elements, and may raise.
    """
    found: list[Step] = []
    for step in steps:
        place = len(found)
        if isinstance(step, Selection) and step.condition.deterministic:
            while place and step.condition.refers.isdisjoint(number for number, _ in made(found[place - 1])):
                place -= 1
            place = next((n for n in range(place, len(found)) if isinstance(found[n], Generation)), len(found))
        found.insert(place, step)
    return found


def made(step: Step) -> Iterator[tuple[int, Collection[int]]]:
    """The columns that a step adds, each with those that it stands on."""
    if isinstance(step, Projection):
        yield from ((column.number, column.expression.refers) for column in step.defined)
        yield from ((renamed.number, (renamed.of,)) for renamed in step.renamed)
    elif isinstance(step, Generation):
        yield from ((number, step.array.refers) for number, _ in step.added)


def _mask(conditions: Sequence[Compiled]) -> tuple[str, list[str]]:
    """Whether all hold, and the doubts: later ones matter only where the conditions before hold."""
    kept: list[str] = []
    doubts = []
    for condition in conditions:
        if condition.doubt:
            doubts.append(f"({' AND '.join([*kept, condition.doubt])})")
        kept.append(f"coalesce({condition.sql}, false)")
    return f"({' AND '.join(kept)})", doubts


def _attributes(expression: Expr) -> Iterator[str]:
    if expression.kind == "AttributeReference":
        yield expression.name
    for child in expression.children:
        yield from _attributes(child)

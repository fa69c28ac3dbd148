"""The statements of a SQL file: `CREATE STREAMING TABLE`, `MATERIALIZED VIEW`, `VIEW` and `FLOW`, `SET`, `USE`.

They are those that Spark's pipelines and Databricks' accept. Queries are kept as text: Spark parses them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.core.declarations import Action, Kind
from anabranch.load.sql_cursor import Cursor
from anabranch.load.sql_words import SqlFault, Word, unquoted

STATEMENTS = (
    "CREATE STREAMING TABLE",
    "CREATE MATERIALIZED VIEW",
    "CREATE TEMPORARY VIEW",
    "CREATE FLOW",
    "SET",
    "USE",
)
_MODIFIERS = ("streaming", "live", "materialized", "temporary", "temp", "private", "incremental")
_CLAUSES = (
    *("AS", "USING", "PARTITIONED BY", "CLUSTER BY", "COMMENT", "TBLPROPERTIES", "LOCATION", "FLOW"),
    *("SCHEDULE", "TRIGGER", "WITH ROW FILTER", "DEFAULT COLLATION"),
)
_CLAUSE_STARTS = tuple(tuple(clause.lower().split()) for clause in _CLAUSES)
_CHANGE_CLAUSES = (
    *("KEYS", "IGNORE NULL UPDATES", "APPLY AS DELETE WHEN", "APPLY AS TRUNCATE WHEN", "SEQUENCE BY", "COLUMNS"),
    *("STORED AS SCD TYPE", "TRACK HISTORY ON"),
)
_CHANGE_STARTS = tuple(tuple(clause.lower().split()[:2]) for clause in _CHANGE_CLAUSES)
_VIOLATIONS = {
    ("drop", "row"): Action.DROP,
    ("fail", "update"): Action.FAIL,
    ("quarantine", "row"): Action.QUARANTINE,
}


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    condition: str
    action: Action
    at: int


@dataclass(frozen=True, slots=True)
class Query:
    """A query that feeds a dataset; `name` is None for the one in the dataset's own statement."""

    target: str
    text: str
    at: int
    name: str | None = None
    once: bool = False
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeFlow:
    """Changes by key; `said` are the arguments of `create_auto_cdc_flow`."""

    target: str
    said: dict[str, Any]
    at: int
    name: str | None = None
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Created:
    """A dataset, with what feeds it if the same statement says so."""

    kind: Kind
    name: str
    at: int
    said: dict[str, Any] = field(default_factory=dict)  # arguments of `declare_dataset`
    rules: tuple[Rule, ...] = ()
    ignored: tuple[str, ...] = ()
    fed_by: Query | ChangeFlow | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """`SET key = value`: for the statements after it."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Used:
    """`USE name`: without an effect."""

    text: str
    at: int


Statement = Created | Query | ChangeFlow | Setting | Used


def parse(text: str, words: list[Word]) -> Statement:
    """One statement of the file `text`; SqlFault says what is wrong with it."""
    cursor = Cursor(text, words)
    start = cursor.place
    if cursor.takes("create"):
        return _create(cursor, start)
    if cursor.takes("set"):
        return _set(cursor)
    if cursor.takes("use"):
        return Used(f"USE {cursor.rest()}", start)
    if cursor.takes("apply", "changes"):
        return _changes(cursor, start, None, None)
    first = words[0].text.upper()
    hint = f"statements here are {', '.join(STATEMENTS)}"
    if first in ("SELECT", "WITH", "INSERT", "FROM"):
        hint = f"a {first} alone writes nothing: put CREATE STREAMING TABLE name AS before the query"
    raise SqlFault(start, "SQL_UNKNOWN_STATEMENT", f"{first} is not a statement of a pipeline", hint)


def _create(cursor: Cursor, start: int) -> Statement:
    if cursor.takes("or") and not (cursor.takes("refresh") or cursor.takes("replace")):
        raise cursor.fault("expected REFRESH", "write CREATE OR REFRESH")
    said: set[str] = set()
    while cursor.key() in _MODIFIERS:
        said.add(cursor.key())
        cursor.at += 1
    if cursor.takes("flow"):
        return _flow(cursor, start)
    if cursor.takes("table"):
        if not said & {"streaming", "live", "incremental"}:
            hint = "write CREATE STREAMING TABLE, or CREATE MATERIALIZED VIEW for a batch query"
            raise SqlFault(start, "SQL_UNKNOWN_STATEMENT", "CREATE TABLE is not a statement of a pipeline", hint)
        kind = Kind.STREAMING_TABLE if said & {"streaming", "incremental"} else Kind.MATERIALIZED_VIEW
    elif cursor.takes("view"):
        kind = Kind.MATERIALIZED_VIEW if "materialized" in said else Kind.TEMPORARY_VIEW
    else:
        raise cursor.unknown("what to create", ["STREAMING TABLE", "MATERIALIZED VIEW", "TEMPORARY VIEW", "FLOW"])
    cursor.takes("if", "not", "exists")
    private = ("PRIVATE (tables are folders, not entries of a catalogue)",)
    is_hidden = bool(said & {"private", "temporary", "temp"}) and kind is not Kind.TEMPORARY_VIEW
    at = cursor.place
    created = Created(kind, cursor.name("the dataset"), at, ignored=private if is_hidden else ())
    return _with_query_needed(_clauses(cursor, _columns(cursor, created)), cursor)


def _with_query_needed(created: Created, cursor: Cursor) -> Created:
    if created.fed_by is None and created.kind is not Kind.STREAMING_TABLE:
        raise cursor.fault(f"the {created.kind} has no query", "add AS SELECT ...")
    return created


def _columns(cursor: Cursor, created: Created) -> Created:
    if not cursor.sees("("):
        return created
    columns, rules, ignored = [], list(created.rules), list(created.ignored)
    for item in cursor.inside("the columns").items():
        if not item.takes("constraint"):
            columns.append(_column(item))
            continue
        at, name = item.place, item.name("the constraint")
        if item.takes("expect"):
            rules.append(_rule(item, name, at))
        else:
            ignored.append(f"CONSTRAINT {name} (keys are not enforced)")
    schema = {"schema": ", ".join(columns)} if columns else {}
    return replace(created, said={**created.said, **schema}, rules=tuple(rules), ignored=tuple(ignored))


def _column(item: Cursor) -> str:
    start = item.place
    item.name("a column")
    if item.done or item.sees("comment"):
        hint = "write the type as well, or leave the column list out and name the columns in the query"
        raise item.fault("expected the type of the column", hint)
    return item.text[start : item.place] + item.rest()


def _rule(item: Cursor, name: str, at: int) -> Rule:
    inside = item.inside("the condition")
    condition = inside.rest() if not inside.done else ""
    if not condition:
        raise SqlFault(at, "SQL_SYNTAX", f'the condition of "{name}" is empty', "write EXPECT (id IS NOT NULL)")
    action = Action.WARN
    if item.takes("on", "violation"):
        known = {keys: each for keys, each in _VIOLATIONS.items() if item.takes(*keys)}
        if not known:
            raise item.unknown("what to do", [" ".join(keys).upper() for keys in _VIOLATIONS])
        action = next(iter(known.values()))
    if not item.done:
        raise item.fault("expected ON VIOLATION, a comma or the end", "write ON VIOLATION DROP ROW")
    return Rule(name, condition, action, at)


def _clauses(cursor: Cursor, created: Created) -> Created:
    said, ignored = dict(created.said), list(created.ignored)
    fed_by: Query | ChangeFlow | None = None
    while not cursor.done:
        start = cursor.place
        if cursor.takes("as"):
            fed_by = Query(created.name, _query(cursor), created.at)
        elif cursor.takes("flow"):
            fed_by = _inline_flow(cursor, created.name, start)
        elif cursor.takes("using"):
            said["format"] = cursor.name("a format").lower()
        elif cursor.takes("partitioned", "by"):
            said["partition_cols"] = cursor.names("the columns")
        elif cursor.takes("cluster", "by", "auto"):
            ignored.append("CLUSTER BY AUTO (tables are not clustered)")
        elif cursor.takes("cluster", "by"):
            said["cluster_by"] = cursor.names("the columns")
        elif cursor.takes("comment"):
            said["comment"] = cursor.string("the comment")
        elif cursor.takes("tblproperties"):
            said["table_properties"] = _properties(cursor)
        elif cursor.takes("location"):
            said["path"] = cursor.string("the path")
        elif any(
            cursor.takes(*keys) for keys in (("schedule",), ("trigger",), ("with", "row"), ("default", "collation"))
        ):
            cursor.until(*_CLAUSE_STARTS)
            ignored.append(" ".join(cursor.text[start : cursor.words[cursor.at - 1].end].split()))
        else:
            raise cursor.unknown("a clause", _CLAUSES)
    return replace(created, said=said, ignored=tuple(ignored), fed_by=fed_by)


def _properties(cursor: Cursor) -> dict[str, str]:
    found = {}
    for item in cursor.inside("the properties").items():
        quoted = not item.done and item.words[item.at].kind == "text"
        key = item.string("the key") if quoted else item.name("a property")
        item.takes("=")
        if item.done:
            raise item.fault("expected a value", "write 'key' = 'value'")
        word = item.words[item.at]
        found[key] = unquoted(word) if word.kind == "text" else item.rest()
    return found


def _query(cursor: Cursor) -> str:
    for index in range(cursor.at, cursor.end - 1):
        word = cursor.words[index]
        if word.key in ("read_files", "cloud_files") and cursor.words[index + 1].key == "(":
            hint = "read the files in Python: @dp.temporary_view over spark.readStream.format(...).load(...)"
            raise SqlFault(word.start, "SQL_NOT_SUPPORTED", f"{word.text} is a function of Databricks", hint)
    if cursor.done:
        raise cursor.fault("expected a query", "write SELECT ...")
    return cursor.rest()


def _flow(cursor: Cursor, start: int) -> Query | ChangeFlow:
    cursor.takes("if", "not", "exists")
    name = cursor.name("the flow")
    comment = cursor.string("the comment") if cursor.takes("comment") else None
    cursor.needs("as", hint="write CREATE FLOW name AS INSERT INTO target BY NAME SELECT ...")
    if cursor.takes("auto", "cdc") or cursor.takes("apply", "changes"):
        return _changes(cursor, start, name, comment)
    cursor.needs(
        "insert", "into", hint="write AS INSERT INTO target BY NAME SELECT ..., or AS AUTO CDC INTO target ..."
    )
    once = cursor.takes("once")
    target = cursor.name("the target")
    cursor.needs("by", "name", hint="write BY NAME: columns go to those of the same name")
    return Query(target, _query(cursor), start, name, once, comment)


def _inline_flow(cursor: Cursor, target: str, start: int) -> Query | ChangeFlow:
    if cursor.takes("insert"):
        once = cursor.takes("once")
        cursor.needs("by", "name", hint="write FLOW INSERT BY NAME SELECT ...")
        return Query(target, _query(cursor), start, once=once)
    cursor.needs("auto", "cdc", hint="write FLOW AUTO CDC FROM STREAM(source) KEYS (...) SEQUENCE BY ...")
    return _changes(cursor, start, None, None, target)


def _changes(cursor: Cursor, start: int, name: str | None, comment: str | None, target: str = "") -> ChangeFlow:
    said: dict[str, Any] = {"once": True} if cursor.takes("once") else {}
    if not target:
        cursor.needs("into", hint="write INTO target")
        target = cursor.name("the target")
    cursor.needs("from", hint="write FROM STREAM(source)")
    said["source"] = _source(cursor)
    while not cursor.done:
        _change_clause(cursor, said)
    for key, clause in (("keys", "KEYS (...)"), ("sequence_by", "SEQUENCE BY column")):
        if key not in said:
            raise SqlFault(start, "SQL_SYNTAX", f"{clause} is missing", f"add {clause}")
    return ChangeFlow(target, said, start, name, comment)


def _source(cursor: Cursor) -> str:
    if cursor.sees("stream", "("):
        cursor.at += 1
        inside = cursor.inside("the source")
        return inside.name("the source")
    cursor.takes("stream")
    return cursor.name("the source")


def _change_clause(cursor: Cursor, said: dict[str, Any]) -> None:
    if cursor.takes("keys"):
        said["keys"] = cursor.names("the keys")
    elif cursor.takes("ignore", "null", "updates"):
        said["ignore_null_updates"] = True
    elif cursor.takes("apply", "as", "delete", "when"):
        said["apply_as_deletes"] = cursor.until(*_CHANGE_STARTS)
    elif cursor.takes("apply", "as", "truncate", "when"):
        said["apply_as_truncates"] = cursor.until(*_CHANGE_STARTS)
    elif cursor.takes("sequence", "by"):
        said["sequence_by"] = cursor.until(*_CHANGE_STARTS)
    elif cursor.takes("columns"):
        _choose(cursor, said, "column_list", "except_column_list")
    elif cursor.takes("stored", "as"):
        cursor.needs("scd", "type", hint="write STORED AS SCD TYPE 1 or 2")
        said["stored_as_scd_type"] = cursor.name("the type, 1 or 2")
    elif cursor.takes("track", "history", "on"):
        _choose(cursor, said, "track_history_column_list", "track_history_except_column_list")
    else:
        raise cursor.unknown("a clause", _CHANGE_CLAUSES)


def _choose(cursor: Cursor, said: dict[str, Any], chosen: str, all_but: str) -> None:
    """`* EXCEPT (a, b)`, `(a, b)` or `a, b`."""
    if cursor.takes("*"):
        cursor.needs("except", hint="write * EXCEPT (column, ...)")
        said[all_but] = cursor.names("the columns")
    elif cursor.sees("("):
        said[chosen] = cursor.names("the columns")
    else:
        said[chosen] = [cursor.name("a column")]
        while cursor.takes(","):
            said[chosen].append(cursor.name("a column"))


def _set(cursor: Cursor) -> Setting:
    quoted = not cursor.done and cursor.words[cursor.at].kind == "text"
    key = cursor.string("the key") if quoted else cursor.until(("=",))
    cursor.needs("=", hint="write SET key = value")
    if cursor.done:
        raise cursor.fault("expected a value", "write SET key = value")
    word = cursor.words[cursor.at]
    value = unquoted(word) if word.kind == "text" and cursor.at == cursor.end - 1 else cursor.rest()
    return Setting("".join(key.split()), value)

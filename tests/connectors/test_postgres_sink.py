"""The Postgres sink against a real server: rows and epochs in one transaction, whatever is cut off."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pytest

from anabranch.connectors import postgres_sink
from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.postgres_sink import PostgresSink
from anabranch.connectors.registry import open_sink
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.errors import AnabranchError, CommitUnknown, DataError, ProjectError, SinkError, StateError

pytestmark = pytest.mark.postgres

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def key(epoch: int, generation: int = 1) -> EpochKey:
    return EpochKey("p", "main", generation, epoch)


@pytest.fixture
def database(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def opened(postgres_url: str, tmp_path: Path) -> Callable[..., PostgresSink]:
    def open_it(schema: pa.Schema | None = SCHEMA, url: str = postgres_url, **options: str) -> PostgresSink:
        spec = SinkSpec("people", "postgres://people", "p", str(tmp_path), options={"url": url, **options})
        sink = open_sink("postgres", spec)
        assert isinstance(sink, PostgresSink)
        if schema is not None:
            sink.prepare(schema)
        return sink

    return open_it


def stage(
    sink: PostgresSink, at: EpochKey, rows: list[Any], schema: pa.Schema = SCHEMA, *, replace: bool = False
) -> Receipt:
    writer = StagedWriter(sink.staging(at, 1), "0")
    if rows:
        named = [dict(zip(schema.names, row, strict=True)) for row in rows]
        writer.write(pa.RecordBatch.from_pylist(named, schema=schema))
    return Receipt.from_json(sink.receipt(at, writer.close(), replace=replace).to_json())


def give(sink: PostgresSink, at: EpochKey, rows: list[Any], schema: pa.Schema = SCHEMA, **more: bool) -> Applied:
    return sink.apply(at, stage(sink, at, rows, schema, **more))


def rows_of(database: psycopg.Connection[Any], table: str = "people") -> list[tuple[Any, ...]]:
    return sorted(database.execute(f"SELECT * FROM {table}".encode()).fetchall(), key=repr)


def test_rows_and_their_epoch_come_together_and_once(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any]
) -> None:
    sink = opened()
    receipt = stage(sink, key(0), [(1, "a"), (2, None), (3, "")])
    assert sink.find(key(0)) is None
    first = sink.apply(key(0), receipt)
    again = opened().apply(key(0), receipt)  # by another process
    assert (first.version, first.already, again.version, again.already) == ("1-0", False, "1-0", True)
    assert rows_of(database) == [(1, "a"), (2, None), (3, "")]
    assert sink.find(key(0)) is not None
    assert (sink.latest(key(5)), sink.version(), sink.has("1-0"), sink.has("1-1")) == (0, "1-0", True, False)
    assert sink.leftovers(frozenset(), 9) == []
    assert list(Path(sink.spec.spool).rglob("*.parquet")) == []


def test_an_epoch_without_rows_leaves_no_trace(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any]
) -> None:
    sink = opened()
    assert give(sink, key(0), []).version == "none"
    give(sink, key(1), [(1, "a")])
    assert give(sink, key(2), []).version == "1-1"
    assert database.execute("SELECT epoch, rows FROM anabranch_epochs").fetchall() == [(1, 1)]


def test_a_new_generation_takes_the_place_of_all(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any]
) -> None:
    sink = opened()
    give(sink, key(4), [(1, "a")])
    give(sink, key(0, 2), [(9, "z")], replace=True)
    assert rows_of(database) == [(9, "z")]
    assert (sink.latest(key(0, 2)), sink.latest(key(0)), sink.version()) == (0, 4, "2-0")
    give(sink, key(0, 3), [], replace=True)
    assert rows_of(database) == []


EARLY = dt.datetime(1900, 1, 1, 0, 0, 0, 1, dt.UTC)
EVERY = {
    "yes": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127]),
    "small": (pa.int16(), [-(2**15), 2**15 - 1]),
    "whole": (pa.int32(), [-(2**31), 2**31 - 1]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1]),
    "single": (pa.float32(), [0.5, float("inf")]),
    "double": (pa.float64(), [0.1, -1e300]),
    "price": (pa.decimal128(10, 2), [Decimal("-12345678.90"), Decimal("0.07")]),
    "huge": (pa.decimal128(38, 10), [Decimal("-1234567890123456789012345678.0123456789"), Decimal(0)]),
    "count": (pa.decimal128(18, 0), [Decimal(10**18 - 1), Decimal(-10_000)]),
    "day": (pa.date32(), [dt.date(1969, 12, 31), dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [EARLY, dt.datetime(2024, 2, 29, tzinfo=dt.UTC)]),
    "local": (pa.timestamp("us"), [EARLY.replace(tzinfo=None), EARLY.replace(year=1, tzinfo=None)]),
    "text": (pa.string(), ["tab\t\"quote\" \\ back\nline é 😀", ""]),
    "raw": (pa.binary(), [b"\x00\xff", b""]),
    "inner": (
        pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.decimal128(38, 2))]),
        [{"a": 1, "b": 'x"y', "c": Decimal("99999999999999999999.25")}, {"a": None, "b": None, "c": None}],
    ),
    "tags": (pa.list_(pa.string()), [["a", None], []]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], []]),
}  # fmt: skip


def test_values_of_every_type_come_through(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any]
) -> None:
    schema = pa.schema([(name, kind) for name, (kind, _) in EVERY.items()])
    values = [v for _, v in EVERY.values()]
    nothing = [None] * len(EVERY)
    mixed = [
        [v[0] if i % 2 else None for i, v in enumerate(values)],
        [None if i % 2 else v[1] for i, v in enumerate(values)],
    ]
    sink = opened(schema)
    give(sink, key(0), [tuple(v[0] for v in values), nothing, tuple(v[1] for v in values), *mixed], schema)
    database.execute("SET TimeZone = 'UTC'")
    first, empty, second, *rest = database.execute("SELECT * FROM people").fetchall()
    inner = [{"a": 1, "b": 'x"y', "c": "99999999999999999999.25"}, {"a": None, "b": None, "c": None}]
    want = {**{n: v for n, (_, v) in EVERY.items()}, "inner": inner, "map": [{"k": 1}, {}]}
    assert dict(zip(EVERY, first, strict=True)) == {n: v[0] for n, v in want.items()}
    assert dict(zip(EVERY, second, strict=True)) == {n: v[1] for n, v in want.items()}
    assert list(empty) == nothing
    assert [list(r) for r in rest] == [
        [v[0] if i % 2 else None for i, v in enumerate(want.values())],
        [None if i % 2 else v[1] for i, v in enumerate(want.values())],
    ]
    types = dict(
        database.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = 'people'::regclass AND attnum > 0"
        ).fetchall()
    )
    assert (types["price"], types["at"], types["tags"], types["tiny"]) == (
        "numeric(10,2)", "timestamp with time zone", "jsonb", "smallint"
    )  # fmt: skip


def test_columns_are_added_and_missing_ones_are_null(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any]
) -> None:
    give(opened(), key(0), [(1, "a")])
    other = pa.schema([("id", pa.int64()), ("at", pa.date32())])
    assert opened(None).examine(other) == "columns to be added: at; columns that will be null: name"
    sink = opened(other)
    assert len(rows_of(database)[0]) == 2  # not before its first row
    give(sink, key(1), [(2, dt.date(2024, 1, 1))], other)
    assert rows_of(database) == [(1, "a", None), (2, None, dt.date(2024, 1, 1))]


def test_a_table_of_others_is_checked_column_by_column(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any]
) -> None:
    database.execute("CREATE TYPE mood AS ENUM ('good', 'bad')")
    database.execute(
        "CREATE TABLE people (no bigserial PRIMARY KEY, id numeric(30,0), name varchar(3), mood mood, doc jsonb, "
        "twice bigint GENERATED ALWAYS AS (no * 2) STORED)"
    )
    schema = pa.schema(
        [("id", pa.decimal128(20, 0)), ("name", pa.string()), ("mood", pa.string()), ("doc", pa.string())]
    )
    sink = opened(schema)
    give(sink, key(0), [(Decimal(10**19), "abc", "good", '{"a": [1]}')], schema)
    assert rows_of(database) == [(1, Decimal(10**19), "abc", "good", {"a": [1]}, 2)]
    for bad, words in {
        ("id", pa.int64()): 'column "id" is numeric(30,0) in the table, bigint in the rows',
        ("twice", pa.int64()): 'column "twice" is generated by the table',
        ("id", pa.decimal128(38, 9)): 'column "id" is numeric(30,0) in the table, numeric(38,9) in the rows',
    }.items():
        with pytest.raises(ProjectError) as refused:
            opened(pa.schema([bad]))
        assert refused.value.code == "SCHEMA_INCOMPATIBLE"
        assert words in refused.value.message
    with pytest.raises(ProjectError, match="cannot be a name"):
        opened(pa.schema([("x" * 64, pa.int64())]))
    with pytest.raises(DataError, match="too long for type character varying"):
        give(sink, key(1), [(Decimal(1), "abcd", None, None)], schema)


def test_names_are_quoted(opened: Callable[..., PostgresSink], database: psycopg.Connection[Any]) -> None:
    database.execute("SELECT set_config('x.y', current_schema(), false)")
    schema = pa.schema(
        [('"; DROP TABLE x--'.replace(" ", "_").replace(";", ""), pa.int64()), ("sel%sect", pa.string())]
    )
    sink = opened(schema, table='"we.ird ""tab%s""; --"', on_violation="quarantine")
    give(sink, key(0), [(1, "%s")], schema)
    assert rows_of(database, '"we.ird ""tab%s""; --"') == [(1, "%s")]
    assert sink.find(key(0)) is not None
    long = opened(table="x" * 63, on_violation="quarantine")
    database.execute(f"ALTER TABLE {'x' * 63} ADD CHECK (id < 5)".encode())
    give(long, key(1), [(1, "a"), (7, "b")])
    assert rows_of(database, "x" * 63) == [(1, "a")]
    for wrong in ("", "a.b.c.d", 'a"b', "a..b"):
        if wrong:
            with pytest.raises(ProjectError) as refused:
                opened(table=wrong)
            assert refused.value.code == "POSTGRES_TABLE_INVALID"


def test_a_missing_table_and_wrong_options(opened: Callable[..., PostgresSink], tmp_path: Path) -> None:
    with pytest.raises(SinkError) as missing:
        opened(create="false")
    assert missing.value.code == "TABLE_MISSING"
    with pytest.raises(ProjectError) as wrong:
        opened(on_violation="ignore")
    assert (wrong.value.code, wrong.value.hint) == ("OPTION_INVALID", "choose stop or quarantine")
    bare = open_sink("postgres", SinkSpec("people", "postgres://people", "p", str(tmp_path), declared=False))
    receipt = stage(opened(), key(0), [(1, "a")])
    for ask in (lambda: bare.apply(key(0), receipt), lambda: bare.find(key(0))):
        with pytest.raises(StateError) as needed:
            ask()
        assert needed.value.code == "DECLARATION_NEEDED"
    assert bare.damaged(receipt) is None


@pytest.mark.parametrize(
    ("make", "rows", "reasons"),
    [
        ("ALTER TABLE people ADD CHECK (id < 100)", {7: (200, "x"), 12: (300, "y")}, ["people_id_check"]),
        ("ALTER TABLE people ALTER name SET NOT NULL", {0: (0, None), 19: (19, None)}, ["23502"]),
        ("ALTER TABLE people ADD UNIQUE (id)", {5: (1, "again")}, ["people_id_key"]),
        ("ALTER TABLE people ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED", {5: (1, "x")}, ["people_id_key"]),
        ("ALTER TABLE people ADD FOREIGN KEY (name) REFERENCES names", {3: (3, "nobody")}, ["people_name_fkey"]),
        ("SELECT", {4: (4, "a\0b"), 5: (5, "\0")}, ["22021"]),
    ],
    ids=["check", "null", "unique", "deferred", "foreign", "zero"],
)  # fmt: skip
def test_rows_that_the_table_refuses_stop_it_or_are_put_aside(
    opened: Callable[..., PostgresSink],
    database: psycopg.Connection[Any],
    make: str,
    rows: dict[int, tuple[int, str | None]],
    reasons: list[str],
) -> None:
    sink = opened()
    database.execute("CREATE TABLE names (name text PRIMARY KEY)")
    database.execute("INSERT INTO names SELECT 'n' || g FROM generate_series(0, 19) g")
    database.execute(make.encode())
    wanted = [rows.get(n, (n, f"n{n}")) for n in range(20)]
    receipt = stage(sink, key(0), wanted)
    with pytest.raises(DataError) as stopped:
        sink.apply(key(0), receipt)
    assert stopped.value.code == "ROW_REFUSED"
    assert "people" in stopped.value.message
    assert "quarantine" in (stopped.value.hint or "")
    assert rows_of(database) == []
    assert sink.find(key(0)) is None
    kind = opened(on_violation="quarantine")
    kind.apply(key(0), receipt)
    assert rows_of(database) == sorted((r for n, r in enumerate(wanted) if n not in rows), key=repr)
    put_aside = database.execute("SELECT payload, reason, epoch FROM people__rejected ORDER BY rejected_at").fetchall()
    assert [tuple(p.values()) for p, _, _ in put_aside] == list(rows.values())
    assert {reason for _, reason, _ in put_aside} == set(reasons)
    assert kind.apply(key(0), receipt).already


def test_a_password_is_in_no_error(opened: Callable[..., PostgresSink], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PG_PASSWORD_HERE", "sunflower%2F99")
    for url in (
        "postgresql://ann:${env:PG_PASSWORD_HERE}@127.0.0.1:1/db",
        "postgresql://ann:sunflower%2F99@127.0.0.1:1/db",
        "host=127.0.0.1 port=1 password=sunflower/99",
        "postgresql://ann:sunflower%2F99@127.0.0.1:no/db",
        "postgresql://ann:sunflower/99@127.0.0.1:1/db",
        "postgresql://ann:sunflower%2F99@127.0.0.1:1/db?oops=1",
    ):
        with pytest.raises(AnabranchError) as failed:
            opened(url=url)
        told = f"{failed.value.as_record()} {failed.value!r} {failed.value.__cause__!r}"
        assert "sunflower" not in told
        assert failed.value.code in ("POSTGRES_UNREACHABLE", "POSTGRES_URL_INVALID")


class Line:
    """Stands between a client and the server, and cuts the first commit of copied rows."""

    def __init__(self, server: str, folder: str, moment: str, *, for_good: bool = False) -> None:
        self._server, self._moment = server, moment
        self._file = Path(folder, ".s.PGSQL.5432") if for_good else None
        self.cuts = 0
        self._cut: socket.socket | None = None
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(f"{folder}/.s.PGSQL.5432")
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{self._server}/.s.PGSQL.5432")
                threading.Thread(target=self._there, args=(client, server), daemon=True).start()
                threading.Thread(target=self._back, args=(client, server), daemon=True).start()

    def _there(self, client: socket.socket, server: socket.socket) -> None:
        copied = False
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                copied = copied or b"COPY " in data
                if not (copied and b"COMMIT\0" in data and not self.cuts):
                    server.sendall(data)
                    continue
                self.cuts += 1
                if self._file:
                    self._file.unlink()
                self._cut = server if self._moment == "after" else None
                if self._moment != "before":
                    server.sendall(data)
                if self._cut is None:
                    break
        _hang_up(client, server)

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(1 << 16)) and self._cut is not server:
                client.sendall(data)
        _hang_up(client, server)


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_connection_cut_off_is_taken_up_again(
    opened: Callable[..., PostgresSink],
    database: psycopg.Connection[Any],
    postgres_url: str,
    postgres_server: str,
    moment: str,
) -> None:
    """Before the commit is sent; while it runs; when it is done and its answer is lost."""
    with (
        tempfile.TemporaryDirectory(prefix="line-") as folder,
        contextlib.closing(Line(postgres_server, folder, moment)) as line,
    ):
        sink = opened(url=postgres_url.replace(quote(postgres_server), quote(folder)))
        receipt = stage(sink, key(0), [(n, "x") for n in range(1000)])
        applied = sink.apply(key(0), receipt)
    assert line.cuts == 1
    assert applied.version == "1-0"
    assert applied.already is {"before": False, "after": True}.get(moment, applied.already)
    assert database.execute("SELECT count(*), count(DISTINCT id) FROM people").fetchone() == (1000, 1000)


def test_a_commit_that_nobody_can_look_up_is_unknown(
    opened: Callable[..., PostgresSink],
    database: psycopg.Connection[Any],
    postgres_url: str,
    postgres_server: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_sink, "_WAITS", (0.0,))
    with tempfile.TemporaryDirectory(prefix="line-") as folder:
        line = Line(postgres_server, folder, "after", for_good=True)
        sink = opened(url=postgres_url.replace(quote(postgres_server), quote(folder)))
        receipt = stage(sink, key(0), [(1, "x")])
        with pytest.raises(CommitUnknown) as unknown:
            sink.apply(key(0), receipt)
        line.close()
    assert unknown.value.retryable
    again = opened()
    assert again.damaged(receipt) is None
    assert again.apply(key(0), receipt).already
    assert rows_of(database) == [(1, "x")]


def test_killed_after_the_commit_it_is_found(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = opened()
    receipt = stage(sink, key(0), [(1, "a")])
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, "committed(people):raise")
        with pytest.raises(crash.CrashPointError):
            sink.apply(key(0), receipt)
    assert sink.damaged(receipt) is None  # the files go last
    assert opened().apply(key(0), receipt).already
    assert rows_of(database) == [(1, "a")]


def test_a_deadlock_is_tried_again(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any], postgres_url: str
) -> None:
    sink = opened()
    database.execute("SET deadlock_timeout = '1h'")  # so that it is the sink that is given up
    database.execute("CREATE TABLE other (n int)")
    database.execute(
        "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN LOCK TABLE other; RETURN NULL; END'"
    )
    database.execute("CREATE TRIGGER waits AFTER INSERT ON people FOR EACH STATEMENT EXECUTE FUNCTION waits()")
    receipt = stage(sink, key(0), [(1, "a")])
    with psycopg.connect(postgres_url) as rival:
        rival.execute("SET deadlock_timeout = '1h'")
        rival.execute("LOCK TABLE other")
        result: list[Applied] = []
        worker = threading.Thread(target=lambda: result.append(sink.apply(key(0), receipt)))
        worker.start()
        while not database.execute(
            "SELECT 1 FROM pg_locks WHERE relation = 'other'::regclass AND NOT granted"
        ).fetchone():
            pass
        rival.execute("LOCK TABLE people")  # each waits for the other; the sink notices first
        rival.commit()
        worker.join(120)
    assert [each.already for each in result] == [False]
    assert rows_of(database) == [(1, "a")]


def test_two_that_take_the_same_epoch_take_it_once(
    opened: Callable[..., PostgresSink], database: psycopg.Connection[Any]
) -> None:
    sink = opened()
    receipt = stage(sink, key(0), [(n, "x") for n in range(500)])
    sink.discard = lambda paths: None  # type: ignore[method-assign]
    results: list[Applied] = []
    workers = [threading.Thread(target=lambda: results.append(sink.apply(key(0), receipt))) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(each.already for each in results) == [False, True, True, True]
    assert database.execute("SELECT count(*) FROM people").fetchone() == (500,)

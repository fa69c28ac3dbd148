"""Iceberg tables as sinks, without Spark: all tables of an epoch at one moment, each epoch once."""

from __future__ import annotations

import datetime as dt
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable

from anabranch.connectors.contract import Sink, SinkSpec, Together
from anabranch.connectors.iceberg import IcebergSink
from anabranch.connectors.iceberg_catalog import CATALOG, SqlTables
from anabranch.connectors.iceberg_tables import tables_at
from anabranch.connectors.iceberg_versions import read_version
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.parquet_transforms import Part, split_by
from anabranch.connectors.registry import open_sink
from anabranch.core.declarations import Action, Unique
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.core.where import Where
from anabranch.errors import CommitUnknown, ProjectError, SetupError, SinkError, StateError

sys.path.insert(0, str(Path(__file__).parent))

from iceberg_rest_server import rest_catalog

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
Rows = list[dict[str, Any]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/iceberg.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def key(epoch: int, generation: int = 1) -> EpochKey:
    return EpochKey("p-1", "main", generation, epoch)


def open_at(folder: Path, name: str = "events", **said: Any) -> IcebergSink:
    sink = open_sink("iceberg", SinkSpec(name, f"{folder}/tables/{name}", "p-1", str(folder), **said))
    assert isinstance(sink, IcebergSink)
    return sink


def sink_at(folder: Path, schema: pa.Schema = SCHEMA, name: str = "events", **said: Any) -> IcebergSink:
    sink = open_at(folder, name, **said)
    sink.prepare(schema)
    return sink


def stage(sink: Sink, at: EpochKey, rows: Rows, token: int = 1, *, replace: bool = False) -> Receipt:
    """Stage rows as the engine does, the receipt having been through the ledger."""
    staging = sink.staging(at, token)
    writer = StagedWriter(staging, "0-0")
    writer.write(pa.RecordBatch.from_pylist(rows, schema=staging.schema))
    return Receipt.from_json(sink.receipt(at, writer.close(), replace=replace).to_json())


def put(sink: Sink, epoch: int, rows: Rows, **how: Any) -> Applied:
    return sink.apply(key(epoch), stage(sink, key(epoch), rows, **how))


def rows(*numbers: int, day: str = "mon") -> Rows:
    return [{"id": n, "day": day} for n in numbers]


def ids(sink: Sink, version: str | None = None) -> list[int]:
    return sorted(read_version(sink.location, version or sink.version()).to_table()["id"].to_pylist())


def plain(folder: Path) -> SqlCatalog:
    """The catalogue as somebody else opens it."""
    return SqlCatalog(CATALOG, uri=f"sqlite:///{folder}/iceberg.db")


def test_old_versions_stay_readable_without_a_catalogue(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    versions = [put(sink, epoch, rows(epoch)).version for epoch in range(4)]
    (tmp_path / "iceberg.db").rename(tmp_path / "aside.db")
    for epoch, version in enumerate(versions):
        assert ids(sink, version) == list(range(epoch + 1))
    with pytest.raises(StateError) as gone:
        read_version(sink.location, "00007-x.metadata.json")
    assert gone.value.code == "VERSION_GONE"


def test_a_snapshot_says_which_epoch_made_it(tmp_path: Path) -> None:
    put(sink_at(tmp_path, name="silver.events"), 7, rows(1))
    snapshot = plain(tmp_path).load_table("silver.events").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert (snapshot.summary["anabranch.transaction"], snapshot.summary["anabranch.epoch"]) == (
        key(7).transaction_id("silver.events"),
        "7",
    )


def test_no_reader_of_all_pointers_sees_some_tables_moved_and_others_not(tmp_path: Path, url: str) -> None:
    names = ["a", "b", "c"]
    sinks = [sink_at(tmp_path, name=name, options={"catalog": url}) for name in names]
    assert all(isinstance(sink, Together) for sink in sinks)
    assert len({sink.group for sink in sinks}) == 1
    done, torn, seen = threading.Event(), [], []

    def read() -> None:
        engine = sa.create_engine(tables_at(url, {}).url)
        query = sa.text("SELECT table_name, metadata_location FROM iceberg_tables")
        while True:
            last = done.is_set()
            with engine.connect() as connection:
                places = {row.table_name: row.metadata_location for row in connection.execute(query)}
            epochs = set()
            for name in names:
                snapshot = StaticTable.from_metadata(places[name]).current_snapshot()
                epochs.add(snapshot.summary["anabranch.epoch"] if snapshot and snapshot.summary else None)
            (seen if len(epochs) == 1 else torn).append(epochs)
            if last:
                break
        engine.dispose()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for epoch in range(30):
            taken: list[tuple[Sink, Receipt]] = [(s, stage(s, key(epoch), rows(epoch))) for s in sinks]
            assert not any(applied.already for applied in sinks[1].apply_all(key(epoch), taken))
            assert all(applied.already for applied in sinks[2].apply_all(key(epoch), taken))
            while len(seen) + len(torn) < epoch / 5 and reader.is_alive():
                time.sleep(0.01)  # it has to look now and then
    finally:
        done.set()
        reader.join()
    assert torn == []
    assert {"29"} in seen
    assert len(seen) > 5
    assert [ids(sink) for sink in sinks] == [list(range(30))] * 3


def test_all_or_none_when_one_of_them_cannot(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer moves the last table whenever the others have been written to: nobody moves, then all do."""
    sinks = [sink_at(tmp_path, name=name, options={"catalog": url}) for name in "abc"]
    swap, turns = SqlTables.swap, []

    def hindered(self: SqlTables, at: EpochKey, staged: Any) -> None:
        if len(turns) < 2:
            foreign = self.load(("default", "c"))
            assert foreign is not None
            foreign.append(pa.Table.from_pylist(rows(100 + len(turns)), schema=SCHEMA))
            turns.append([self.found(key(0), [name]) for name in "abc"])
        swap(self, at, staged)

    monkeypatch.setattr(SqlTables, "swap", hindered)
    taken: list[tuple[Sink, Receipt]] = [(s, stage(s, key(0), rows(1))) for s in sinks]
    sinks[0].apply_all(key(0), taken)
    assert turns == [[{}, {}, {}]] * 2
    assert [ids(sink) for sink in sinks] == [[1], [1], [1, 100, 101]]


def test_an_answer_lost_on_the_way_is_looked_up(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at(tmp_path, options={"catalog": url})
    receipt = stage(sink, key(0), rows(1))
    swap = SqlTables.swap

    def lost(self: SqlTables, at: EpochKey, staged: Any) -> None:
        swap(self, at, staged)
        raise sa.exc.OperationalError("COMMIT", {}, ConnectionError("gone"), connection_invalidated=True)

    monkeypatch.setattr(SqlTables, "swap", lost)
    assert sink.apply(key(0), receipt).already
    assert ids(sink) == [1]


def test_a_catalogue_that_is_gone_while_it_was_asked_leaves_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_at(tmp_path)
    receipt = stage(sink, key(0), rows(1))
    swap = SqlTables.swap

    def gone(self: SqlTables, at: EpochKey, staged: Any) -> None:
        swap(self, at, staged)
        self.catalog.engine.dispose()
        (tmp_path / "iceberg.db").rename(tmp_path / "aside.db")
        (tmp_path / "iceberg.db").mkdir()
        raise sa.exc.OperationalError("COMMIT", {}, ConnectionError("gone"))

    with monkeypatch.context() as patch:
        patch.setattr(SqlTables, "swap", gone)
        with pytest.raises(CommitUnknown) as caught:
            sink.apply(key(0), receipt)
    assert caught.value.retryable
    with pytest.raises(SinkError) as refused:
        open_at(tmp_path).find(key(0))
    assert refused.value.code == "CATALOG_UNREACHABLE"
    (tmp_path / "iceberg.db").rmdir()
    (tmp_path / "aside.db").rename(tmp_path / "iceberg.db")
    assert open_at(tmp_path).apply(key(0), receipt).already
    assert ids(open_at(tmp_path)) == [1]


def test_refused_for_good_is_told_and_nothing_has_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at(tmp_path)
    receipt = stage(sink, key(0), rows(1))
    (tmp_path / "tables/events/data" / receipt.files[0].path).unlink()
    monkeypatch.setattr("anabranch.connectors.iceberg_commit._WAITS", (0.0,))
    with pytest.raises(SinkError) as refused:
        sink.apply(key(0), receipt)
    assert refused.value.code == "COMMIT_REFUSED"
    assert sink.find(key(0)) is None
    assert ids(sink) == []


TIMES = ("1969-12-31T23:59:00", "1970-01-01T00:00:00", "2024-02-29T05:06:07")
DAYS = [*map(dt.datetime.fromisoformat, TIMES), None]
WIDE = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("d", pa.date32()),
        ("n", pa.decimal128(9, 2)),
        ("ok", pa.bool_()),
    ]
)
VARIED = [
    {
        "id": (n - 8) * 1_000_003,
        "s": [None, "", "äöü-long", "abc"][n % 4],
        "at": moment and moment.replace(tzinfo=dt.UTC),
        "local": moment,
        "d": moment and moment.date(),
        "n": None if n % 5 == 0 else (Decimal(n) / 4 - 1).quantize(Decimal("0.01")),
        "ok": [True, False, None][n % 3],
    }
    for n, moment in ((n, DAYS[(n // 4) % 4]) for n in range(16))
]


@pytest.mark.parametrize(
    "by",
    [
        ("day(at)", "bucket(4, id)"),
        ("months(at)", "truncate(3, s)"),
        ("year(d)", "hour(local)"),
        ("s", "ok"),
        ("d", "bucket(3, s)"),
        ("at", "n"),
        ("truncate(1000, id)", "truncate(50, n)"),
        ("bucket(5, n)", "bucket(5, at)", "bucket(5, d)"),
    ],
    ids=str,
)
def test_every_file_is_in_the_partition_that_its_rows_belong_to(tmp_path: Path, by: tuple[str, ...]) -> None:
    """The values are those that pyiceberg computes row by row; its scans, which rely on them, find every row."""
    sink = sink_at(tmp_path, WIDE, partition_by=by)
    put(sink, 0, VARIED)
    put(sink, 1, VARIED[:3])
    table = plain(tmp_path).load_table("default.events")
    schema = table.schema()
    columns = [schema.find_field(f.source_id) for f in table.spec().fields]
    computed = [f.transform.transform(c.field_type) for f, c in zip(table.spec().fields, columns, strict=True)]
    for task in table.scan().plan_files():
        found = pq.read_table(task.file.file_path, partitioning=None).to_pylist()
        for row in found:
            values = [
                None if row[c.name] is None else compute(_internal(row[c.name]))
                for c, compute in zip(columns, computed, strict=True)
            ]
            assert values == list(task.file.partition)
    for name in {c.name for c in columns}:
        for row in VARIED:
            if (value := row[name]) is not None:
                text = value.isoformat() if isinstance(value, dt.date) else value
                expected = sum(r[name] == value for r in VARIED) + sum(r[name] == value for r in VARIED[:3])
                assert table.scan(row_filter=EqualTo(name, text)).to_arrow().num_rows == expected
    again = key(0, generation=2)
    sink.apply(again, stage(sink, again, VARIED[:5], token=2, replace=True))
    assert ids(sink) == sorted(r["id"] for r in VARIED[:5])


def _internal(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        since = value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        return since // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    return value


def test_rows_of_one_partition_keep_their_order_and_all_columns() -> None:
    batch = pa.record_batch({"at": pa.array(DAYS * 2, pa.timestamp("us")), "n": list(range(8))})
    found = {values: part["n"].to_pylist() for values, part in split_by(batch, [Part("at", "day")])}
    assert found == {("-1",): [0, 4], ("0",): [1, 5], ("19782",): [2, 6], (None,): [3, 7]}


@pytest.mark.parametrize(
    ("by", "code"),
    [
        ("week(at)", "PARTITION_TRANSFORM_UNKNOWN"),
        ("bucket(id)", "PARTITION_TRANSFORM_UNKNOWN"),
        ("day(nope)", "PARTITION_COLUMN_UNKNOWN"),
        ("day(id)", "PARTITION_COLUMN_TYPE"),
        ("hour(d)", "PARTITION_COLUMN_TYPE"),
    ],
)
def test_partitions_that_cannot_be(tmp_path: Path, by: str, code: str) -> None:
    with pytest.raises(ProjectError) as refused:
        sink_at(tmp_path, WIDE, partition_by=(by,))
    assert refused.value.code == code
    assert refused.value.hint


def test_columns_are_added_in_the_commit_that_needs_them(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    before = put(sink, 0, rows(1)).version
    wider = SCHEMA.append(pa.field("more", pa.struct([("x", pa.float64())])))
    assert sink.examine(wider) == "columns to be added: more"
    sink = sink_at(tmp_path, wider)
    assert plain(tmp_path).load_table("default.events").schema().column_names == ["id", "day"]
    after = put(sink, 1, [{"id": 2, "day": "tue", "more": {"x": 1.5}}]).version
    assert after.startswith("00002-")  # one step of the table
    deeper = SCHEMA.append(pa.field("more", pa.struct([("x", pa.float64()), ("y", pa.int32())])))
    put(sink_at(tmp_path, deeper), 2, [{"id": 3, "day": "wed", "more": {"x": 2.5, "y": 4}}])
    table = plain(tmp_path).load_table("default.events").scan().to_arrow()
    assert {r["id"]: r["more"] for r in table.to_pylist()} == {1: None, 2: {"x": 1.5, "y": None}, 3: {"x": 2.5, "y": 4}}
    ours = read_version(sink.location, open_at(tmp_path).version()).to_table()
    assert {r["id"]: r["more"] for r in ours.to_pylist()} == {1: None, 2: {"x": 1.5, "y": None}, 3: {"x": 2.5, "y": 4}}
    assert read_version(sink.location, before).schema.names == ["id", "day"]
    assert open_at(tmp_path).examine(SCHEMA) == "columns that will be null: more"


def test_what_a_table_cannot_take_is_refused(tmp_path: Path) -> None:
    sink_at(tmp_path)
    refusals = [
        (pa.schema([("id", pa.string())]), {}, "SCHEMA_INCOMPATIBLE"),
        (pa.schema([("ID", pa.int64())]), {}, "SCHEMA_INCOMPATIBLE"),
        (SCHEMA, {"partition_by": ("day",)}, "PARTITIONING_CHANGED"),
        (SCHEMA.append(pa.field("took", pa.duration("us"))), {}, "SCHEMA_UNSUPPORTED"),
        (SCHEMA.append(pa.field("u", pa.uint64())), {}, "SCHEMA_UNSUPPORTED"),
        (SCHEMA.append(pa.field("a.b", pa.int64())), {}, "SCHEMA_UNSUPPORTED"),
        (SCHEMA.append(pa.field("Day", pa.int64())), {}, "SCHEMA_UNSUPPORTED"),
        (SCHEMA, {"unique": (Unique("one", ("nope",), Action.FAIL, Where("x.py", 1)),)}, "EXPECTATION_INVALID"),
        (SCHEMA, {"options": {"catalog": "mysql://db/x"}}, "OPTION_INVALID"),
    ]
    for schema, said, code in refusals:
        with pytest.raises(ProjectError) as refused:
            sink_at(tmp_path, schema, **said)
        assert (refused.value.code, bool(refused.value.hint)) == (code, True)
    other = open_at(tmp_path, "other", options={"table": "default.events"})
    with pytest.raises(ProjectError) as elsewhere:
        other.prepare(SCHEMA)
    assert elsewhere.value.code == "TABLE_ELSEWHERE"


def test_files_that_no_catalogue_knows_are_not_built_over(tmp_path: Path) -> None:
    put(sink_at(tmp_path), 0, rows(1))
    (tmp_path / "iceberg.db").rename(tmp_path / "aside.db")
    sink = open_at(tmp_path)
    with pytest.raises(ProjectError) as refused:
        sink.prepare(SCHEMA)
    assert refused.value.code == "TABLE_NOT_REGISTERED"
    assert not sink.has("00001-x.metadata.json")
    assert not (tmp_path / "iceberg.db").exists()


def test_killed_while_creating_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "_create_table_row", killed)
        with pytest.raises(KeyboardInterrupt):
            sink_at(tmp_path)
    put(sink_at(tmp_path), 0, rows(1))
    assert ids(open_at(tmp_path)) == [1]


def test_types_and_bounds(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.int16()),
            ("f", pa.float64()),
            ("raw", pa.large_binary()),
            ("l", pa.list_(pa.struct([("a", pa.int8())]))),
            ("m", pa.map_(pa.string(), pa.decimal128(38, 3))),
            ("at", pa.timestamp("ns", "Etc/UTC")),
            ("n", pa.decimal128(18, 2)),
        ]
    )
    row = {"id": 1, "f": float("nan"), "raw": b"\xff", "l": [{"a": 1}, None], "m": [("k", Decimal("1.5"))]}
    row |= {"at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "n": Decimal("-3.25")}
    sink = sink_at(tmp_path, schema)
    put(sink, 0, [row, {"id": 2}])
    put(sink, 1, [{"id": 3}])
    table = plain(tmp_path).load_table("default.events")
    kinds = {f.name: str(f.field_type) for f in table.schema().fields}
    assert (kinds["id"], kinds["at"], kinds["raw"], kinds["n"]) == ("int", "timestamptz", "binary", "decimal(18, 2)")
    theirs = sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"])
    ours = sorted(read_version(sink.location, sink.version()).to_table().to_pylist(), key=lambda r: r["id"])
    assert [r["l"] for r in ours] == [[{"a": 1}, None], None, None]
    for row in (*ours, *theirs):
        del row["l"]  # pyiceberg reads a null list of structs as an empty one
    assert str(ours) == str(theirs)
    assert ours[0]["m"] == [("k", Decimal("1.500"))]
    dataset = read_version(sink.location, sink.version())
    for condition, count in ((ds.field("id") == 3, 1), (ds.field("n") < Decimal("0.00"), 1), (ds.field("id") > 9, 0)):
        assert dataset.to_table(filter=condition).num_rows == count
    assert len(list(dataset.get_fragments(filter=ds.field("id") == 3))) == 1


def test_rows_that_repeat_a_key_can_be_asked_for(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, unique=(Unique("one", ("id",), Action.FAIL, Where("x.py", 1)),))
    put(sink, 0, rows(1))
    receipt = stage(sink, key(1), rows(1, 2))
    assert sink.rows().to_table()["id"].to_pylist() == [1]
    assert sink.staged_rows(receipt).to_table()["id"].to_pylist() == [1, 2]


def test_many_epochs_do_not_leave_many_manifests(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, properties={"commit.manifest.min-count-to-merge": "4"})
    for epoch in range(9):
        put(sink, epoch, rows(epoch))
    table = plain(tmp_path).load_table("default.events")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) < 5
    assert ids(sink) == list(range(9))
    assert sink.leftovers(frozenset(), 9) == []


def test_vacuum_keeps_what_is_pinned_and_what_is_staged(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    versions = [put(sink, 0, rows(0)).version]
    for generation in range(2, 6):
        at = key(0, generation)
        versions.append(sink.apply(at, stage(sink, at, rows(generation), replace=True)).version)
    waiting = stage(sink, key(1), rows(77))
    assert sink.vacuum(set(), older_than_hours=1, dry_run=False) == []
    would = sink.vacuum({versions[1]}, older_than_hours=-1, dry_run=True)
    assert all(ids(sink, version) for version in versions)
    assert sink.vacuum({versions[1]}, older_than_hours=-1, dry_run=False) == would
    assert (ids(sink, versions[1]), ids(sink, versions[4])) == ([2], [5])
    for version in (versions[0], versions[2], versions[3]):
        with pytest.raises(StateError):
            ids(sink, version)
    assert len(plain(tmp_path).load_table("default.events").snapshots()) == 2
    assert sink.leftovers(frozenset(f.path for f in waiting.files), 9) == []
    sink.apply(key(1), waiting)
    assert ids(sink) == [5, 77]
    assert open_at(tmp_path).has(versions[1])


def test_a_table_says_by_properties_what_a_sink_says_by_options(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_OF_TEST", url)
    said = {"anabranch.catalog": "${env:LAKE_OF_TEST}", "anabranch.table": "lake.orders", "owner": "ann"}
    sink = sink_at(tmp_path, properties=said)
    put(sink, 0, rows(1))
    table = tables_at(url, {}).load(("lake", "orders"))
    assert table is not None
    assert {name for name in table.properties if name in said} == {"owner"}
    assert ids(sink) == [1]


def test_opened_from_the_ledger_alone(tmp_path: Path) -> None:
    """The usual catalogue is found by the table's place; another one must be declared."""
    put(sink_at(tmp_path, options={"table": "lake.orders"}), 0, rows(1))
    remembered = open_at(tmp_path, declared=False)
    assert remembered.find(key(0)) is not None
    assert remembered.leftovers(frozenset(), 9) == []
    other = tmp_path / "other"
    sink = sink_at(other, options={"catalog": f"sqlite:///{tmp_path}/far/away.db"})
    receipt = stage(sink, key(0), rows(1))
    unknown = open_at(other, declared=False)
    assert unknown.leftovers(frozenset(), 9) == []
    assert unknown.damaged(receipt) is None
    for ask in (lambda: unknown.find(key(0)), lambda: unknown.apply(key(0), receipt)):
        with pytest.raises(StateError) as refused:
            ask()
        assert refused.value.code == "DECLARATION_NEEDED"
    assert sink.find(key(0)) is None


def test_without_pyiceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    with pytest.raises(SetupError) as refused:
        open_at(tmp_path)
    assert (refused.value.code, refused.value.hint) == ("EXTRA_MISSING", "pip install 'anabranch[iceberg]'")


def test_a_table_that_others_changed_in_ways_we_cannot_read(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    put(sink, 0, rows(1))
    with plain(tmp_path).load_table("default.events").update_schema() as update:
        update.rename_column("day", "weekday")
    with pytest.raises(SinkError) as refused:
        ids(sink)
    assert refused.value.code == "TABLE_FEATURE_UNSUPPORTED"


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[tuple[IcebergSink, SqlCatalog, list[str]]]:
    with rest_catalog(tmp_path) as (address, backing, faults):
        yield open_at(tmp_path, options={"catalog": address}), backing, faults


def test_a_rest_catalogue_takes_each_table_by_itself(rest: tuple[IcebergSink, SqlCatalog, list[str]]) -> None:
    sink, backing, faults = rest
    assert not isinstance(sink, Together)
    said = sink.examine(SCHEMA)
    assert said.startswith("will be created; a REST catalogue moves each table by itself")
    sink.prepare(SCHEMA)
    first = put(sink, 0, rows(1))
    assert (ids(sink, first.version), sink.latest(key(0)), sink.has(first.version)) == ([1], 0, True)
    faults += ["refused", "lost"]
    receipt = stage(sink, key(1), rows(2))
    assert sink.apply(key(1), receipt).already
    backing.load_table("default.events").append(pa.Table.from_pylist(rows(50), schema=SCHEMA))
    found = sink.find(key(1))
    assert found is not None
    assert ids(sink, found.version) == [1, 2]  # as the epoch left it, not as others have
    assert sink.find(key(0)) == Applied(first.version, already=True)
    assert sink.find(key(2)) is None
    assert put(sink, 2, []).already is False
    put(sink, 3, rows(3))
    assert ids(sink) == [1, 2, 3, 50]
    assert sink.leftovers(frozenset(), 9) == []
    sink.remove()
    assert not sink.has(first.version)
    assert not Path(sink.location).exists()

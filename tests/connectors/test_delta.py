"""Delta tables as sinks, without Spark: each epoch once, whatever happens around it."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from anabranch.connectors import delta
from anabranch.connectors.delta import DeltaSink, NewFiles, arrow_dataset, vacuum
from anabranch.connectors.delta_log import commit_path
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.errors import CommitUnknown, InternalError, ProjectError, SinkError, StateError

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def no_crash_points_hit() -> Iterator[None]:
    crash._hits.clear()
    yield
    crash._hits.clear()


@pytest.fixture
def location(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def key(epoch: int, generation: int = 1, pipeline: str = "p-1") -> EpochKey:
    return EpochKey(pipeline, "main", generation, epoch)


def sink_at(location: str, schema: pa.Schema = SCHEMA, pipeline: str = "p-1", **options: Any) -> DeltaSink:
    sink = DeltaSink("events", location, pipeline=pipeline, **options)
    sink.prepare(schema)
    return sink


def stage(sink: DeltaSink, at: EpochKey, rows: Rows, token: int = 1, *, replace: bool = False) -> Receipt:
    """Stage rows as the engine does, the receipt having been through the ledger."""
    staging = sink.staging(at, token)
    writer = StagedWriter(staging, "0-0")
    writer.write(pa.RecordBatch.from_pylist(rows, schema=staging.schema))
    receipt = sink.receipt(at, writer.close(), replace=replace)
    return Receipt.from_json(receipt.to_json())


def put(sink: DeltaSink, epoch: int, rows: Rows, **options: Any) -> Applied:
    at = key(epoch)
    return sink.apply(at, stage(sink, at, rows, **options))


def ids(location: str, version: int | None = None) -> list[int]:
    return sorted(DeltaTable(location, version=version).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def rows(*numbers: int, day: str = "mon") -> Rows:
    return [{"id": n, "day": day} for n in numbers]


def test_nothing_is_visible_before_apply(location: str) -> None:
    sink = sink_at(location)
    receipt = stage(sink, key(0), rows(1, 2))
    assert ids(location) == []
    assert sink.find(key(0)) is None
    assert sink.latest(key(0)) is None
    assert sink.apply(key(0), receipt) == Applied("1")
    assert ids(location) == [1, 2]
    assert sink.find(key(0)) == Applied("1", already=True)
    assert sink.latest(key(0)) == 0


def test_applying_twice_adds_once_by_any_process(location: str) -> None:
    sink = sink_at(location)
    receipt = stage(sink, key(0), rows(1))
    assert sink.apply(key(0), receipt) == Applied("1")
    assert sink.apply(key(0), receipt) == Applied("1", already=True)
    assert DeltaSink("events", location).apply(key(0), receipt) == Applied("1", already=True)
    assert ids(location) == [1]


def test_epochs_are_found_at_their_own_version(location: str) -> None:
    sink = sink_at(location)
    for epoch in range(25):
        assert put(sink, epoch, rows(epoch)) == Applied(str(epoch + 1))
    fresh = DeltaSink("events", location)
    for epoch in (0, 7, 24):
        found = fresh.find(key(epoch))
        assert found == Applied(str(epoch + 1), already=True)
        assert ids(location, epoch + 1) == list(range(epoch + 1))
    assert fresh.find(key(25)) is None
    assert fresh.find(key(3, generation=2)) is None


def test_an_epoch_without_rows_makes_no_commit(location: str) -> None:
    sink = sink_at(location)
    put(sink, 0, rows(1))
    assert sink.apply(key(1), sink.receipt(key(1), [])) == Applied("1")
    assert sink.version() == "1"
    assert put(sink, 2, rows(2)) == Applied("2")


def test_a_lost_answer_is_found_again(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at(location)
    receipt = stage(sink, key(0), rows(1))
    monkeypatch.setenv(crash.VARIABLE, "committed(events):raise")
    with pytest.raises(crash.CrashPointError):
        sink.apply(key(0), receipt)
    monkeypatch.delenv(crash.VARIABLE)
    assert sink.apply(key(0), receipt) == Applied("1", already=True)
    assert ids(location) == [1]


def test_a_commit_that_raised_after_going_through_is_looked_up(location: str) -> None:
    sink = sink_at(location, properties={"delta.checkpointInterval": "2"})
    put(sink, 0, rows(0))
    # The checkpoint of version 3 cannot be written, so delta-rs raises although the commit itself is done.
    (Path(location) / "_delta_log" / f"{3:020}.checkpoint.parquet").mkdir()
    for epoch in range(1, 6):
        put(sink, epoch, rows(epoch))
    assert ids(location) == list(range(6))


def test_a_table_that_cannot_be_read_after_a_failed_commit_is_unknown(location: str) -> None:
    sink = sink_at(location)
    receipt = stage(sink, key(0), rows(1))
    log = Path(location) / "_delta_log"
    genuine = sink._commit

    def commit_then_lose_the_storage(*arguments: Any) -> None:
        genuine(*arguments)
        log.rename(log.with_name("_away"))
        log.mkdir()
        raise OSError("connection lost")

    sink._commit = commit_then_lose_the_storage  # type: ignore[method-assign]
    with pytest.raises(CommitUnknown) as raised:
        sink.apply(key(0), receipt)
    assert raised.value.code == "COMMIT_UNKNOWN"
    log.rmdir()
    log.with_name("_away").rename(log)
    assert DeltaSink("events", location).apply(key(0), receipt) == Applied("1", already=True)


def test_a_stale_snapshot_cannot_add_the_epoch_again(location: str) -> None:
    sink, zombie = sink_at(location), sink_at(location)
    receipt = stage(sink, key(0), rows(1))
    stale = zombie._fresh()
    sink.apply(key(0), receipt)
    with pytest.raises(CommitFailedError):
        zombie._commit(stale, key(0), NewFiles(receipt))
    assert zombie.apply(key(0), receipt) == Applied("1", already=True)
    assert ids(location) == [1]


def test_many_at_once_add_the_epoch_once(location: str) -> None:
    sinks = [sink_at(location) for _ in range(6)]
    for epoch in range(5):
        receipt = stage(sinks[0], key(epoch), rows(epoch))
        answers: list[Applied] = []
        threads = [
            threading.Thread(target=lambda s=s, e=epoch, r=receipt, a=answers: a.append(s.apply(key(e), r)))
            for s in sinks
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 6
        assert {a.version for a in answers} == {str(epoch + 1)}
        assert [a.already for a in answers].count(False) == 1
    assert ids(location) == list(range(5))


def test_rows_of_other_writers_are_kept(location: str) -> None:
    sink = sink_at(location)
    sink._fresh()
    write_deltalake(location, pa.table({"id": [100], "day": ["x"]}), mode="append")
    assert put(sink, 0, rows(0)) == Applied("2")
    stale = sink._fresh()
    write_deltalake(location, pa.table({"id": [101], "day": ["x"]}), mode="append")
    receipt = stage(sink, key(1), rows(1))
    sink._commit(stale, key(1), NewFiles(receipt))  # as if the foreign append came between snapshot and commit
    write_deltalake(location, pa.table({"id": [102], "day": ["x"]}), mode="append")
    assert sink.find(key(1)) == Applied("4", already=True)
    assert ids(location) == [0, 1, 100, 101, 102]
    assert ids(location, 4) == [0, 1, 100, 101]


def test_a_busy_foreign_writer_loses_nothing(location: str) -> None:
    sink = sink_at(location)
    stop = threading.Event()
    foreign: list[int] = []

    def append() -> None:
        while not stop.is_set():
            number = 1000 + len(foreign)
            write_deltalake(location, pa.table({"id": [number], "day": ["x"]}), mode="append")
            foreign.append(number)

    thread = threading.Thread(target=append)
    thread.start()
    versions: list[int] = []
    while len(versions) < 30 or (len(foreign) <= 3 and thread.is_alive()):  # whoever is given the processor first
        versions.append(int(put(sink, len(versions), rows(len(versions))).version))
    stop.set()
    thread.join()
    assert len(foreign) > 3
    assert ids(location) == sorted([*range(len(versions)), *foreign])
    for epoch in (0, 13, 29):
        assert [n for n in ids(location, versions[epoch]) if n < 1000] == list(range(epoch + 1))


def test_optimize_and_vacuum_in_between_lose_nothing(location: str) -> None:
    sink = sink_at(location)
    for epoch in range(3):
        put(sink, epoch, rows(epoch))
    stale = sink._fresh()
    receipt = stage(sink, key(3), rows(3))
    other = DeltaTable(location)
    other.optimize.compact()
    other.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    sink._commit(stale, key(3), NewFiles(receipt))
    put(sink, 4, rows(4))
    assert ids(location) == [0, 1, 2, 3, 4]
    assert sink.latest(key(0)) == 4
    assert sink.apply(key(3), receipt).already


def test_the_marker_survives_checkpoints_and_log_cleanup(location: str) -> None:
    sink = sink_at(location, properties={"delta.checkpointInterval": "3"})
    receipt = stage(sink, key(0), rows(0))
    sink.apply(key(0), receipt)
    for number in range(10):
        write_deltalake(location, pa.table({"id": [100 + number], "day": ["x"]}), mode="append")
    for version in range(8):
        (Path(location) / commit_path(version)).unlink()
    fresh = DeltaSink("events", location)
    assert fresh.latest(key(0)) == 0
    assert fresh.apply(key(0), receipt) == Applied("11", already=True)
    put(sink, 1, rows(1))
    with pytest.raises(StateError) as raised:
        fresh.find(key(0))
    assert raised.value.code == "EPOCH_NOT_IN_LOG"


def test_a_new_generation_replaces_the_rows(location: str) -> None:
    sink = sink_at(location)
    put(sink, 0, rows(1, 2))
    at = key(0, generation=2)
    receipt = stage(sink, at, rows(7), replace=True)
    assert sink.apply(at, receipt) == Applied("2")
    assert sink.apply(at, receipt) == Applied("2", already=True)
    assert ids(location) == [7]
    empty = key(0, generation=3)
    assert sink.apply(empty, sink.receipt(empty, [], replace=True)) == Applied("3")
    assert ids(location) == []
    assert ids(location, 1) == [1, 2]


def test_new_columns_are_added_by_apply_only(location: str) -> None:
    sink = sink_at(location)
    put(sink, 0, rows(1))
    inner = pa.struct([("a", pa.int64())])
    wider = sink_at(location, pa.schema([*SCHEMA, ("extra", pa.string()), ("s", inner), ("at", pa.timestamp("us"))]))
    assert DeltaTable(location).version() == 1
    put(wider, 1, [{"id": 2, "day": "tue", "extra": "x", "s": {"a": 1}}])
    deeper = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.int64())])))])
    third = sink_at(location, pa.schema([("id", pa.int64()), ("s", deeper)]))
    assert third.examine(pa.schema([("id", pa.int64()), ("s", deeper)])) == (
        "columns to be added: s.b; columns that will be null: day, extra, at"
    )
    put(third, 2, [{"id": 3, "s": {"a": 5, "b": [{"c": 6}]}}])
    put(sink, 3, rows(4))  # a process that still runs with the first schema
    table = DeltaTable(location).to_pyarrow_table().sort_by("id").to_pylist()
    assert [r["extra"] for r in table] == [None, "x", None, None]
    assert [r["s"] for r in table][2] == {"a": 5, "b": [{"c": 6}]}
    assert [r["day"] for r in table] == ["mon", "tue", None, "mon"]


def test_adding_columns_twice_is_harmless(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sink_at(location)
    wider = sink_at(location, pa.schema([*SCHEMA, ("extra", pa.string())]))
    receipt = stage(wider, key(0), [{"id": 1, "day": "m", "extra": "x"}])
    wider._evolved(wider._fresh(), receipt)  # and then the process died
    fresh = DeltaSink("events", location)
    assert fresh.apply(key(0), receipt) == Applied("2")
    assert DeltaTable(location).schema().fields[-1].name == "extra"


@pytest.mark.parametrize(
    ("schema", "code", "said"),
    [
        (pa.schema([("id", pa.string()), ("day", pa.string())]), "SCHEMA_INCOMPATIBLE", '"id" is long in the table'),
        (pa.schema([("ID", pa.int64()), ("day", pa.string())]), "SCHEMA_INCOMPATIBLE", '"ID" is called "id"'),
        (pa.schema([("id", pa.int64()), ("day", pa.list_(pa.string()))]), "SCHEMA_INCOMPATIBLE", "array in the rows"),
        (pa.schema([("id", pa.uint64()), ("day", pa.string())]), "SCHEMA_UNSUPPORTED", "uint64"),
        (pa.schema([("id", pa.int64()), ("Id", pa.int64())]), "SCHEMA_UNSUPPORTED", "case only"),
        (pa.schema([("id", pa.int64()), ("a b", pa.int64())]), "SCHEMA_UNSUPPORTED", '"a b"'),
    ],
)
def test_rows_that_do_not_fit_are_refused(location: str, schema: pa.Schema, code: str, said: str) -> None:
    sink_at(location)
    before = sorted(os.listdir(location))
    for refuse in (DeltaSink("events", location).prepare, DeltaSink("events", location).examine):
        with pytest.raises(ProjectError) as raised:
            refuse(schema)
        assert raised.value.code == code
        assert said in raised.value.message
    assert sorted(os.listdir(location)) == before


def test_partitioning_cannot_change(location: str) -> None:
    sink_at(location, partition_by=("day",))
    with pytest.raises(ProjectError) as raised:
        sink_at(location)
    assert raised.value.code == "PARTITIONING_CHANGED"
    with pytest.raises(ProjectError) as raised:
        sink_at(location, partition_by=("month",))
    assert raised.value.code == "PARTITION_COLUMN_UNKNOWN"


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report.csv").write_text("a\n")
    with pytest.raises(ProjectError) as raised:
        sink_at(str(tmp_path))
    assert raised.value.code == "TABLE_NOT_DELTA"
    assert "report.csv" in raised.value.message


def make_table(location: str, *, features: list[str], configuration: dict[str, str], schema: str) -> None:
    """A table as another engine could have made it."""
    log = Path(location) / "_delta_log"
    log.mkdir(parents=True)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    metadata = {
        "id": "0",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": configuration,
    }
    (Path(location) / commit_path(0)).write_text(
        json.dumps({"protocol": protocol}) + "\n" + json.dumps({"metaData": metadata})
    )


@pytest.mark.parametrize(
    ("features", "configuration", "code"),
    [
        (["rowTracking"], {}, "TABLE_FEATURE_UNSUPPORTED"),
        (["checkConstraints"], {"delta.constraints.positive": "id > 0"}, "TABLE_FEATURE_UNSUPPORTED"),
        (["appendOnly"], {"delta.setTransactionRetentionDuration": "interval 1 day"}, "TRANSACTION_RETENTION"),
    ],
)
def test_tables_that_ask_too_much_are_refused(
    location: str, features: list[str], configuration: dict[str, str], code: str
) -> None:
    make_table(location, features=features, configuration=configuration, schema=Schema.from_arrow(SCHEMA).to_json())
    with pytest.raises(ProjectError) as raised:
        sink_at(location)
    assert raised.value.code == code


def test_columns_that_may_not_be_null_are_refused(location: str) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string())])
    DeltaTable.create(location, strict)
    with pytest.raises(ProjectError) as raised:
        sink_at(location)
    assert raised.value.code == "SCHEMA_INCOMPATIBLE"


def test_markers_must_be_kept(location: str) -> None:
    with pytest.raises(ProjectError) as raised:
        sink_at(location, properties={"delta.setTransactionRetentionDuration": "interval 1 day"})
    assert raised.value.code == "TRANSACTION_RETENTION"


def test_properties_and_comment_are_the_projects(location: str) -> None:
    sink_at(location, properties={"owner": "me", "delta.checkpointInterval": "50"}, comment="what happened")
    about = DeltaTable(location).metadata()
    assert about.description == "what happened"
    assert about.configuration == {**delta.PROPERTIES, "owner": "me", "delta.checkpointInterval": "50"}
    with pytest.raises(ProjectError) as raised:
        sink_at(location + "2", properties={"delta.noSuchThing": "1"})
    assert raised.value.code == "TABLE_NOT_CREATED"


def test_partitions_with_difficult_values(location: str) -> None:
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("s", pa.string()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("n", pa.timestamp("us")),
            ("b", pa.bool_()),
            ("x", pa.decimal128(9, 2)),
        ]
    )
    sink = sink_at(location, schema, partition_by=("s", "d", "t", "n", "b", "x"))
    texts = ["plain", "a/b", "50%", "x=y:z", "é ü", "a%20b", "#?*", "", None, "__HIVE_DEFAULT_PARTITION__", "y" * 300]
    moment = dt.datetime(2024, 2, 29, 23, 59, 59, 123456, tzinfo=dt.UTC)
    wanted = [
        {
            "id": n,
            "s": text,
            "d": moment.date() if n % 2 else None,
            "t": moment if n % 3 else None,
            "n": moment.replace(tzinfo=None) if n % 3 else None,
            "b": n % 2 == 0,
            "x": Decimal("1.50"),
        }
        for n, text in enumerate(texts)
    ]
    put(sink, 0, wanted)
    read = DeltaTable(location).to_pyarrow_table().sort_by("id").to_pylist()
    assert read == [{**row, "s": row["s"] or None} for row in wanted]
    assert DeltaSink("events", location).find(key(0)) == Applied("1", already=True)


def test_recovery_needs_no_declaration(location: str) -> None:
    sink = sink_at(location, partition_by=("day",))
    receipt = stage(sink, key(0), rows(1, day="mon") + rows(2, day="tue"))
    assert DeltaSink("events", location).apply(key(0), receipt) == Applied("1")
    assert ids(location) == [1, 2]


def test_statistics_let_no_row_be_skipped(location: str) -> None:
    nan = float("nan")
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64()), ("x", pa.decimal128(38, 18)), ("s", pa.string())])
    sink = sink_at(location, schema)
    big = Decimal("12345678901234567890.123456789012345678")
    put(sink, 0, [{"id": 0, "f": nan, "x": big, "s": "z" * 50}, {"id": 1, "f": 1.0, "x": -big, "s": "a"}])
    put(sink, 1, [{"id": 2, "f": -0.0, "x": Decimal(0), "s": "\U0010ffff" * 40}])
    data = arrow_dataset(location, 2)
    field = pyarrow.dataset.field
    for condition, expected in [
        (field("x") == pa.scalar(big, pa.decimal128(38, 18)), [0]),
        (field("x") < pa.scalar(Decimal(0), pa.decimal128(38, 18)), [1]),
        (field("s") == "z" * 50, [0]),
        (field("s") > "z" * 51, [2]),
        (field("f") == 0.0, [2]),
        (field("f") <= 1.0, [1, 2]),
    ]:
        assert sorted(data.to_table(filter=condition)["id"].to_pylist()) == expected
    text = (Path(location) / commit_path(1)).read_text()
    assert '\\"x\\":12345678901234567890.123456789012345678' in text


def test_damaged_files_are_told(location: str) -> None:
    sink = sink_at(location)
    receipt = stage(sink, key(0), rows(1))
    [file] = receipt.files
    path = Path(location) / file.path
    assert sink.damaged(receipt) is None
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert sink.damaged(receipt) == f"{file.path} has {file.size - 1} bytes instead of {file.size}"
    path.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    assert sink.damaged(receipt) == f"{file.path} has been altered"
    path.unlink()
    assert sink.damaged(receipt) == f"{file.path} is missing"


def test_leftovers_are_ours_old_and_unnamed(location: str) -> None:
    sink = sink_at(location, partition_by=("day",))
    put(sink, 0, rows(1), token=1)
    put(sink, 1, rows(2), token=1)
    DeltaTable(location).optimize.compact()  # both files leave the table, but older versions need them
    lost = stage(sink, key(2), rows(3), token=2)
    decided = stage(sink, key(2), rows(3), token=2)
    current = stage(sink, key(3), rows(4), token=3)
    other = sink_at(location, pipeline="p-2", partition_by=("day",))
    stage(other, key(9, pipeline="p-2"), rows(9), token=1)
    (Path(location) / "ab-notes.txt").write_text("mine")
    fresh = DeltaSink("events", location, pipeline="p-1")
    keep = frozenset(f.path for f in decided.files)
    [file] = lost.files
    assert fresh.leftovers(keep, 3) == [(file.path, file.size)]
    assert [path for path, _ in fresh.leftovers(keep, 4)] == sorted([file.path, current.files[0].path])
    assert fresh.leftovers(keep, 2) == []
    fresh.discard([file.path, file.path])
    assert fresh.leftovers(keep, 3) == []
    assert fresh.apply(key(2), decided).version == "4"
    assert fresh.leftovers(frozenset(), 3) == []
    assert ids(location) == [1, 2, 3]


def test_leftovers_in_doubt_are_kept(location: str) -> None:
    sink = sink_at(location, properties={"delta.checkpointInterval": "2"})
    for epoch in range(6):
        put(sink, epoch, rows(epoch), token=1)
    DeltaTable(location).optimize.compact()
    for version in range(8):  # everything that names the first files; the checkpoint of version 7 stands for it
        (Path(location) / commit_path(version)).unlink()
    assert ids(location) == list(range(6))
    assert sink_at(location).leftovers(frozenset(), 9) == []


def test_only_our_own_files_are_discarded(location: str) -> None:
    sink = sink_at(location)
    foreign = Path(location) / "part-0.parquet"
    foreign.write_bytes(b"x")
    with pytest.raises(InternalError):
        sink.discard(["part-0.parquet"])
    assert foreign.exists()


def test_versions_stay_readable_and_say_when_they_are_gone(location: str) -> None:
    sink = sink_at(location)
    for epoch in range(3):
        put(sink, epoch, rows(epoch))
    assert arrow_dataset(location, 2).to_table()["id"].to_pylist() == [1, 0]
    with pytest.raises(StateError) as raised:
        arrow_dataset(location, 99)
    assert raised.value.code == "VERSION_GONE"
    table = DeltaTable(location)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(StateError) as raised:
        arrow_dataset(location, 2)
    assert raised.value.code == "VERSION_GONE"
    assert "gone" in raised.value.message


def age(location: str, hours: float) -> None:
    """Make everything in a table look older."""
    then = time.time() - hours * 3600
    for folder, _, names in os.walk(location):
        for name in names:
            os.utime(Path(folder, name), (then, then))


def test_vacuum_keeps_what_pinned_versions_need(location: str) -> None:
    sink = sink_at(location)
    for epoch in range(4):
        put(sink, epoch, rows(epoch))
    DeltaTable(location).optimize.compact()
    waiting = stage(sink, key(4), rows(4))
    (Path(location) / "orphan.parquet").write_bytes(b"x")
    assert vacuum(location, [2], older_than_hours=1, dry_run=False) == []
    age(location, hours=100)
    listed = vacuum(location, [2], older_than_hours=1, dry_run=True)
    assert len(listed) == 3
    assert "orphan.parquet" in listed
    assert vacuum(location, [2], older_than_hours=1, dry_run=False) == listed
    assert vacuum(location, [2], older_than_hours=1, dry_run=False) == []
    assert sorted(arrow_dataset(location, 2).to_table()["id"].to_pylist()) == [0, 1]
    with pytest.raises(StateError):
        arrow_dataset(location, 4)
    assert sink.damaged(waiting) is None
    sink.apply(key(4), waiting)
    assert ids(location) == [0, 1, 2, 3, 4]


def test_vacuum_shortens_the_log_but_not_for_pinned_versions(location: str) -> None:
    sink = sink_at(location)
    receipts = []
    for epoch in range(35):
        receipts.append(stage(sink, key(epoch), rows(epoch)))
        sink.apply(key(epoch), receipts[-1])
    assert vacuum(location, [23], older_than_hours=1, dry_run=False) == []
    age(location, hours=100)
    removed = vacuum(location, [23], older_than_hours=1, dry_run=False)
    assert removed == sorted([commit_path(v) for v in range(19)] + [f"_delta_log/{9:020}.checkpoint.parquet"])
    for version in (19, 23, 29, 35):
        assert ids(location, version) == list(range(version))
    with pytest.raises(StateError):
        arrow_dataset(location, 18)
    fresh = DeltaSink("events", location, pipeline="p-1")
    assert fresh.find(key(30)) == Applied("31", already=True)
    assert fresh.apply(key(34), receipts[34]).already
    assert put(sink, 35, rows(35)) == Applied("36")
    assert fresh.leftovers(frozenset(), 9) == []
    age(location, hours=100)
    (Path(location) / "_delta_log" / f"{29:020}.checkpoint.parquet").write_bytes(b"torn")
    with pytest.raises(SinkError) as raised:
        vacuum(location, [36], older_than_hours=1, dry_run=False)
    assert raised.value.code == "TABLE_UNREADABLE"


def test_vacuum_spares_files_removed_a_moment_ago(location: str) -> None:
    sink = sink_at(location)
    for epoch in range(3):
        put(sink, epoch, rows(epoch))
    age(location, hours=100)
    DeltaTable(location).optimize.compact()
    assert vacuum(location, [], older_than_hours=1, dry_run=True) == []
    assert ids(location, 3) == [0, 1, 2]


def test_vacuum_refuses_when_a_pinned_version_cannot_be_loaded(location: str) -> None:
    sink = sink_at(location)
    put(sink, 0, rows(0))
    with pytest.raises(StateError) as raised:
        vacuum(location, [17], older_than_hours=0, dry_run=False)
    assert raised.value.code == "VERSION_GONE"


def test_the_log_is_not_cleaned_by_commits(location: str) -> None:
    sink = sink_at(location, properties={"delta.logRetentionDuration": "interval 0 seconds"})
    for epoch in range(45):
        put(sink, epoch, rows(epoch))
        if epoch == 20:
            age(location, hours=24 * 60)
    assert ids(location, 3) == [0, 1, 2]


def test_a_table_that_vanished_is_told(location: str) -> None:
    sink = sink_at(location)
    receipt = stage(sink, key(0), rows(1))
    (Path(location) / "_delta_log").rename(Path(location) / "_gone")
    with pytest.raises(SinkError) as raised:
        sink.apply(key(0), receipt)
    assert raised.value.code == "TABLE_MISSING"


def test_a_full_disk_is_retryable(location: str) -> None:
    """The log's folder is made read-only for a plain user; root may write anywhere, so it is replaced by a file."""
    sink = sink_at(location)
    receipt = stage(sink, key(0), rows(1))
    blocker = Path(location) / commit_path(1)
    blocker.mkdir()  # a commit cannot be put there, and it is no commit
    with pytest.raises(SinkError) as raised:
        sink.apply(key(0), receipt)
    assert raised.value.retryable
    blocker.rmdir()
    assert sink.apply(key(0), receipt) == Applied("1")


def test_locations_may_be_urls(tmp_path: Path) -> None:
    sink = sink_at((tmp_path / "table").as_uri())
    assert put(sink, 0, rows(1)) == Applied("1")
    assert sink.leftovers(frozenset(), 9) == []
    assert ids(str(tmp_path / "table")) == [1]


def test_a_killed_commit_is_whole_or_absent(location: str) -> None:
    code = (
        "import sys\n"
        "from anabranch.connectors.delta import DeltaSink\n"
        "from anabranch.core.epoch import EpochKey, Receipt\n"
        "DeltaSink('events', sys.argv[1]).apply(EpochKey('p-1', 'main', 1, 0), Receipt.from_json(sys.argv[2]))\n"
    )
    sink = sink_at(location)
    receipt = stage(sink, key(0), rows(1))
    arguments = [sys.executable, "-c", code, location, receipt.to_json()]
    done = subprocess.run(arguments, env={**os.environ, crash.VARIABLE: "committed(events)"}, check=False)
    assert done.returncode == -9
    assert sink.apply(key(0), receipt) == Applied("1", already=True)
    assert ids(location) == [1]


def test_foreign_transactions_do_not_count(location: str) -> None:
    sink = sink_at(location)
    pq.write_table(pa.table({"id": [5]}), Path(location) / "f.parquet")
    DeltaTable(location).create_write_transaction(
        [AddAction("f.parquet", (Path(location) / "f.parquet").stat().st_size, {}, 0, True, '{"numRecords":1}')],
        "append",
        SCHEMA,
        commit_properties=CommitProperties(app_transactions=[Transaction("other", 50)]),
    )
    assert sink.latest(key(0)) is None
    assert put(sink, 0, rows(0)) == Applied("2")


def test_small_files_are_put_together(location: str) -> None:
    """The rows stay, an older version can still be read, and an epoch applied again is found."""
    sink = sink_at(location)
    for epoch in range(59):
        put(sink, epoch, rows(epoch))
    receipt = stage(sink, key(59), rows(59))
    before = sink.apply(key(59), receipt).version
    assert sink.compact() == 60
    assert sink.compact() == 0
    assert len(DeltaTable(location).file_uris()) == 1
    assert ids(location) == ids(location, int(before)) == list(range(60))
    assert sink.apply(key(59), receipt).already
    assert sink.leftovers(frozenset(), 9) == []
    put(sink, 60, rows(60))
    assert ids(location) == list(range(61))

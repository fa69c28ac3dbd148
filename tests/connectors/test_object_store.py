"""Delta tables in an S3 store, spoken to by a real server on loopback."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.connectors.delta import DeltaSink, arrow_dataset, vacuum
from anabranch.connectors.folder import Folder
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.errors import ProjectError, SinkError, StateError

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
BUCKET = "lake"


@dataclass(frozen=True)
class Store:
    """A server with one bucket."""

    url: str

    def ask(self, method: str, path: str, body: bytes | None = None) -> None:
        request = urllib.request.Request(
            f"{self.url}{path}", data=body, method=method, headers={"Content-Type": "text/plain"}
        )
        with urllib.request.urlopen(request, timeout=120):
            pass


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    log = tmp_path_factory.mktemp("store") / "log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 120
        while not (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, f"the server did not start:\n{log.read_text()}"
            time.sleep(0.02)
        store = Store(found[1])
        store.ask("PUT", f"/{BUCKET}")
        yield store
    finally:
        process.kill()
        process.wait(120)


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The server, as the environment names it."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    return server


def environment(store: Store) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": store.url,
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.fixture
def location(store: Store) -> str:
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/events"


def key(epoch: int) -> EpochKey:
    return EpochKey("p-1", "main", 1, epoch)


def sink_at(location: str, **options: Any) -> DeltaSink:
    sink = DeltaSink("events", location, pipeline="p-1", **options)
    sink.prepare(SCHEMA)
    return sink


def stage(sink: DeltaSink, epoch: int, *numbers: int, token: int = 1) -> Receipt:
    staging = sink.staging(key(epoch), token)
    writer = StagedWriter(staging, "0-0")
    rows = [{"id": n, "day": f"d{n % 2}"} for n in numbers]
    writer.write(pa.RecordBatch.from_pylist(rows, schema=staging.schema))
    return Receipt.from_json(sink.receipt(key(epoch), writer.close()).to_json())


def put(sink: DeltaSink, epoch: int, *numbers: int) -> Applied:
    return sink.apply(key(epoch), stage(sink, epoch, *numbers))


def ids(location: str, version: int) -> list[int]:
    return sorted(arrow_dataset(location, version).to_table()["id"].to_pylist())


def test_nothing_is_visible_before_apply(location: str) -> None:
    sink = DeltaSink("events", location, pipeline="p-1")
    assert sink.examine(SCHEMA) == "will be created"
    sink.prepare(SCHEMA)
    assert sink.examine(SCHEMA) == "matches"
    receipt = stage(sink, 0, 1, 2)
    assert ids(location, 0) == []
    assert sink.find(key(0)) is None
    assert sink.apply(key(0), receipt) == Applied("1")
    assert ids(location, 1) == [1, 2]


def test_applying_twice_adds_once_by_any_process(location: str) -> None:
    sink = sink_at(location)
    receipt = stage(sink, 0, 1)
    assert sink.apply(key(0), receipt) == Applied("1")
    assert sink.apply(key(0), receipt) == Applied("1", already=True)
    again = DeltaSink("events", location)
    assert again.find(key(0)) == Applied("1", already=True)
    assert again.apply(key(0), receipt) == Applied("1", already=True)
    assert again.latest(key(0)) == 0
    assert (again.has("1"), again.has("2")) == (True, False)


def test_many_at_once_add_the_epoch_once(location: str) -> None:
    """What the store must keep: of two commits of the same version, one is refused."""
    receipt = stage(sink_at(location), 0, 1)
    answers: list[Applied | Exception] = []
    together = threading.Barrier(4)

    def apply() -> None:
        sink = DeltaSink("events", location)
        together.wait()
        try:
            answers.append(sink.apply(key(0), receipt))
        except SinkError as error:
            answers.append(error)

    threads = [threading.Thread(target=apply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(answers) == {Applied("1"): 1, Applied("1", already=True): 3}
    assert ids(location, 1) == [1]


def test_an_epoch_without_rows_makes_no_commit(location: str) -> None:
    sink = sink_at(location)
    put(sink, 0, 1)
    assert sink.apply(key(1), sink.receipt(key(1), [])) == Applied("1")
    assert put(sink, 2, 2) == Applied("2")


def test_damaged_files_are_told(location: str) -> None:
    sink = sink_at(location)
    receipt = stage(sink, 0, 1, 2)
    assert sink.damaged(receipt) is None
    path, size = receipt.files[0].path, receipt.files[0].size
    folder = Folder(location)
    for content, said in ((b"x" * size, "has been altered"), (b"x", f"has 1 bytes instead of {size}")):
        with folder.create(path) as file:
            file.write(content)
        assert sink.damaged(receipt) == f"{path} {said}"
    folder.remove(path)
    folder.remove(path)
    assert sink.damaged(receipt) == f"{path} is missing"


def test_leftovers_are_ours_old_and_unnamed(location: str) -> None:
    sink = sink_at(location, partition_by=("day",))
    put(sink, 0, 1, 2)
    lost, kept, young = stage(sink, 1, 3, 4), stage(sink, 1, 5, token=2), stage(sink, 1, 6, token=3)
    keep = frozenset(f.path for f in kept.files)
    found = sink.leftovers(keep, 3)
    assert found == sorted((f.path, f.size) for f in lost.files)
    assert {path.partition("/")[0] for path, _ in found} == {"day=d0", "day=d1"}
    sink.discard(path for path, _ in found)
    assert sink.leftovers(keep, 3) == []
    assert [sink.damaged(receipt) for receipt in (kept, young)] == [None, None]
    assert ids(location, 1) == [1, 2]


def test_a_writer_that_gives_up_leaves_nothing(location: str) -> None:
    sink = sink_at(location, partition_by=("day",))
    writer = StagedWriter(sink.staging(key(0), 1), "0-0")
    many = 200_000
    rows = pa.record_batch({"id": range(many), "day": ["d1"] * many}, schema=SCHEMA)
    writer.write(rows)
    writer.abort()
    assert Folder(location).files(without="_delta_log") == []


def test_files_that_are_sent_in_parts_arrive_whole(location: str) -> None:
    sink = sink_at(location)
    staging = sink.staging(key(0), 1)
    writer = StagedWriter(staging, "0-0")
    texts = [os.urandom(16).hex() for _ in range(600_000)]
    writer.write(pa.record_batch({"id": range(len(texts)), "day": texts}, schema=staging.schema))
    receipt = sink.receipt(key(0), writer.close())
    assert receipt.files[0].size > 10 << 20, "more than one part"
    assert sink.damaged(receipt) is None
    sink.apply(key(0), receipt)
    assert arrow_dataset(location, 1).count_rows() == len(texts)


def test_vacuum_keeps_what_pinned_versions_need(location: str) -> None:
    sink = sink_at(location)
    files = []
    for epoch in range(3):
        receipt = stage(sink, epoch, epoch)
        sink.apply(key(epoch), replace(receipt, replace=True))
        files += [f.path for f in receipt.files]
    unknown = stage(sink, 3, 3)
    in_two_days = -48  # the store's times cannot be set, so all is looked at as if it were later
    assert vacuum(location, [1, 2], older_than_hours=0, dry_run=False) == []
    assert vacuum(location, [1, 2], older_than_hours=in_two_days, dry_run=False) == []
    assert vacuum(location, [2], older_than_hours=in_two_days, dry_run=False) == files[:1]
    assert [ids(location, version) for version in (2, 3)] == [[1], [2]]
    with pytest.raises(StateError) as raised:
        arrow_dataset(location, 1)
    assert raised.value.code == "VERSION_GONE"
    assert sink.damaged(unknown) is None


def test_a_bucket_that_is_not_there_is_told(store: Store) -> None:
    sink = DeltaSink("events", "s3://nobody-made-it/events", pipeline="p-1")
    for ask in (sink.examine, sink.prepare):
        with pytest.raises(SinkError, match="s3://nobody-made-it/events") as raised:
            ask(SCHEMA)
        assert raised.value.code == "BUCKET_MISSING"
        assert "\n" not in raised.value.message


def test_a_store_that_does_not_answer_is_told(store: Store, location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        with pytest.raises(SinkError) as raised:
            DeltaSink("events", location).examine(SCHEMA)
    assert raised.value.code == "STORE_UNAVAILABLE"
    assert raised.value.retryable


def test_keys_that_may_not_are_told(store: Store, location: str) -> None:
    sink = sink_at(location)
    receipt = stage(sink, 0, 1)
    store.ask("POST", "/moto-api/reset-auth", b"0")
    try:
        for ask in (lambda: DeltaSink("events", location).version(), lambda: sink.damaged(receipt), sink.version):
            with pytest.raises(SinkError) as raised:
                ask()
            assert raised.value.code == "STORE_FORBIDDEN"
            assert "AWS_ACCESS_KEY_ID" in (raised.value.hint or "")
        with pytest.raises(SinkError) as raised:
            stage(sink, 1, 2)
        assert raised.value.code == "STORE_FORBIDDEN"
    finally:
        store.ask("POST", "/moto-api/reset-auth", b"inf")
    assert sink.apply(key(0), receipt) == Applied("1")


@pytest.mark.parametrize("location", ["s3://", "s3:///events", "floppy://disk/events"])
def test_places_that_are_none_are_told(store: Store, location: str) -> None:
    with pytest.raises(ProjectError, match=re.escape(location)) as raised:
        DeltaSink("events", location)
    assert raised.value.code == "LOCATION_NOT_SUPPORTED"


@pytest.fixture
def workers_environment(spark: Any, store: Store) -> Iterator[None]:
    """The shared session may be older than the store: its Python workers are told of it."""
    known = spark.sparkContext.environment
    known.update(environment(store))
    yield
    for name in environment(store):
        del known[name]


@pytest.mark.spark
@pytest.mark.parametrize(("small", "by"), [(1 << 20, "driver"), (0, "0")])
def test_tables_in_a_store_and_beside_it_move_together(
    spark: Any,
    workers_environment: None,
    location: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small: int,
    by: str,
) -> None:
    import anabranch
    from anabranch import Output
    from anabranch.engine import epoch as engine_epoch

    monkeypatch.setattr(engine_epoch, "SMALL_BYTES", small)
    landing = tmp_path / "landing"
    landing.mkdir()
    stream = spark.readStream.schema("id INT, status INT").json(str(landing))
    outputs = {
        "bronze": Output(lambda df: df, path=location),
        "errors": Output(lambda df: df.where("status >= 500"), path=f"{location}-errors", partition_by=("status",)),
        "local": Output(lambda df: df.select("id")),
    }
    job = anabranch.fan_out(stream, outputs, storage=tmp_path / "storage")
    for epoch in range(2):
        rows = [{"id": 10 * epoch + i, "status": 500 if i % 2 else 200} for i in range(6)]
        (landing / f"{epoch}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert job.run_once().epochs == 1
    writers = {f.path.split("-")[5] for f in Folder(location).files(without="_delta_log")}
    assert writers == {by}, "staged by the driver, or by the first task of a worker"
    cut = job.cut()
    assert sorted(cut.arrow("bronze")["id"].to_pylist()) == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
    assert sorted(cut.arrow("errors")["id"].to_pylist()) == [1, 3, 5, 11, 13, 15]
    joined = cut.sql("SELECT count(*) AS n FROM bronze JOIN local USING (id) JOIN errors USING (id)")
    assert joined.to_pylist() == [{"n": 6}]
    assert sorted(job.cut(at=0).arrow("errors")["id"].to_pylist()) == [1, 3, 5]


def test_all_files_of_a_folder_go_and_no_others(location: str) -> None:
    sink = sink_at(location)
    beside = sink_at(f"{location}_2")
    sink.folder.remove_all()
    assert sink.folder.files() == []
    assert beside.is_there()
    sink.folder.remove_all()  # nothing is left to do

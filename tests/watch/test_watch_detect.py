"""Detectors over a real ledger and a real history: what is seen of them, and one look after the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from detected_shop import CHANNEL, Shop, make_files

from anabranch.cli.main import main
from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.core.epoch import EpochKey
from anabranch.load.project import read_project
from anabranch.watch.detect import look_once, watched
from anabranch.watch.detect_sources import asked_lag, partition_offsets, version_lag

MakeShop = Callable[[str], Shop]

STOPPED = "detectors:\n  - {kind: interruption, on: orders, within: 10 minutes}\n"


def test_a_filter_that_drops_all_rows_from_its_begin_to_its_end(shop: MakeShop) -> None:
    at = shop(STOPPED)
    at.begin()
    at.epoch(read=50, orders=50)
    assert at.look().going_on == ()
    for _ in range(12):
        at.pass_time(60)
        at.epoch(read=50)
    (found,) = at.look().opened
    assert found.message.startswith("600 rows were read and none written to orders")
    assert (found.place.endswith("anabranch.yml:4:5"), found.facts["reason"]) == (True, "read_not_written")
    at.pass_time(60)
    assert (at.look().opened, len(at.look().going_on)) == ((), 1)
    at.epoch(read=50, orders=1)
    assert [i.closed is not None for i in at.look().closed] == [True]
    assert at.alerts == [("opened", "interruption of orders"), ("closed", "interruption of orders")]


def test_a_lull_at_the_source_is_no_interruption(shop: MakeShop) -> None:
    at = shop(STOPPED)
    at.begin()
    at.epoch(read=50, orders=50)
    at.pass_time(8 * 3600)
    assert at.look() == type(at.look())((), (), ())
    at.end("done")
    at.pass_time(8 * 3600)
    assert at.look().going_on == ()


def test_a_flow_stands_for_its_target_and_a_view_for_its_channel(shop: MakeShop) -> None:
    lines = "detectors:\n"
    for on in ("more_errors", "events", "errors"):
        lines += f"  - {{kind: interruption, on: {on}, within: 10 minutes}}\n"
    at = shop(lines)
    at.begin()
    for _ in range(15):
        at.epoch(read=9, orders=9)
        at.pass_time(60)
    assert sorted(i.detector for i in at.look().opened) == ["interruption of errors", "interruption of more_errors"]


def test_an_epoch_that_hangs_in_a_sink_and_is_recovered(shop: MakeShop) -> None:
    at = shop("detectors:\n  - {kind: sla, on: orders, processing: 1 minute}\n")
    at.begin()
    at.epoch(read=5, orders=5)
    assert at.look().going_on == ()
    key = at.decide(orders=5)
    at.pass_time(61)
    (found,) = at.look().opened
    assert (found.facts["running"], found.facts["misses"]) == (True, 1)
    at.pass_time(60)
    at.publish(key)
    assert [i.facts["misses"] for i in at.look().going_on] == [1]
    at.epoch(read=5, orders=5)
    assert len(at.look().closed) == 1
    assert len(at.alerts) == 2


def test_an_epoch_that_spark_has_begun_and_that_hangs(shop: MakeShop) -> None:
    at = shop("detectors:\n  - {kind: sla, on: orders, processing: 1 minute}\n")
    at.begin()
    at.epoch(read=5, orders=5)
    offsets = at.folder / "lake" / "_anabranch" / "checkpoints" / CHANNEL / "1" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text("v1\n{}\n{}")
    (offsets / "1").write_text(f'v1\n{{"batchTimestampMs": {int(at.now * 1000)}}}\n{{}}')
    at.pass_time(59)
    assert at.look().going_on == ()
    at.pass_time(2)
    assert [i.message for i in at.look().opened] == [
        "epoch 1 of events took 61 seconds so far, 60 seconds are promised"
    ]
    at.end("stopped")  # somebody ended it: what is left to do is the next run's
    assert len(at.look().closed) == 1


def test_late_rows_and_slow_epochs_are_two_incidents(shop: MakeShop) -> None:
    at = shop("detectors:\n  - {kind: sla, on: orders, processing: 1 minute, event_time: 5 minutes}\n")
    at.begin()
    at.epoch(read=5, orders=5)
    assert list(at.look().unknown) == ["sla of orders (event time)"]  # no watermark so far
    at.epoch(orders=5)
    at.progress(5, newest=at.now - 3600, oldest=at.now - 7200, mean=at.now - 4000)
    assert [i.detector for i in at.look().opened] == ["sla of orders (event time)"]
    at.epoch(orders=5, took=90)
    at.progress(5, newest=at.now - 10)
    found = at.look()
    assert [i.detector for i in found.opened] == ["sla of orders (processing)"]
    assert [i.detector for i in found.closed] == ["sla of orders (event time)"]


def test_runs_are_compared_with_the_last_good_one(shop: MakeShop) -> None:
    at = shop("detectors:\n  - {kind: skew, on: orders}\n")
    counts = []
    for rows, outcome in ((100, "done"), (20, "failed"), (33, "done"), (33, "done"), (100, "done")):
        at.begin()
        at.epoch(orders=rows - 10)
        at.epoch(orders=10)
        at.pass_time(10)
        at.settled()
        at.end(outcome)
        at.pass_time(3600)
        counts.append(len(at.look().going_on))
    assert counts == [0, 0, 1, 1, 0]
    assert at.alerts == [("opened", "skew of orders"), ("closed", "skew of orders")]


def test_partitions_of_a_table_and_of_a_topic(shop: MakeShop) -> None:
    lines = "detectors:\n  - {kind: skew, on: orders, over: partitions}\n  - {kind: skew, on: orders, over: source}\n"
    at = shop(lines)
    at.epoch(orders={"eu": 100, "us": 100}, offsets='{"events":{"0":0,"1":0}}')
    at.epoch(orders={"eu": 100, "us": 100}, offsets='{"events":{"0":100,"1":100}}')
    assert at.look().going_on == ()
    at.epoch(orders={"eu": 900}, offsets='{"events":{"0":1000,"1":100}}')
    opened = at.look().opened
    assert [i.detector for i in opened] == ["skew of orders over partitions", "skew of orders over source"]
    assert opened[0].facts["partitions"] == {"region=eu": 1100, "region=us": 200}
    assert opened[1].facts["partitions"] == {"events 0": 1000, "events 1": 100}


def test_lag_of_each_partition_as_the_run_tells_it(shop: MakeShop) -> None:
    at = shop("detectors:\n  - {kind: lag, on: orders, unit: offsets, most: 100}\n  - {kind: lag, on: errors}\n")
    at.begin()
    at.epoch(orders=5)
    at.progress(5, {"events 0": 0, "events 1": 3})
    assert at.look().going_on == ()
    at.epoch(orders=5)
    at.progress(5, {"events 0": 4, "events 1": 3, "events 2": 500})
    (found,) = at.look().opened
    assert (found.value, list(found.facts["partitions"])) == (500.0, ["events 2", "events 0", "events 1"])
    at.pass_time(601)
    assert [i.detector for i in at.look().opened] == ["lag of errors"]
    at.epoch(orders=5)
    at.progress(5, {"events 0": 0, "events 1": 0, "events 2": 0})
    assert len(at.look().closed) == 2


def test_compaction_and_properties_of_the_real_table_do_not_end_an_interruption(shop: MakeShop) -> None:
    at = shop(STOPPED)
    place = at.folder / "lake" / "tables" / "orders"
    sink = open_sink("delta", SinkSpec("orders", str(place), at.pipeline, str(at.folder / "lake")))
    schema = pa.schema([("id", pa.int64())])
    sink.prepare(schema)
    for number in range(3):
        key = EpochKey(at.pipeline, CHANNEL, 1, number)
        staged = StagedWriter(sink.staging(key, at.lease.token), "t")
        staged.write(pa.RecordBatch.from_pydict({"id": [number]}, schema=schema))
        sink.apply(key, sink.receipt(key, staged.close()))
    at.begin()
    at.epoch(read=1, orders=1)
    for _ in range(12):
        at.pass_time(60)
        at.epoch(read=50)
    assert len(at.look().opened) == 1
    table = DeltaTable(str(place))
    before = table.version()
    assert table.optimize.compact()["numFilesRemoved"] > 1
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    assert DeltaTable(str(place)).version() == before + 2
    assert len(at.look().going_on) == 1


CHILD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from detected_shop import make_ledger, receipt, CHANNEL, OUTPUTS
from anabranch.core.epoch import Applied, EpochKey
from anabranch.core.events import RunStarted
from anabranch.store.history import History
from anabranch.store.history_writer import HistoryWriter

folder = Path(sys.argv[1])
ledger, pipeline = make_ledger(folder)
lease = ledger.acquire(pipeline, CHANNEL, seconds=3600)
writer = HistoryWriter(History.of(folder / "lake").path, "shop", keep_seconds=1e9, tell=print)
writer.put(RunStarted("shop", (CHANNEL,)))
key = EpochKey(pipeline, CHANNEL, 1, 0)
ledger.decide(lease, key, [receipt(name, 5) for name in OUTPUTS], offsets="{}", times={"stage": 0.1})
for name in OUTPUTS:
    ledger.record_applied(lease, key, name, Applied("1"), at=time.time())
ledger.publish(lease, key, window=0.0, times={})
while not History.of(folder / "lake").events(kinds=["run_started"]):
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.crash
def test_a_process_that_was_killed_is_noticed_and_one_that_lives_is_not(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    make_files(folder, "detectors:\n  - {kind: interruption, on: orders, within: 50 ms}\n")
    seen = watched(read_project(folder))
    assert look_once(seen, print).unknown == {"interruption of orders": "nothing has been run yet"}
    arguments = [sys.executable, "-c", CHILD, str(folder), str(Path(__file__).parent)]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.2)  # longer than rows may fail to come, if there were a reason why they should
        assert look_once(seen, print).going_on == ()
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    time.sleep(0.2)
    (found,) = look_once(seen, print).opened
    assert found.facts["reason"] == "died"
    assert "the process of the run is gone" in found.message


def test_versions_of_a_delta_table_that_have_new_rows(tmp_path: Path) -> None:
    place = str(tmp_path / "orders")
    for number in range(4):
        write_deltalake(place, pa.table({"id": [number]}), mode="append")
    table = DeltaTable(place)

    def behind(version: int) -> dict[str, int]:
        offset = {"sourceVersion": 1, "reservoirId": str(table.metadata().id), "reservoirVersion": version, "index": -1}
        return version_lag(f"{json.dumps(offset)}\n", {"orders": place, "gone": str(tmp_path / "gone")})

    assert (behind(4), behind(3), behind(0)) == ({"orders": 0}, {"orders": 1}, {"orders": 4})
    table.optimize.compact()
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    assert DeltaTable(place).version() == 5
    assert behind(4) == {"orders": 0}
    write_deltalake(place, pa.table({"id": [9]}), mode="append")
    assert behind(4) == {"orders": 1}
    assert version_lag('{"logOffset":3}\n-', {"orders": place}) == {}


def test_what_kafka_holds_while_nothing_runs(kafka: Any) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

    topic, options = f"lag-{os.getpid()}", {"kafka.bootstrap.servers": kafka.bootstrap}
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])[topic].result(30)

    def send(count: int, partition: int) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap})  # a new one knows of new partitions
        for number in range(count):
            producer.produce(topic, str(number).encode(), partition=partition)
        assert producer.flush(120) == 0

    send(3, 0)
    read = partition_offsets(json.dumps({topic: {"0": 3, "1": 0}}))
    assert asked_lag(options, read, "lag") == {f"{topic} 0": 0, f"{topic} 1": 0}
    send(500, 0)
    assert asked_lag(options, read, "lag") == {f"{topic} 0": 500, f"{topic} 1": 0}
    assert sum(asked_lag(options, {f"{topic} 0": 503, f"{topic} 1": 0}, "lag").values()) == 0
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    send(7, 2)
    assert asked_lag(options, read, "lag")[f"{topic} 2"] == 7


def test_a_broker_that_does_not_answer_is_told_and_ends_no_look(
    shop: MakeShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.connectors.kafka_cluster.ANSWER_SECONDS", 0.2)
    ask = "{kind: lag, on: orders, ask: {kafka.bootstrap.servers: 'localhost:1'}}"
    at = shop(f"detectors:\n  - {ask}\n  - {{kind: interruption, on: orders, lulls: none}}\n")
    at.epoch(orders=5, offsets='{"events":{"0":0}}')
    at.pass_time(3600)
    found = at.look()
    assert [i.kind for i in found.opened] == ["interruption"]
    assert list(found.unknown) == ["lag of orders"]


# The command


def test_the_command_says_what_is_open_in_its_exit_code(shop: MakeShop, capsys: pytest.CaptureFixture[str]) -> None:
    at = shop(STOPPED.replace("}", ", lulls: none, severity: error}"))
    at.epoch(orders=5)
    project = ["--project", str(at.folder)]
    assert main(["watch", "--once", *project]) == 0
    assert "no incidents are open" in capsys.readouterr().out
    at.pass_time(3600)
    assert main(["watch", "--once", *project, "--json"]) == 7
    document = json.loads(capsys.readouterr().out)
    assert [i["severity"] for i in document["opened"]] == ["error"]
    assert document["open"][0]["on"] == "orders"
    assert main(["status", *project]) == 0
    said = capsys.readouterr().out
    assert "open incidents" in said
    assert "no rows were written to orders for" in said
    assert main(["watch", "--once", *project]) == 7
    assert "opened  interruption" not in capsys.readouterr().out  # it was told before
    at.epoch(orders=5)
    assert main(["watch", "--once", *project]) == 0
    assert "closed  interruption of orders  it is over" in capsys.readouterr().out


def test_a_project_without_detectors_or_with_a_strange_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_files(tmp_path / "p", "")
    assert main(["watch", "--once", "--project", str(tmp_path / "p")]) == 2
    assert "DETECTORS_NONE" in capsys.readouterr().err
    assert main(["watch", "--every", "0 seconds", "--project", str(tmp_path / "p")]) == 2


def test_nothing_was_run_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_files(tmp_path / "p", STOPPED)
    assert main(["watch", "--once", "--project", str(tmp_path / "p")]) == 0
    assert "nothing has been run yet" in capsys.readouterr().err


def test_a_detector_that_is_no_longer_declared_leaves_nothing_open(shop: MakeShop) -> None:
    at = shop(STOPPED.replace("}", ", lulls: none}"))
    at.epoch(orders=5)
    at.pass_time(3600)
    assert len(at.look().opened) == 1
    (at.folder / "anabranch.yml").write_text(
        "name: shop\nstorage: lake\ndetectors: [{kind: interruption, on: errors, within: 9 weeks}]\n"
    )
    at.seen = watched(read_project(at.folder))
    assert [i.ending for i in at.look().closed] == ["its detector is no longer declared"]

"""The Kafka sink against a real broker: each row once for those who read what is committed, whatever goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.connectors.contract import Sink, SinkSpec
from anabranch.connectors.kafka import KafkaSink
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import AnabranchError, DataError, SinkError, StateError

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

SCHEMA = pa.schema([("id", pa.int64()), ("who", pa.string())])


def key(epoch: int, generation: int = 1) -> EpochKey:
    return EpochKey("p-1", "main", generation, epoch)


def spec(broker: Any, folder: Path, **more: str) -> SinkSpec:
    topic = f"out-{uuid.uuid4().hex[:8]}"
    options = {
        "topic": topic,
        "kafka.bootstrap.servers": broker.bootstrap,
        "create": "3",
        "key": "who",
        "marker.topic": f"{topic}-epochs",
        **more,
    }
    return SinkSpec("out", f"kafka://{topic}", "p-1", str(folder), options=options)


def opened(target: SinkSpec, schema: pa.Schema = SCHEMA) -> KafkaSink:
    sink = open_sink("kafka", target)
    sink.prepare(schema)
    assert isinstance(sink, KafkaSink)
    return sink


def stage(sink: Sink, at: EpochKey, rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> Receipt:
    writer = StagedWriter(sink.staging(at, 1), "0")
    writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
    return sink.receipt(at, writer.close())


def people(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "who": f"p{i % 7}"} for i in range(first, first + count)]


def seen(target: SinkSpec, *, committed: bool = True) -> list[dict[str, Any]]:
    from kafka_reader import messages

    found = messages(target.options["kafka.bootstrap.servers"], target.options["topic"], committed=committed)
    return [json.loads(m.value()) for m in found]


def ids(target: SinkSpec) -> list[int]:
    return sorted(row["id"] for row in seen(target))


def test_rows_of_a_key_stay_in_order_and_in_one_partition(kafka: Any, tmp_path: Path) -> None:
    from kafka_reader import messages

    target = spec(kafka, tmp_path)
    sink = opened(target)
    for epoch in range(3):
        sink.apply(key(epoch), stage(sink, key(epoch), people(epoch * 500, 500)))
    found = defaultdict(list)
    for message in messages(kafka.bootstrap, target.options["topic"]):
        found[message.key()].append((message.partition(), json.loads(message.value())["id"]))
    assert len(found) == 7
    for places in found.values():
        assert len({partition for partition, _ in places}) == 1
        assert [i for _, i in places] == sorted(i for _, i in places)
    assert sum(map(len, found.values())) == 1500


def test_headers_partition_time_and_missing_values(kafka: Any, tmp_path: Path) -> None:
    from kafka_reader import messages

    schema = pa.schema(
        [
            ("key", pa.string()),
            ("value", pa.string()),
            ("headers", pa.map_(pa.string(), pa.string())),
            ("partition", pa.int32()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    target = spec(kafka, tmp_path, **{"value.format": "raw", "key": "key", "timestamp": "at"})
    sink = opened(target, schema)
    rows = [
        {"key": "a", "value": "one", "headers": [("h", "1")], "partition": 2, "at": 1_700_000_000_000_000},
        {"key": "a", "value": None, "headers": None, "partition": 0, "at": None},
    ]
    sink.apply(key(0), stage(sink, key(0), rows, schema))
    deleted, one = messages(kafka.bootstrap, target.options["topic"])
    assert (one.key(), one.value(), one.headers(), one.partition()) == (b"a", b"one", [("h", b"1")], 2)
    assert one.timestamp()[1] == 1_700_000_000_000
    assert (deleted.partition(), deleted.value(), deleted.headers()) == (0, None, None)


def test_over_tls_with_a_password(kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka_broker import PASSWORD, USER

    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    secure = {
        "kafka.bootstrap.servers": kafka.secure,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": USER,
        "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
        "kafka.ssl.ca.location": str(kafka.certificate),
    }
    target = spec(kafka, tmp_path, **secure)
    sink = opened(target)
    sink.apply(key(0), stage(sink, key(0), people(0, 3)))
    plain = {**target.options, "kafka.bootstrap.servers": kafka.bootstrap}
    assert ids(SinkSpec("out", target.location, options=plain)) == [0, 1, 2]

    monkeypatch.setenv("KAFKA_PASSWORD", "tulip-bulb-78")
    for seconds in (5.0, 20.0, 60.0):  # a broker that is slow to say no is taken for one that says nothing
        monkeypatch.setattr("anabranch.connectors.kafka_cluster.ANSWER_SECONDS", seconds)
        with pytest.raises(SinkError) as refused:
            opened(target)
        if refused.value.code != "KAFKA_UNREACHABLE":
            break
    assert (refused.value.code, refused.value.retryable) == ("KAFKA_AUTHENTICATION", False)
    assert "tulip" not in str(refused.value.as_record())


def test_a_topic_that_is_missing_and_brokers_that_do_not_answer(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = spec(kafka, tmp_path, create="")
    with pytest.raises(SinkError) as missing:
        opened(target)
    assert missing.value.code == "KAFKA_TOPIC_MISSING"
    assert '"create"' in (missing.value.hint or "")
    from kafka_reader import create_topic

    forgetful = create_topic(kafka.bootstrap, f"{target.options['topic']}-forgets", cleanup_policy="delete")
    with pytest.raises(AnabranchError, match="forget which epochs"):
        opened(spec(kafka, tmp_path, **{"marker.topic": forgetful}))
    with pytest.raises(AnabranchError, match=r"no\.such"):
        opened(spec(kafka, tmp_path, **{"kafka.no.such.setting": "1"}))
    monkeypatch.setattr("anabranch.connectors.kafka_cluster.ANSWER_SECONDS", 1.0)
    with pytest.raises(SinkError) as silent:
        opened(spec(kafka, tmp_path, **{"kafka.bootstrap.servers": "127.0.0.1:9"}))
    assert (silent.value.code, silent.value.retryable) == ("KAFKA_UNREACHABLE", True)


def test_a_row_that_is_too_large_is_named_and_nothing_of_its_epoch_is_seen(kafka: Any, tmp_path: Path) -> None:
    target = spec(kafka, tmp_path)
    sink = opened(target)
    rows = [*people(0, 10), {"id": 99, "who": "w" * 2_000_000}]
    with pytest.raises(DataError) as refused:
        sink.apply(key(0), stage(sink, key(0), rows))
    assert refused.value.code == "KAFKA_MESSAGE_TOO_LARGE"
    assert "b'www" in refused.value.message
    assert ids(target) == []
    sink.apply(key(0), stage(sink, key(0), people(0, 10)))
    assert ids(target) == list(range(10))


@pytest.mark.parametrize("heard", [False, True], ids=["heard at the end", "heard between rows"])
def test_a_transaction_that_takes_too_long_is_sent_again(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    target = spec(kafka, tmp_path, **{"kafka.transaction.timeout.ms": "3000"})
    sink = opened(target)
    messages = sink._messages

    def once(epoch: EpochKey, receipt: Receipt) -> Iterator[Any]:
        rows = messages(epoch, receipt)
        return stalling(rows) if stalls and stalls.pop() else rows

    def stalling(rows: Iterator[Any]) -> Iterator[Any]:
        for number, message in enumerate(rows):
            if number == 5_000:
                time.sleep(5)  # longer than the broker allows, which must be long enough for the other tries
            if heard and number == 5_100:
                sink._sender(key(0))._producer.flush(120)  # the client learns of it, and takes no more rows
            yield message

    stalls = [True]
    monkeypatch.setattr(sink, "_messages", once)
    sink.apply(key(0), stage(sink, key(0), people(0, 6_000)))
    assert stalls == []
    assert len(seen(target, committed=False)) > 6_000
    assert ids(target) == list(range(6_000))


def test_a_producer_that_was_fenced_off_does_not_go_on(kafka: Any, tmp_path: Path) -> None:
    target = spec(kafka, tmp_path)
    old, new = opened(target), opened(target)
    old.apply(key(0), stage(old, key(0), people(0, 5)))
    new.apply(key(1), stage(new, key(1), people(5, 5)))
    with pytest.raises(SinkError) as fenced:
        old.apply(key(1), stage(old, key(1), people(5, 5)))
    assert (fenced.value.code, fenced.value.retryable) == ("KAFKA_FENCED", False)
    assert ids(target) == list(range(10))


def test_without_its_declaration_it_says_what_is_needed(tmp_path: Path) -> None:
    bare = open_sink("kafka", SinkSpec("out", "kafka://t", "p-1", str(tmp_path), declared=False))
    assert bare.leftovers(frozenset(), 1) == []
    with pytest.raises(StateError) as refused:
        bare.find(key(0))
    assert refused.value.code == "DECLARATION_NEEDED"


CHILD = """
import json, sys, time
from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.kafka import KafkaSink
from anabranch.core.epoch import EpochKey, Receipt

plain, receipt = json.loads(sys.argv[1])
sink = KafkaSink(SinkSpec(**plain))
messages = sink._messages

def halted(key, receipt):
    for number, message in enumerate(messages(key, receipt)):
        if number == 900:
            sink._sender(EpochKey("p-1", "main", 1, 1))._producer.flush(120)
            print("half way", flush=True)
            time.sleep(600)
        yield message

sink._messages = halted
sink.apply(EpochKey("p-1", "main", 1, 1), Receipt.from_json(receipt))
"""


@pytest.mark.crash
def test_killed_in_the_middle_of_sending(kafka: Any, tmp_path: Path) -> None:
    """What was sent is on the broker, and nobody who reads what is committed sees it."""
    target = spec(kafka, tmp_path)
    sink = opened(target)
    sink.apply(key(0), stage(sink, key(0), people(0, 10)))
    receipt = stage(sink, key(1), people(10, 1000))
    plain = {
        "name": target.name,
        "location": target.location,
        "pipeline": target.pipeline,
        "storage": target.storage,
        "options": dict(target.options),
    }
    command = [sys.executable, "-c", textwrap.dedent(CHILD), json.dumps([plain, receipt.to_json()])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half way\n"
        os.kill(child.pid, signal.SIGKILL)
    assert len(seen(target, committed=False)) >= 900
    next_one = opened(target)
    assert next_one.find(key(1)) is None
    assert next_one.find(key(0)) is not None
    assert not next_one.apply(key(1), receipt).already
    assert ids(target) == list(range(1010))


def test_a_foreign_transaction_that_hangs_does_not_hide_a_marker_that_is_there(kafka: Any, tmp_path: Path) -> None:
    """Markers of two pipelines in one topic; one dies in the act, after which the other commits and is looked up."""
    from confluent_kafka import Producer

    target = spec(kafka, tmp_path, **{"kafka.transaction.timeout.ms": "60000"})
    sink = opened(target)
    sink.apply(key(0), stage(sink, key(0), people(0, 3)))
    dead = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "dead", "transaction.timeout.ms": 4000})
    dead.init_transactions(60)
    dead.begin_transaction()
    dead.produce(target.options["marker.topic"], b'{"epoch": 0}', b"anabranch/other", 0)
    assert dead.flush(60) == 0
    assert opened(target).find(key(0)) is not None  # nothing of ours is hidden
    receipt = stage(sink, key(1), people(3, 3))
    sink.apply(key(1), receipt)
    again = opened(target).apply(key(1), receipt)  # waits for the broker to end the other transaction
    assert again.already
    assert ids(target) == list(range(6))


def test_the_broker_is_stopped_and_killed_on_the_way(
    kafka: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = spec(kafka, tmp_path)
    sink = opened(target)
    sink.apply(key(0), stage(sink, key(0), people(0, 10)))
    messages = sink._messages

    def interrupted(epoch: EpochKey, receipt: Receipt) -> Iterator[Any]:
        for number, message in enumerate(messages(epoch, receipt)):
            if number == 5 and restarts:
                restarts.pop()()
                kafka.start()
            yield message

    restarts = [kafka.kill]
    monkeypatch.setattr(sink, "_messages", interrupted)
    sink.apply(key(1), stage(sink, key(1), people(10, 5)))
    sink.apply(key(2), stage(sink, key(2), people(15, 10)))
    assert restarts == []
    receipt = stage(sink, key(3), people(25, 10))
    kafka.kill()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("anabranch.connectors.kafka_send._COMMIT_SECONDS", 2.0)
            patch.setattr("anabranch.connectors.kafka_send.ANSWER_SECONDS", 2.0)
            with pytest.raises(SinkError) as gone:
                sink.apply(key(3), receipt)
        assert gone.value.retryable
    finally:
        kafka.start()
    assert sink.damaged(receipt) is None
    sink.apply(key(3), receipt)
    assert ids(target) == list(range(35))
    assert sink.has("main/1/3")
    assert not sink.has("main/1/4")

"""Values and keys of Kafka through the native pass: as Spark alone has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from native.json_documents import WHOLE
from native.native_project import Ran, ran_both_ways

pytestmark = pytest.mark.spark

MESSAGES = """
@dp.temporary_view
def messages():
    rows = spark.readStream.format("kafka").option("startingOffsets", "earliest").option("subscribe", TOPIC)
    rows = rows.option("kafka.bootstrap.servers", BOOTSTRAP).load()
    parsed = F.from_json(F.col("value").cast("string"), CORRUPT)
    return rows.select("*", parsed.alias("e"))

@dp.table
def values():
    return spark.readStream.table("messages").select("offset", "partition", "timestamp", "key", "value", "e.*")

@dp.table
def keys():
    return spark.readStream.table("messages").where("e.id > 0").select("key", "e.id")
"""


def test_values_of_messages(tmp_path: Path, spark: Any, kafka: Any) -> None:
    """Null, not UTF-8, over several lines: Kafka's values need not be lines."""
    from confluent_kafka import Producer
    from kafka_reader import create_topic

    topic = create_topic(kafka.bootstrap, "native-values", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    pretty = json.dumps({"id": 5, "tags": ["a"], "inner": {"a": 1}}, indent=2).encode()
    sent = [*(one for one in WHOLE if not one or len(one) < 5000), pretty, b'{"id":1,"name":"\xff"}', b'{"id":2}']
    for number, value in enumerate(sent):
        producer.produce(topic, value, f"k{number}", 0, timestamp=1_700_000_000_000)
    assert producer.flush(120) == 0
    code = f"TOPIC, BOOTSTRAP = {topic!r}, {kafka.bootstrap!r}\n" + MESSAGES
    by_spark, natively = ran_both_ways(tmp_path, spark, code, tmp_path)
    assert set(natively.how().values()) == {"native"}
    assert natively.records("messages").total() == len(sent)
    assert natively.records("messages")["native"] > 20
    for table in ("values", "keys"):
        assert natively.rows(table) == by_spark.rows(table)


HEADED = """
@dp.temporary_view
def messages():
    rows = spark.readStream.format("kafka").option("startingOffsets", "earliest").option("subscribe", TOPIC)
    rows = rows.option("kafka.bootstrap.servers", BOOTSTRAP).option("includeHeaders", "true")
    rows = rows.option("kafka.isolation.level", "read_committed").load()
    key = F.from_json(F.col("key").cast("string"), "k BIGINT, at TIMESTAMP").alias("key_e")
    return rows.select("*", key, F.from_json(F.col("value").cast("string"), FIELDS).alias("e"))

@dp.table
def whole():
    return spark.readStream.table("messages")

@dp.table
@dp.expect("keyed", "k IS NOT NULL")
@dp.expect_or_drop("valued", "value IS NOT NULL")
def chosen():
    rows = spark.readStream.table("messages").where("e.id > 0 OR value IS NULL OR key IS NULL")
    return rows.select("key_e.*", "e.id", "headers", "timestampType", "value", F.length("e.name").alias("long"))
"""


def test_messages_with_headers_and_keys_and_none_in_places(tmp_path: Path, spark: Any, kafka: Any) -> None:
    """Tombstones, no keys, empty values, aborted transactions, large ones; then the topic gets another partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import NewPartitions
    from kafka_reader import admin, create_topic

    topic = create_topic(kafka.bootstrap, "native-headers", max_message_bytes="3000000")
    large = json.dumps({"id": 7, "name": "x" * 1_500_000}).encode()
    known = {"bootstrap.servers": kafka.bootstrap, "message.max.bytes": 2 * len(large)}
    producer = Producer({**known, "transactional.id": "native", "linger.ms": 0})
    producer.init_transactions(120)

    def send(*records: tuple[bytes | None, bytes | None, Any], ends: str = "commit") -> int:
        producer.begin_transaction()
        for number, (key, value, headers) in enumerate(records):
            at = 1_700_000_000_000 + number
            producer.produce(topic, value, key, 0, headers=headers, timestamp=at)
        assert producer.flush(120) == 0
        producer.commit_transaction(120) if ends == "commit" else producer.abort_transaction(120)
        return len(records) if ends == "commit" else 0

    key, odd = b'{"k":1,"at":"2026-01-02T00:00:00Z"}', b'{"k":2,"at":"2026-1-2"}'
    sent = send((key, b'{"id":1,"name":"a"}', [("h", b"x"), ("h", b"\xff"), ("n", None)]), (key, None, None))
    sent += send(
        (None, b"", []), (None, None, None), (odd, b'{"id":2}', [("", b"")]), (b"", b'{"id":3,"at":"2026-1-2"}', None)
    )
    sent += send((key, b'{"id":99}', None), (None, b"nope", None), ends="abort")
    sent += send((odd, large, [("h", b"y")]), (b"no key", b"nope", None), (key, b'{"id":4,"n":"x"}', None))
    ways = [Ran(tmp_path / mode, spark, mode) for mode in ("false", "true", "audit")]
    for ran in ways:
        ran.write(f"TOPIC, BOOTSTRAP = {topic!r}, {kafka.bootstrap!r}\n" + HEADED, tmp_path)
        assert ran.run() is None
    client = admin(kafka.bootstrap)
    client.create_partitions([NewPartitions(topic, 2)])[topic].result(120)
    plain = Producer(known)
    while len(plain.list_topics(topic, 120).topics[topic].partitions) < 2:
        pass  # until all of the cluster knows
    for value in (b'{"id":8}', None):
        plain.produce(topic, value, key, 1)
        sent += 1
    assert plain.flush(120) == 0
    by_spark = ways[0]
    for ran in ways:
        assert ran.run() is None
    assert sum(by_spark.rows("whole").values()) == sent
    for natively in ways[1:]:
        assert set(natively.how().values()) == {"native"}
        assert natively.records("messages").total() == sent
        assert natively.records("messages")["native"] >= 7
        assert natively.counts() == by_spark.counts()
        assert natively.quality() == by_spark.quality()
        for table in ("whole", "chosen"):
            assert natively.rows(table) == by_spark.rows(table), table

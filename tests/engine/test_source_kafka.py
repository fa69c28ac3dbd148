"""Kafka as a source, with real Spark and a real broker: nothing is skipped, and what is lost is told."""

from __future__ import annotations

import io
import json
import sys
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest

from anabranch.core.events_data import SourceMaySkip
from anabranch.errors import AnabranchError

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

pytestmark = pytest.mark.spark

#: New partitions are seen soon.
CURRENT = {"kafka.metadata.max.age.ms": "300"}

#: Spark waits a minute for brokers by default; where none will answer, that is too long.
IMPATIENT = {
    "kafka.default.api.timeout.ms": "4000",
    "kafka.request.timeout.ms": "3000",
    "kafka.socket.connection.setup.timeout.ms": "1000",
    "kafka.metadata.max.age.ms": "300",
    "kafkaConsumer.pollTimeoutMs": "3000",
}

#: A failed channel is not started again.
ONCE: dict[str, Any] = {"configuration": {"spark.sql.pipelines.maxFlowRetryAttempts": "0"}}


def name() -> str:
    return f"in-{uuid.uuid4().hex[:8]}"


def send(bootstrap: str, topic: str, rows: list[bytes], partition: int = 0) -> None:
    from confluent_kafka import Producer

    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "on_delivery": lambda e, _: e and failed.append(e)})
    for number, row in enumerate(rows):
        producer.produce(topic, row, f"k{number}", partition, headers=[("from", b"test")], timestamp=1_700_000_000_000)
    assert producer.flush(60) == 0
    assert not failed, failed


def as_json(first: int, count: int) -> list[bytes]:
    return [json.dumps({"id": i, "name": f"n{i}"}).encode() for i in range(first, first + count)]


def project(topic: str, bootstrap: str, out: str) -> str:
    return f"""
    from anabranch import sources

    dp.create_sink("out", "kafka", {{
        "topic": {out!r}, "kafka.bootstrap.servers": {bootstrap!r}, "create": "2", "key": "id",
    }})

    @dp.temporary_view
    def rows():
        return sources.kafka(
            {topic!r}, {bootstrap!r}, max_per_trigger=40, value="json", schema="id INT, name STRING",
            options={CURRENT!r},
        )

    @dp.table
    def parsed():
        return spark.readStream.table("rows").select("value.id", "value.name")

    @dp.table
    def places():
        return spark.readStream.table("rows").select(
            F.col("value.id").alias("id"), F.col("key").cast("string").alias("key"), "topic", "partition", "offset",
            "timestamp", F.col("headers")[0]["key"].alias("header"), F.col("headers")[0]["value"].alias("from"),
        )

    @dp.append_flow(target="out")
    def to_out():
        return spark.readStream.table("rows").select("value.id", "value.name")
    """


def test_every_row_once_through_two_tables_and_a_topic(made: Any, kafka: Any) -> None:
    """Two runs, with a partition added in between; then rows expire that were not read."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import NewPartitions
    from kafka_reader import admin, create_topic, messages

    topic, out = create_topic(kafka.bootstrap, name(), 2), name()
    made.write(project(topic, kafka.bootstrap, out), **ONCE)
    send(kafka.bootstrap, topic, as_json(0, 50), 0)
    send(kafka.bootstrap, topic, as_json(50, 10), 1)
    assert made.run().epochs == 2  # the rate limit
    client = admin(kafka.bootstrap)
    client.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    send(kafka.bootstrap, topic, as_json(60, 5), 2)
    made.run()
    assert made.run().epochs == 0
    assert sorted(row["id"] for row in made.rows("parsed")) == list(range(65))
    sent = [json.loads(message.value()) for message in messages(kafka.bootstrap, out)]
    assert sorted(row["id"] for row in sent) == list(range(65))
    assert {row["name"] for row in sent} == {f"n{i}" for i in range(65)}
    place = next(row for row in made.rows("places") if row["id"] == 62)
    assert (place["key"], place["topic"], place["partition"], place["offset"]) == ("k2", topic, 2, 2)
    assert (place["header"], place["from"], place["timestamp"].timestamp()) == ("from", b"test", 1_700_000_000)

    send(kafka.bootstrap, topic, as_json(65, 6), 0)
    client.delete_records([TopicPartition(topic, 0, 53)])[TopicPartition(topic, 0)].result(60)
    with pytest.raises(AnabranchError) as lost:
        made.run()
    assert lost.value.code == "SOURCE_DATA_LOST"
    assert "anabranch reset" in (lost.value.hint or "")
    assert len(made.rows("parsed")) == 65


def test_brokers_that_do_not_answer_and_a_source_that_may_skip(made: Any) -> None:
    made.write(
        f"""
        from anabranch import sources

        @dp.table
        def rows():
            return sources.kafka("t", "127.0.0.1:9", options={IMPATIENT | {"failOnDataLoss": "false"}!r})
        """,
        **ONCE,
    )
    with pytest.raises(AnabranchError) as silent:
        made.run()
    assert (silent.value.code, silent.value.retryable) == ("SOURCE_UNREACHABLE", True)
    assert ["failOnDataLoss=false" in e.message for e in made.events if isinstance(e, SourceMaySkip)] == [True]


def test_avro_and_protobuf_over_tls_and_a_topic_that_is_deleted(made: Any, kafka: Any) -> None:
    from kafka_broker import PASSWORD, USER
    from kafka_reader import admin, create_topic
    from wire_samples import AVRO, ORDER, message_class, write_descriptors

    avro, protobuf = create_topic(kafka.bootstrap, name()), create_topic(kafka.bootstrap, name())
    record = {"id": 7, "name": None, "tags": ["a"], "inner": {"x": 1.5}}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(AVRO)), record)
    send(kafka.bootstrap, avro, [out.getvalue()])
    order = message_class()(id=7, tags=["a"], kind=1)
    order.inner.x = 1.5
    send(kafka.bootstrap, protobuf, [order.SerializeToString()])
    descriptors = write_descriptors(made.root / "orders.desc")
    (made.root / "orders.avsc").write_text(AVRO)
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="${{file:{made.root / "password"}}}";'
    )
    (made.root / "password").write_text(PASSWORD)
    secure = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.certificate),
    }

    def write(options: dict[str, str]) -> None:
        made.write(
            f"""
            from anabranch import sources

            @dp.table
            def from_avro():
                return sources.kafka(
                    {avro!r}, {kafka.secure!r}, value="avro", schema={str(made.root / "orders.avsc")!r},
                    options={secure!r},
                ).select("value.*")

            @dp.table
            def from_protobuf():
                return sources.kafka(
                    {protobuf!r}, {kafka.bootstrap!r}, value="protobuf", schema={str(descriptors)!r}, message={ORDER!r},
                    options={options!r},
                ).select("value.*")
            """,
            **ONCE,
        )

    write(CURRENT)
    made.run()
    assert made.rows("from_avro") == [record]
    (row,) = made.rows("from_protobuf")
    assert (row["id"], row["name"], row["tags"], row["kind"], row["inner"]) == (7, None, ["a"], "LARGE", {"x": 1.5})

    client = admin(kafka.bootstrap)
    client.delete_topics([protobuf])[protobuf].result(60)
    write(IMPATIENT)
    with pytest.raises(AnabranchError) as gone:
        made.run()
    assert gone.value.code in ("SOURCE_DATA_LOST", "SOURCE_TOPIC_MISSING"), gone.value
    assert gone.value.hint
    assert len(made.rows("from_protobuf")) == 1

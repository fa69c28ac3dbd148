"""What is in a topic, for tests: as readers see it that read what is committed, or everything."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

_SECONDS = 120.0


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(bootstrap: str, topic: str, partitions: int = 1, **settings: str) -> str:
    """A new topic; its name."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=named)
    client = admin(bootstrap)
    client.create_topics([new])[topic].result(_SECONDS)
    return topic


def set_topic(bootstrap: str, topic: str, settings: Mapping[str, str]) -> None:
    """Change settings of a topic; the broker goes by them from then on."""
    client = admin(bootstrap)
    _set(client, topic, settings)
    # It shows a setting a moment before it goes by it, and goes by it before it shows a later one.
    _set(client, topic, {"delete.retention.ms": str(random.randrange(10**8, 10**9))})


def _set(client: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    """Change settings, and wait until the broker shows them."""
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    client.incremental_alter_configs([resource])[resource].result(_SECONDS)
    asked, limit = ConfigResource(ResourceType.TOPIC, topic), time.monotonic() + _SECONDS
    while True:
        shown = client.describe_configs([asked])[asked].result(_SECONDS)
        if all(shown[name].value == value for name, value in settings.items()):
            return
        assert time.monotonic() < limit, f"{topic} does not take {settings}"
        time.sleep(0.01)


def messages(bootstrap: str, topic: str, *, committed: bool = True) -> list[Any]:
    """Every message of a topic, partition by partition; waits until nothing is held back by an open transaction."""
    client = admin(bootstrap)
    partitions = sorted(client.list_topics(topic, timeout=_SECONDS).topics[topic].partitions)
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    found: list[Any] = []
    for number in partitions:
        end = _end(client, topic, number, IsolationLevel.READ_UNCOMMITTED)
        limit = time.monotonic() + _SECONDS
        while _end(client, topic, number, level) < end:
            assert time.monotonic() < limit, f"a transaction in {topic} stays open"
            time.sleep(0.05)
        found += _read(bootstrap, topic, number, end, committed)
    return found


def _end(client: AdminClient, topic: str, partition: int, level: IsolationLevel) -> int:
    asked = client.list_offsets({TopicPartition(topic, partition): OffsetSpec.latest()}, isolation_level=level)
    return int(next(iter(asked.values())).result(_SECONDS).offset)


def _read(bootstrap: str, topic: str, partition: int, end: int, committed: bool) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    found: list[Any] = []
    try:
        consumer.list_topics(topic, timeout=_SECONDS)  # else assigning takes half a second to find it
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        limit = time.monotonic() + _SECONDS
        while end and time.monotonic() < limit:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
                if message.offset() >= end:
                    return found
                continue
            assert message.error() is None, message.error()
            found.append(message)
        assert not end, f"{topic} could not be read to its end"
        return found
    finally:
        consumer.close()

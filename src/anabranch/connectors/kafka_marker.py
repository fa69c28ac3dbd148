"""The marker that tells which epoch a topic has: a record in a compacted topic, in the transaction of the rows.

Its key is the transactional id, its value names the epoch. Whoever reads it committed knows that the rows are there.

A transaction of another pipeline that died in the act keeps committed readers from seeing what came after it, in this
topic too, until it times out. So the records above the last stable offset are looked at as well: as long as none has
our key, nothing of ours is hidden.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from anabranch.connectors.kafka_cluster import ANSWER_SECONDS, Cluster
from anabranch.connectors.kafka_errors import confluent, is_passing
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import CommitUnknown, ProjectError, SinkError

#: Small segments, so that epochs long past are soon compacted away and looking up stays cheap.
_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
}

_LOOK_SECONDS = 0.05


class Markers:
    """The marker topic of a cluster."""

    def __init__(self, cluster: Cluster, topic: str, sink: str) -> None:
        self.topic = topic
        self._cluster = cluster
        self._sink = sink

    def prepare(self) -> None:
        """Create the topic if it is missing; refuse one that does not keep the newest marker of each id for good."""
        if not self._cluster.partitions(self.topic):
            try:
                self._cluster.create(self.topic, 1, _SETTINGS)
            except SinkError as error:
                error.hint = (
                    f'let somebody who may create the topic "{self.topic}" with one partition and '
                    'cleanup.policy=compact; another name can be given with the option "marker.topic"'
                )
                raise
        policy = self._cluster.topic_setting(self.topic, "cleanup.policy")
        if policy and policy != "compact":
            raise ProjectError(
                "OPTION_INVALID",
                f'"{self._sink}" (kafka): the marker topic "{self.topic}" has cleanup.policy={policy}: brokers would '
                "forget which epochs were sent",
                hint='set its cleanup.policy to compact, or name another topic with the option "marker.topic"',
            )

    def value(self, key: EpochKey, receipt: Receipt, topic: str) -> bytes:
        """What the marker of an epoch says."""
        about = {
            "pipeline": key.pipeline,
            "channel": key.channel,
            "generation": key.generation,
            "epoch": key.epoch,
            "sink": self._sink,
            "topic": topic,
            "rows": receipt.rows,
        }
        return json.dumps(about).encode()

    def epochs(self, transactional_id: str, wait: float) -> int | None:
        """The newest committed epoch of one transactional id.

        Waits up to so many seconds while a record of ours is in a transaction that is not through; what cannot be told
        by then is an error.
        """
        return self.all_epochs(lambda key: key == transactional_id, wait).get(transactional_id)

    def all_epochs(self, wanted: Any, wait: float) -> dict[str, int]:
        """The newest committed epoch of every wanted transactional id."""
        started = time.monotonic()
        while True:
            try:
                stable, end = self._offsets("read_committed"), self._offsets("read_uncommitted")
                hidden = any(wanted(key) for key, _ in self._records("read_uncommitted", stable, end))
                if not hidden:
                    return {key: epoch for key, epoch in self._records("read_committed", 0, stable) if wanted(key)}
            except confluent().KafkaException as problem:
                if not is_passing(problem) or time.monotonic() >= started + ANSWER_SECONDS:
                    raise self._cluster.trouble(problem, f'read the markers in "{self.topic}"') from problem
                time.sleep(_LOOK_SECONDS)
                continue
            if time.monotonic() >= started + wait:
                raise CommitUnknown(
                    "COMMIT_UNKNOWN",
                    f'whether "{self._sink}" has its last epoch cannot be told yet: a transaction in "{self.topic}" '
                    "is still open",
                    hint="run again: brokers end it when its time is over, 15 minutes at most by default",
                    retryable=True,
                )
            time.sleep(_LOOK_SECONDS)

    def _offsets(self, isolation: str) -> int:
        """The end of the topic, for readers of what is committed or for all."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # it says so in its docs

        level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        newest = {TopicPartition(self.topic, 0): OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        asked = self._cluster.admin().list_offsets(newest, isolation_level=level, request_timeout=ANSWER_SECONDS)
        return int(self._cluster.answer(next(iter(asked.values()))).offset)

    def _records(self, isolation: str, first: int, end: int) -> Iterator[tuple[str, int]]:
        """Keys and epochs of the records from one offset up to another."""
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        if first >= end:
            return
        consumer = self._cluster.consumer(isolation)
        try:
            consumer.list_topics(self.topic, timeout=ANSWER_SECONDS)  # else assigning takes half a second to find it
            consumer.assign([TopicPartition(self.topic, 0, first or OFFSET_BEGINNING)])
            ends = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < ends:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                problem = message.error()
                if problem is not None and problem.code() != confluent().KafkaError._PARTITION_EOF:  # noqa: SLF001
                    raise confluent().KafkaException(problem)
                if (message.offset() or 0) >= end:
                    return
                key, value = message.key(), message.value()
                if problem is None and key and value:
                    ends = time.monotonic() + ANSWER_SECONDS
                    yield key.decode(), int(json.loads(value)["epoch"])
            raise confluent().KafkaException(confluent().KafkaError(confluent().KafkaError._TIMED_OUT))  # noqa: SLF001
        finally:
            consumer.close()

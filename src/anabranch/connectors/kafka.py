"""Kafka topics as sinks: the rows of an epoch in one transaction, with a marker that tells that they are there.

Rows are staged below the storage. Once the epoch is decided they are sent, always the same rows in the same order, with
a marker (see `kafka_marker`) in the same transaction. Readers that read what is committed see all rows of an epoch or
none, and each of them once. Killed anywhere, whoever comes next ends the transaction that was open, looks for the
marker, and sends the rows again if it is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.delta_schema import delta_arrow_schema
from anabranch.connectors.kafka_cluster import Cluster
from anabranch.connectors.kafka_errors import topic_missing
from anabranch.connectors.kafka_marker import Markers
from anabranch.connectors.kafka_options import client_settings
from anabranch.connectors.kafka_rows import Layout
from anabranch.connectors.kafka_send import Sender
from anabranch.connectors.spooled_sink import SpooledSink
from anabranch.connectors.wire_values import Values, open_values
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.formats import KAFKA
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.connectors.kafka_rows import Message

MARKER_TOPIC = "anabranch-epochs"

#: What a topic stands at that has not been given a row yet.
NOTHING = "none"

#: How long a look at the markers waits for a transaction that is being committed.
_SETTLE_SECONDS = 15.0


def open_kafka(spec: SinkSpec) -> KafkaSink:
    """The sink of a topic; nothing is asked yet."""
    return KafkaSink(spec)


class KafkaSink(SpooledSink):
    """One topic."""

    format = "kafka"
    capabilities = KAFKA.capabilities

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._senders: dict[str, Sender] = {}

    def examine(self, schema: pa.Schema) -> str:
        """What `prepare` would find or do, in words."""
        self._accept(schema)
        if self._cluster.partitions(self._topic):
            return "the topic is there"
        return f"the topic will be created with {self._new_partitions()} partitions"

    def prepare(self, schema: pa.Schema) -> None:
        """See that topic and marker topic are there and that rows of this schema can be encoded."""
        self._accept(schema)
        self.spool.prepare(schema)
        if not self._cluster.partitions(self._topic):
            self._cluster.create(self._topic, self._new_partitions())
        self._markers.prepare()

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Send the rows and the marker in one transaction, unless the marker is there. Without rows nothing is sent."""
        if not receipt.files:
            return Applied(self.version())
        self.must_be_declared(key)
        sender = self._sender(key)
        try:
            newest = sender.open()
            already = newest is not None and newest >= key.epoch
            if not already:
                marker = self._markers.value(key, receipt, self._topic)
                sender.send(key.epoch, lambda: self._messages(key, receipt), marker)
                crash.point("committed", self.name)
        except BaseException:
            sender.close()  # whatever it was, the next call looks into the topic before it sends
            raise
        self.discard(f.path for f in receipt.files)
        return Applied(_version(key), already=already)

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the topic has this epoch, by its marker. Epochs are finished in their order."""
        newest = self.latest(key)
        return Applied(_version(key), already=True) if newest is not None and newest >= key.epoch else None

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch in the topic."""
        self.must_be_declared(key)
        return self._markers.epochs(key.transaction_id(self.name), _SETTLE_SECONDS)

    def version(self) -> str:
        """Channel, generation and epoch of the newest rows that this pipeline put into the topic."""
        begins, ends = f"anabranch/{self.spec.pipeline}/", f"/{self.name}"
        found = self._markers.all_epochs(lambda key: key.startswith(begins) and key.endswith(ends), _SETTLE_SECONDS)
        stands = [(*key[len(begins) : -len(ends)].rpartition("/")[::2], epoch) for key, epoch in found.items()]
        newest = max(stands, key=lambda each: (int(each[1]), each[2]), default=None)
        return NOTHING if newest is None else "/".join(map(str, newest))

    def has(self, version: str) -> bool:
        """Whether the topic is there, and the marker of the epoch it once stood at, or of a later one."""
        if not self._cluster.partitions(self._topic):
            return False
        if version == NOTHING:
            return True
        channel, generation, epoch = version.rsplit("/", 2)
        newest = self.latest(EpochKey(self.spec.pipeline or "", channel, int(generation), int(epoch)))
        return newest is not None and newest >= int(epoch)

    @property
    def _topic(self) -> str:
        return self.spec.option("topic")

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(client_settings(self.spec.options, self.name), self.name)

    @cached_property
    def _markers(self) -> Markers:
        return Markers(self._cluster, self.spec.option("marker.topic", MARKER_TOPIC), self.name)

    @cached_property
    def _values(self) -> Values:
        return open_values(self.spec)

    def _sender(self, key: EpochKey) -> Sender:
        """The one that sends under this key's transactional id; kept, so that most epochs need not look up the last."""
        name = key.transaction_id(self.name)
        if name not in self._senders:
            self._senders[name] = Sender(self._cluster, self._markers, name, self._topic, self.name)
        return self._senders[name]

    def _accept(self, schema: pa.Schema) -> None:
        rows = delta_arrow_schema(schema)
        layout = Layout.of(rows, self.spec.options, self.name)
        self._values.check(rows, layout.values)

    def _messages(self, key: EpochKey, receipt: Receipt) -> Iterator[Message]:
        ordered = replace(receipt, files=tuple(sorted(receipt.files, key=_written_order)))
        layout: Layout | None = None
        for batch in self.spool.batches(ordered):
            layout = layout or Layout.of(batch.schema, self.spec.options, self.name)
            yield from layout.messages(batch, self._values, key)

    def _new_partitions(self) -> int:
        said = self.spec.option("create")
        if not said:
            raise topic_missing(self.name, self._topic)
        if not said.isdigit() or int(said) < 1:
            raise ProjectError(
                "OPTION_INVALID",
                f'"{self.name}" (kafka): "create" is {said!r}',
                hint='it says how many partitions a topic that is missing is created with: "create": "6"',
            )
        return int(said)


def _version(key: EpochKey) -> str:
    return f"{key.channel}/{key.generation}/{key.epoch}"


def _written_order(file: StagedFile) -> list[int | str]:
    """Files in the order in which tasks wrote them: their numbers count as numbers, so that 10 comes after 9."""
    name = file.path.rpartition("-")[0]  # without the random part
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

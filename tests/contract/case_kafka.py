"""Kafka topics under the contract, with a real broker; a plain reader is one that reads what is committed."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract_case import FOREIGN, Case

from anabranch.connectors.contract import SinkSpec


class KafkaCase(Case):
    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        broker = request.getfixturevalue("kafka")
        topic = f"contract-{uuid.uuid4().hex[:8]}"
        options = {
            "topic": topic,
            "kafka.bootstrap.servers": broker.bootstrap,
            "create": "2",
            "key": "id",
            "marker.topic": f"{topic}-epochs",
        }
        return SinkSpec("out", f"kafka://{topic}", "p-1", str(folder), options=options)

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        from kafka_reader import messages

        found = messages(spec.options["kafka.bootstrap.servers"], spec.options["topic"])
        return [json.loads(message.value()) for message in found]

    def foreign(self, spec: SinkSpec) -> bool:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": spec.options["kafka.bootstrap.servers"]})
        producer.produce(spec.options["topic"], json.dumps(FOREIGN))
        return producer.flush(60) == 0

    @contextlib.contextmanager
    def refusing(self, spec: SinkSpec) -> Iterator[None]:
        """The topic takes only what ends a transaction for a while, and no rows."""
        from kafka_reader import set_topic

        server, topic = spec.options["kafka.bootstrap.servers"], spec.options["topic"]
        set_topic(server, topic, {"max.message.bytes": "80"})
        try:
            yield
        finally:
            set_topic(server, topic, {"max.message.bytes": "1000000"})


CASE = KafkaCase("kafka", __name__)

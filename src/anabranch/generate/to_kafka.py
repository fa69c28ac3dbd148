"""Rows into topics of Kafka: one message for each, with its key."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from anabranch.errors import AnabranchError, SetupError, SinkError
from anabranch.generate import dimensions
from anabranch.generate.entities import Entity
from anabranch.generate.rows import KEYS, Rows, document, lines
from anabranch.generate.run import Made, Piece, Wanted

_PATIENCE_SECONDS = 30.0


class TopicTarget:
    """Writes to `<prefix><entity>` with an idempotent producer. Scan events have their shipment's id as the key."""

    def __init__(self, bootstrap: str, prefix: str, entities: Sequence[Entity]) -> None:
        try:
            import confluent_kafka as kafka
            from confluent_kafka.admin import AdminClient
            from confluent_kafka.cimpl import NewTopic
        except ImportError as error:
            raise SetupError(
                "GEN_KAFKA_MISSING",
                "writing to Kafka needs the package confluent-kafka",
                hint="pip install 'anabranch[kafka]'",
            ) from error
        self._prefix, self._bootstrap = prefix, bootstrap
        self._failure: Any = None
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "logger": _SILENT}
        self._producer = kafka.Producer(
            {
                **settings,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "message.timeout.ms": int(_PATIENCE_SECONDS * 1_000),
                "queue.buffering.max.messages": 200_000,
            }
        )
        try:
            known = self._producer.list_topics(timeout=10).topics
            missing = [prefix + e.name for e in entities if prefix + e.name not in known]
            if missing:
                # -1: as many partitions and copies as the broker makes by default
                admin = AdminClient(settings)
                for made in admin.create_topics([NewTopic(t, -1, -1) for t in missing]).values():
                    made.result(timeout=_PATIENCE_SECONDS)
        except kafka.KafkaException as error:
            raise self._refused(error.args[0]) from error

    def write(self, piece: Piece, wanted: Wanted) -> Made:
        topic = self._prefix + piece.entity.name
        made = Made(rows=piece.after - piece.first)
        for keys, values, faults in _messages(piece, wanted):
            for key, value in zip(keys, values, strict=True):
                self._send(topic, key, value)
                made.bytes += len(value)
            made.written += len(values)
            made.faults.update(faults)
        return made

    def end_slice(self) -> None:
        """Wait until the broker has everything."""
        if self._producer.flush(_PATIENCE_SECONDS) and self._failure is None:
            self._failure = "messages were not taken in time"
        if self._failure is not None:
            raise self._refused(self._failure)

    def _send(self, topic: str, key: str, value: str) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(1.0)  # returns as soon as the broker has taken some
            else:
                return
            if self._failure is not None:
                raise self._refused(self._failure)

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _refused(self, error: Any) -> AnabranchError:
        return SinkError(
            "GEN_KAFKA_FAILED",
            f"Kafka at {self._bootstrap}: {error.str() if hasattr(error, 'str') else error}",
            hint="check the address after --kafka, and that the broker runs and lets you make topics and write to them",
            retryable=True,
        )


class _Silent:
    """The library's own log would go to stderr; what matters comes back as errors."""

    def log(self, *_: Any, **__: Any) -> None:
        return


_SILENT = _Silent()


def _messages(piece: Piece, wanted: Wanted) -> Iterator[tuple[list[str], list[str], Counter[str]]]:
    """Keys and values, some thousand at a time. A document becomes one document for each of its rows."""
    entity, seed = piece.entity, wanted.seed
    if entity.form == "lines":
        for rows in lines(entity, seed, piece.first, piece.after, wanted.faults):
            yield _keys(entity, rows), [v[:-1] for v in rows.texts.to_pylist()], rows.faults
    elif entity.form == "documents":
        made = document(entity, seed, piece.first, piece.after, wanted.faults)
        end = "" if made.broken else made.tail.strip()
        values = [f"{made.head.rstrip()}{row}{end}" for row in made.rows.texts.to_pylist()]
        faults = Counter(made.rows.faults)
        if made.broken:
            faults["malformed"] = len(values)
        yield _keys(entity, made.rows), values, faults
    else:
        records = dimensions.table(entity.name, seed).to_pylist()
        yield [r[entity.key] for r in records], [json.dumps(r, default=_moment) for r in records], Counter()


def _keys(entity: Entity, rows: Rows) -> list[str]:
    prefix, width = KEYS[entity.name]
    return [f"{prefix}{n:0{width}d}" for n in rows.keys.tolist()]


def _moment(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")

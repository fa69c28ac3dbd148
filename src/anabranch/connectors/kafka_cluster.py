"""One Kafka cluster as a sink reaches it: its clients, and whether topics are there."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from anabranch.connectors.kafka_errors import confluent, is_login, listen, told
from anabranch.errors import AnabranchError, ProjectError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

#: How long the brokers may take to answer.
ANSWER_SECONDS = 30.0

_LOOK_SECONDS = 0.05

#: The client's own lines, which it would print; whoever wants them adds a handler.
_LOG = logging.getLogger("anabranch.kafka")
_LOG.addHandler(logging.NullHandler())

#: What every client has unless options say otherwise: a broker that is back is found again within a second.
_CLIENT = {"log_level": "4", "reconnect.backoff.max.ms": "1000"}

#: What a producer has unless options say otherwise.
_PRODUCER = {
    # As Java's clients do it, so that the rows of a key are where a join with a topic of theirs looks for them.
    "partitioner": "murmur2_random",
    "linger.ms": "20",
    # Sent ahead of the broker's answers: the more, the larger the batches.
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
    # A transaction ends with it; the largest that brokers allow unless they are told otherwise.
    "transaction.timeout.ms": "900000",
}


class Cluster:
    """Opens clients; remembers what they complained about, since a refused password shows up as a time-out."""

    def __init__(self, settings: Mapping[str, str], sink: str) -> None:
        self._settings = dict(settings)
        self._sink = sink
        self._login: Any = None
        self._admin: AdminClient | None = None

    @property
    def transaction_seconds(self) -> float:
        """How long a transaction may stay open."""
        name = "transaction.timeout.ms"
        return float(self._settings.get(name) or _PRODUCER[name]) / 1000

    def admin(self) -> AdminClient:
        """The client that looks at topics and makes them."""
        confluent()
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = self._opened(AdminClient, {})
        return self._admin

    def producer(self, transactional_id: str) -> Producer:
        """A new producer; from its `init_transactions` on no other of that name can go on."""
        milliseconds = int(self.transaction_seconds * 1000)
        usual = {
            **_PRODUCER,
            "message.timeout.ms": str(milliseconds),
            "socket.timeout.ms": str(min(60_000, milliseconds)),  # longer than a transaction is refused
        }
        fixed = {"transactional.id": transactional_id, "delivery.report.only.error": True}
        producer: Producer = self._opened(confluent().Producer, {**usual, **self._settings, **fixed})
        return producer

    def consumer(self, isolation: str) -> Consumer:
        """A new consumer that belongs to no group and commits nothing."""
        fixed = {
            "group.id": "anabranch",  # has to be said; it is never joined
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "fetch.wait.max.ms": "10",  # the end of a topic is told after a fetch that waits for more
        }
        consumer: Consumer = self._opened(confluent().Consumer, fixed)
        return consumer

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 if there is no such topic."""
        try:
            found = self.admin().list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
        except confluent().KafkaException as problem:
            raise self.trouble(problem, f'look for topic "{topic}"') from problem
        if found.error is not None and found.error.code() != confluent().KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise self.trouble(confluent().KafkaException(found.error), f'look for topic "{topic}"')
        return len(found.partitions)

    def create(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic, with the replicas that the brokers have as their default; one that is there is no error."""
        confluent()
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # it says so in its docs

        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(settings or {}))
        try:
            self.answer(self.admin().create_topics([new])[topic])
        except confluent().KafkaException as problem:
            if problem.args[0].code() != confluent().KafkaError.TOPIC_ALREADY_EXISTS:
                raise self.trouble(problem, f'create topic "{topic}"') from problem
        self._wait_for_leaders(topic)

    def _wait_for_leaders(self, topic: str) -> None:
        """A new topic can be used a moment after its creation was answered."""
        ends = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < ends:
            found = self.admin().list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions
            if found and all(partition.leader >= 0 for partition in found.values()):
                return
            time.sleep(_LOOK_SECONDS)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """A setting of a topic; None if we may not ask."""
        from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]

        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            found = self.answer(self.admin().describe_configs([resource])[resource])
        except confluent().KafkaException as problem:
            if problem.args[0].code() == confluent().KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return None
            raise self.trouble(problem, f'ask for the settings of topic "{topic}"') from problem
        return str(found[name].value)

    def answer(self, future: Future[Any]) -> Any:
        """What the brokers answered."""
        try:
            return future.result(ANSWER_SECONDS)
        except TimeoutError as error:
            raise confluent().KafkaException(confluent().KafkaError(confluent().KafkaError._TIMED_OUT)) from error  # noqa: SLF001

    def trouble(self, problem: BaseException, what: str) -> AnabranchError:
        """The error to raise for one of the client's."""
        if self._admin is not None:
            listen(self._admin)  # complaints are handed over only now
        login, self._login = self._login, None
        return told(confluent().KafkaException(login) if login else problem, self._sink, what)

    def _opened(self, kind: Any, more: Mapping[str, Any]) -> Any:
        settings: dict[str, Any] = {**_suited(self._settings, kind.__name__), **more, "error_cb": self._hear}
        try:
            return kind({**_CLIENT, **settings}, logger=_LOG)
        except confluent().KafkaException as problem:
            raise ProjectError(
                "OPTION_INVALID",
                f'"{self._sink}" (kafka): {problem.args[0].str()}',
                hint="options that begin with kafka. are settings of librdkafka, or Java's where they differ",
            ) from problem

    def _hear(self, error: Any) -> None:
        if is_login(error):
            self._login = error


def _suited(settings: Mapping[str, str], client: str) -> dict[str, str]:
    """The settings without those of producers, for clients that would complain about them."""
    if client == "Producer":
        return dict(settings)
    producers = (*_PRODUCER, "acks", "compression.type", "compression.codec", "batch.size", "message.timeout.ms")
    return {name: value for name, value in settings.items() if name not in producers}

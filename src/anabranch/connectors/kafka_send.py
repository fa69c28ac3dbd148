"""Sending an epoch to Kafka: rows and marker in one transaction, by a producer that fences off all others of its name.

What can come out of it, and what then:

- committed: the marker is there, and so are the rows;
- to be aborted (the broker said so, or the time of the transaction ran out): nothing of it is ever seen, and the same
  rows are sent again;
- fenced: another process has taken the name, and this one must not go on;
- no answer to the commit: whoever comes next, this process or another, asks first. `init_transactions` ends what is
  open, one way or the other, and then the marker tells.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from anabranch.connectors.kafka_cluster import ANSWER_SECONDS, Cluster
from anabranch.connectors.kafka_errors import (
    behind,
    confluent,
    is_fatal,
    is_fenced,
    is_too_large,
    listen,
    topic_missing,
)
from anabranch.connectors.kafka_marker import Markers
from anabranch.errors import CommitUnknown, DataError, SinkError

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from anabranch.connectors.kafka_rows import Message

#: How long the end of a transaction is waited for, and a full queue that does not move.
_COMMIT_SECONDS = 120.0

#: How often rows are looked after: errors heard, room made.
_POLL_ROWS = 10_000

#: How often an epoch is sent, when transactions have to be aborted.
_TRIES = 3


class AbortedError(Exception):
    """The transaction came to nothing; it can be tried again."""


class Sender:
    """Sends epochs under one transactional id. Not for use by several threads at once."""

    def __init__(self, cluster: Cluster, markers: Markers, transactional_id: str, topic: str, sink: str) -> None:
        self._cluster, self._markers = cluster, markers
        self._id, self._topic, self._sink = transactional_id, topic, sink
        self._producer: Producer | None = None
        self._failed: tuple[Any, Any] | None = None  # the first message that was not taken: error, message
        self.epoch: int | None = None  # the newest that is known to be there, once there is a producer

    def open(self) -> int | None:
        """Become the only producer of this name; the newest epoch that the topic has."""
        if self._producer is None:
            producer = self._cluster.producer(self._id)
            try:
                producer.init_transactions(ANSWER_SECONDS)
            except confluent().KafkaException as problem:
                listen(producer)  # a refused password is told only here
                raise self._cluster.trouble(problem, "begin to write") from problem
            # From here on nothing of ours is open any more, so what the markers say is final.
            self.epoch = self._markers.epochs(self._id, self._cluster.transaction_seconds)
            self._producer = producer
        return self.epoch

    def send(self, epoch: int, messages: Any, marker: bytes) -> None:
        """Send an epoch that the topic does not have. `messages()` gives its rows, the same at every call."""
        for left in reversed(range(_TRIES)):
            if (known := self.open()) is not None and known >= epoch:
                return
            try:
                self._transaction(messages(), marker)
            except AbortedError as error:
                if not left:
                    raise self._gave_up(error) from error
                continue
            self.epoch = epoch
            return

    def close(self) -> None:
        """Let go of the producer; the next call makes a new one, which asks what has become of the last epoch."""
        self._producer, self._failed = None, None

    def _transaction(self, messages: Iterable[Message], marker: bytes) -> None:
        producer, started = self._producer, time.monotonic()
        assert producer is not None
        self._failed = None
        try:
            producer.begin_transaction()
            self._produce(producer, messages)
            producer.produce(self._markers.topic, marker, self._id.encode(), 0, self._note)
            self._commit(producer)
        except BaseException as error:
            refused = self.close_after(producer)
            problem = behind(error)
            if problem is None:
                raise
            # A client that has given up says only that it has; why is told by the next thing it is asked.
            why = refused if refused is not None and is_fatal(problem) else problem
            raise self._judged(why, time.monotonic() - started) from error

    def _produce(self, producer: Producer, messages: Iterable[Message]) -> None:
        send, topic, note = producer.produce, self._topic, self._note
        for number, (value, key, headers, partition, moment) in enumerate(messages):
            try:
                if headers is None:
                    send(topic, value, key, partition, note, None, moment)
                else:
                    send(topic, value, key, partition, note, None, moment, headers)
            except BufferError:
                self._wait_for_room(producer, (topic, value, key, partition, note, None, moment, headers or []))
            except confluent().KafkaException as problem:
                if is_too_large(problem):
                    raise self._too_large(key, value) from problem
                raise
            if not number % _POLL_ROWS:
                producer.poll(0)
                if self._failed:
                    raise confluent().KafkaException(self._failed[0])

    def _wait_for_room(self, producer: Producer, message: tuple[Any, ...]) -> None:
        """Send a message once there is room in the queue; rows after it wait too, so the order stays."""
        ends = time.monotonic() + _COMMIT_SECONDS
        while True:
            producer.poll(0.05)
            if self._failed:
                raise confluent().KafkaException(self._failed[0])
            try:
                producer.produce(*message)
                return
            except BufferError:
                if time.monotonic() >= ends:
                    raise _timed_out() from None

    def _commit(self, producer: Producer) -> None:
        """Commit; asked again as long as the client says that this is safe."""
        ends = time.monotonic() + _COMMIT_SECONDS
        while True:
            try:
                producer.commit_transaction(max(1.0, ends - time.monotonic()))
                return
            except confluent().KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() >= ends:
                    if problem.args[0].retriable():
                        raise self._unknown(problem) from problem
                    raise

    def close_after(self, producer: Producer) -> BaseException | None:
        """Give a producer up after an error: aborted if that can be done at once, else ended by the next one.

        Returns what kept it from being aborted.
        """
        self.close()
        try:
            producer.abort_transaction(5.0)
        except Exception as error:
            problem = behind(error)
            if problem is None:
                raise
            producer.purge()  # its transaction is ended by the next `init_transactions`
            return problem
        return None

    def _judged(self, problem: Any, seconds: float) -> Exception:
        """What an error in a transaction means: to be tried again, or not."""
        error = problem.args[0]
        if self._failed is not None:
            inner = confluent().KafkaException(self._failed[0])
            message = self._failed[1]
            if is_too_large(inner):
                return self._too_large(message.key(), message.value())
            if self._failed[0].code() in _missing():
                return topic_missing(self._sink, self._topic)
        if error.code() in _missing():
            return topic_missing(self._sink, self._topic)
        if is_fenced(problem) and seconds < self._cluster.transaction_seconds:
            return SinkError(
                "KAFKA_FENCED",
                f'"{self._sink}": another process has taken over the transactional id {self._id}; nothing of this '
                "epoch was sent by this one",
                hint="let only one process run this pipeline; if the other one is a copy, give it a name and a ledger "
                "of its own",
            )
        if error.txn_requires_abort() or is_fenced(problem):
            return AbortedError(f"{error.str()} after {seconds:.1f} s")
        return self._cluster.trouble(problem, "send its rows")

    def _note(self, error: Any, message: Any) -> None:
        """Called for messages that were not taken."""
        if self._failed is None and error is not None:
            self._failed = (error, message)

    def _too_large(self, key: bytes | None, value: bytes | None) -> DataError:
        shown = "without a key" if key is None else f"with key {key[:80]!r}"
        return DataError(
            "KAFKA_MESSAGE_TOO_LARGE",
            f'a row of "{self._sink}" {shown} is a message of {len(value or b"") + len(key or b""):,} bytes, more than '
            "is taken",
            hint='raise "kafka.message.max.bytes" and max.message.bytes of the topic, or make the row smaller',
        )

    def _unknown(self, problem: Any) -> CommitUnknown:
        return CommitUnknown(
            "COMMIT_UNKNOWN",
            f'a commit to topic "{self._topic}" was sent and not answered: {problem.args[0].str()}',
            hint="run again when the brokers answer: the epoch is looked up before anything is sent",
            retryable=True,
        )

    def _gave_up(self, error: Exception) -> SinkError:
        return SinkError(
            "KAFKA_ABORTED",
            f'"{self._sink}": the transaction was aborted {_TRIES} times, last: {error}',
            hint="if it took longer than kafka.transaction.timeout.ms, raise that (and the brokers' "
            "transaction.max.timeout.ms), or make epochs smaller with a rate limit on the source",
            retryable=True,
        )


def _timed_out() -> Exception:
    client = confluent()
    found: Exception = client.KafkaException(client.KafkaError(client.KafkaError._TIMED_OUT))  # noqa: SLF001
    return found


def _missing() -> tuple[Any, ...]:
    codes = confluent().KafkaError
    return (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC, codes._UNKNOWN_PARTITION)  # noqa: SLF001

"""What Spark says of a source that failed, as errors with a way out."""

from __future__ import annotations

import re

from anabranch.errors import AnabranchError, DataError, SinkError, StateError

#: Rows that the checkpoint counts on are gone: a topic was deleted or made anew, partitions or offsets are missing.
_LOST = re.compile(
    r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|partitions? .* (have|has) been (lost|deleted)|"
    r"Some (data|partitions) may have been lost|FAILED_TO_GET_(EARLIEST|LATEST)"
)
_TOPIC = re.compile(r"UnknownTopicOrPartition|This server does not host this topic|UNKNOWN_TOPIC|Topic\S* not present")
_LOGIN = re.compile(
    r"SaslAuthenticationException|SslAuthenticationException|Authentication failed|SSLHandshakeException|"
    r"PKIX path building failed|LoginException"
)
_RIGHTS = re.compile(r"(Topic|Group|Cluster)AuthorizationException|Not authorized to access")
_REACH = re.compile(
    r"org\.apache\.kafka\S*(Timeout|Disconnect|Network|BrokerNotAvailable)\w*Exception|"
    r"Timed out waiting for a node assignment|No resolvable bootstrap urls|Failed to construct kafka consumer|"
    r"Failed to create new KafkaAdminClient|Connection to node .* could not be established"
)
_SCHEMA_ID = re.compile(r"\[ANABRANCH_SCHEMA_ID\] ([^\n]*)")
_KAFKA = re.compile("kafka", re.IGNORECASE)


def source_error(error: BaseException, channel: str) -> AnabranchError | None:
    """What a failure of a Kafka source means; None for any other failure.

    >>> source_error(Exception("[KAFKA_DATA_LOSS.START_OFFSET_RESET] ..."), "main").code
    'SOURCE_DATA_LOST'
    >>> source_error(Exception("division by zero"), "main") is None
    True
    """
    text = str(error)
    if found := _SCHEMA_ID.search(text):
        return DataError(
            "SOURCE_SCHEMA_ID",
            f'channel "{channel}": {found[1].strip()}',
            hint="values of several schemas are not told apart: read the bytes (value=None) and parse them in the "
            "flow, or leave older values behind with starting=",
        )
    if not _KAFKA.search(text):
        return None
    says = _said(text)
    if _TOPIC.search(text) and not _LOST.search(text):
        return SinkError(
            "SOURCE_TOPIC_MISSING",
            f'channel "{channel}" reads a topic that does not exist: {says}',
            hint="create the topic, or correct its name; nothing was read",
        )
    if _LOST.search(text):
        return StateError(
            "SOURCE_DATA_LOST",
            f'rows that channel "{channel}" has not read yet are gone from Kafka: {says}',
            hint="put the topic back if it can be had; else go on from what is there, without the rows that are gone: "
            f"anabranch reset {channel}. A longer retention of the topic keeps it from happening again",
        )
    if _LOGIN.search(text):
        return SinkError(
            "SOURCE_AUTHENTICATION",
            f'channel "{channel}": the brokers do not let us in: {says}',
            hint="check the options kafka.security.protocol, kafka.sasl.* and kafka.ssl.* of the source",
        )
    if _RIGHTS.search(text):
        return SinkError(
            "SOURCE_AUTHENTICATION",
            f'channel "{channel}" may not read: {says}',
            hint="grant READ and DESCRIBE on the topic, and READ on groups that begin with spark-kafka-source",
        )
    if _REACH.search(text):
        return SinkError(
            "SOURCE_UNREACHABLE",
            f'channel "{channel}" cannot reach the brokers it reads from: {says}',
            hint="check kafka.bootstrap.servers, that the brokers run and the topic is there; it goes on from there",
            retryable=True,
        )
    return None


def _said(text: str) -> str:
    """The line of an error that says most: the last cause of the trace that is Kafka's, else the first line."""
    causes = re.findall(r"(?:Caused by: )?\S*(?:kafka|Kafka)\S*(?:Exception|Error): ([^\n]+)", text)
    condition = re.search(r"\[KAFKA[^\n]*", text)
    return (condition[0] if condition else causes[-1] if causes else text.strip().splitlines()[0])[:400]

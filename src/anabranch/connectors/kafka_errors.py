"""What librdkafka says, as errors with a way out. No setting, and so no password, is ever part of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.secrets import hide
from anabranch.errors import AnabranchError, ProjectError, SetupError, SinkError

if TYPE_CHECKING:
    from types import ModuleType


def confluent() -> ModuleType:
    """The Kafka client, which is an extra."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise extra_missing("kafka", "Kafka", error) from error
    return confluent_kafka


def extra_missing(extra: str, what: str, error: ImportError) -> SetupError:
    """Something of an extra is not installed."""
    return SetupError(
        "EXTRA_MISSING",
        f"{what} needs a package that is not installed: {error.name}",
        hint=f"pip install 'anabranch[{extra}]'",
    )


def behind(error: BaseException | None) -> BaseException | None:
    """The client's own exception, if that is what it is.

    A client that gives up raises between two of the functions it calls back, and the second of them makes a
    `SystemError` of it.
    """
    while isinstance(error, SystemError):
        error = error.__cause__
    return error if isinstance(error, confluent().KafkaException) else None


def listen(client: Any) -> None:
    """Let a client that has failed already say what else it has to say, to the functions it calls back."""
    try:
        client.poll(0)
    except Exception as error:
        if behind(error) is None:
            raise


def error_of(problem: BaseException) -> Any:
    """The client's own error inside an exception of its."""
    return problem.args[0] if problem.args else None


def is_fenced(problem: BaseException) -> bool:
    """Whether the broker has taken the transaction from this producer: another has its name, or time ran out."""
    codes = confluent().KafkaError
    return _code(problem) in (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH)  # noqa: SLF001


def is_fatal(problem: BaseException) -> bool:
    """Whether the client only says that it has given up before, not why."""
    return bool(_code(problem) == confluent().KafkaError._FATAL)  # noqa: SLF001


def is_too_large(problem: BaseException) -> bool:
    """Whether a message is larger than the client or the topic takes."""
    return bool(_code(problem) == confluent().KafkaError.MSG_SIZE_TOO_LARGE)


def is_passing(problem: BaseException) -> bool:
    """Whether a topic has no leader for the moment, as after a restart of its broker."""
    codes = confluent().KafkaError
    return _code(problem) in (codes._NOENT, codes.LEADER_NOT_AVAILABLE, codes.NOT_LEADER_FOR_PARTITION)  # noqa: SLF001


def is_login(error: Any) -> bool:
    """Whether an error of the client's is about who we are; it comes beside the time-out that it leads to."""
    codes = confluent().KafkaError
    return bool(error.code() in (codes._AUTHENTICATION, codes.SASL_AUTHENTICATION_FAILED, codes._SSL))  # noqa: SLF001


def told(problem: BaseException, sink: str, what: str) -> AnabranchError:
    """An error of ours for one of the client's: `what` was tried when it came."""
    codes = confluent().KafkaError
    code = _code(problem)
    says = hide(_text(problem))
    if hasattr(error_of(problem), "code") and is_login(error_of(problem)):
        return SinkError(
            "KAFKA_AUTHENTICATION",
            f'"{sink}": the broker does not let us in: {says}',
            hint="check kafka.security.protocol, kafka.sasl.* and kafka.ssl.*; secrets are looked up at every start",
        )
    if code in (
        codes.TOPIC_AUTHORIZATION_FAILED,
        codes.CLUSTER_AUTHORIZATION_FAILED,
        codes.GROUP_AUTHORIZATION_FAILED,
        codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ):
        return SinkError(
            "KAFKA_NOT_PERMITTED",
            f'"{sink}" may not {what}: {says}',
            hint="grant WRITE and DESCRIBE on the topic and the marker topic, READ on the marker topic, and "
            "WRITE and DESCRIBE on transactional ids that begin with anabranch/",
        )
    if code == codes.INVALID_TRANSACTION_TIMEOUT:
        return ProjectError(
            "OPTION_INVALID",
            f'"{sink}" (kafka): the broker allows no transaction as long as "kafka.transaction.timeout.ms" says',
            hint="set it to what the broker has as transaction.max.timeout.ms, or less; or raise that one",
        )
    return SinkError(
        "KAFKA_UNREACHABLE",
        f'"{sink}" could not {what}: {says}',
        hint="check kafka.bootstrap.servers and that the brokers run; the staged rows are kept, run again",
        retryable=True,
    )


def topic_missing(sink: str, topic: str) -> SinkError:
    """There is no such topic."""
    return SinkError(
        "KAFKA_TOPIC_MISSING",
        f'topic "{topic}" of "{sink}" does not exist',
        hint='create it, or let it be created with as many partitions as the option "create" says: "create": "6"',
    )


def _code(problem: BaseException) -> object:
    inner = error_of(problem)
    return inner.code() if hasattr(inner, "code") else None


def _text(problem: BaseException) -> str:
    inner = error_of(problem)
    return str(inner.str()) if hasattr(inner, "str") else str(problem)

"""How far sources are ahead, asked of themselves: also while nothing runs. The ledger says how far they were read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from anabranch.connectors.delta_changes import FOLDER as CHANGES
from anabranch.connectors.delta_log import LOG, commit_path
from anabranch.connectors.kafka_cluster import Cluster
from anabranch.connectors.kafka_errors import confluent
from anabranch.connectors.kafka_options import client_settings

#: Seconds that a broker may take to answer a question.
_ANSWER = 10.0


def partition_offsets(text: str) -> dict[str, int]:
    """How far each partition of each topic was read, from the offsets of an epoch: a line for each source.

    >>> partition_offsets('{"a":{"0":7,"1":3}}' + chr(10) + '{"logOffset":2}' + chr(10) + "-")
    {'a 0': 7, 'a 1': 3}
    """
    found: dict[str, int] = {}
    for said in _lines(text):
        if all(isinstance(parts, Mapping) for parts in said.values()):
            found |= {f"{t} {p}": n for t, parts in said.items() for p, n in parts.items() if isinstance(n, int)}
    return found


def asked_lag(options: Mapping[str, str], read: Mapping[str, int], about: str) -> dict[str, int]:
    """What each partition of the topics that were read holds beyond that; one that is new, from its start."""
    cluster = Cluster(client_settings(options, about), about)
    consumer = cluster.consumer("read_committed")
    client = confluent()
    try:
        behind: dict[str, int] = {}
        for topic in dict.fromkeys(part.rpartition(" ")[0] for part in read):
            for number in range(cluster.partitions(topic)):
                first, end = consumer.get_watermark_offsets(client.TopicPartition(topic, number), timeout=_ANSWER)
                name = f"{topic} {number}"
                behind[name] = max(0, end - max(first, read.get(name, first)))
        return behind
    except client.KafkaException as problem:
        raise cluster.trouble(problem, "ask how far its topics are ahead") from problem
    finally:
        consumer.close()


def version_lag(text: str, tables: Mapping[str, str]) -> dict[str, int]:
    """How many versions with new rows each Delta table has beyond what was read; `tables` are local folders by name.

    The offset of a table names the version that is read next, so nothing is taken off. Versions that change no rows,
    of a compaction or a new property, are not counted.
    """
    read = {said["reservoirId"]: int(said["reservoirVersion"]) for said in _lines(text) if "reservoirVersion" in said}
    if not read:
        return {}
    found: dict[str, int] = {}
    for name, location in tables.items():
        for folder in (Path(location), Path(location) / CHANGES):
            identity = _identity(folder)
            if identity in read:
                found[name] = sum(1 for version in _since(folder, read[identity]) if _has_rows(version))
    return found


def _lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue  # "-" for a source that was not read, or the query of somebody else's checkpoint
        if isinstance(said, dict) and said:
            yield said


def _identity(folder: Path) -> str | None:
    """The id of the Delta table in a folder, if there is one."""
    if not (folder / LOG).is_dir():
        return None
    from deltalake import DeltaTable

    return str(DeltaTable(str(folder)).metadata().id)


def _since(folder: Path, version: int) -> Iterator[Path]:
    """The commits from a version on."""
    while (path := folder / commit_path(version)).exists():
        yield path
        version += 1


def _has_rows(commit: Path) -> bool:
    actions = (json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines())
    return any(action.get("add", {}).get("dataChange") for action in actions)

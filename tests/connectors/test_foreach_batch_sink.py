"""The sink that is a function, without Spark: what it is called with, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.connectors.contract import Sink, SinkSpec
from anabranch.connectors.foreach_batch import ForeachBatchSink
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import InternalError, StateError

SCHEMA = pa.schema([("id", pa.int64())])


class Function:
    """Takes rows; fails as often as it is told."""

    def __init__(self) -> None:
        self.failures = 0
        self.taken: list[tuple[int, list[int]]] = []

    def __call__(self, paths: Sequence[str], schema: str, epoch: int) -> None:
        rows = [n for path in paths for n in pq.read_table(path)["id"].to_pylist()]
        self.taken.append((epoch, rows))
        if self.failures:
            self.failures -= 1
            raise ConnectionError


def key(epoch: int, generation: int = 1, channel: str = "main") -> EpochKey:
    return EpochKey("p-1", channel, generation, epoch)


def sink_at(folder: Path, handler: Any = None) -> Sink:
    sink = open_sink("foreach_batch", SinkSpec("out", str(folder), handler=handler))
    sink.prepare(SCHEMA)
    return sink


def stage(sink: Sink, at: EpochKey, rows: list[int], token: int = 1) -> Receipt:
    writer = StagedWriter(sink.staging(at, token), "t")
    writer.write(pa.record_batch([pa.array(rows, pa.int64())], schema=SCHEMA))
    return Receipt.from_json(sink.receipt(at, writer.close()).to_json())


def staged(folder: Path) -> list[Path]:
    return list(folder.rglob("*.parquet"))


def test_it_keeps_what_it_must_not_promise() -> None:
    assert not ForeachBatchSink.capabilities.exactly_once
    assert not ForeachBatchSink.capabilities.pinned_reads


def test_it_is_called_once_and_again_only_if_it_did_not_return(tmp_path: Path) -> None:
    function = Function()
    sink = sink_at(tmp_path, function)
    receipt = stage(sink, key(0), [1, 2])
    function.failures = 2
    for _ in range(2):
        with pytest.raises(ConnectionError):
            sink.apply(key(0), receipt)
        assert sink.find(key(0)) is None
        assert sink.damaged(receipt) is None
    first = sink.apply(key(0), receipt)
    again = sink_at(tmp_path, function).apply(key(0), receipt)  # by another process
    assert (first.version, first.already) == ("1-0", False)
    assert (again.version, again.already) == ("1-0", True)
    assert function.taken == [(0, [1, 2])] * 3
    assert staged(tmp_path) == []


def test_an_epoch_without_rows_is_not_told(tmp_path: Path) -> None:
    function = Function()
    sink = sink_at(tmp_path, function)
    assert sink.apply(key(0), stage(sink, key(0), [])).version == "none"
    sink.apply(key(1), stage(sink, key(1), [1]))
    assert sink.apply(key(2), stage(sink, key(2), [])).version == "1-1"
    assert function.taken == [(1, [1])]
    assert sink.latest(key(9)) == 1


def test_other_channels_and_generations_count_for_themselves(tmp_path: Path) -> None:
    function = Function()
    sink = sink_at(tmp_path, function)
    keys = [key(3), key(0, generation=2), key(0, channel="side"), key(0, channel="main/rebuilt")]
    for at in keys:
        sink.apply(at, stage(sink, at, [at.epoch]))
    assert [sink.latest(at) for at in keys[1:]] == [0, 0, 0]
    assert sink.latest(key(9)) is None  # its marker went with the generation
    assert len(function.taken) == 4


def test_without_the_function_a_run_is_needed(tmp_path: Path) -> None:
    receipt = stage(sink_at(tmp_path), key(0), [1])
    bare = open_sink("foreach_batch", SinkSpec("out", str(tmp_path)))
    with pytest.raises(StateError) as refused:
        bare.apply(key(0), receipt)
    assert refused.value.code == "HANDLER_NEEDED"
    assert (refused.value.hint or "").startswith("anabranch run")
    assert bare.damaged(receipt) is None  # the rows are still there
    sink_at(tmp_path, Function()).apply(key(0), receipt)
    assert bare.apply(key(0), receipt).already


def test_damage_and_leftovers(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, Function())
    receipt = stage(sink, key(0), [1, 2], token=1)
    stage(sink, key(0), [1, 2], token=1)
    stage(sink, key(0), [3], token=2)
    keep = frozenset(f.path for f in receipt.files)
    found = sink.leftovers(keep, 2)
    assert len(found) == 1
    sink.discard(path for path, _ in found)
    assert sink.leftovers(keep, 2) == []
    with pytest.raises(InternalError):
        sink.discard(["_taken/main/1-0"])
    (tmp_path / receipt.files[0].path).write_bytes(b"")
    assert "bytes instead of" in (sink.damaged(receipt) or "")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=3), st.integers(0, 2), st.booleans()), max_size=6))
def test_any_course_of_events_hands_over_each_epoch_in_order(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[tuple[list[int], int, bool]]
) -> None:
    """Each epoch: its rows, how often the function fails, whether the answer is lost so that it is applied again."""
    folder, function, expected = tmp_path_factory.mktemp("out"), Function(), []
    for number, (rows, failures, lost) in enumerate(epochs):
        sink = sink_at(folder, function)
        receipt = stage(sink, key(number), rows)
        function.failures = failures if rows else 0
        while True:
            try:
                sink.apply(key(number), receipt)
            except ConnectionError:
                continue
            break
        if lost:
            sink_at(folder, function).apply(key(number), receipt)
        expected += [(number, rows)] * (failures + 1) if rows else []
    assert function.taken == expected
    assert staged(folder) == []

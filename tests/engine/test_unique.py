"""Rules on all rows of a table together, over real staged files and a real table, without Spark."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.delta import DeltaSink
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.core.changes import Changes
from anabranch.core.declarations import Action, Dataset, Flow, Kind, Pipeline, Unique
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.core.graph import build
from anabranch.core.plan import make_plan
from anabranch.core.quality import FlowQuality
from anabranch.core.where import Where
from anabranch.engine.unique import repeated
from anabranch.errors import DataError, ProjectError, ProjectErrors

HERE = Where("test_unique.py", 1)
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])


def rule(*columns: str, name: str = "one", action: Action = Action.WARN) -> Unique:
    return Unique(name, columns, action, HERE)


def sink_at(folder: Path, *rules: Unique, schema: pa.Schema = SCHEMA, **options: Any) -> DeltaSink:
    sink = open_sink("delta", SinkSpec("orders", str(folder / "orders"), "p", unique=rules, **options))
    sink.prepare(schema)
    assert isinstance(sink, DeltaSink)
    return sink


def key(epoch: int) -> EpochKey:
    return EpochKey("p", "main", 1, epoch)


def stage(sink: DeltaSink, epoch: int, rows: list[dict[str, Any]], *, replace: bool = False) -> Receipt:
    """Rows in two files, as two tasks would leave them."""
    staging = sink.staging(key(epoch), 1)
    files = []
    for task, part in enumerate((rows[::2], rows[1::2])):
        writer = StagedWriter(staging, str(task))
        writer.write(pa.RecordBatch.from_pylist(part, schema=staging.schema))
        files += writer.close()
    return sink.receipt(key(epoch), files, replace=replace)


def orders(*keys: tuple[int | None, str | None]) -> list[dict[str, Any]]:
    return [{"id": i, "day": day, "n": n} for n, (i, day) in enumerate(keys)]


def counted(sink: DeltaSink, receipt: Receipt) -> dict[str, int]:
    (found,) = repeated({"orders": sink}, [receipt])
    assert (found.dataset, found.flow, found.rows) == ("orders", "", receipt.rows)
    return dict(found.broken)


def test_rows_that_repeat_a_key_of_the_epoch_or_of_the_table_are_counted(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, rule("id"), rule("ID", "day", name="per_day"))
    first = stage(sink, 0, orders((1, "mon"), (1, "tue"), (2, "mon"), (1, "mon")))
    assert counted(sink, first) == {"one": 2, "per_day": 1}
    sink.apply(key(0), first)
    second = stage(sink, 1, orders((2, "tue"), (3, "mon"), (1, "mon"), (1, "mon")))
    assert counted(sink, second) == {"one": 3, "per_day": 2}
    assert counted(sink, stage(sink, 2, orders((9, "mon")))) == {"one": 0, "per_day": 0}


def test_a_key_with_a_null_in_it_repeats_nothing(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, rule("id", "day"))
    rows = orders((None, "mon"), (None, "mon"), (1, None), (1, None))
    sink.apply(key(0), stage(sink, 0, rows))
    assert counted(sink, stage(sink, 1, rows)) == {"one": 0}


def test_rows_that_take_the_place_of_all_others_are_compared_with_each_other_only(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, rule("id"))
    sink.apply(key(0), stage(sink, 0, orders((1, "mon"), (2, "mon"))))
    assert counted(sink, stage(sink, 1, orders((1, "mon"), (2, "mon"), (2, "tue")), replace=True)) == {"one": 1}


def test_repeats_that_the_table_had_before_are_not_counted_again(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, rule("id"))
    sink.apply(key(0), stage(sink, 0, orders((1, "mon"), (1, "mon"), (1, "mon"))))
    assert counted(sink, stage(sink, 1, orders((2, "mon")))) == {"one": 0}
    assert counted(sink, stage(sink, 1, orders((1, "mon")))) == {"one": 1}


def test_an_epoch_is_given_up_with_the_keys_that_repeat(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, rule("id", action=Action.FAIL))
    sink.apply(key(0), stage(sink, 0, orders(*((n, "mon") for n in range(9)))))
    with pytest.raises(DataError) as refused:
        repeated({"orders": sink}, [stage(sink, 1, orders(*((n, "tue") for n in range(4, 12))))])
    assert refused.value.code == "EXPECTATION_FAILED"
    assert refused.value.details == {
        "dataset": "orders",
        "rule": "one",
        "rows": ['{"id": 4}', '{"id": 5}', '{"id": 6}'],
    }
    assert '5 of 8 rows for "orders" break "one": another row has the same id' in refused.value.message


def test_nothing_is_read_of_an_epoch_without_rows_or_a_table_without_rules(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, rule("id"))
    assert repeated({"orders": sink}, [stage(sink, 0, [])]) == []
    plain = sink_at(tmp_path)
    assert repeated({"orders": plain}, [stage(plain, 0, orders((1, "a"), (1, "a")))]) == []


def test_a_key_column_that_the_table_lacks_so_far(tmp_path: Path) -> None:
    before = sink_at(tmp_path, schema=pa.schema([("id", pa.int64())]))
    before.apply(key(0), stage(before, 0, [{"id": 1}]))
    sink = sink_at(tmp_path, rule("id", "day"))
    assert counted(sink, stage(sink, 1, orders((1, "mon"), (1, "mon")))) == {"one": 1}


DAY, MOMENT = dt.date(2024, 2, 3), dt.datetime(2024, 2, 3, 4, 5, 6, 789, tzinfo=dt.UTC)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "integer": (pa.int32(), [1, -7, 2]),
    "text": (pa.string(), ["ä", "b/=%", "c"]),
    "date": (pa.date32(), [DAY, DAY.replace(year=1500), DAY.replace(year=9999)]),
    "moment": (pa.timestamp("us", "UTC"), [MOMENT, MOMENT.replace(year=1500), MOMENT.replace(year=9999)]),
    "local": (pa.timestamp("us"), [MOMENT.replace(tzinfo=None), MOMENT.replace(year=1500, tzinfo=None)]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-0.01")]),
    "flag": (pa.bool_(), [True, False]),
    "float": (pa.float64(), [0.5, -1.25]),
    "bytes": (pa.binary(), [b"\x00", b"\xff"]),
    "struct": (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": None}]),
    "list": (pa.list_(pa.int64()), [[1], [1, None], []]),
}


NOT_TO_PARTITION_BY = ("bytes", "struct", "list")


@pytest.mark.parametrize(
    ("kind", "partitioned"), [(k, p) for k in KINDS for p in (False, True) if not (p and k in NOT_TO_PARTITION_BY)]
)
def test_every_type_can_be_a_key(tmp_path: Path, kind: str, partitioned: bool) -> None:
    arrow, values = KINDS[kind]
    schema = pa.schema([("k", arrow), ("n", pa.int64())])
    sink = sink_at(tmp_path, rule("k"), schema=schema, partition_by=("k",) if partitioned else ())
    sink.apply(key(0), stage(sink, 0, [{"k": values[0], "n": 0}]))
    rows = [{"k": value, "n": n} for n, value in enumerate([values[0], values[1], values[1], None, None])]
    assert counted(sink, stage(sink, 1, rows)) == {"one": 2}


KEYS = st.lists(st.tuples(st.sampled_from([None, 0, 1, 2, 3]), st.sampled_from([None, "a", "b"])), max_size=12)


@settings(max_examples=25, deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=3), st.booleans())
def test_counts_are_those_of_a_plain_loop(epochs: list[list[tuple[int | None, str | None]]], by_day: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = {"partition_by": ("day",)} if by_day else {}
        sink = sink_at(Path(folder), rule("id"), rule("day", "id", name="both"), **options)
        seen: dict[str, Counter[Any]] = {"one": Counter(), "both": Counter()}
        for number, keys in enumerate(epochs):
            expected = {"one": 0, "both": 0}
            for i, day in keys:
                for name, value in (("one", (i,)), ("both", (i, day))):
                    if None not in value:
                        expected[name] += seen[name][value] > 0
                        seen[name][value] += 1
            receipt = stage(sink, number, orders(*keys))
            found = repeated({"orders": sink}, [receipt])
            assert found == ([FlowQuality("orders", "", len(keys), expected)] if keys else [])
            sink.apply(key(number), receipt)


def test_a_rule_about_no_column_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="is about nope, which is no column of it") as refused:
        sink_at(tmp_path, rule("id", "nope"))
    assert (refused.value.code, refused.value.where) == ("EXPECTATION_INVALID", HERE)
    assert not (tmp_path / "orders").exists()


def refusal(unique: Unique, kind: Kind = Kind.STREAMING_TABLE, changes: Changes | None = None) -> str | None:
    """What is said of a rule on a dataset; None when it is taken."""
    table = Dataset("orders", kind, HERE, unique=(unique,))
    rest = Dataset("rest", Kind.STREAMING_TABLE, HERE)
    flows = (
        Flow("orders", "orders", lambda: None, HERE, changes=changes),
        Flow("r", "rest", lambda: None, HERE, () if changes else ("orders",)),  # changes are not read as a stream
    )
    try:
        make_plan(build(Pipeline("p", (table, rest), flows, HERE)))
    except ProjectErrors as refused:
        (problem,) = refused.problems
        assert problem.code == "UNIQUE_NOT_SUPPORTED"
        assert problem.hint
        return problem.message
    return None


def test_rules_that_cannot_be_kept_are_refused_with_a_way_out() -> None:
    assert "is to drop rows" in str(refusal(rule("id", action=Action.DROP)))
    assert "is to quarantine rows" in str(refusal(rule("id", action=Action.QUARANTINE)))
    assert "is about a view" in str(refusal(rule("id"), Kind.TEMPORARY_VIEW))
    assert refusal(rule("id", action=Action.FAIL)) is None
    newest = Changes("feed", keys=("id", "Day"), sequence_by="at")
    history = Changes("feed", keys=("id", "day"), sequence_by="at", scd_type=2)
    assert refusal(rule("day", "ID"), changes=newest) is None
    assert "is changed by key" in str(refusal(rule("id"), changes=newest))
    assert "is changed by key" in str(refusal(rule("id", "day"), changes=history))

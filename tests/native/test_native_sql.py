"""Native programs made by hand, over batches of records: what is certain, what is handed back, and of which type."""

from __future__ import annotations

import json
import subprocess
import threading
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from anabranch.native import run as native_run
from anabranch.native.parse import JsonShape
from anabranch.native.program import DOUBT, NOW, RECORD, RECORDS, NativeFlow, NativeProgram, Parse, Taken
from anabranch.native.run import NativeRun, Passed


def shape(*fields: tuple[str, Any]) -> JsonShape:
    found = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields]
    return JsonShape(json.dumps({"type": "struct", "fields": found}))


INNER = {"type": "struct", "fields": [{"name": ".x", "type": "long", "nullable": True, "metadata": {}}]}
PARSE = Parse("raw_1", "parsed", shape(("a", "long"), ("at", "timestamp"), ("[b", INNER)))

LONG = pa.schema([("o0", pa.int64())])
A = NativeFlow(None, LONG, (Taken("o0", ("parsed", "a")),))


def flow(
    columns: str, where: str = "", *, doubt: str = "", chosen: bool = False, schema: pa.Schema = LONG
) -> NativeFlow:
    """A flow as planning makes it."""
    told = [RECORD] if chosen or doubt else []
    added = f"(SELECT *, ({doubt}) AS {DOUBT} FROM {RECORDS})" if doubt else RECORDS
    kept = f" WHERE {where}{f' OR {DOUBT}' if doubt else ''}" if where else ""
    names = ", ".join([columns, *told, *([DOUBT] if doubt else [])])
    return NativeFlow(f"SELECT {names} FROM {added}{kept}", schema, chosen=chosen or bool(where))


def run(program: NativeProgram, *texts: str | None, now: datetime | None = None) -> Passed:
    return NativeRun(program, now).take(pa.record_batch({"raw_1": pa.array(texts, pa.string())}))


#: What SQL reads in these tests, by the names that the columns of records have.
READS = tuple(Taken(name, (name,)) for name in ("raw_1", "parsed", "c7", NOW))


def program(*flows: NativeFlow, **more: Any) -> NativeProgram:
    return NativeProgram(("raw_1",), (PARSE,), flows, reads=READS, **more)


def values(passed: Passed) -> list[list[Any]]:
    return [[tuple(row.values()) for row in table.to_pylist()] for table in passed.rows]


def rest(passed: Passed) -> list[Any]:
    return [] if passed.rest is None else passed.rest.column("raw_1").to_pylist()


ONE_TO_FOUR = [f'{{"a": {i}}}' for i in range(1, 5)]
A_SQL = "struct_extract(parsed, 'a')"


def test_a_record_that_one_flow_doubts_is_in_no_flow() -> None:
    doubting = flow(f"{A_SQL} * 10 AS o0", doubt=f"{A_SQL} = 2")
    choosing = flow(f"{A_SQL} AS o0", f"{A_SQL} > 1", chosen=True)
    passed = run(program(A, doubting, choosing), *ONE_TO_FOUR)
    assert values(passed) == [[(1,), (3,), (4,)], [(10,), (30,), (40,)], [(3,), (4,)]]
    assert rest(passed) == ['{"a": 2}']


def test_two_flows_doubt_different_records_and_the_parser_a_third() -> None:
    first, second = (flow(f"{A_SQL} AS o0", doubt=f"{A_SQL} = {i}") for i in (1, 4))
    passed = run(program(first, A, second), *ONE_TO_FOUR, '{"a": 1, "a": 2}', "nope")
    assert values(passed) == [[(2,), (3,)]] * 3
    assert sorted(rest(passed)) == sorted(['{"a": 1, "a": 2}', "nope", '{"a": 1}', '{"a": 4}'])


def test_a_row_in_doubt_that_a_filter_would_leave_out_is_still_handed_back() -> None:
    passed = run(program(flow(f"{A_SQL} AS o0", f"{A_SQL} > 2", doubt=f"{A_SQL} = 1")), *ONE_TO_FOUR)
    assert values(passed) == [[(3,), (4,)]]
    assert rest(passed) == ['{"a": 1}']


def test_shared_columns_are_those_of_every_flow_and_may_be_doubted() -> None:
    shared = NativeFlow(
        f"SELECT c7, {RECORD}, {DOUBT} FROM (SELECT *, ({A_SQL} = 3) AS {DOUBT}, {A_SQL} + 100 AS c7 FROM {RECORDS})",
        pa.schema([("c7", pa.null())]),
    )
    taking = NativeFlow(None, LONG, (Taken("o0", ("c7",)),))
    choosing = NativeFlow(f"SELECT {RECORD} FROM {RECORDS} WHERE c7 > 101", LONG, (Taken("o0", ("c7",)),), chosen=True)
    passed = run(program(taking, choosing, A, shared=shared), *ONE_TO_FOUR)
    assert values(passed) == [[(101,), (102,), (104,)], [(102,), (104,)], [(1,), (2,), (4,)]]
    assert rest(passed) == ['{"a": 3}']


def test_one_record_may_be_many_rows_and_leaves_with_all_of_them() -> None:
    sql = (
        f"SELECT unnest(range({A_SQL})) AS o0, {RECORD}, {DOUBT}"
        f" FROM (SELECT *, ({A_SQL} = 3) AS {DOUBT} FROM {RECORDS})"
    )
    many = NativeFlow(
        sql, pa.schema([("o0", pa.int64()), ("o1", pa.int64())]), (Taken("o1", ("parsed", "a")),), chosen=True
    )
    passed = run(program(many), *ONE_TO_FOUR)
    assert values(passed) == [[(0, 1), (0, 2), (1, 2), (0, 4), (1, 4), (2, 4), (3, 4)]]
    assert rest(passed) == ['{"a": 3}']


def test_places_below_what_is_null_and_names_that_look_like_paths() -> None:
    deep = NativeFlow(None, LONG, (Taken("o0", ("parsed", "[b", ".x")),))
    passed = run(program(deep), '{"[b": {".x": 5}}', '{"[b": null}', "{}", None, " ", '{"[b": {}}')
    assert values(passed) == [[(5,), (None,), (None,), (None,), (None,), (None,)]]
    assert passed.rest is None


def test_blank_values_are_records_unless_they_are_lines_of_files() -> None:
    texts = ["", '{"a": 1}', "  ", None, '{"a": 2}']
    assert values(run(program(A), *texts)) == [[(None,), (1,), (None,), (None,), (2,)]]
    passed = run(program(A, flow(f"{A_SQL} AS o0"), skips_blank=True), *texts)
    assert values(passed) == [[(1,), (2,)]] * 2
    assert passed.rest is None


def test_all_records_are_in_doubt() -> None:
    doubting = flow(f"{A_SQL} AS o0", doubt="true")
    assert values(run(program(A, doubting), *ONE_TO_FOUR)) == [[], []]
    assert rest(run(program(A, doubting), *ONE_TO_FOUR)) == ONE_TO_FOUR
    passed = run(program(A, doubting, skips_blank=True), "nope", "[1]", "")
    assert values(passed) == [[], []]
    assert rest(passed) == ["nope", "[1]"]


def test_no_records_and_only_blank_ones() -> None:
    flows = (A, flow(f"{A_SQL} AS o0", doubt=f"{A_SQL} = 2"), flow(f"{A_SQL} AS o0", f"{A_SQL} > 1", chosen=True))
    shared = NativeFlow(f"SELECT {A_SQL} + 1 AS c7 FROM {RECORDS}", pa.schema([("c7", pa.null())]))
    for more in ({}, {"skips_blank": True}, {"shared": shared}, {"shared": shared, "skips_blank": True}):
        passed = run(program(*flows, **more))
        assert values(passed) == [[], [], []]
        assert [table.schema for table in passed.rows] == [LONG] * 3
        assert passed.rest is None
    assert values(run(program(*flows, skips_blank=True), " ", None)) == [[], [], []]


def test_the_same_run_takes_batch_after_batch() -> None:
    running = NativeRun(program(A, flow(f"{A_SQL} AS o0", doubt=f"{A_SQL} = 2")))
    for texts in (ONE_TO_FOUR, ["nope"], [], [" "], ONE_TO_FOUR[1:]):
        passed = running.take(pa.record_batch({"raw_1": pa.array(texts, pa.string())}))
        certain = [(int(t[6]),) if "a" in t else (None,) for t in texts if t not in ("nope", '{"a": 2}')]
        assert values(passed) == [certain] * 2


def test_rows_have_the_very_types_that_are_asked_for() -> None:
    kinds = pa.schema([("o0", pa.int32()), ("o1", pa.timestamp("us", "UTC")), ("o2", pa.timestamp("us", "UTC"))])
    now = datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)
    both = NativeFlow(
        f"SELECT CAST({A_SQL} AS BIGINT) AS o0, {NOW} AS o1 FROM {RECORDS}", kinds, (Taken("o2", ("parsed", "at")),)
    )
    passed = run(program(both, asks_time=True), '{"a": 1, "at": "2026-01-02T03:04:05.5Z"}', '{"a": 2}', now=now)
    (table,) = passed.rows
    assert table.schema == kinds
    assert set(table.column("o1").to_pylist()) == {now}
    assert table.column("o2").to_pylist() == [datetime(2026, 1, 2, 3, 4, 5, 500000, UTC), None]


def test_fields_that_are_never_null_in_structs_that_are() -> None:
    never = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    kind = pa.struct(
        [pa.field("file", pa.string(), nullable=False), pa.field("xs", pa.list_(pa.field("element", never)))]
    )
    made = f"""
        CASE WHEN {A_SQL} % 2 = 0 THEN {{'file': 'f', 'xs':
            CASE WHEN {A_SQL} = 4 THEN NULL ELSE [{{'x': {A_SQL}}}, NULL, {{'x': 7}}] END}} END"""
    schema = pa.schema([("o0", kind)])
    passed = run(program(NativeFlow(f"SELECT {made} AS o0 FROM {RECORDS}", schema)), *ONE_TO_FOUR, '{"a": 6}')
    (table,) = passed.rows
    table.validate(full=True)
    assert table.schema == schema
    six, two = ({"file": "f", "xs": [{"x": x}, None, {"x": 7}]} for x in (6, 2))
    assert table.column("o0").to_pylist() == [None, two, None, {"file": "f", "xs": None}, six]
    assert table.slice(1, 3).column("o0").to_pylist() == [two, None, {"file": "f", "xs": None}]


def test_several_parses_of_one_value() -> None:
    other = Parse("raw_1", "again", shape(("a", "string")))
    texts = NativeFlow(None, pa.schema([("o0", pa.string())]), (Taken("o0", ("again", "a")),))
    passed = NativeRun(NativeProgram(("raw_1",), (PARSE, other), (A, texts))).take(
        pa.record_batch({"raw_1": ['{"a": 1.5e3}', '{"a": "x"}', "{}"]})
    )
    # What a number is as a text is not certain; that a text is no number is.
    assert values(passed) == [[(None,), (None,)], [("x",), (None,)]]
    assert rest(passed) == ['{"a": 1.5e3}']


def test_a_process_in_which_a_thread_ran_can_be_forked() -> None:
    """What a thread keeps must not be taken apart in the child; what an ended one kept is let go here."""
    ran, over = threading.Event(), threading.Event()

    def work() -> None:
        run(program(A, flow(f"{A_SQL} AS o0", doubt=f"{A_SQL} = 2")), *ONE_TO_FOUR)
        ran.set()
        over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    ran.wait()
    assert subprocess.run(["true"], preexec_fn=lambda: None, check=False).returncode == 0
    kept = len(native_run._kept)
    over.set()
    thread.join()
    again = threading.Thread(target=run, args=(program(A), *ONE_TO_FOUR))
    again.start()
    again.join()
    assert len(native_run._kept) <= kept


def test_sql_cannot_leave_the_process() -> None:
    import duckdb

    for text in ("read_text('/etc/hostname')", "'/etc/hostname'"):
        reaching = NativeFlow(f"SELECT 1 AS o0 FROM {text}", LONG)
        with pytest.raises(duckdb.Error):
            run(program(reaching), *ONE_TO_FOUR)
    assert values(run(program(A), *ONE_TO_FOUR)) == [[(1,), (2,), (3,), (4,)]]


@pytest.mark.parametrize(("text", "binary"), [(pa.string(), pa.binary()), (pa.large_string(), pa.large_binary())])
def test_text_that_is_not_utf_8_is_not_shown_to_the_database(text: pa.DataType, binary: pa.DataType) -> None:
    upper = NativeFlow("SELECT upper(raw_1) AS o0 FROM records", pa.schema([("o0", pa.string())]))
    texts = pa.array([b'{"a":1}', b'{"a":2,"b":"\xff"}', None, b"\xc3"], binary)
    raw = pa.Array.from_buffers(text, len(texts), texts.buffers())
    given = NativeProgram(("raw_1",), (PARSE,), (upper,), reads=(Taken("raw_1", ("raw_1",)),))
    passed = NativeRun(given).take(pa.record_batch({"raw_1": raw}))
    assert values(passed) == [[('{"A":1}',), (None,)]]
    assert passed.rest is not None
    left = passed.rest.column(0)
    assert pa.Array.from_buffers(binary, len(left), left.buffers()).to_pylist() == [texts[1].as_py(), b"\xc3"]

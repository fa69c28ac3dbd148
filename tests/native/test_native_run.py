"""The native pass in real pipelines: the same tables, counts and errors as Spark alone gives, over hostile input."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from anabranch.core.events import ChannelProgress
from anabranch.engine import native_files, native_rows
from anabranch.engine.native_pass import native_mode
from anabranch.errors import AnabranchError
from native.native_project import FLOWS, OTHERS, Ran, land, landed, ran_both_ways

pytestmark = pytest.mark.spark

VIEWS = """
@dp.temporary_view
def lines():
    rows = by_file(IN, 7).text(IN + "/lines").select("value", "_metadata", F.from_json("value", CORRUPT).alias("e"))
    about = [f"_metadata.file_{name}" for name in ("path", "name", "size", "modification_time")]
    return rows.select("e.*", "value", *about)

@dp.temporary_view
def files():
    about = [f"_metadata.file_{name}" for name in ("path", "name", "size", "modification_time")]
    return by_file(IN, 7).schema(CORRUPT).json(IN + "/files").select("*", *about)

@dp.temporary_view
def mixed():
    rows = by_file(IN, 7).text(IN + "/mixed").select("_metadata", F.from_json("value", FIELDS).alias("e"))
    return rows.select("e.*", "_metadata.file_name")

@dp.table
def plain_files():
    rows = by_file(IN).schema("id BIGINT, n INT, name STRING").json(IN + "/plain")
    return rows.select("*", "_metadata.file_path", "_metadata.file_name")

@dp.table
def asked_for():
    # Spark then does not look at other fields, whatever is in them.
    return by_file(IN, 7).text(IN + "/mixed").select(F.from_json("value", CORRUPT)._corrupt_record.alias("bad"))

@dp.table
@sources.dead_letters
def letters():
    return sources.files(IN + "/letters", schema="id BIGINT, n INT", dead_letters=True)
"""
CODE = VIEWS + "".join(FLOWS.replace("{0}", name) for name in ("lines", "files")) + OTHERS.replace("{0}", "mixed")

#: What Spark parses for one flow anyway is not parsed a second time.
BY_SPARK = "mixed_"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> tuple[Ran, Ran]:
    """The project as it is run by Spark alone, and natively; twice each, with more files for the second time."""
    folder = tmp_path_factory.mktemp("native")
    for name in ("lines", "files", "mixed"):
        landed(folder / "in" / name)
    # With a name like this, Spark reads files beside it twice.
    landed(folder / "in" / "plain", odd_name="001 ü %20#?&=+;.json")
    land(folder / "in" / "letters", {"a.json": b'{"id":1,"n":2}\nnope\n{"id":"x"}\n{"id":2,"n":1.5}\n'})
    ways = ran_both_ways(folder, spark, CODE, folder / "in")
    for name in ("lines", "files", "mixed"):
        land(folder / "in" / name, {"late.json": b'{"id":500,"n":2,"at":"2026-1-2"}\n{"id":501,"tags":["x"]}\n'})
    for ran in ways:
        assert ran.run() is None
        assert SparkSession.active()._jsparkSession.equals(spark._jsparkSession), "the session is still that of before"
    return ways


def test_all_tables_are_the_same_to_the_bit(both: tuple[Ran, Ran]) -> None:
    by_spark, natively = both
    schemas = by_spark.schemas()
    assert natively.schemas() == schemas
    assert len(schemas) > 40
    differing = {}
    for table in schemas.keys() - {"lines_time", "files_time"}:
        expected, found = by_spark.rows(table), natively.rows(table)
        if found != expected:
            differing[table] = list((found - expected).items())[:3], list((expected - found).items())[:3]
    assert not differing


def test_rows_and_broken_rules_are_counted_the_same(both: tuple[Ran, Ran]) -> None:
    by_spark, natively = both
    assert natively.counts() == by_spark.counts()
    assert natively.quality() == by_spark.quality()
    assert {q.dataset for _, _, q in natively.quality()} >= {"lines_judged", "files_judged", "mixed_aside", "letters"}
    assert (
        max(epoch for channel, epoch in natively.counts() if channel == "plain_files") > 10
    )  # Spark compacts its log of files


def test_it_was_native_and_records_in_doubt_were_not(both: tuple[Ran, Ran]) -> None:
    by_spark, natively = both
    how = natively.how()
    assert {flow for flow, words in how.items() if words != "native"} == {f for f in how if f.startswith(BY_SPARK)}
    assert set(by_spark.how().values()) <= {"fused", "branch: drops duplicates"}
    assert not any(by_spark.records(channel) for channel in ("lines", "files", "mixed", "plain_files"))
    for channel in ("lines", "files", "plain_files"):
        found = natively.records(channel)
        assert found["native"] > 100, channel
        assert found["spark"] > 30, channel
    assert natively.records("letters") == {"native": 1, "spark": 3}
    assert not natively.records("mixed")
    lines = sum(natively.rows("lines_all").values())
    assert natively.records("lines").total() == lines


def test_records_that_workers_read_are_counted_as_read(both: tuple[Ran, Ran]) -> None:
    def read(ran: Ran) -> Counter[str]:
        found: Counter[str] = Counter()
        for event in ran.events:
            if isinstance(event, ChannelProgress):
                found[event.channel] += event.rows
        return found

    by_spark, natively = both
    assert read(natively)["lines"] == read(by_spark)["lines"] > 700


def test_all_rows_of_an_epoch_have_one_time(both: tuple[Ran, Ran]) -> None:
    from anabranch import read

    for ran in both:
        for view in ("lines", "files"):
            asked = f"SELECT count(DISTINCT now) AS times, count(DISTINCT past) AS past FROM {view}_time"
            (found,) = read.cut(ran.root).sql(asked).to_pylist()
            epochs = [e for e in ran.published if e.channel == view and e.rows.get(f"{view}_time")]
            assert found["times"] == len(epochs), view


FAILING = """
def parsed(name, mode):
    rows = by_file(IN).text(f"{IN}/{name}")
    return rows.select(F.from_json("value", FIELDS, {"mode": mode}).alias("e")).select("e.*")

@dp.table
def failfast():
    return parsed("failfast", "FAILFAST")

@dp.table
def failfast_files():
    return by_file(IN).schema(FIELDS).option("mode", "FAILFAST").json(IN + "/failfast_files")

@dp.table
def overflow():
    return parsed("overflow", "PERMISSIVE").select(F.expr("n + 2147483647").alias("more"))

@dp.table
def divided():
    return parsed("divided", "PERMISSIVE").select(F.expr("1 / n").alias("share"))

@dp.table
@dp.expect_or_fail("positive", "n > 0")
def failing():
    return parsed("failing", "PERMISSIVE").select("n", "at")

@dp.table
def damaged():
    return parsed("damaged", "PERMISSIVE")

@dp.table
def damaged_files():
    return by_file(IN).schema(FIELDS).json(IN + "/damaged_files")
"""


def test_what_fails_fails_with_the_same_code(tmp_path: Path, spark: Any) -> None:
    good, packed = b'{"id":1,"n":0}\n', gzip.compress(b'{"id":1}\n' * 1000)
    bad = {
        "failfast": good + b'{"id":\n',
        "failfast_files": good + b'{"id":"x"}\n',
        "overflow": b'{"n":1}\n',
        "divided": good,
        "failing": good + b'{"n":5,"at":"2026-1-2"}\n',
    }
    for name, content in bad.items():
        land(tmp_path / "in" / name, {"a.json": content})
    for name in ("damaged", "damaged_files"):
        land(tmp_path / "in" / name, {"a.json.gz": packed[:-12]})
    codes = {}
    for mode in ("false", "true"):
        ran = Ran(tmp_path / mode, spark, mode)
        ran.write(FAILING, tmp_path / "in")
        assert ran.run() is not None
        codes[mode] = ran.failures()
    assert codes["true"] == codes["false"]
    assert codes["true"].keys() == bad.keys() | {"damaged", "damaged_files"}


PLAIN = """
@dp.table
def rows():
    return by_file(IN, 100).text(IN + "/rows").select(F.from_json("value", FIELDS).alias("e")).select("e.*")

@dp.table
def files():
    return by_file(IN, 100).schema(FIELDS).json(IN + "/files").select("id", "tags", "_metadata.file_name")
"""


def test_large_files_are_read_in_parts_by_several_tasks(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.engine import epoch

    monkeypatch.setattr(epoch, "SMALL_BYTES", -1)
    monkeypatch.setattr(native_files, "_SMALLEST", 700)
    monkeypatch.setattr(native_files, "_LARGEST", 700)
    ends = [b"\n", b"\r\n", b"\r"]
    text = b"".join(
        json.dumps({"id": i, "tags": ["x" * (i % 50)], "at": "2026-1-2" if i % 9 == 0 else None}).encode() + ends[i % 3]
        for i in range(900)
    )
    for name in ("rows", "files"):
        land(tmp_path / "in" / name, {"a.json": text, "b.json.gz": gzip.compress(b'{"id":-1}\n{"id":-2}')})
    ran = Ran(tmp_path / "project", spark, "true")
    ran.write(PLAIN, tmp_path / "in")
    assert ran.run() is None
    from anabranch import read

    for table in ("rows", "files"):
        found = read.cut(ran.root).arrow(table).column("id").to_pylist()
        assert sorted(found) == [-2, -1, *range(900)]
    assert ran.records("rows") == {"native": 802, "spark": 100}
    assert ran.records("files") == {"native": 902, "spark": 0}  # nobody asks for the odd column


#: Lines of files that only Spark's own reader takes as it does, and how many rows they are.
ONLY_IN_FILES = {
    "array": (b' [{"id":2,"tags":["a"]},{"id":3}]', 2),
    "mark": (b'\xef\xbb\xbf{"id":2}', 1),
    "bytes": (b'{"id":2,"tags":["\xff"]}', 1),
    "exact": (b'{"id":2,"tags":[1e3, {"a" : 1}, "x"]}', 1),
    "wide": ('{"id":2}'.encode("utf-16-le"), 1),
}
GIVING_UP = """
@dp.table
def rows():
    return by_file(IN, 100).text(IN + "/rows").select(F.from_json("value", FIELDS).alias("e")).select("e.*")
""" + "".join(
    f"""
@dp.table
def {name}():
    return by_file(IN).schema("id BIGINT, tags ARRAY<STRING>, _corrupt_record STRING").json(IN + "/{name}")
"""
    for name in ONLY_IN_FILES
)


def test_it_gives_up_on_too_many_and_not_on_what_only_files_have(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_rows, "_MOST_REST_BYTES", 1000)
    land(tmp_path / "in" / "rows", {"a.json": b'{"id":1,"n":"x","at":"2026-1-2"}\n' * 60})
    for name, (line, _) in ONLY_IN_FILES.items():
        land(tmp_path / "in" / name, {"a.json": b'{"id":1}\n' + line + b'\n{"id":"x"}\n'})
    by_spark, natively = ran_both_ways(tmp_path, spark, GIVING_UP, tmp_path / "in")
    assert set(natively.how().values()) == {"native"}
    for table in ("rows", *ONLY_IN_FILES):
        assert natively.rows(table) == by_spark.rows(table), table
    assert not natively.records("rows"), "Spark computed all of the epoch"
    for table, (_, rows) in ONLY_IN_FILES.items():
        assert sum(natively.rows(table).values()) == 2 + rows
        assert natively.records(table) == {"native": 1, "spark": 2}, table
    assert not list(natively.root.glob("**/left")), "no lines are left behind"


def test_small_epochs_that_each_leave_something_are_sparks_after_some(tmp_path: Path, spark: Any) -> None:
    """A job of Spark for one record costs more than one for all records of a small epoch."""
    lines = b'{"id":%d}\n{"id":-1,"at":"2026-1-2"}\n'
    land(tmp_path / "in" / "rows", {f"{number}.json": lines % number for number in range(8)})
    ran = Ran(tmp_path / "project", spark, "true")
    ran.write(PLAIN.partition("@dp.table\ndef files")[0].replace("(IN, 100)", "(IN)"), tmp_path / "in")
    assert ran.run() is None
    assert sum(ran.rows("rows").values()) == 16
    assert [event.records for event in ran.published] == [{"native": 1, "spark": 1}] * 3 + [{}] * 5


def test_killed_and_recovered_with_records_in_doubt(tmp_path: Path, spark: Any) -> None:
    """The command is killed with everything staged; who comes next reads the same epoch again."""
    land(tmp_path / "in" / "rows", {"a.json": b'{"id":1}\n{"id":2,"at":"2026-1-2"}\n{"id":"x"}\n'})
    ran = Ran(tmp_path / "project", spark, "true")
    ran.write(PLAIN.partition("@dp.table\ndef files")[0], tmp_path / "in")
    command = [sys.executable, "-m", "anabranch.cli.main", "run", "--once", "--project", str(ran.root)]
    killed = subprocess.run(command, env={**os.environ, "ANABRANCH_CRASH": "staged"}, capture_output=True, check=False)
    assert killed.returncode < 0, killed.stderr[-500:]
    assert ran.run() is None
    assert sum(ran.rows("rows").values()) == 3
    assert ran.records("rows") == {"native": 2, "spark": 1}


def test_a_setting_that_is_none(tmp_path: Path, spark: Any) -> None:
    ran = Ran(tmp_path / "project", spark, "nonsense")
    land(tmp_path / "in" / "rows", {})
    land(tmp_path / "in" / "files", {})
    ran.write(PLAIN, tmp_path / "in")
    with pytest.raises(AnabranchError) as told:
        ran.how()
    assert told.value.code == "SETTING_INVALID"


@pytest.mark.parametrize("policy", ["LEGACY", "legacy", " Legacy "])
def test_the_old_parser_of_times_in_any_case_is_sparks(spark: Any, policy: str) -> None:
    spark.conf.set("spark.sql.legacy.timeParserPolicy", policy)
    try:
        assert native_mode(spark) is None
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")


NOT_NATIVE = """
@dp.table
def clock():
    rows = by_file(IN).text(IN + "/rows").select(F.from_json("value", FIELDS).alias("e"))
    return rows.select("e.id", F.explode(F.array(F.current_timestamp())).alias("now"))

@dp.table
def own():
    return by_file(IN).schema("id BIGINT, _metadata STRUCT<file_name: STRING>").json(IN + "/own")

@dp.table
def sums():
    named = by_file(IN).schema(FIELDS).json(IN + "/sums").selectExpr("d", "d + d AS p")
    return named.selectExpr("p + 0.1D AS s", "0.1D + d + d AS r")
"""


def test_flows_that_only_spark_knows_the_meaning_of(tmp_path: Path, spark: Any) -> None:
    ran = Ran(tmp_path / "project", spark, "true")
    ran.write(NOT_NATIVE, tmp_path / "in")
    for name in ("rows", "own", "sums"):
        land(tmp_path / "in" / name, {})
    assert ran.how() == {
        "clock": "fused, spark: explodes what time it is",
        "own": "fused, spark: reads a column of its own that is called _metadata",
        "sums": "fused, spark: calls `Add` of the same numbers in two orders",
    }

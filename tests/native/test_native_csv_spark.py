"""Files of CSV natively: every line that is not doubted is what Spark's reader makes of it, and so are whole tables."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from anabranch.engine import native_files
from anabranch.engine.native_documents import LINE, Documents
from anabranch.engine.native_left import left_lines
from anabranch.native.parse import JsonShape
from native.csv_against_spark import POOL, by_hand, differences, random_case
from native.native_project import Ran, land

pytestmark = pytest.mark.spark


def test_hostile_values_of_every_type_and_option(spark: Any) -> None:
    found, shares = zip(*(differences(spark, case) for case in by_hand()), strict=True)
    assert [one for some in found for one in some][:3] == []
    assert sum(share > 0.1 for share in shares) > 20  # else there is nothing compared


def test_random_lines(spark: Any) -> None:
    dice = random.Random(5)
    found, shares = zip(*(differences(spark, random_case(dice)) for _ in range(24)), strict=True)
    assert [one for some in found for one in some][:3] == []
    assert sum(shares) / len(shares) > 0.2


CODE = """
SCHEMA = "id BIGINT, name STRING, price DECIMAL(9,2), n INT, at TIMESTAMP, day DATE, ok BOOLEAN, d DOUBLE"
ABOUT = [f"_metadata.file_{name}" for name in ("path", "name", "size", "modification_time")]

@dp.temporary_view
def plain():
    rows = by_file(IN, 3).schema(SCHEMA + ", _corrupt_record STRING").csv(IN + "/plain")
    return rows.select("*", *ABOUT)

@dp.table
def plain_all():
    return spark.readStream.table("plain")

@dp.table
def plain_few():
    return spark.readStream.table("plain").where("n > 3 AND name IS NOT NULL").select("id", F.upper("name").alias("big"), "price")

@dp.table
@dp.expect_or_drop("priced", "price > 10")
def plain_judged():
    return spark.readStream.table("plain").select("id", "price", F.expr("n * 2 AS twice"), "file_name")

@dp.temporary_view
def headed():
    return by_file(IN, 3).schema(SCHEMA).option("header", True).option("sep", ";").option("escape", '"').csv(IN + "/headed")

@dp.table
def headed_ids():
    return spark.readStream.table("headed").select("id", "name")

@dp.table
def headed_days():
    return spark.readStream.table("headed").where("id IS NOT NULL").select("id", "day", "d")

@dp.table
def dropped():
    rows = by_file(IN, 100).schema(SCHEMA).option("mode", "DROPMALFORMED").option("comment", "#")
    return rows.option("nullValue", "NA").csv(IN + "/dropped").select("id", "name", "n")

@dp.table
def parted():
    return by_file(IN, 100).schema("id BIGINT, name STRING, day DATE").csv(IN + "/parted")

@dp.table
def fast():
    return by_file(IN, 100).schema("id INT, name STRING").option("mode", "FAILFAST").csv(IN + "/fast")

@dp.table
def checked():
    return by_file(IN, 100).schema("id INT, name STRING").options(header=True, enforceSchema=False).csv(IN + "/checked")

@dp.table
@sources.dead_letters
def lettered():
    rows = sources.files(IN + "/dropped", "csv", schema=SCHEMA, dead_letters=True)
    return rows.select("id", "n", "_dead_letter")  # other columns are carried along, and then needed by nobody

@dp.table
def blocks():
    return by_file(IN, 100).schema("id INT, name STRING").csv(IN + "/fast").select("id", "_metadata")

@dp.table
def large_blocks():
    return by_file(IN, 100).schema("id INT").csv(IN + "/dropped").select("id", "_metadata.file_block_length")

@dp.table
def payloads():
    rows = by_file(IN, 100).schema("id INT, payload STRING").option("sep", ";").option("quote", "").csv(IN + "/payloads")
    return rows.select("id", F.from_json("payload", "a INT, b STRING").alias("p"))
"""  # noqa: E501  of the pipeline


def _lines(separator: bytes = b",") -> list[bytes]:
    plain = [
        f"{i},name {i},{i}.5,{i % 7},2026-01-{i % 28 + 1:02d}T03:04:05Z,2026-02-0{i % 9 + 1},"
        f"{('true', 'FALSE')[i % 2]},{i / 3}"
        for i in range(60)
    ]
    odd = [
        f"{i},{text},1,{i},{('', '2026-1-2')[i % 9 == 0]},,,".replace("\n", "").replace("\r", "")
        for i, text in enumerate(POOL)
    ]
    more = ["", "  ", "1,short", '7,"a, b",3.25,4,,,,', "8,x,,,,,,,,too,many", "#9,comment,,,,,,", "x,,,,,,,"]
    more += ["NA,NA,,NA,,,,"]
    found = [line.encode("utf-8", "surrogatepass") for line in [*plain, *odd, *more]]
    return [line.replace(b",", separator) for line in [*found, b"10,\xff\xfe,1,1,,,,"]]


def test_tables_are_the_same_to_the_bit(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_files, "_SMALLEST", 900)  # so that files are parted
    monkeypatch.setattr(native_files, "_NOT_PARTED", 900)
    lines, head = _lines(), b"id;name;price;n;at;day;ok;d"
    semicolons = _lines(b";")
    land(tmp_path / "in" / "plain", {
        "0.csv": b"\n".join(lines),
        "1.csv": b"\xef\xbb\xbf" + b"\r\n".join(lines[:90]) + b"\r\n",
        "2.csv.gz": gzip.compress(b"\r".join(lines[50:])),
        "3.csv": b"",
        "4.csv": b"\n\n",
    })  # fmt: skip
    land(tmp_path / "in" / "headed", {
        "0.csv": b"\n".join([head, *semicolons]),
        "1.csv": head,
        "2.csv": head + b"\n",
        "3.csv": b"\xef\xbb\xbf" + b"\r\n".join([head, *semicolons[:70]]),
        "4.csv": b"\n" + b"\n".join([head, *semicolons[:5]]),  # what comes before it, is Spark's to skip
    })  # fmt: skip
    land(tmp_path / "in" / "dropped", {"0.csv": b"\n".join(lines)})
    land(tmp_path / "in" / "parted" / "day=2026-02-03", {"0.csv": b"1,a\n2,b\n"})
    land(tmp_path / "in" / "fast", {"0.csv": b"1,a\n2,b\n"})
    land(tmp_path / "in" / "checked", {"0.csv": b"id,name\n2,b\n"})
    land(tmp_path / "in" / "payloads", {"0.csv": b'1;{"a":1,"b":"x"}\n2;{"a":"1"}\n3;\n'})
    by_spark, natively = (Ran(tmp_path / f"{mode} [a] {{b}} é,", spark, mode) for mode in ("false", "audit"))
    for ran in (by_spark, natively):
        ran.write(CODE, tmp_path / "in")
        assert ran.run() is None
    how = natively.how()
    assert how.pop("parted") == "fused, spark: reads columns that are in the names of folders"
    assert set(how.values()) == {"native"}
    for table in by_spark.schemas():
        expected, found = by_spark.rows(table), natively.rows(table)
        assert (found - expected, expected - found) == ({}, {}), table
    assert natively.counts() == by_spark.counts()
    assert natively.quality() == by_spark.quality()
    assert natively.records("plain")["native"] > 250
    assert natively.records("plain")["spark"] > 100
    assert natively.records("headed")["native"] > 100
    assert natively.records("dropped")["native"] > 60
    assert natively.records("payloads")["native"] >= 2  # JSON in a column: Spark reads the files
    assert natively.records("lettered")["native"] > 60
    assert natively.records("fast") == {"native": 2, "spark": 0}
    assert natively.records("checked") == {"native": 1, "spark": 0}
    assert natively.records("blocks") == {"native": 2, "spark": 0}
    assert not natively.records("large_blocks")  # Spark parts files in its own way
    assert not natively.records("parted")
    assert not list(natively.root.glob("**/left")), "no lines are left behind"


FAILING = """
@dp.table
def fast():
    return by_file(IN, 100).schema("id INT, name STRING").option("mode", "FAILFAST").csv(IN + "/fast")

@dp.table
def headed():
    return sources.files(IN + "/headed", "csv", schema="id INT, name STRING", options={"header": True})

@dp.table
def summed():
    return by_file(IN, 100).schema("id INT, name STRING").csv(IN + "/summed").select(F.expr("id + 2147483647 AS more"))
"""


def test_what_fails_fails_the_same_and_leaves_nothing_behind(tmp_path: Path, spark: Any) -> None:
    land(tmp_path / "in" / "fast", {"0.csv": b"1,a\nx,b\n"})
    land(tmp_path / "in" / "headed", {"0.csv": b"id,name\n1,a\n", "1.csv": b"name,id\nb,2\n"})
    land(tmp_path / "in" / "summed", {"0.csv": b"0,a\n+5,b\n"})
    failed = {}
    for mode in ("false", "true"):
        ran = Ran(tmp_path / mode, spark, mode)
        ran.write(FAILING, tmp_path / "in")
        error = ran.run()
        assert error is not None
        failed[mode] = ran.failures()
        assert not list(ran.root.glob("**/left"))
    assert failed["true"] == failed["false"]
    assert failed["true"].keys() == {"fast", "headed", "summed"}


def test_lines_that_are_left_are_read_from_a_file_that_is_gone_afterwards(tmp_path: Path, spark: Any) -> None:
    checkpoint = tmp_path / "a=1 {b}" / "[c]"
    (checkpoint / "left" / "of a run that was killed").mkdir(parents=True)
    (checkpoint / "left" / "0.json").write_text('{"id":5}')
    columns = StructType().add("id", "long").add("odd `name`", "string")
    documents = Documents("json", JsonShape(columns.json()), columns.json(), {}, False)
    lines = [b'\xef\xbb\xbf{"id":1}', b'[{"id":2},{"id":3}]', '{"id":4}'.encode("utf-16-le"), b'{"odd `name`":[1e3]}']
    about = [{"file_name": name, "file_size": 1} for name in "abab"]
    table = pa.table({LINE: pa.array(lines, pa.binary()).cast(pa.string(), safe=False), "raw_7": pa.array(about)})
    told = StructType().add("file_name", "string").add("file_size", "long")
    names = {"odd `name`": "raw_2", "id": "raw_1"}
    found = {}
    for which in (None, ("raw_7", told)):
        with left_lines(spark, documents, names, table, which, checkpoint) as rows:
            found[which is None] = sorted((row.asDict() for row in rows.collect()), key=repr)
            assert [path.name for path in (checkpoint / "left").iterdir()] != ["0.json"]
        assert not (checkpoint / "left").exists()
    plain = [{"raw_2": None, "raw_1": n} for n in (1, 2, 3, 4)]
    assert found[True] == sorted([*plain, {"raw_2": "[1e3]", "raw_1": None}], key=repr)
    assert {(row["raw_1"], row["raw_7"]["file_name"]) for row in found[False]} == {
        (1, "a"), (2, "b"), (3, "b"), (4, "a"), (None, "b"),
    }  # fmt: skip
    with pytest.raises(ZeroDivisionError), left_lines(spark, documents, names, table, None, checkpoint):
        raise ZeroDivisionError
    assert not (checkpoint / "left").exists()

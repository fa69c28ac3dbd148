"""Audit: Spark computes a sample again; and native flows beside one that only Spark computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.engine import native_pass
from anabranch.native import expressions
from native.native_project import Ran, land

pytestmark = pytest.mark.spark

CODE = """
@dp.temporary_view
def lines():
    return spark.readStream.text(IN).select("_metadata", F.from_json("value", "id BIGINT, name STRING, tags ARRAY<STRING>").alias("e"))

@dp.table
def names():
    return spark.readStream.table("lines").select("e.id", F.upper("e.name").alias("name"))

@dp.table
def tags():
    return spark.readStream.table("lines").select("e.id", F.explode("e.tags").alias("tag"))

@dp.table
def some():
    return spark.readStream.table("lines").where("e.id % 2 = 0").select("e.*", "_metadata.file_name")

@dp.table
def hashed():
    return spark.readStream.table("lines").select("e.id", F.xxhash64("e.name").alias("hash"))
"""  # noqa: E501  of the pipeline
LINES = b"".join(
    line + b"\n"
    for line in (
        b'{"id":1,"name":"ann","tags":["a","b"]}',
        b'{"id":2,"name":"\xc3\x9f","tags":[]}',  # its upper case is left to Spark
        b'{"id":"3","name":"bob"}',
        b"nope",
        b'{"id":4,"name":null,"tags":["c"]}',
    )
)
TABLES = ("names", "tags", "some", "hashed")


def test_an_audited_run_beside_a_flow_that_only_spark_computes(tmp_path: Path, spark: Any) -> None:
    land(tmp_path / "in", {"a.json": LINES, "b.json": LINES})
    by_spark, audited = (Ran(tmp_path / mode, spark, mode) for mode in ("false", "audit"))
    for ran in (by_spark, audited):
        ran.write(CODE, tmp_path / "in")
        assert ran.run() is None
    assert audited.how()["hashed"].startswith("fused, spark: calls `XxHash64`")
    assert {audited.how()[name] for name in TABLES[:3]} == {"native"}
    assert sum(by_spark.rows("names").values()) == 10
    for table in TABLES:
        assert audited.rows(table) == by_spark.rows(table), table
    (channel,) = {event.channel for event in audited.published}
    assert audited.records(channel) == {"native": 6, "spark": 4}


def test_a_difference_stops_the_epoch_before_it_is_decided(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path / "in", {"a.json": LINES})
    ran = Ran(tmp_path / "lake", spark, "audit")
    ran.write(CODE.partition("@dp.table\ndef hashed")[0], tmp_path / "in")
    with monkeypatch.context() as wrong:
        wrong.setitem(expressions.TABLE, "Upper", expressions.TABLE["Lower"])
        failed = ran.run()
    assert failed is not None
    assert failed.code == "NATIVE_DIFFERS"
    assert "'ann'" in failed.message
    assert "'ANN'" in failed.message
    assert ran.published == []
    assert ran.run() is None
    assert sum(ran.rows("names").values()) == 5


def test_an_audited_epoch_without_records(tmp_path: Path, spark: Any) -> None:
    land(tmp_path / "in", {"empty.json": b""})
    ran = Ran(tmp_path / "lake", spark, "audit")
    ran.write(CODE, tmp_path / "in")
    assert ran.run() is None
    land(tmp_path / "in", {"a.json": LINES})
    assert ran.run() is None
    assert [event.records for event in ran.published] == [{"native": 0, "spark": 0}, {"native": 3, "spark": 2}]
    assert sum(ran.rows("names").values()) == 5


def test_a_file_that_goes_before_it_is_audited(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path / "in", {"a.json": LINES})
    ran = Ran(tmp_path / "lake", spark, "audit")
    ran.write(CODE.partition("@dp.table\ndef hashed")[0], tmp_path / "in")
    with monkeypatch.context() as wrong:

        def first(*given: Any, **more: Any) -> Any:
            passed = natively(*given, **more)
            (tmp_path / "in" / "a.json").unlink()
            return passed

        natively = native_pass._natively
        wrong.setattr(native_pass, "_natively", first)
        failed = ran.run()
    assert failed is not None
    assert failed.code == "SOURCE_FILE_GONE"
    assert ran.published == []
    land(tmp_path / "in", {"a.json": LINES})
    assert ran.run() is None
    assert sum(ran.rows("names").values()) == 5

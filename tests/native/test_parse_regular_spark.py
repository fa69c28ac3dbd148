"""Documents and times of one form are read as Spark reads them, whatever their values are."""

# ruff: noqa: E501  (tables of values)
from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.native.parse import refused
from anabranch.native.times import DATE, INSTANT, LOCAL, read_times
from native.fuzz import counted
from native.json_against_spark import Case, compared
from native.json_documents import array, struct
from native.regular_documents import HOSTILE, Block, regular_schema

pytestmark = pytest.mark.spark

#: Each with a value in place of %s: of a document with all fields and more, or with none but those of the schema.
COMPLETE = ['{"a":%s,"b":"y"}', '{"b":"NaN?", "z":%s, "a":null}', '{ "b" :"\\"a\\":" , "a" : %s,"":{"a":[1],"a":2}}']
PARTIAL = [
    '{"a":%s}',
    '{"l":[null,%s],"a":null}',
    '{"l":[%s]}',
    '{"s":{"a":%s}}',
    '{"ls":[{"a":%s},null]}',
    '{"ll":[[%s]]}',
    '{"ll":[[],%s]}',
]

OPTIONS: list[dict[str, str]] = [
    {},
    {"mode": "FAILFAST"},
    {"columnNameOfCorruptRecord": "b"},
    {"primitivesAsString": "true"},
]


def filled(places: list[str], dice: random.Random) -> list[bytes | None]:
    """Some of the hostile values in each place."""
    return [place.replace("%s", value).encode() for place in places for value in dice.sample(HOSTILE, 16)]


def test_hostile_values_in_blocks_of_their_own(spark: Any) -> None:
    dice = random.Random(5)
    cases = []
    for kind in ("boolean", "byte", "long", "double", "string", "date", "timestamp"):
        nested = (("l", array(kind)), ("s", struct(("a", kind))), ("ls", array(struct(("a", kind)))))
        complete = struct(("a", kind), ("b", "string"))
        cases.append(Case(complete, filled(COMPLETE, dice), OPTIONS[len(cases) // 2 % len(OPTIONS)]))
        cases.append(Case(struct(("a", kind), *nested, ("ll", array(array(kind)))), filled(PARTIAL, dice)))
    with counted() as sizes:
        differences, shares = compared(spark, cases, few=1)
    assert not differences[:5]
    assert sum(sizes) > 0.2 * sum(len(case.documents) for case in cases)
    assert sum(shares) > 0.5 * len(shares)


def test_random_blocks(spark: Any) -> None:
    dice = random.Random(23)
    cases: list[Case] = []
    while len(cases) < 24:
        schema = regular_schema(dice)
        blocks = [Block(schema, dice).documents(8) for _ in range(12)]
        case = Case(schema, [text for block in blocks for text in block], dice.choice(OPTIONS))
        if not refused(case.shape):
            cases.append(case)
    with counted() as sizes:
        differences, _ = compared(spark, cases, few=8)
    assert not differences[:5]
    assert sum(sizes) > 0.25 * sum(len(case.documents) for case in cases)


YEARS = [(1582, 1583), (1599, 1600), (1600, 1601), (1700, 1900), (1999, 2000), (2000, 2024), (2025, 9999)]
RESTS = {
    DATE: [""],
    LOCAL: ["T00:00:00", " 23:59:59", "T01:02:03.456", " 01:02:03.456789", "T24:00:00", "T23:59:60", "T12:00:00.1234567"],
    INSTANT: ["T00:00:00Z", " 23:59:59Z", "T01:02:03.456Z", " 01:02:03.456789Z", "T24:00:00Z", "T23:59:60Z", "T12:00:00.12345678Z",
              "T00:30:00+01:00", " 23:30:00.999999-17:59", "T12:00:00", " 12:00:00.123456", ""],
}  # fmt: skip
NAMES = {DATE: "date", LOCAL: "timestamp_ntz", INSTANT: "timestamp"}


def test_times_of_one_form(spark: Any) -> None:
    from pyspark.sql import functions as f

    rows = []
    for kind, rests in RESTS.items():
        for rest in rests:
            for years in YEARS:
                days = [
                    f"{y}-{m:02d}-{d:02d}"
                    for y in years
                    for m in range(14)
                    for d in (0, 1, 4, 5, 14, 15, 28, 29, 30, 31, 32)
                ]
                rows.append((kind, [day + rest for day in days]))
    texts = [text for _, block in rows for text in block]
    frame = spark.createDataFrame(pa.table({"row": pa.array(range(len(texts))), "v": texts}))
    read = [f.from_json(f.to_json(f.struct("v")), f"v {name}")["v"].alias(name) for name in NAMES.values()]
    cast = [f.col("v").try_cast(name).alias(f"cast_{name}") for name in NAMES.values()]
    answer = frame.select("row", *read, *cast, f.try_to_timestamp("v").alias("to")).toArrow().sort_by("row")
    start = certain = 0
    for kind, block in rows:
        names = [NAMES[kind], f"cast_{NAMES[kind]}", *(["to"] if kind == INSTANT else [])]
        theirs = [answer[name].combine_chunks()[start : start + len(block)].cast(kind) for name in names]
        start += len(block)
        times, odd = read_times(pa.array(block), kind, utc=True, days=kind == INSTANT)
        sure = pa.array([True] * len(block)) if odd is None else pc.invert(pa.array(odd))
        certain += sure.true_count
        alone, none = read_times(pa.array(block).filter(sure), kind, utc=True, days=kind == INSTANT)
        assert none is None  # the quick way, if they are of one form
        for there in theirs:
            assert times.filter(sure).equals(there.filter(sure)), (kind, block[0], block[-1])
            assert alone.equals(there.filter(sure)), (kind, block[0], block[-1])
    assert certain > 0.4 * len(texts)

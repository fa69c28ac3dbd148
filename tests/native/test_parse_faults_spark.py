"""Records with faults are what Spark makes of them: documents that are cut anywhere, values of any wrong type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from anabranch.native.parse import JsonParser, refused
from native.json_against_spark import Case, compared, plain
from native.json_documents import LEAVES, array, struct

pytestmark = pytest.mark.spark

#: Brackets, quotes and escapes within texts, objects within arrays, unknown fields, odd spaces; not all of it is valid.
CUT = [
    r'{"a":12,"b":"x{y}\"z\\","s":{"a":-1.5e3,"t":{"b":"q"},"z":[{"a":1}]},"l":[1,2,null],"ls":[{"a":1},{"a":2}],"c":true}',
    r'{"z":{"z":[[],{"a":{"b":null}}]},"ls":[{"b":"}]"},null,{}],"s":{"z":{"a":"\u0041\ud83d\ude00"},"b":"ä€😀"},"a":1}',
    '{ "s" : { "b" : "x" , "t" : { "b" : false } } ,\t"a" : 10 , "l" : [ 1 , [ 2 ] ] , "b" : null }',
    '{"a":"wrong","l":["x",{"a":[1]}],"s":[{"b":1}],"ls":[{"a":"x","b":2},5,{"a":1}],"b":{"x":"y"},"c":"true"}',
    "{'a':1,'b':'x}\"','s':{'a':1,\"b\":'y'},\"l\":[1],b2:5,/* } */ \"c\":true // }\n}",
    '{"a":1,"a":2,"b":"\\q","s":{"a":NaN,"b":"\\u00"},"l":[01,+1],"ls":[{"a":tru},{"b":nul}],"c":1.}',
    '{"a":1}{"a":2,"s":{"a":3},"b":"x"}',
    '{"a":1,"b":"tab\there","s":{"b":"line\nend"},"l":[1,2],}',
]

CUT_SCHEMAS = [
    struct(("a", "long"), ("b", "string"), ("c", "boolean")),
    struct(
        ("a", "long"),
        ("s", struct(("a", "double"), ("b", "string"), ("t", struct(("b", "string"))))),
        ("l", array("long")),
        ("ls", array(struct(("a", "integer"), ("b", "string")))),
        ("b", "string"),
    ),
    struct(("ls", array(struct(("b", "string")))), ("z", struct(("z", array(array("string"))))), ("b", "timestamp")),
]

OPTIONS: list[dict[str, str]] = [
    {},
    {"mode": "FAILFAST"},
    {"allowComments": "true", "allowUnquotedFieldNames": "true", "allowNumericLeadingZeros": "true"},
    {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "allowUnquotedControlChars": "true"},
    {"allowBackslashEscapingAnyCharacter": "true"},
]

VALUES = [
    "1", "-1", "0", "-0", "1.0", "1e3", "-0.0", "300", "200", "-129", "40000", "3000000000", "9223372036854775808",
    "123456789012345678901234567890", "1e400", "true", "false", "null", '""', '"x"', '"15"', '"true"', '"NaN"',
    '"-INF"', '"Infinity"', '"N/A"', '"2026-01-02"', '"2026-01-02T03:04:05Z"', '"\\u0041"', '"a\\"}"', '"{"', "[]",
    "[1]", '["x"]', "[[1]]", "[null]", "{}", '{"a":1}', '{"a":"x"}', '{"a":{"a":1}}', '[{"a":1}]',
    '[{"a":"x"},{"a":2}]', '[1,"x",{"a":1},[2]]', '[{"a":1},5,{"a":2}]', '[["x"],[1]]', '[{"a":[1]},{"a":{"a":1}}]',
    "[1,2.5]", "[true,1]",
]  # fmt: skip

PLACES = [
    '{"b":"y","a":%s,"c":7}', '{"c":7,"s":{"b":"y","a":%s,"c":7},"b":"z"}', '{"l":%s,"b":"x"}', '{"l":[%s],"b":"x"}',
    '{"ls":[{"a":%s,"b":"q"},{"a":null,"b":"r"},%s],"b":"x"}', '{"z":{"a":%s},"b":"x", "c" :8}', '{"b":%s,"c":%s}',
    '{"x":"\\"a\\":","a" : %s }', '{"ll":[[%s]],"s":%s,"c":9}', '{"\\u0061":%s,"c":1}', '{"z":{"a":1},"a":%s}',
]  # fmt: skip


def cut_cases() -> list[Case]:
    cases = []
    for number, schema in enumerate(CUT_SCHEMAS):
        documents: list[bytes | None] = []
        for text in CUT:
            whole = text.encode()
            documents += [whole[:end] for end in range(len(whole) + 1)]
            documents += [whole[:end] + b" \n" for end in range(0, len(whole), 7)]
        documents = list(dict.fromkeys(documents))
        noted = struct(("_corrupt_record", "string"), *((f["name"], f["type"]) for f in schema["fields"]))
        cases += [Case(schema, documents, options) for options in (OPTIONS if number == 1 else OPTIONS[:2])]
        cases += [Case(noted, documents, options) for options in (OPTIONS if number == 1 else OPTIONS[:2])]
    return cases


def typed_cases() -> list[Case]:
    documents = [place.replace("%s", value).encode() for place in PLACES for value in VALUES]
    cases = []
    for kind in LEAVES:
        inner = struct(("a", kind), ("b", "string"))
        fields: list[tuple[str, Any]] = [("a", kind), ("b", "string"), ("c", "long"), ("s", inner), ("l", array(kind))]
        fields += [("ls", array(inner)), ("ll", array(array(kind)))]
        cases.append(Case(struct(*fields), documents))
        if kind in ("long", "timestamp"):
            cases.append(Case(struct(("_corrupt_record", "string"), *fields), documents))
            cases.append(Case(struct(*fields), documents, {"mode": "FAILFAST"}))
            cases.append(Case(struct(("a", array(inner)), ("b", inner), ("c", "string")), documents))
    return cases


@pytest.mark.parametrize("few", [1, 60])
def test_documents_that_are_cut(spark: Any, few: int) -> None:
    cases = cut_cases() if few > 1 else cut_cases()[2:4]
    assert not any(refused(case.shape) for case in cases)
    differences, shares = compared(spark, cases, few)
    assert not [(d.document, d.case.options, d.native, d.spark) for d in differences[:5]]
    assert min(share for share, case in zip(shares, cases, strict=True) if "mode" not in case.options) > 0.3


def test_lines_of_files(spark: Any, tmp_path: Path) -> None:
    """Files are read by another parser of Jackson's, which takes bytes."""
    for number, case in enumerate([*cut_cases()[:4:2], *typed_cases()]):
        if "mode" in case.options:
            continue
        parsed = JsonParser(case.shape).parse(pa.array(case.documents, pa.binary()))
        sure = [n for n, doubted in enumerate(parsed.doubt.to_pylist()) if not doubted]
        sure = [n for n in sure if (text := case.documents[n]) and text.strip() and not {10, 13} & set(text)]
        path = tmp_path / f"{number}.json"
        path.write_bytes(b"".join((case.documents[n] or b"") + b"\n" for n in sure))
        read = spark.read.schema(StructType.fromJson(case.schema)).options(**case.options).json(str(path))
        there = read.toArrow().to_struct_array().combine_chunks()
        assert len(there) == len(sure) > 50
        pairs = zip(parsed.records.take(pa.array(sure)), there, sure, strict=True)
        shown = [(case.documents[n], repr(plain(one)), repr(plain(other))) for one, other, n in pairs]
        assert not [each for each in shown if each[1] != each[2]][:5]


@pytest.mark.parametrize("few", [1, 40])
def test_values_of_wrong_types(spark: Any, few: int) -> None:
    kinds = LEAVES if few > 1 else ["integer", "double"]
    cases = [case for case in typed_cases() if case.schema["fields"][0]["type"] in kinds or few > 1]
    differences, shares = compared(spark, cases, few)
    assert not [(d.document, json.dumps(d.case.schema), d.native, d.spark) for d in differences[:5]]
    assert max(shares) > 0.6, shares

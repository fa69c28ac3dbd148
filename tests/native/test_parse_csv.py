"""Lines of CSV without Spark: what is read, what is doubted, and which files are not read here."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.engine.native_files import FileFeed, Split
from anabranch.engine.native_rows import CannotRead
from anabranch.native.parse_csv import CsvParser
from anabranch.native.parse_csv_shape import CsvShape, Heading, csv_refused, heading_of
from native.csv_against_spark import Case, parsed, random_case


def schema(*types: Any) -> str:
    fields = [{"name": f"c{i}", "type": t, "nullable": True, "metadata": {}} for i, t in enumerate(types)]
    return json.dumps({"type": "struct", "fields": fields})


def read(lines: list[bytes], *types: str, **options: str) -> list[Any]:
    """The values of each line; "?" for one that is doubted, None for one that is no record."""
    shape = CsvShape(schema(*types), tuple(f"c{i}" for i in range(len(types))), options)
    found = CsvParser(shape).parse(pa.array(lines, pa.binary()))
    doubt = found.doubt.to_pylist() if found.doubt else [False] * len(lines)
    rows = [row and list(row.values()) for row in found.records.to_pylist()]
    return ["?" if doubted else row for row, doubted in zip(rows, doubt, strict=True)]


def test_lines_that_are_not_plain_are_doubted_by_themselves() -> None:
    lines = [
        b"1,a",
        b"x,a",
        b"2",
        b"3,a,b",
        b'4,"a,b"',
        b'5,"a""b"',
        b'6,"a\\"b"',
        b'7,a"b',
        b"8,\xff",
        b"9,a\0",
        b"10,a",
    ]
    assert read(lines, "long", "string") == [
        [1, "a"], "?", "?", "?", [4, "a,b"], "?", "?", "?", "?", "?", [10, "a"],
    ]  # fmt: skip


def test_nothing_is_null_and_so_is_what_is_said_to_be() -> None:
    lines = [b",", b'"",""', b"NA,NA", b'"NA",x']
    assert read(lines, "long", "string") == [[None, None], [None, None], "?", "?"]
    assert read(lines, "string", "string", nullValue="NA") == [[None, None], "?", [None, None], [None, "x"]]
    assert read([b'x,""'], "string", "string", emptyValue="e") == ["?"]


def test_blank_lines_and_comments_are_no_records() -> None:
    assert read([b"", b"  ", b"\t", b"# x", b"#", b" #", b"1"], "long", comment="#") == [None] * 5 + ["?", [1]]
    assert read([b"\t", b"a\tb", b"\tb"], "string", "string", sep="\\t") == [None, ["a", "b"], [None, "b"]]


@pytest.mark.parametrize(
    ("kind", "sure", "doubted"),
    [
        ("byte", {"127": 127, "-128": -128, "007": 7, "-0": 0}, ["128", "+1", "1.0", " 1", "1e1", "", "0x1", "١"]),
        ("long", {"8999999999999999999": 8999999999999999999}, ["9223372036854775808", "--1", "1-", "-"]),
        ("double", {"1.5": 1.5, "-2": -2.0}, ["1e3", "NaN", "Inf", "1.", ".5", "1d", "0x1p3"]),
        ("boolean", {"true": True, "FALSE": False}, ["t", "1", "fal\u017fe", " true"]),
        ("date", {"2024-02-29": None}, ["2026-02-30", "2026-1-2", "2026-01-02T00:00:00", "0001-01-01"]),
        ("decimal(5,2)", {"123.45": None, "-1": None}, ["1234.5", "1.234", "1e2", "+1", "1,000"]),
    ],
)
def test_only_the_plainest_forms_are_certain(kind: str, sure: dict[str, Any], doubted: list[str]) -> None:
    for text, value in sure.items():
        (row,) = read([f"{text};x".encode()], kind, "string", sep=";")
        assert row != "?"
        assert value is None or row[0] == value
    odd = [text for text in doubted if text]
    assert read([f"{text};x".encode() for text in odd], kind, "string", sep=";") == ["?"] * len(odd)
    both = [f"{text};x".encode() for text in [*sure, *odd]]
    assert [row == "?" for row in read(both, kind, "string", sep=";")] == [False] * len(sure) + [True] * len(odd)


def test_lines_are_read_alike_alone_and_among_others() -> None:
    dice = random.Random(3)
    for _ in range(30):
        case = random_case(dice, 40)
        records, doubt = parsed(case)
        for number, line in enumerate(case.lines):
            one, odd = parsed(Case(case.columns, case.needed, [line], case.options))
            assert odd == [doubt[number]], (line, case.options)
            assert odd == [True] or one == [records[number]], (line, case.options)


def test_columns_that_nobody_needs_only_count() -> None:
    shape = CsvShape(schema("long", "long", "string"), ("c2",))
    found = CsvParser(shape).parse(pa.array(["x,y,a", "1,b", "1,2,"]))
    assert found.records.to_pylist() == [{"c2": "a"}, None, {"c2": None}]
    assert found.doubt is not None
    assert found.doubt.to_pylist() == [False, True, False]


def test_very_long_lines_and_marks_are_doubted() -> None:
    assert read([b"x" * 600_000 + b",1", b"\xef\xbb\xbfa,1", b"a,\xef\xbb\xbf"], "string", "string") == [
        "?",
        "?",
        ["a", "\ufeff"],
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sep": "||"}, "parted by"),
        ({"sep": ""}, "parted by"),
        ({"sep": "1"}, "parted by"),
        ({"quote": "ab"}, "option quote"),
        ({"quote": ",", "sep": ","}, "option quote"),
        ({"escape": ""}, "cannot be escaped"),
        ({"comment": '"'}, "option comment"),
        ({"ignoreLeadingWhiteSpace": "true"}, "option ignoreleadingwhitespace"),
        ({"header": "true", "enforceSchema": "perhaps"}, "option enforceschema"),
        ({"mode": "odd"}, "option mode"),
        ({"dateFormat": "yyyy"}, "option dateformat"),
        ({"nanValue": "0"}, "option nanvalue"),
        ({"maxColumns": "1"}, "option maxcolumns"),
        ({"locale": "de"}, "option locale"),
        ({"charToEscapeQuoteEscaping": "x"}, "option chartoescapequoteescaping"),
        ({"timeZone": "Nonsense"}, "option timezone"),
        ({"header": "true", "unescapedQuoteHandling": "raise_error"}, "in the line of names too"),
    ],
)
def test_options_that_are_not_known(options: dict[str, str], words: str) -> None:
    assert words in (csv_refused(CsvShape(schema("date", "string"), ("c0", "c1"), options)) or "")


def test_schemas_that_are_not_known() -> None:
    for kind in ("binary", {"type": "array", "elementType": "long", "containsNull": True}):
        assert "not read natively" in (csv_refused(CsvShape(schema(kind), ("c0",))) or "")
        assert csv_refused(CsvShape(schema(kind, "long"), ("c1",))) is None  # nobody needs it
    assert csv_refused(CsvShape(schema("timestamp", "long"), ("c1",), {"timestampFormat": "yyyy"})) is None
    named = schema("long", "long").replace("c1", "C0")
    assert "two of one name" in (csv_refused(CsvShape(named, ("c0",))) or "")


def test_the_heading_is_left_out_where_a_file_begins(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,name\n1,a\n2,b\n")

    def lines(heading: Heading | None, start: int = 0) -> list[str]:
        split = Split("u", str(path), start, 16 - start, 16, 0)
        found = FileFeed("line", None, True, heading).batches([split])
        return [line for batch in found for line in batch.column("line").to_pylist()]

    plain, commented = Heading(), Heading("#")
    assert lines(plain) == lines(commented) == ["1,a", "2,b"]
    assert lines(None) == ["id,name", "1,a", "2,b"]
    assert lines(plain, 9) == ["2,b"]
    for begins in (b"\nid,name\n", b"# x\nid,name\n", b"x" * 30_000):
        path.write_bytes(begins)
        with pytest.raises(CannotRead):
            lines(commented)
    path.write_bytes(b"")
    assert lines(plain) == []


def test_names_that_are_compared_are_those_of_the_schema(tmp_path: Path) -> None:
    """Of other ones, or in another order, Spark says what is wrong."""
    compared = CsvShape(schema("long", "string"), ("c1",), {"header": "true", "enforceSchema": "false"})
    heading = heading_of(compared)
    assert heading is not None
    assert [heading.is_first(line) for line in (b"c0,c1", b'"c0","c1"', b"c1,c0", b"C0,c1", b"c0", b"c0,c1,", b"")] == [
        *(True, True, False, False, False, False, False),
    ]
    assert heading_of(replace(compared, options={"enforceSchema": "false"})) is None
    odd = replace(compared, schema=compared.schema.replace("c0", " c0"))
    assert "unusual" in (csv_refused(odd) or "")


def test_columns_in_names_of_folders_are_left_to_spark(tmp_path: Path) -> None:
    path = tmp_path / "day=1" / "a.csv"
    path.parent.mkdir()
    path.write_bytes(b"1,a\n")
    with pytest.raises(CannotRead):
        list(FileFeed("line", None, True).batches([Split("u", str(path), 0, 4, 4, 0)]))
    assert list(FileFeed("line").batches([Split("u", str(path), 0, 4, 4, 0)]))

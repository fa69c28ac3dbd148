"""The parser without Spark: nothing raises, nothing is out of place, plain records are read."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.native import parse, parse_pieces
from anabranch.native.parse import JsonParser, JsonShape, refused
from anabranch.native.parse_schema import Refused
from native.json_documents import array, by_hand, random_document, random_schema, schemas_by_hand, struct

EVENT = struct(
    ("id", "long"),
    ("user", struct(("id", "integer"), ("name", "string"), ("vip", "boolean"))),
    ("at", "timestamp"),
    ("day", "date"),
    ("amount", "double"),
    ("tags", array("string")),
    ("errors", array(struct(("code", "short"), ("at", "timestamp")))),
)


def event(number: int, dice: random.Random) -> dict[str, Any]:
    """A plain record, some of whose fields are missing or null."""
    record = {
        "id": number,
        "user": {"id": dice.randrange(1000), "name": 'Zoë\n"x"', "vip": dice.random() < 0.5},
        "at": f"2026-01-{dice.randrange(1, 29):02d}T10:11:12.{dice.randrange(1000):03d}Z",
        "day": "2024-02-29",
        "amount": dice.randrange(10_000) / 100,
        "tags": ["a", None, "NaN, Inf"][: dice.randrange(4)],
        "errors": [{"code": 5, "at": "2026-01-02 03:04:05+01:00"}, None, {}][: dice.randrange(4)],
        "not asked for": [1, {"x": None}],
    }
    for name in dice.sample(list(record)[1:], 2):
        record[name] = None
    record.pop(dice.choice(list(record)[1:]))
    return record


def parser(schema: dict[str, Any], **options: str) -> JsonParser:
    return JsonParser(JsonShape(json.dumps(schema), options))


def one(kind: Any, value: str) -> Any:
    """The value of the field `a`, or ... if it is doubted."""
    parsed = parser(struct(("a", kind))).parse(pa.array([f'{{"a":{value}}}']))
    return ... if parsed.doubt is not None else parsed.records[0].as_py()["a"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_plain_records_are_all_read(kind: pa.DataType) -> None:
    dice = random.Random(1)
    events = [event(number, dice) for number in range(3000)]
    texts = [json.dumps(e, ensure_ascii=n % 2 == 0, indent=2 if n % 7 == 0 else None) for n, e in enumerate(events)]
    parsed = parser(EVENT).parse(pa.array([text.encode() for text in texts], pa.binary()).cast(kind))
    assert parsed.doubt is None
    for record, expected in zip(parsed.records.to_pylist(), events, strict=True):
        assert record["id"] == expected["id"]
        for name in ("user", "amount", "tags"):
            assert record[name] == expected.get(name)


def test_rows_stay_in_place_among_bad_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_pieces, "PIECE", 5000)
    dice = random.Random(2)
    bad = [
        '{"id":"1"}',
        '{"id":1',
        "",
        "null",
        '{"id":1.5}',
        '{"tags":[1]}',
        '{"id":1,"id":2}',
        '{"id":1,}',
        "5",
        "{}{}",
    ]
    bad += ['{"user":{"id":3000000000}}', '{"day":"2026-02-30"}', '{"errors":[{"at":"x"}]}', '{"amount":1e999}', "[]"]
    texts = [dice.choice(bad) if dice.random() < 0.2 else json.dumps(event(n, dice)) for n in range(4000)]
    chunks = pa.chunked_array([texts[:100], texts[100:2000], [], texts[2000:]])
    known = {
        '{"id":"1"}': ("id", None),
        '{"id":1': ("id", None),
        '{"id":1.5}': ("id", None),
        '{"tags":[1]}': ("tags", ["1"]),
        '{"user":{"id":3000000000}}': ("user", {"id": None, "name": None, "vip": None}),
    }
    odd = [text in bad and text != "" and text not in known for text in texts]
    parsed = parser(EVENT).parse(chunks)
    assert parsed.doubt.to_pylist() == odd
    for text, record, doubted in zip(texts, parsed.records.to_pylist(), odd, strict=True):
        if doubted or not text:
            assert record is None
        elif text in known:
            assert {name: value for name, value in record.items() if value is not None} == (
                {known[text][0]: known[text][1]} if known[text][1] is not None else {}
            )
        else:
            assert record["id"] == json.loads(text)["id"]
    strict = parser(EVENT, mode="FAILFAST").parse(chunks)
    assert strict.doubt.to_pylist() == [text in bad and text != "" for text in texts]


def test_records_at_the_edges_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(3)
    texts = [json.dumps(event(number, dice)) for number in range(400)]
    for block in (1, 400, 777, 4096):
        monkeypatch.setattr(parse, "BLOCK", block)
        parsed = parser(EVENT).parse(pa.array(texts))
        assert parsed.doubt is None
        assert parsed.records.field(0).to_pylist() == list(range(400))


def test_reasons_that_cannot_be_looked_for_are_found_by_halves() -> None:
    good, bad = '{"q\\"t":1}', '{"q\\"t":"x"}'
    texts = [bad if n in (17, 400) else good for n in range(900)]
    parsed = parser(struct(('q"t', "long"))).parse(pa.array(texts))
    assert parsed.doubt is None
    assert [n for n, record in enumerate(parsed.records.to_pylist()) if record['q"t'] is None] == [17, 400]
    strict = parser(struct(('q"t', "long")), mode="FAILFAST")
    assert [n for n, odd in enumerate(strict.parse(pa.array(texts)).doubt.to_pylist()) if odd] == [17, 400]
    assert strict.parse(pa.array([bad] * 900)).doubt.true_count == 900


def test_hostile_documents_never_raise() -> None:
    documents = by_hand()
    for schema in schemas_by_hand():
        parsed = parser(schema).parse(pa.array(documents, pa.binary()))
        assert len(parsed.records) == len(documents) == len(parsed.doubt)
        assert parsed.doubt.null_count == 0
        parsed.records.validate(full=True)
        assert parsed.records.filter(parsed.doubt).null_count == parsed.doubt.true_count


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_random_documents_never_raise(seed: int) -> None:
    dice = random.Random(seed)
    schema = random_schema(dice)
    if refused(JsonShape(json.dumps(schema))) is None:
        documents = [random_document(schema, dice) for _ in range(8)]
        parsed = parser(schema).parse(pa.array(documents, pa.binary()))
        assert len(parsed.records) == len(documents)
        parsed.records.validate(full=True)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("long", "-0", 0),
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "9223372036854775808", None),
        ("byte", "200", ...),
        ("integer", "1.0", None),
        ("integer", '"15"', None),
        ("integer", "null", None),
        ("double", "1", 1.0),
        ("double", "-0", 0.0),
        ("double", "-0.0", ...),
        ("double", "NaN", ...),
        ("double", '"NaN"', ...),
        ("double", "1e400", ...),
        ("string", "1", "1"),
        ("string", '"NaN"', "NaN"),
        ("string", '"\\ud800"', ...),
        ("string", '"\\u0000\\/"', "\0/"),
        ("boolean", '"true"', None),
        ("date", '"2026-1-2"', ...),
        ("date", '"2026-02-30"', ...),
        ("date", '"1582-12-31"', ...),
        ("timestamp_ntz", '"2026-01-02T03:04:05.123456789"', datetime.datetime(2026, 1, 2, 3, 4, 5, 123456)),  # noqa: DTZ001
        ("timestamp", '"2026-01-02T03:04:05.1234567890Z"', ...),
        ("timestamp", '"2026-01-02T24:00:00Z"', ...),
        ("timestamp_ntz", '"2026-01-02T03:04:05Z"', ...),
        ("timestamp", "1", ...),
        (array("long"), "[1,null]", [1, None]),
        (array("long"), '[1,"2"]', None),
        (struct(("b", "long")), "{}", {"b": None}),
        (struct(("b", "long")), "[]", None),
    ],
)
def test_a_value(kind: Any, value: str, expected: Any) -> None:
    found = one(kind, value)
    assert found == expected
    assert type(found) is type(expected)


def test_the_field_for_bad_records_is_not_read() -> None:
    schema = struct(("_corrupt_record", "string"), ("a", "long"))
    parsed = parser(schema).parse(pa.array(['{"a":1,"_corrupt_record":"x"}', '{"_corrupt_record":5}', "{"]))
    assert parsed.records.to_pylist() == [
        {"_corrupt_record": None, "a": 1},
        {"_corrupt_record": None, "a": None},
        {"_corrupt_record": "{", "a": None},
    ]
    assert parsed.doubt is None
    other = parser(schema, columnNameOfCorruptRecord="bad").parse(pa.array(['{"_corrupt_record":"x"}']))
    assert other.records[0].as_py() == {"_corrupt_record": "x", "a": None}


def test_times_without_a_zone_are_doubted_where_the_zone_is_not_utc() -> None:
    texts = pa.array(['{"a":"2026-01-02T03:04:05"}', '{"a":"2026-01-02T03:04:05Z"}'])
    schema = struct(("a", "timestamp"))
    assert parser(schema).parse(texts).doubt is None
    assert parser(schema, timeZone="Europe/Berlin").parse(texts).doubt.to_pylist() == [True, False]
    berlin = JsonParser(JsonShape(json.dumps(schema), {}, "Europe/Berlin"))
    assert berlin.parse(texts).doubt.to_pylist() == [True, False]


def test_decimals_that_fit_are_read_and_others_doubted() -> None:
    values = ["1", "-1.50", "1e2", '"7.25"', "99999999.99", "100000000", "1.555", "1.550", "null", "1e400"]
    expected = ["1", "-1.5", "100", "7.25", "99999999.99", None, None, "1.55", None, None]
    parsed = parser(struct(("a", "decimal(10,2)"))).parse(pa.array([f'{{"a":{value}}}' for value in values]))
    read = [record and record["a"] for record in parsed.records.to_pylist()]
    assert read == [None if one is None else Decimal(one) for one in expected]
    doubted = [value for value, doubt in zip(values, parsed.doubt.to_pylist(), strict=True) if doubt]
    assert doubted == ["100000000", "1.555", "1e400"]


@pytest.mark.parametrize("kind", ["decimal(38,38)", "decimal(38,0)", "decimal(1,0)", "decimal(20,19)"])
def test_decimal_too_large_for_its_type_is_never_another_number(kind: str) -> None:
    values = []
    for digits in (1, 2, 18, 19, 20, 21, *range(36, 42)):
        values += ["9" * digits, f"{'1' * digits}.5", f"1e{digits}", f"15e-{digits}", f"0.{'0' * digits}1"]
    for start in range(0, len(values), 4):  # one by one they would take long, and all together too many be doubted
        some = values[start : start + 4]
        documents = pa.array([f'{{"a":{value}}}' for value in some])
        for value, record in zip(some, parser(struct(("a", kind))).parse(documents).records.to_pylist(), strict=True):
            assert record is None or record["a"] == Decimal(value), value


def test_floats_that_may_be_rounded_twice_are_doubted() -> None:
    values = ["0.1", "16777217", "1e17", "9223371761976868863", "1e39", "-0", "-0.0", "1.00000017881393432617187501"]
    parsed = parser(struct(("a", "float"))).parse(pa.array([f'{{"a":{value}}}' for value in values]))
    assert parsed.doubt.to_pylist() == [False, False, False, True, True, True, True, False]
    read = [record["a"] for record in parsed.records.to_pylist() if record]
    assert read == [np.float32(value).item() for value in ("0.1", "16777216", "1e17", "1.0000002384185791")]


def test_nothing_to_read() -> None:
    for nothing in (pa.array([], pa.string()), pa.chunked_array([], pa.binary()), pa.array([], pa.large_binary())):
        parsed = parser(EVENT).parse(nothing)
        assert len(parsed.records) == 0
        assert parsed.doubt is None
    blank = parser(EVENT).parse(pa.array([None, "", " \t\r\n"]))
    assert blank.records.null_count == 3
    assert blank.doubt is None


def test_a_slice_is_read_as_it_is() -> None:
    values = pa.array(['{"a":1}', '{"a":2}', None, '{"a":4}'])[1:]
    assert parser(struct(("a", "long"))).parse(values).records.to_pylist() == [{"a": 2}, None, {"a": 4}]


@pytest.mark.parametrize(
    ("schema", "options", "reason"),
    [
        (struct(("a", "binary")), {}, "type binary of a"),
        (struct(("a", "decimal(2,3)")), {}, "type decimal(2,3) of a"),
        (struct(("a", {"type": "map", "keyType": "string", "valueType": "long"})), {}, "type map of a"),
        (struct(("a", "varchar(3)")), {}, "type varchar(3) of a"),
        (array("long"), {}, "not a struct"),
        (struct(), {}, "without fields"),
        (struct(("a", "long"), ("A", "long")), {}, "two fields are named A"),
        (struct(("_corrupt_record", "string")), {}, "no field to read"),
        (struct(("_corrupt_record", "long"), ("a", "long")), {}, "not a nullable string"),
        (struct(("a", "timestamp")), {"timestampFormat": "yyyy"}, "option timestampformat is set"),
        (struct(("a", "date")), {"DateFormat": "yyyy"}, "option dateformat is set"),
        (struct(("a", "long")), {"mode": "DROPMALFORMED"}, "mode DROPMALFORMED"),
        (struct(("a", "long")), {"maxNestingDepth": "5"}, "option maxnestingdepth is not known"),
        (struct(("a", "long")), {"allowComments": "yes"}, "neither true nor false"),
        (struct(("a", "long")), {"locale": "de-DE"}, "option locale is not known"),
        (struct(("a", "long")), {"timeZone": "Nonsense"}, "time zone Nonsense is not known"),
    ],
)
def test_what_is_refused(schema: dict[str, Any], options: dict[str, str], reason: str) -> None:
    shape = JsonShape(json.dumps(schema), options)
    assert reason in (refused(shape) or "")
    with pytest.raises(Refused):
        JsonParser(shape)


def test_what_is_not_refused() -> None:
    options = {"mode": "failfast", "ALLOWCOMMENTS": "True", "dateFormat": "yyyy", "columnNameOfCorruptRecord": "bad"}
    assert refused(JsonShape(json.dumps(struct(("a", "timestamp"))), options)) is None


def test_fields_with_defaults_are_refused() -> None:
    schema = struct(("a", "long"))
    schema["fields"][0]["metadata"] = {"EXISTS_DEFAULT": "1"}
    assert "has a default" in (refused(JsonShape(json.dumps(schema))) or "")

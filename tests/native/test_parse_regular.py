"""Documents of one form, read by DuckDB: never another value than the document has, and never what is not JSON."""

# ruff: noqa: E501  (tables of values)
from __future__ import annotations

import datetime
import json
import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from anabranch.native import parse_guard
from anabranch.native.parse import JsonParser, JsonShape, refused
from anabranch.native.parse_guard import count_names, plain_letters, sure_objects
from anabranch.native.times import DATE, INSTANT, LOCAL, read_times
from native.json_against_spark import plain
from native.json_documents import _MUTATIONS, array, struct
from native.regular_documents import Block, meaning, regular_schema

NESTED = struct(
    ("a", "long"),
    ("b", "string"),
    ("s", struct(("a", "double"), ("t", "boolean"))),
    ("l", array("short")),
    ("ls", array(struct(("a", "integer"), ("b", "string")))),
    ("ll", array(array("long"))),
)

FULL = '{"a":1,"b":"x","s":{"a":1.5,"t":true},"l":[1,null],"ls":[{"a":1,"b":"y"},null],"ll":[[1],[],[null]]}'


def parser(schema: dict[str, Any], **options: str) -> JsonParser:
    return JsonParser(JsonShape(json.dumps(schema), options))


def regular(schema: dict[str, Any], *documents: str | bytes) -> list[Any] | None:
    """The records, if the documents are read the regular way."""
    texts = sure_objects(pa.array([d.encode() if isinstance(d, str) else d for d in documents], pa.binary()))
    found = None if texts is None else parser(schema)._regular.read(texts)
    if found is None:
        return None
    found[0].validate(full=True)
    return [plain(record) for record in found[0]]


@pytest.mark.parametrize("mutated", [False, True])
def test_random_blocks_mean_what_they_say(mutated: bool) -> None:
    dice = random.Random(11)
    taken = 0
    for _ in range(60):
        schema = regular_schema(dice)
        fields = [field for field in schema["fields"] if field["name"] != "_corrupt_record"]
        if refused(JsonShape(json.dumps(schema))) or not fields:
            continue
        way = parser(schema)._regular
        for _ in range(5):
            documents = Block(schema, dice).documents(dice.choice((1, 2, 5)))
            if mutated:
                place = dice.randrange(len(documents))
                documents[place] = dice.choice(_MUTATIONS)(documents[place], dice)
            texts = sure_objects(pa.array(documents, pa.binary()))
            way._pause = 0
            found = None if texts is None else way.read(texts)
            if found is not None:
                taken += 1
                expected = [repr(meaning({"type": "struct", "fields": fields}, text)) for text in documents]
                assert [repr(plain(record)) for record in found[0]] == expected, documents
    assert taken > (10 if mutated else 60)


def test_blocks_of_either_form_are_read_without_the_other_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("read by the other reader")

    monkeypatch.setattr(JsonParser, "_read_together", never)
    complete = [FULL, FULL.replace("{", "{ ").replace(":", " : "), FULL[:-1] + ',"z":{"a":[{"a":1,"a":2}]},"":null}']
    partial = [FULL, '{"a":2}', '{"s":{"t":false},"ls":[{"b":"z"}]}', "{}", '{"ll":[]}']
    reader = parser(NESTED)
    for documents in (complete, complete[:1], partial, partial[1:2], complete, partial):
        for kind in (pa.string(), pa.binary()):
            parsed = reader.parse(pa.array(["{}", *documents, "{}"]).cast(kind)[1:-1])
            assert parsed.doubt is None
            assert [plain(record) for record in parsed.records] == [meaning(NESTED, d.encode()) for d in documents]


def test_null_and_cut_values_among_regular_ones() -> None:
    parsed = parser(NESTED).parse(pa.array([FULL, None, "", FULL, '{"a":', "5"]))
    assert parsed.doubt.to_pylist() == [False] * 5 + [True]
    nothing = dict.fromkeys(meaning(NESTED, FULL.encode()))
    assert parsed.records.to_pylist() == [
        meaning(NESTED, FULL.encode()),
        None,
        None,
        parsed.records[0].as_py(),
        nothing,
        None,
    ]


@pytest.mark.parametrize("document", [
    '{"a":1,"a":2}', '{"a":1,"z":1}', '{"a":null}', '{"s":{}}', '{"s":5}', '{"s":[]}', '{"l":5}', '{"l":{}}', '{"l":["1"]}', '{"l":[true]}',
    '{"ls":[5]}', '{"ls":[{}]}', '{"ls":[[]]}', '{"ls":[{"a":1,"a":1}]}', '{"ls":[{"a":"x"}]}', '{"ls":[{"z":1}]}', '{"ll":[5]}',
    '{"ll":[[1],null]}', '{"ll":[[1],"x"]}', '{"ll":[{"a":1}]}', '{"ll":[[[1]]]}', '{"b":5}', '{"b":true}', '{"b":["x"]}', '{"b":{"a":1}}',
    '{"a":1.0}', '{"a":1e3}', '{"a":9223372036854775808}', '{"a":true}', '{"a":[1]}', '{"s":{"t":1}}', '{"s":{"t":"true"},"s":{"t":true}}',
    '{"s":{"a":true}}', '{"s":{"a":"NaN"}}', '{"s":{"a":"-INF"}}', '{"s":{"a":NaN}}', '{"s":{"a":-inf}}', '{"l":[40000]}', '{"l":[1,]}',
    '{"l":[1, ]}', '{"l":[1],}', '{"a" : 1}', '{"b":"\\"a\\":"}', '{"b":":x"}', '{"\\u0061":1}', '{"A":1}', "{'a':1}", "{a:1}", '{"a":01}',
    '{"a":1}{"a":1}', '{"a":1}}', '{"b":"\\ud800"}', '{"b":"\\x"}', '{"b":"\t"}', '{"a":1 }', '{"b":"\x7f","b":"y"}', '{"a":+1}',
])  # fmt: skip
def test_documents_that_another_reader_has_to_see(document: str) -> None:
    assert regular(NESTED, document) is None
    assert regular(NESTED, '{"a":1}', document) is None


@pytest.mark.parametrize("change", [
    ('"a":1,', '"a":1,"a":1,'), ('"a":1,', '"z":1,'), ('"t":true', '"t":true,"t":true'), ('"b":"y"', '"b":"y","b":"y"'), ('"b":"y"', '"z":"y"'),
    ("[1],[],", "[1],5,"), ("},null]", "},5]"), ('"x"', "NaN"), ('"x"', '"x","z":nan'), ('"x"', '"x","z":[-Infinity]'), ('"x"', '"x","z":[1,]'),
    ('"x"', '"x","z":{"y":1 , }'), ('"x"', '"x","a":null'), ('"x"', '"x","\\u0061":1'), ('{"a":1.5,"t":true}', "{}"), ('"x"', '"x","z":01'),
])  # fmt: skip
def test_complete_documents_that_another_reader_has_to_see(change: tuple[str, str]) -> None:
    assert regular(NESTED, FULL) == [meaning(NESTED, FULL.encode())]
    assert regular(NESTED, FULL, FULL.replace(*change, 1)) is None


def test_a_text_for_a_number_is_null_and_told() -> None:
    schema = struct(("a", "long"), ("s", struct(("d", "double"), ("t", "boolean"))))
    documents = [
        '{"a":"1","s":{"d":2.5,"t":true}}',
        '{"a":2,"s":{"d":"x","t":"true"}}',
        '{"a":3,"s":{"d":"","t":null}}',
    ]
    texts = sure_objects(pa.array([*documents, '{"a":4,"s":null}']))
    found = parser(schema)._regular.read(texts)
    assert found
    assert found[1].tolist() == [True, True, True, False]
    nothing = {"d": None, "t": None}
    expected = [
        {"a": None, "s": {"d": 2.5, "t": True}},
        {"a": 2, "s": nothing},
        {"a": 3, "s": nothing},
        {"a": 4, "s": None},
    ]
    assert found[0].to_pylist() == expected
    failfast = parser(schema, mode="FAILFAST").parse(texts)
    assert failfast.doubt.to_pylist() == [True, True, True, False]


def test_a_refusal_that_quotes_half_a_letter() -> None:
    way = parser(struct(("a", "long"), ("b", "string")))._regular
    for length in range(60, 100):
        text = "x" * length + "€" * 60
        assert way.read(pa.array([f'{{"b":"{text}","z":1}}'])) is None
        way._pause = 0
        found = way.read(pa.array([f'{{"b":"{text}","a":1}}']))
        assert found
        assert found[0].to_pylist() == [{"a": 1, "b": text}]


def test_texts_with_something_escaped() -> None:
    texts = ["", '"', "\\", "\\n", "\0", "\x1f", "a/b", "\b\f\n\r\t", "😀", "\u2028", "\x7f", '\\"', "ü" * 50, "NaN"]
    documents = [json.dumps({"b": text}, ensure_ascii=n % 2 == 0) for text in texts for n in range(2)]
    assert regular(struct(("b", "string")), *documents) == [{"b": text} for text in texts for _ in range(2)]
    assert regular(struct(("b", array("string"))), json.dumps({"b": [*texts, None]})) == [{"b": [*texts, None]}]
    assert (
        regular(struct(("b", "string")), *['{"b":"\\n"}'] * 101) is None
    )  # so many are read faster by the other reader


def test_words_and_commas_at_the_edges_of_what_is_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse_guard, "_IN_CACHE", 64)
    for before in range(40, 90):
        start = '{"a":1,"z":"' + "x" * (before - 17)
        for odd in ("NaN", "-inf", "Infinity", "[1,-INFINITY]", "[nan ]"):
            assert sure_objects(pa.array([f'{start}","y":{odd}}}'])) is None, (before, odd)
        for odd in ("[1,]", "[1, ]", '{"b":1,}'):
            assert not plain_letters(pa.array([f'{start}","y":{odd}}}'])), (before, odd)
        assert count_names(pa.array(["{}", f'{start}","y":1}}', '{"a":1}'])[1:]) == 4
        assert count_names(pa.array([f'{start}\\n"}}'])) is None
        assert count_names(pa.array([f'{start}" :1}}'])) is None
        assert plain_letters(pa.array([f'{start}"}}', '{"a":[1]}']))


def test_one_odd_document_anywhere_in_a_block() -> None:
    schema = struct(("a", "long"), ("b", "string"))
    way = parser(schema)._regular
    for size in (1, 2047, 2048, 2049, 5000):
        documents = [f'{{"b":"x{number}","a":{number}}}' for number in range(size)]
        found = way.read(pa.array(documents))
        assert found
        assert found[0].field(0).to_pylist() == list(range(size))
        assert found[0].field(1).to_pylist() == [f"x{number}" for number in range(size)]
        for place in {0, size // 2, size - 1}:
            odd = [*documents[:place], '{"a":7,"a":8,"b":"x"}', *documents[place + 1 :]]
            assert way.read(pa.array(odd)) is None
            way._pause = 0


def test_after_a_block_that_is_not_regular_some_are_not_tried() -> None:
    way = parser(struct(("a", "long")))._regular
    good, bad = pa.array(['{"a":1}']), pa.array(['{"a":1,"a":2}'])
    assert way.read(bad) is None
    tried = [way.read(good) is not None for _ in range(4)]
    assert tried == [False, False, True, True]
    assert way.read(pa.array(['{"a":1,"z":2}'])) is not None  # all fields again
    for _ in range(10):
        way._pause = 0
        assert way.read(bad) is None
    assert way._pause == 64


def test_names_that_are_odd() -> None:
    names = ["x.y", "$", "[]", "*", "a'b", 'q"t', "\\", "\0n", "\0", "😀", "a:", "nan", " ", "JSON", "\n"]
    schema = struct(*((name, "long") for name in names))
    record = {name: number for number, name in enumerate(names)}
    for form in (record, dict(reversed(record.items()))):
        for ascii_only in (True, False):
            texts = sure_objects(pa.array([json.dumps(form, ensure_ascii=ascii_only)]))
            found = parser(schema)._regular.read(texts)
            assert found
            assert [field.to_pylist() for field in found[0].flatten()] == [[number] for number in range(len(names))]
    assert regular(struct(("", "long")), '{"":1}') is None  # no name to DuckDB
    assert regular(struct(("a", "long")), '{"a\\u0000":1,"a":2}') == [{"a": 2}]


@pytest.mark.parametrize("kind", ["float", "decimal(10,2)"])
def test_types_whose_values_are_not_given_as_they_are_written(kind: str) -> None:
    assert regular(struct(("a", kind)), '{"a":1}') is None
    assert regular(struct(("a", array(struct(("a", kind))))), '{"a":[]}') is None


def _days(*years: int) -> list[str]:
    return [f"{year:04d}-{month:02d}-{day:02d}" for year in years for month in range(14) for day in range(33)]


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).year >= 1583
    except ValueError:
        return False


@pytest.mark.parametrize(("kind", "rest"), [
    (DATE, ""), (LOCAL, "T00:00:00"), (LOCAL, " 23:59:59.999"), (LOCAL, "T12:00:00.123456"), (INSTANT, "T00:00:00Z"),
    (INSTANT, " 23:59:59.999999Z"), (INSTANT, "T12:00:00.5Z"), (INSTANT, "T12:00:00.1234567Z"), (INSTANT, "T01:00:00+01:00"),
])  # fmt: skip
def test_days_of_every_kind(kind: pa.DataType, rest: str) -> None:
    for years in ((1582, 1583), (1599, 1600), (1600, 1700), (1900, 1999), (2000, 2024), (2100, 9999), (1999, 2000)):
        days = _days(*years)
        good = [day for day in days if _is_day(day)]
        if 1582 not in years:  # all plain: the quick way
            times, odd = read_times(pa.array([day + rest for day in good]), kind, utc=True)
            assert odd is None
            assert pc.strftime(times, "%Y-%m-%d").to_pylist() == good
        times, odd = read_times(pa.array([day + rest for day in days]), kind, utc=True)
        assert odd is not None
        assert [day for day, doubted in zip(days, odd, strict=True) if not doubted] == good
        assert (
            times.drop_null().to_pylist()
            == read_times(pa.array([d + rest for d in good]), kind, utc=True)[0].to_pylist()
        )


def test_times_of_one_length_that_are_not_plain() -> None:
    good = "2026-01-02T03:04:05Z"
    for place in range(len(good)):
        for letter in "0:/;9TtZz -+.,é":
            text = good[:place] + letter + good[place + 1 :]
            for texts in ([text], [good] * 70 + [text], [text] + [good] * 200):
                times, odd = read_times(pa.array(["x", *texts, "y"])[1:-1], INSTANT, utc=False)
                shown = text.replace(" ", "T")
                try:
                    expected = datetime.datetime.strptime(shown, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=datetime.UTC)
                except ValueError:
                    expected = None
                if text[17:19] in ("60", "61") or text[0] == "0" or text[10] == "t" or text[-1] == "z":
                    expected = None
                where = texts.index(text)
                assert (odd is None or not odd[where]) == (expected is not None), text
                assert times[where].as_py() == expected
                assert text == good or odd is None or odd.sum() == 1


def test_hours_and_seconds_that_are_not_plain() -> None:
    for hour in ("23", "24", "25", "99"):
        for minute in ("59", "60"):
            for second in ("59", "60", "61"):
                for fraction in ("", ".999", ".999999"):
                    text = f"2026-06-30T{hour}:{minute}:{second}{fraction}"
                    certain = (hour, minute, second) == ("23", "59", "59")
                    assert (read_times(pa.array([text]), LOCAL, utc=True)[1] is None) is certain
                    assert (read_times(pa.array([text + "Z"]), INSTANT, utc=True)[1] is None) is certain


def test_years_of_another_calendar_are_never_certain() -> None:
    days = ["1582-10-04", "1582-10-15", "1582-12-31", "0999-01-01", "0000-01-01"]
    for kind, rest in ((DATE, ""), (LOCAL, " 00:00:00.123"), (INSTANT, "T00:00:00Z")):
        for texts in ([day] * size for day in days for size in (1, 64, 65)):
            odd = read_times(pa.array([text + rest for text in texts]), kind, utc=True)[1]
            assert odd is not None
            assert odd.all()
        for beside in ("1583-01-01", "1600-01-01", "2026-01-01"):
            odd = read_times(pa.array([beside + rest] * 100 + [days[2] + rest]), kind, utc=True)[1]
            assert odd is not None
            assert odd.tolist() == [False] * 100 + [True]


def test_no_times_at_all() -> None:
    for texts in (pa.array([], pa.string()), pa.nulls(3, pa.string())):
        for kind in (DATE, LOCAL, INSTANT):
            times, odd = read_times(texts, kind, utc=True)
            assert times.equals(pa.nulls(len(texts), kind))
            assert odd is None

"""Records with faults, without Spark: which are read, in which way, and what of them is doubted."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.native import parse, parse_pieces
from anabranch.native.parse import JsonParser, JsonShape
from anabranch.native.parse_faults import never_ends, repaired
from anabranch.native.parse_schema import read_schema
from native.json_documents import array, struct

FIELDS = struct(
    ("a", "long"),
    ("d", "double"),
    ("s", struct(("b", "integer"), ("t", "string"))),
    ("l", array("long")),
    ("ls", array(struct(("b", "boolean"), ("t", "string")))),
)
NOTED = struct(("_corrupt_record", "string"), ("a", "long"))


def parsed(texts: list[str], schema: dict[str, Any] = FIELDS, **how: Any) -> list[Any]:
    """The records, ... for those that are doubted."""
    found = JsonParser(JsonShape(json.dumps(schema), **how)).parse(pa.array(texts))
    doubts = [False] * len(texts) if found.doubt is None else found.doubt.to_pylist()
    return [... if odd else record for odd, record in zip(doubts, found.records.to_pylist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "certain"),
    [
        ("{", True),
        ('{"a', True),
        ('{"a"', True),
        ('{"a":', True),
        ('{"a": 1', True),
        ('{"a": 1, ', True),
        ('{"a": "\\', True),
        ('{"a": {"b": "{}"}, "c"', True),
        ('{"a": {"b": "{"}, "c": ', True),
        ('{"a": {"b": 1}, "c": {', True),
        ('{"a": {"b": 1', True),
        ('{"a": [1, ', False),  # Python says the same as of a name: not told apart
        ('{"a": {"b"', False),  # Spark keeps what it has of the outer object
        ('{"a": {"b":', False),
        ('{"a": tru', False),
        ('{"a": 1.', False),
        ('{"a": "\\q", "b', False),
        ('{"a": "\\u12', False),
        ('{"a": NaN, "b', False),
        ('{"a": "\\ud83d", "b', False),
        ("{'a': 1", False),
        ('{"a": 1}', False),
        ('{"a": 1}{', False),
        ("[{", False),
        ("", False),
    ],
)
def test_which_documents_never_end(text: str, certain: bool) -> None:
    assert never_ends(text) is certain


def test_limits_are_not_come_near() -> None:
    assert never_ends('{"a": "' + "x" * 30_000)
    assert not never_ends('{"a": "' + "x" * 50_000)
    assert not never_ends('{"a": ' + "9" * 1000 + ', "b')
    assert not never_ends('{"a": ' + "[" * 950)
    assert not never_ends('{"a": ' + "[" * 100_000)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)
    )
)
def test_a_document_that_ends_is_not_taken_for_one_that_does_not(value: Any) -> None:
    assert not never_ends(json.dumps({"a": value}))
    assert not never_ends(json.dumps({"a": value}, ensure_ascii=False))


def test_a_wrong_type_is_null_and_takes_nothing_else_with_it() -> None:
    good = '{"a": 1, "d": 0.5, "s": {"b": 2, "t": "x"}, "l": [3], "ls": [{"b": true, "t": "y"}]}'
    whole = json.loads(good)
    changes = {
        good.replace('"a": 1', '"a": "1"'): {"a": None},
        good.replace('"a": 1', '"a": 1.0'): {"a": None},
        good.replace('"a": 1', '"a": 9223372036854775808'): {"a": None},
        good.replace("0.5", '"N/A"'): {"d": None},
        good.replace('"b": 2', '"b": {"c": [1]}'): {"s": {"b": None, "t": "x"}},
        good.replace('{"b": 2, "t": "x"}', "[1]"): {"s": None},
        good.replace("[3]", '[3, "x"]'): {"l": None},
        good.replace('"b": true', '"b": 1'): {"ls": [{"b": None, "t": "y"}]},
        good.replace('[{"b": true', '[5, {"b": true'): {"ls": None},
    }
    for texts in (list(changes), *([text, good] for text in changes)):
        expected = [whole | changes.get(text, {}) for text in texts]
        assert parsed(texts) == expected
    assert parsed(list(changes), options={"mode": "FAILFAST"}) == [...] * len(changes)
    assert parsed(list(changes), partial=False) == [...] * len(changes)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "1", "a": 2}',
        '{"d": "NaN"}',
        '{"d": "-INF"}',
        '{"d": 1e400, "a": "x"}',
        '{"d": -0.0, "a": "x"}',
        '{"s": {"t": 1.5}}',
        '{"s": {"t": [1]}}',
        '{"a": "x", "s": {"t": "\\ud800"}}',
        '{"a": "x"} {"a": 1}',
        '{"a": "x", "d": NaN}',
        '{"a": "x",}',
        '{"a": "x\ty"}',
    ],
)
def test_what_is_not_certain_is_doubted(text: str) -> None:
    assert parsed([text]) == [...]
    assert parsed(['{"a": 1}', text, '{"a": 2}'])[1] is ...


def test_only_the_field_of_the_schema_is_replaced() -> None:
    others = [
        '{"z": {"a": "1"}, "a": 5}',
        '{"a": 5, "z": {"a": "1"}}',
        '{"z": "\\"a\\": \\"1\\"", "a": 5}',
        '{"x\\"a": "1", "a": 5}',
        '{"z": [{"a": "1"}], "a": 5}',
    ]
    found = parsed(['{"a": "1"}', *others, '{"z": {"a": 1}, "\\u0061": "x"}', '{"z": "}", "y": {"a": "1"}}'])
    assert [record["a"] for record in found] == [None, 5, 5, 5, 5, 5, None, None]


def test_faults_are_noted_down_where_that_does_not_depend_on_the_fields_that_are_asked_for() -> None:
    texts = ['{"a": 1}', '{"a": 1, ', '{"a": "x"}', '{"a": {"b":']
    assert parsed(texts, NOTED) == [
        {"_corrupt_record": None, "a": 1},
        {"_corrupt_record": '{"a": 1, ', "a": None},
        ...,
        ...,
    ]
    assert parsed(texts, NOTED, filtered=True)[1] is ...


def test_many_faults_need_no_look_at_each_document(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: Any) -> Any:
        raise AssertionError("each document is looked at")

    monkeypatch.setattr(parse, "plain_documents", looked)
    monkeypatch.setattr(parse, "repaired", looked)
    monkeypatch.setattr(parse_pieces, "PIECE", 3000)
    dice = random.Random(5)
    kinds = [
        '{"a": %d, "d": 1.5}',
        '{"a": %d, "s": {"b": "x"}}',
        '{"a": %d, "d": "?"}',
        '{"a": %d, "s": {"t": "y',
        "",
        '{"a":%d,"l":5}',
    ]
    drawn = [(dice.choice(kinds), number) for number in range(2000)]
    texts = [kind % number if kind else "" for kind, number in drawn]
    found = JsonParser(JsonShape(json.dumps(FIELDS))).parse(pa.chunked_array([texts[:700], texts[700:]]))
    assert found.doubt is None
    for (kind, number), record in zip(drawn, found.records.to_pylist(), strict=True):
        assert record is None if not kind else record["a"] == (None if kind.endswith("y") else number)


def test_what_is_repaired_is_the_same_document() -> None:
    tree = read_schema(json.dumps(FIELDS), {})
    assert repaired(' {"a": "x", "d": 1, "z": 5}\n', tree) == ('{"d":1}', True)
    assert repaired('{"a": 1, "s": {"t": true, "b": null}}', tree) == ('{"a":1,"s":{"t":"true"}}', False)
    assert repaired('{"s": {"t": "é\\n\\u0000"}}', tree) == ('{"s":{"t":"é\\n\\u0000"}}', False)

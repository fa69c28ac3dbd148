"""Every record that the parser does not doubt is what Spark's `from_json` makes of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from anabranch.native.parse import refused
from native.fuzz import case_of, case_to_json, kept_cases
from native.json_against_spark import Case, compared
from native.json_documents import array, by_hand, random_document, random_schema, schemas_by_hand, struct

pytestmark = pytest.mark.spark

OPTIONS: list[dict[str, str]] = [
    {"mode": "FAILFAST"},
    {"columnNameOfCorruptRecord": "b"},
    {"allowComments": "true", "allowUnquotedFieldNames": "true", "allowNumericLeadingZeros": "true"},
    {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "allowUnquotedControlChars": "true"},
    {"allowBackslashEscapingAnyCharacter": "true", "primitivesAsString": "true", "prefersDecimal": "true"},
    {"timeZone": "Europe/Berlin"},
]


def test_hostile_documents_with_every_type(spark: Any) -> None:
    differences, shares = compared(spark, [Case(schema, by_hand()) for schema in schemas_by_hand()], few=80)
    assert not differences[:5]
    assert min(shares) > 0.1  # else there is nothing compared


@pytest.mark.parametrize("kind", ["double", "timestamp"])
def test_hostile_documents_with_options(spark: Any, kind: str) -> None:
    schema = struct(("a", kind), ("b", "string"), ("s", struct(("a", kind))), ("l", array(kind)))
    cases = [Case(schema, by_hand()[::3], options) for options in OPTIONS]
    assert [refused(case.shape) for case in cases] == [None] * len(cases)
    assert not compared(spark, cases, few=80)[0][:5]


def test_random_documents(spark: Any) -> None:
    dice = random.Random(7)
    cases = []
    for _ in range(16):
        schema = random_schema(dice)
        case = Case(schema, [random_document(schema, dice) for _ in range(150)])
        if not refused(case.shape):
            cases.append(case)
    differences, shares = compared(spark, cases, few=15)
    assert not differences[:5]
    assert sum(shares) / len(shares) > 0.3


def test_what_was_found_once(spark: Any) -> None:
    cases = kept_cases(Path(__file__).parent / "found")
    assert not cases or not compared(spark, cases)[0][:5]


def test_a_case_is_kept_as_it_is() -> None:
    case = Case(struct(("a", "long")), [b'{"a":1}', b"\xff", None], {"mode": "FAILFAST"})
    assert case_of(json.loads(json.dumps(case_to_json(case)))) == case

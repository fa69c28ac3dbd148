"""Profiles of columns: put together in any way they are the same, and their estimates are as good as they say."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.profile import (
    MIXED,
    UNKNOWN,
    ColumnProfile,
    Lengths,
    Observed,
    TableProfile,
    Text,
    Value,
    all_observed,
    shown,
)
from anabranch.core.sketches import MOST_BUCKETS, PER_DOUBLING, REGISTERS, REMAINING, Distinct, Histogram

_COUNTS = st.integers(0, 10**12)
_REGISTERS = st.dictionaries(st.integers(0, REGISTERS - 1), st.integers(0, REMAINING + 1), max_size=40)


def _distinct(registers: dict[int, int]) -> Distinct:
    return Distinct(bytes(registers.get(i, 0) for i in range(REGISTERS)))


def _histogram(above: dict[int, int], below: dict[int, int], zero: int) -> Histogram:
    return Histogram("log", 0, zero, above, below).fitted()


#: Wide enough that some need coarser buckets than others.
_BUCKETS = st.one_of(
    st.dictionaries(st.integers(-17_000, 17_000), st.integers(1, 9), max_size=6),
    st.builds(
        lambda start, step, size: {start + step * i: 1 + i % 3 for i in range(size)},
        st.integers(-5_000, 5_000),
        st.integers(1, 40),
        st.integers(0, 400),
    ),
)
_HISTOGRAMS = st.builds(_histogram, _BUCKETS, _BUCKETS, _COUNTS)
_NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False).map(lambda x: x + 0.0),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
)
_TEXTS = st.builds(Text, st.text(max_size=8), st.booleans())


def _column(kind: str, values: st.SearchStrategy[Value]) -> st.SearchStrategy[ColumnProfile]:
    sized = kind == "text"
    return st.builds(
        ColumnProfile,
        st.just(kind),
        _COUNTS,
        _COUNTS,
        _COUNTS,
        _COUNTS,
        st.none() | values,
        st.none() | values,
        st.none() | st.builds(Lengths, _COUNTS, _COUNTS, _COUNTS) if sized else st.none(),
        st.none() | _REGISTERS.map(_distinct),
        st.none() | _HISTOGRAMS,
    )


_COLUMNS = st.one_of(
    _column("number", _NUMBERS),
    _column("text", _TEXTS),
    st.builds(ColumnProfile, st.just(UNKNOWN), _COUNTS, _COUNTS),
    st.builds(ColumnProfile, st.just(MIXED), _COUNTS, _COUNTS),
)
_TABLES = st.builds(
    TableProfile,
    _COUNTS,
    st.dictionaries(st.sampled_from("abc"), _COLUMNS, max_size=2),
    st.lists(st.sampled_from("xyz"), unique=True).map(lambda names: tuple(sorted(names))),
)
_OBSERVED = st.builds(
    Observed,
    st.dictionaries(st.sampled_from(["o", "p"]), _TABLES, max_size=2),
    st.dictionaries(st.sampled_from(["o", "q"]), st.text(max_size=3), max_size=1),
).map(lambda seen: seen + Observed())


@settings(max_examples=60, deadline=None)
@given(_HISTOGRAMS, _HISTOGRAMS, _HISTOGRAMS)
def test_histograms_add_up_in_any_order(a: Histogram, b: Histogram, c: Histogram) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + Histogram() == a
    total = a + b + c
    assert total.count == a.count + b.count + c.count
    assert len(total.above) + len(total.below) <= MOST_BUCKETS


@settings(max_examples=60, deadline=None)
@given(_OBSERVED, _OBSERVED, _OBSERVED)
def test_what_tasks_saw_adds_up_in_any_order(a: Observed, b: Observed, c: Observed) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert all_observed([c, a, b]) == all_observed([a, b, c])


@settings(max_examples=80, deadline=None)
@given(_OBSERVED)
def test_json_turns_back(seen: Observed) -> None:
    text = seen.to_json()
    assert Observed.from_json(text) == seen
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@given(_COLUMNS, _COLUMNS)
def test_types_of_equal_values_do_not_depend_on_the_order(a: ColumnProfile, b: ColumnProfile) -> None:
    one, other = a + b, b + a
    assert (type(one.low), type(one.high)) == (type(other.low), type(other.high))


@pytest.mark.parametrize("number", [0, 1, 10, 1_000, 5_000, 50_000, 300_000])
def test_distinct_estimates_are_as_good_as_they_say(number: int) -> None:
    randomly = random.Random(number)
    errors = []
    for _ in range(5 if number < 50_000 else 1):
        registers = bytearray(REGISTERS)
        for _ in range(number):
            hashed = randomly.getrandbits(64)
            place, rest = hashed % REGISTERS, hashed // REGISTERS
            registers[place] = max(registers[place], REMAINING + 1 - rest.bit_length())
        errors.append(abs(Distinct(bytes(registers)).estimate() - number))
    assert max(errors) <= max(0.5, 4 * 1.04 / math.sqrt(REGISTERS) * number)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=200), st.sampled_from([0.0, 0.25, 0.5, 0.99, 1.0]))
def test_quantiles_are_within_the_width_of_a_bucket(values: list[float], share: float) -> None:
    buckets: dict[int, int] = {}
    for value in values:
        key = math.floor(math.log2(value) * PER_DOUBLING)
        buckets[key] = buckets.get(key, 0) + 1
    found = _histogram(buckets, {}, 0)
    exact = sorted(values)[math.floor(share * (len(values) - 1))]
    growth = 2 ** (2**found.level / PER_DOUBLING)
    told = found.quantile(share)
    assert told is not None
    assert abs(told - exact) <= exact * ((growth - 1) / (growth + 1) + 1e-9)


def test_a_sketch_of_many_values_stays_small() -> None:
    randomly = random.Random(1)
    registers = bytes(min(REMAINING + 1, 7 + int(randomly.expovariate(math.log(2)))) for _ in range(REGISTERS))
    column = ColumnProfile("number", 10**6, 0, distinct=Distinct(registers))
    assert len(json.dumps(TableProfile(1, {"a": column}).as_record())) < 1_600


def test_values_that_have_no_date_are_shown() -> None:
    assert shown("timestamp", 2**62) == "day 53375995 after 1970"
    assert shown("timestamp", -(2**62)) == "day 53375995 before 1970"
    assert shown("number", Decimal("1.50")) == "1.50"
    assert shown("number", -math.inf) == "-inf"
    assert shown("text", Text("a" * 3, cut=True)) == "aaa…"


def test_a_column_that_changed_its_type_keeps_its_counts() -> None:
    number, text = ColumnProfile("number", 5, 1, low=1, high=2), ColumnProfile("text", 3, 1, low=Text("a"))
    assert number + text == ColumnProfile(MIXED, 8, 2)
    assert number + ColumnProfile(UNKNOWN, 2, 2) == ColumnProfile("number", 7, 3, low=1, high=2)

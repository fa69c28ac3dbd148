"""Hostile values, and the expressions that are tried on them."""

# ruff: noqa: E501  (tables of values)
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

import pyarrow as pa

_WORDS = """
    a A abc ABC aBc b ba abab a.b a|b a,b,,c, x_y 50% \\ 0 1 -1 +1 007 12.50 -0 -0.0 1e3 1E-5 1e400 4.9e-324 .5 5. 1_000 0x10
    NaN nan Infinity -inf 1d 1f 2147483647 2147483648 -2147483648 -2147483649 9223372036854775807 9223372036854775808
    127 128 -129 32768 1234567890.12 123456789.123 99999999.99 0.1 0.30000000000000004 123456789012345678 3.4028236e38
    true false TRUE True t yes on null NULL 2020-02-29 2021-02-29 2020-2-9 2020 2020-01 0001-01-01 0000-01-01 1582-10-10 1583-01-01
    9999-12-31 10000-01-01 -0001-01-01 2020-13-01 2020-01-32 2020-02-30T00:00:00 2020-01-01T24:00:00 2020-01-01T23:59:60
    2020-01-01T00:00:00 2020-01-01T00:00:00Z 2020-01-01T00:00:00.1 2020-01-01T00:00:00.123456Z 2020-01-01T00:00:00.1234567
    2020-01-01T00:00:00+05:30 2020-01-01T00:00:00-17:59 2020-01-01T00:00:00+18:00 2020-01-01T00:00:00+19:00 2020-01-01T00:00:00+0530
    2020-01-01T00:00:00+05 2020-01-01T00:00:00z 1583-01-01T00:00:00+17:00 9999-12-31T23:59:59.999999-17:59 1900-01-01T12:00:00.5Z
    2020-03-29T02:30:00 2020-01-01T12:34 2020-01-01T1:2:3 T12:34:56 12:34:56 infinity epoch now today 20200229 29/02/2020 02/29/2020
    2020/02/29 2020-02-29T12:34:56.789 2020-02-29T12:34:56.789012 2020-02-29T12:34:56.789+01:00 abc@example.com k K (1) [x] user-42
""".split()  # noqa: SIM905
_STRANGE = [
    None, "", " ", "  a  ", "\ta\n", "\u00a0a\u00a0", "\u2003a\u2003", "a\n", "a\r\n", "a\r", "a\u2028", "a\u0085", "\n", "a\nb", "\x0b", "\x0b a",
    "ß", "ẞ", "İ", "i\u0307", "ı", "ſ", "\u212a", "é", "e\u0301", "É", "ﬁ", "Ω", "ς", "Σ", "𝒳", "😀", "👨‍👩‍👧", "a😀b", "\U0001F1E9\U0001F1EA", "日本語", "\ufeff", "\x00", "a\x00", "a\x00b",
    "2020-01-01 00:00:00", "2020-01-01 12:34:56.789", "2020-01-01 00:00:00 UTC", "2020-01-01 00:00:00 Europe/Berlin", " 2020-01-01", "2020-01-01 ",
    "2020-02-29 12:34:56", "2020-02-29 12:34", "2020-01-01 00:00:00+05:30", "2020-01-01 00:00:00+05:30:00", "２０２０-01-01", "１", " 5", "5 ", "\t5", "- 5", "--5",
    "a b c", "key=value; other=1", "z" * 5000, "ab" * 3000, "y" * 70_000, "é" * 2000,
    "ΑΣ", "ΑΣ Β", "ǆ", "ǅ", "ŉ", "ﬀ", "\u0345", "\U00010400", "a\u0308", "A\u030a\u0323", "\ud7ff", "\uffff", "\U0010ffff", "\u200d", "क्षि", "각", "\u1100\u1161",
]  # fmt: skip
STRINGS: list[str | None] = [*_WORDS, *_STRANGE]
_SHORT = [None, "", " ", "a", "A", "b", "ab", "a\x00", "é", "e\u0301", "😀", "a😀b", "ß", "%", "_", "\\", "a.b", "true", "abab", "İ", "\uffff", "\U0010ffff", "z" * 40]  # fmt: skip

INTS = [None, 0, 1, -1, 2, -2, 3, 7, -7, 10, 46341, 2**31 - 1, -(2**31), -(2**31) + 1]
BIGINTS = [None, 0, 1, -1, 2, -3, 10, 3037000500, 2**31, 2**53 + 1, 1577836800, 253402300800, -62135596801, 2**63 - 1, -(2**63), -(2**63) + 1, 2**62]  # fmt: skip
DOUBLES = [None, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 1e-320, 4.9e-324, 1e15, 1e16, 9.3e18, -9.3e18, 9007199254740993.0, 2147483647.5, 2147483648.0, 1e300, -1e308, 1.7976931348623157e308, 3.5e38, math.inf, -math.inf, math.nan]  # fmt: skip
_MICROS = 86_400_000_000
DAYS = [None, 0, 1, -1, 18321, 18262, 11016, -141428, -141427, -141438, -719162, -719163, -719529, 2932896, 2932897, 19722, 20088, 2147483647, -2147483647, -2147483648, -96465292]  # fmt: skip
TIMES = [
    None, 0, 1, -1, -500_000, 999_999, 1_000_000, 18321 * _MICROS + 45_296_789_012, 18262 * _MICROS - 1, 18322 * _MICROS, -141427 * _MICROS, -141427 * _MICROS - 1,
    2932897 * _MICROS - 1, 2932897 * _MICROS, -719162 * _MICROS, -719163 * _MICROS - 5, -3_600_000_001, 1_585_443_600_000_000, 1_604_192_400_000_000, 19722 * _MICROS, 253_402_300_800_000_000 * 10,
]  # fmt: skip


@dataclass(frozen=True)
class Frame:
    """Rows, and the expressions that are tried on all of them."""

    table: pa.Table
    expressions: tuple[str, ...]


def _pairs(kind: pa.DataType, values: Sequence[Any], names: str = "ab") -> pa.Table:
    rows = list(product(values, values))
    columns = [pa.array([row[i] for row in rows], kind) for i in range(2)]
    return pa.table(columns, names=list(names))


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


_COMPARED = ("a = b", "a <=> b", "a < b", "a <= b", "a > b", "a >= b", "a <> b", "a IN (b)", "NOT (a < b)", "coalesce(a, b)", "nvl(a, b)", "nullif(a, b)", "a is null", "a is not null and b is null", "if(a = b, a, b)", "case when a < b then a when a > b then b end", "nvl2(a, b, a)", "a between b and b", "array_contains(array(a, b), a)", "array(a, b)", "named_struct('x', a, 'y', b).y", "array(a, b)[1]", "element_at(array(a, b), -1)")  # fmt: skip
_WHOLE = ("a + b", "a - b", "a * b", "a % b", "pmod(a, b)", "-a", "abs(a)", "a div b", "+a", "a / b", "try_add(a, b)", "try_divide(a, b)", "cast(a as string)", "cast(a as double)", "cast(a as float)", "cast(a as boolean)", "cast(a as tinyint)", "cast(a as smallint)", "cast(a as int)", "cast(a as bigint)", "cast(a as decimal(10,2))", "cast(a as decimal(38,0))", "cast(a as timestamp)", "greatest(a, b)", "least(a, b)", "timestamp_seconds(a)", "timestamp_millis(a)", "timestamp_micros(a)", "a in (1, 2, null)", "a in (1, -7, 10)", "a = 1 or 10 % a = 0", "a <> 0 and 10 % a = 0", "case when a <> 0 then 10 % a end", "floor(a)", "ceil(a)", "a & b", "a | b", "a ^ b", "~a", "round(a)", "round(a, 2)", "from_unixtime(a)", "from_unixtime(a, 'yyyyMMdd')", "a > b or round(a / 3, 2) > 0", "cast(a / 1000 as timestamp)")  # fmt: skip


def _numbers() -> dict[str, Frame]:
    fields = ("a + b", "a - b", "a * b", "a / b", "a % b", "-a", "abs(a)", "isnan(a)", "sqrt(a)", "floor(a)", "ceil(a)", "cast(a as int)", "cast(a as bigint)", "cast(a as smallint)", "a in (0.0D, double('NaN'), 1.5D)", "a = double('NaN')", "a > 0.0D", "cast(a as double)", "cast(a as decimal(12,3))")  # fmt: skip
    decimals = [None, *(Decimal(n) for n in ("0.00", "0.01", "-0.01", "1.00", "1.99", "-1.99", "0.50", "99999999.99", "-99999999.99", "12345678.90", "127.99", "128.00"))]  # fmt: skip
    small = ("a + b", "a - b", "a * b", "a % b", "-a", "abs(a)", "cast(a as string)", "cast(a as int)", "cast(a as double)", "a & b", "a | b", "a ^ b", "~a", "round(a, 1)")  # fmt: skip
    return {
        "tinyint": Frame(_pairs(pa.int8(), [None, 0, 1, -1, 127, -128, 12]), (*_COMPARED, *small)),
        "smallint": Frame(_pairs(pa.int16(), [None, 0, 1, -1, 32767, -32768, 200]), (*_COMPARED, *small)),
        "int": Frame(_pairs(pa.int32(), INTS), (*_COMPARED, *_WHOLE, "date_from_unix_date(a)")),
        "bigint": Frame(_pairs(pa.int64(), BIGINTS), (*_COMPARED, *_WHOLE)),
        "double": Frame(_pairs(pa.float64(), DOUBLES), (*_COMPARED, *fields, "cast(a as float)", "round(a)", "round(a, 2)", "round(a, 9)", "cast(a as timestamp)", "cast(a * 1000 as timestamp)")),
        "float": Frame(_pairs(pa.float32(), [None, 0.0, -0.0, 1.5, 0.1, 3.4e38, 1e-45, math.inf, -math.inf, math.nan]), (*_COMPARED, *(f for f in fields if f not in ("a % b",)))),
        "decimal": Frame(_pairs(pa.decimal128(10, 2), decimals), (*(c for c in _COMPARED if "contains" not in c), "a + b", "a - b", "a * b", "a > 1", "a = 1.5", "cast(a as int)", "cast(a as tinyint)", "cast(a as double)", "cast(a as decimal(20,4))", "a + 1")),
        "boolean": Frame(_pairs(pa.bool_(), [None, True, False]), (*_COMPARED, "a and b", "a or b", "not a", "cast(a as string)", "cast(a as int)", "cast(a as double)", "a and (b or not a)")),
    }  # fmt: skip


_ONE_STRING = r"""
upper(s)
lower(s)
trim(s)
ltrim(s)
rtrim(s)
btrim(s)
trim('ab' from s)
length(s)
octet_length(s)
substring(s, 2, 3)
substring(s, 0, 2)
substring(s, -2, 1)
substring(s, -2)
substr(s, 3)
coalesce(nullif(s, substring(s, 1, 0)), s)
left(s, 2)
right(s, 2)
substring(s, length(s) - 3, 2)
concat(s, '-', s)
concat_ws('-', s, cast(null as string), s)
startswith(s, 'a')
endswith(s, 'b')
contains(s, '')
contains(s, '0')
instr(s, 'b')
replace(s, 'a', 'xyz')
replace(s, 'ab', '')
replace(s, '', 'x')
s like 'a%'
s like '%b'
s like '%0%'
s like '_'
s like 'a_b'
s like '%\\_%'
s like '50\\%'
s like '' or s like 'a%b%'
s like '_%é%'
s ilike 'AB%'
s rlike '^a'
s rlike 'b$'
s rlike '^[a-z]+$'
s rlike '\\d{2,4}-\\d\\d'
s rlike '^\\s'
s rlike 'a.b'
s rlike '^.$'
s rlike '(?i)^k$'
s rlike '^(ab)+$'
s rlike '[^a-z0-9]'
s rlike '\\W'
s rlike '^[\\w.-]+@[\\w-]+\\.[a-z]{2,}$'
s rlike '^(a|b|true)$'
s rlike '\\S\\D'
regexp_replace(s, '[0-9]+', '#')
regexp_replace(s, '\\s+', ' ')
regexp_replace(s, 'a|ab', 'x')
regexp_replace(s, '^a', '')
regexp_replace(s, 'a$', '')
regexp_replace(s, '.', '.')
regexp_extract(s, '(\\d+)-(\\d+)', 2)
regexp_extract(s, '[a-z]+', 0)
regexp_extract(s, '^(a)?b', 1)
regexp_extract(s, '(a|ab)(c|bcd)?', 2)
split(s, ',')
split(s, '\\|')
split(s, '[.]')
split(s, 'ab')
size(split(s, '-'))
split(s, '-')[0]
element_at(split(s, '-'), -1)
try_element_at(split(s, '-'), 2)
get(split(s, '-'), 1)
sha2(s, 256)
sha1(s)
md5(s)
lpad(s, 5, 'xy')
lpad(s, 2)
rpad(s, 3, ' ')
rpad(s, 40, '-=+')
repeat(s, 2)
repeat(s, 0)
locate('b', s)
position('0' in s)
locate(s, s)
translate(s, 'ab0', 'x-')
substring_index(s, '-', 1)
substring_index(s, '-', 2)
substring_index(s, '.', -1)
substring_index(s, 'a', -2)
reverse(s)
cast(s as int)
cast(s as bigint)
cast(s as tinyint)
cast(s as double)
cast(s as float)
cast(s as boolean)
cast(s as date)
cast(s as timestamp)
cast(s as decimal(10,2))
cast(s as decimal(5,0))
try_cast(s as int)
try_cast(s as timestamp)
try_cast(s as date)
to_timestamp(s)
try_to_timestamp(s)
to_date(s)
to_timestamp(s, 'yyyy-MM-dd')
to_timestamp(s, 'yyyy-MM-dd HH:mm:ss')
to_timestamp(s, 'yyyy-MM-dd HH:mm')
to_timestamp(s, "yyyy-MM-dd'T'HH:mm:ss")
to_timestamp(s, "yyyy-MM-dd'T'HH:mm:ss.SSS")
to_timestamp(s, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
to_timestamp(s, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
to_timestamp(s, "yyyy-MM-dd'T'HH:mm:ssXXX")
to_timestamp(s, "yyyy-MM-dd'T'HH:mm:ss'Z'")
to_date(s, 'yyyy-MM-dd')
to_date(s, 'yyyyMMdd')
to_date(s, 'dd/MM/yyyy')
to_date(s, 'MM/dd/yyyy')
to_date(s, 'yyyy/MM/dd')
unix_timestamp(s)
unix_timestamp(s, 'yyyy-MM-dd')
s in ('a', 'é', '😀')
s in ('a', null)
s = '1' or s > 'b'
s > 'a' and cast(s as int) > 5
case when s rlike '^[0-9]{1,5}$' then cast(s as int) + 1 else -1 end
case when s = 'abc' then to_json(named_struct('x', s)) else s end
coalesce(nullif(trim(s), ''), 'none')
coalesce(nullif(s, 'abc'), date_format(timestamp '2020-01-01 00:00:00', 'yyyy'))
hour(to_timestamp(s)) + year(to_date(s))
length(upper(trim(lower(s))))
i.n.t
i.n
arr[0]
arr[k]
element_at(arr, k + 1)
get(arr, k)
size(arr)
array_contains(arr, 'a')
array_contains(arr, s)
array_size(arr)
structs.x
structs[0].x
i is null
i.n is null
coalesce(i.n.t, s)
case when i.n.t is null then 0 else length(i.n.t) end
named_struct('p', s, 'q', named_struct('r', k))
"""


def _strings() -> dict[str, Frame]:
    two = ("concat(a, b)", "concat_ws('-', a, b, 'x')", "startswith(a, b)", "endswith(a, b)", "contains(a, b)", "replace(a, b, 'x')", "replace(a, 'a', b)", "instr(a, b)", "greatest(a, b)", "least(a, b)", "a || b", "trim(a) = trim(b)", "length(concat(a, b))")  # fmt: skip
    n = len(STRINGS)
    inner = pa.struct([("t", pa.string()), ("u", pa.int32())])
    places = [None, 0, 1, 2, -1, 3, 2**31 - 1, -(2**31)]
    arrays = [None, [], ["a"], [None], ["a", None, "b"], ["b", "é"]]
    one = pa.table(
        {
            "s": pa.array(STRINGS),
            "k": pa.array([places[i % len(places)] for i in range(n)], pa.int32()),
            "i": pa.array(
                [None if i % 5 == 0 else {"n": None if i % 3 == 0 else {"t": s, "u": i}} for i, s in enumerate(STRINGS)],
                pa.struct([("n", inner)]),
            ),
            "arr": pa.array([arrays[i % len(arrays)] for i in range(n)], pa.list_(pa.string())),
            "structs": pa.array([None if i % 7 == 0 else [{"x": 1}, None, {"x": None}][: i % 4] for i in range(n)], pa.list_(pa.struct([("x", pa.int32())]))),
        }
    )  # fmt: skip
    return {
        "two strings": Frame(_pairs(pa.string(), _SHORT), (*_COMPARED, *two)),
        "one string": Frame(one, _lines(_ONE_STRING)),
    }


_ONE_TIME = r"""
cast(t as string)
cast(t as date)
cast(t as bigint)
cast(d as string)
cast(d as timestamp)
year(t)
quarter(t)
month(t)
day(d)
dayofyear(d)
weekofyear(d)
dayofweek(d)
weekday(d)
last_day(d)
hour(t)
minute(t)
second(t)
extract(year from t)
date_trunc('YEAR', t)
date_trunc('quarter', t)
date_trunc('MONTH', t)
date_trunc('WEEK', t)
date_trunc('DAY', t)
date_trunc('HOUR', t)
date_trunc('minute', t)
date_trunc('SECOND', t)
date_trunc('MILLISECOND', t)
trunc(d, 'YEAR')
trunc(d, 'MM')
trunc(d, 'week')
trunc(d, 'QUARTER')
date_add(d, 1)
date_add(d, k)
date_sub(d, k)
d + 1
datediff(d, date '2020-01-01')
datediff(d, cast(t as date))
unix_date(d)
unix_seconds(t)
unix_millis(t)
unix_micros(t)
unix_timestamp(t)
date_format(t, 'yyyy-MM-dd')
date_format(t, 'yyyy-MM-dd HH:mm:ss.SSS')
date_format(t, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'")
date_format(t, 'dd/MM/yyyy, HH:mm')
date_format(d, 'yyyyMM')
add_months(d, 1)
add_months(d, k)
add_months(d, -13)
t + interval 1 hour
t - interval '1 02:03:04.005006' day to second
n + interval 90 seconds
cast(t as double)
cast(cast(t as double) as timestamp)
t > timestamp '2020-01-01 00:00:00'
t >= '2020-01-01'
d = date '2020-02-29'
d > '1582-10-10'
t > d
to_date(t)
to_timestamp(d)
t in (timestamp '1970-01-01 00:00:00', timestamp '2020-02-29 12:34:56.789012')
coalesce(t, timestamp '2000-01-01 00:00:00')
cast(n as string)
cast(n as date)
hour(n)
n = t
"""


def _times() -> dict[str, Frame]:
    rows = list(product(range(max(len(DAYS), len(TIMES))), INTS))
    table = pa.table(
        {
            "d": pa.array([DAYS[i % len(DAYS)] for i, _ in rows], pa.int32()).cast(pa.date32()),
            "t": pa.array([TIMES[i % len(TIMES)] for i, _ in rows], pa.timestamp("us", "UTC")),
            "n": pa.array([TIMES[i % len(TIMES)] for i, _ in rows], pa.timestamp("us")),
            "k": pa.array([k for _, k in rows], pa.int32()),
        }
    )
    days = pa.table({c: v.cast(pa.date32()) for c, v in zip("ab", _pairs(pa.int32(), DAYS).columns, strict=True)})
    compared = tuple(c for c in _COMPARED if not c.startswith("array(a, b)"))
    return {
        "dates": Frame(days, (*(c for c in _COMPARED if c != "array(a, b)"), "greatest(a, b)", "datediff(a, b)")),
        "timestamps": Frame(_pairs(pa.timestamp("us", "UTC"), TIMES), (*compared, "greatest(a, b)", "least(a, b)")),
        "times": Frame(table, _lines(_ONE_TIME)),
    }


FRAMES: dict[str, Frame] = {**_numbers(), **_strings(), **_times()}

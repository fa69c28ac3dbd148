"""Random expressions over random rows, compared with Spark: for as long as one likes. Drawn by `fuzz`."""

# ruff: noqa: E501  (tables of values)
from __future__ import annotations

import base64
import json
import random
import re
import time
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from native.decimal_cases import decimals
from native.expression_cases import BIGINTS, DAYS, DOUBLES, INTS, STRINGS, TIMES
from native.expressions_against_spark import different

_ROWS, _EXPRESSIONS = 150, 30

#: Characters that patterns are tried on, and parts of a pattern that match any number of them: with more, Java takes
#: hours for some.
_MATCHED, _ENDLESS = 200, 2

#: What differed once, for the tests.
FOUND = Path(__file__).parent / "found" / "expressions"

#: What gives a value of a type: a string, an int, a bigint, a double, a boolean, a date, a timestamp, a decimal, strings, a wide
#: decimal, a float.
_GIVES = {
    "s": r"""
        upper({s}); lower({s}); trim({s}); ltrim({s}); rtrim({s}); trim('a ' from {s}); substring({s}, {n}, {n}); substr({s}, {n}); left({s}, 3)
        right({s}, 2); substring({s}, {i}, {i}); concat({s}, {s}); concat_ws('-', {s}, {s}); concat_ws('', {s}, {s}, {s}); {s} || {s}; replace({s}, {s}, {s}); replace({s}, 'a', 'bb')
        coalesce({s}, {s}); if({b}, {s}, {s}); case when {b} then {s} when {b} then {s} end; nullif({s}, {s}); nvl2({i}, {s}, {s})
        cast({i} as string); cast({l} as string); cast({b} as string); cast({dt} as string); cast({t} as string); sha2({s}, 256); md5({s})
        regexp_replace({v}, '{p}', '-'); regexp_extract({v}, '{p}', 0); get({arr}, {i}); element_at({arr}, {n}); {arr}[{i}]; greatest({s}, {s})
        named_struct('x', {s}, 'y', {i}).x; case when {b} then reverse({s}) else {s} end; coalesce({s}, initcap({s}))
        lpad({s}, 5, 'xy'); rpad({s}, 3); repeat({s}, 2); reverse({s}); translate({s}, 'ab', '1'); sha1({s}); substring_index({s}, '-', 1); substring_index({s}, 'a', -2); date_format({t}, 'yyyy-MM-dd HH:mm')
        from_unixtime({l}); cast({dc} as string); cast({w} as string); date_format({dt}, 'yyyyMM')""",
    "i": r"""
        {i} + {i}; {i} - {i}; {i} * {i}; {i} % {i}; pmod({i}, {i}); -{i}; abs({i}); length({s}); octet_length({s}); instr({s}, {s}); size({arr})
        cast({s} as int); try_cast({s} as int); cast({l} as int); cast({d} as int); cast({b} as int); cast({dc} as int); coalesce({i}, {i})
        if({b}, {i}, {i}); case when {i} <> 0 then 100 % {i} else {i} end; year({dt}); month({dt}); day({dt}); dayofweek({dt}); weekofyear({dt})
        hour({t}); minute({t}); second({t}); datediff({dt}, {dt}); unix_date({dt}); quarter({t}); dayofyear({dt}); weekday({dt}); least({i}, {i})
        locate({s}, {s}); {i} & {i}; {i} | {i}; {i} ^ {i}; ~{i}; round({i}, 1); cast({w} as int); cast({f} as int)""",
    "l": r"""
        {l} + {l}; {l} - {l}; {l} * {l}; {l} % {l}; {i} + {l}; {l} div {l}; -{l}; abs({l}); cast({s} as bigint); cast({d} as bigint); cast({i} as bigint)
        cast({t} as bigint); unix_seconds({t}); unix_millis({t}); unix_micros({t}); unix_timestamp({t}); unix_timestamp({s}); floor({d}); ceil({d})
        coalesce({l}, {i}); if({b}, {l}, {l}); cast({dc} as bigint); cast({w} as bigint); {l} & {l}; floor({f})""",
    "d": r"""
        {d} + {d}; {d} - {d}; {d} * {d}; {d} / {d}; {i} / {i}; {d} % {d}; -{d}; abs({d}); sqrt({d}); cast({s} as double); cast({i} as double)
        cast({l} as double); cast({dc} as double); coalesce({d}, {d}); if({b}, {d}, {d}); nullif({d}, {d}); try_divide({i}, {i}); {d} + {i}
        cast(cast({s} as float) as double); cast(cast({d} as float) as double)
        round({d}, 2); round({d}); cast({w} as double); cast({f} as double); {f} / {f}; cast({t} as double)""",
    "b": r"""
        {s} = {s}; {s} <=> {s}; {s} < {s}; {s} >= {s}; {s} <> {s}; {i} = {i}; {i} < {l}; {l} >= {l}; {d} = {d}; {d} < {d}; {d} >= {d}; {d} <=> {d}
        {dt} = {dt}; {dt} < {dt}; {t} < {t}; {t} >= {dt}; {dc} < {dc}; {dc} = {i}; {b} and {b}; {b} or {b}; not {b}; {s} is null; {i} is not null
        {d} is null; isnan({d}); {s} in ({s}, {s}, 'a'); {i} in ({i}, 1, null); {d} in ({d}, 0.0D); {i} between {i} and {i}; {s} between {s} and {s}
        {t} > '2020-01-01'; {dt} = '2020-02-29'; startswith({s}, {s}); endswith({s}, {s}); contains({s}, {s}); {s} like '{k}'; {s} ilike '{k}'
        {v} rlike '{p}'; cast({s} as boolean); cast({i} as boolean); if({b}, {b}, {b}); coalesce({b}, {b}); array_contains({arr}, {s}); {b} = {b}
        {w} < {w}; {w} = {dc}; {w} <=> {w}; {f} < {f}; {f} = {d}; {f} <=> {f}; {dc} in ({dc}, 1.5, 0); {w} > {i}; {w} >= {l}""",
    "dt": r"""
        cast({s} as date); to_date({s}); to_date({s}, 'yyyy-MM-dd'); to_date({s}, 'yyyyMMdd'); cast({t} as date); date_add({dt}, {i}); date_sub({dt}, {i})
        trunc({dt}, 'MM'); trunc({dt}, 'WEEK'); trunc({dt}, 'YEAR'); last_day({dt}); coalesce({dt}, {dt}); if({b}, {dt}, {dt}); date_from_unix_date({i}); add_months({dt}, {i})""",
    "t": r"""
        cast({s} as timestamp); try_cast({s} as timestamp); to_timestamp({s}); to_timestamp({s}, 'yyyy-MM-dd HH:mm:ss'); cast({dt} as timestamp)
        to_timestamp({s}, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"); timestamp_seconds({l}); timestamp_millis({l}); timestamp_micros({l}); cast({l} as timestamp)
        date_trunc('DAY', {t}); date_trunc('HOUR', {t}); date_trunc('WEEK', {t}); date_trunc('SECOND', {t}); coalesce({t}, {t}); if({b}, {t}, {t})
        {t} + interval 1 hour; {t} - interval 3 days; cast({d} as timestamp); cast({l} / 1000 as timestamp)""",
    "dc": r"""
        cast({s} as decimal(10,2)); cast({i} as decimal(10,2)); coalesce({dc}, {dc}); if({b}, {dc}, {dc}); nullif({dc}, {dc})
        cast({d} as decimal(10,2)); cast({w} as decimal(10,2)); cast({dc} + {dc} as decimal(10,2)); cast({dc} * {dc} as decimal(10,2)); -{dc}; abs({dc})
        greatest({dc}, {dc}); cast(round({dc}, 1) as decimal(10,2)); cast(floor({w}) as decimal(10,2)); cast({f} as decimal(10,2))""",
    "w": r"""
        cast({dc} as decimal(38,18)); cast({w} + {w} as decimal(38,18)); cast({w} - {dc} as decimal(38,18)); cast({w} * {dc} as decimal(38,18)); -{w}; abs({w})
        cast({s} as decimal(38,18)); cast({l} as decimal(38,18)); coalesce({w}, {w}); if({b}, {w}, {w}); least({w}, {w}); cast(round({w}, 2) as decimal(38,18))
        cast({i} * {w} as decimal(38,18)); cast({dc} * {dc} * {dc} as decimal(38,18))""",
    "f": r"""
        cast({d} as float); cast({s} as float); {f} + {f}; {f} - {f}; {f} * {f}; -{f}; abs({f}); cast({w} as float); cast({i} as float); cast({l} as float)
        coalesce({f}, {f}); if({b}, {f}, {f}); nullif({f}, {f})""",
    "arr": r"""
        split({s}, ','); split({s}, '-'); split({s}, '\\.'); array({s}, {s}); array({s}, null); coalesce({arr}, {arr}); if({b}, {arr}, {arr})""",
}  # fmt: skip
GIVES = {kind: [t.strip() for t in re.split(r"[;\n]", text) if t.strip()] for kind, text in _GIVES.items()}

_LITERALS = {
    "s": ["''", "'a'", "'ab'", "'é'", "' '", "'2020-01-01'", "'-'", "cast(null as string)", "'0'", "'%'"],
    "i": ["0", "1", "-1", "2147483647", "7", "cast(null as int)"],
    "l": ["0L", "1L", "-1L", "9223372036854775807L", "1577836800L"],
    "d": ["0.0D", "-0.0D", "1.5D", "double('NaN')", "double('Infinity')", "1e300D", "cast(null as double)"],
    "b": ["true", "false", "cast(null as boolean)"],
    "dt": ["date '2020-02-29'", "date '1582-10-10'", "date '9999-12-31'"],
    "t": ["timestamp '2020-01-01 00:00:00'", "timestamp '1969-12-31 23:59:59.999999'", "timestamp '0001-01-01 00:00:00'"],
    "dc": ["1.50BD", "cast(0 as decimal(10,2))"],
    "w": ["cast('0.000000000000000001' as decimal(38,18))", "cast('-99999999999999999999.5' as decimal(38,18))", "cast(2 as decimal(38,18))"],
    "f": ["cast(1.5 as float)", "float('NaN')", "cast(16777217 as float)", "cast(null as float)"],
    "arr": ["array('a', 'b')"],
    "n": ["0", "1", "2", "3", "-1", "-2", "-7", "2147483647", "-2147483648"],
}  # fmt: skip
_PIECES = ["a", "b", r"\\d", r"\\w", r"\\s", "[a-c]", "[^0-9]", ".", "(a|b)", "(?:ab)", r"\\.", r"\\D", "é", "-", "[0-9]", "Z", r"\\S", "[ab.]"]  # fmt: skip
_LETTERS = ["a", "b", "A", "B", "0", "1", "9", "-", ".", ",", " ", "\t", "\n", "\r", "\x0b", "é", "e\u0301", "ß", "İ", "ſ", "\u212a", "😀", "\u00a0", "\u2028", "_", "%", "\\", "'", "T", "Z", ":", "\x00"]  # fmt: skip


class Dice:
    """Draws expressions and rows."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def expression(self, kind: str, depth: int) -> str:
        """An expression of a type, at most so deep."""
        if kind in ("p", "k"):
            return self._pattern() if kind == "p" else self._like()
        if kind == "v":
            return f"left({self.expression('s', depth)}, {_MATCHED})"
        if kind == "n":
            return self._random.choice(_LITERALS["n"])
        if depth == 0 or self._random.random() < 0.12:
            named = [f"{kind}1", f"{kind}2"]
            return self._random.choice(named if self._random.random() < 0.75 else _LITERALS[kind])
        template = self._random.choice(GIVES[kind])
        return re.sub(r"\{(\w+)\}", lambda found: "(" * (found[1] not in "pk") + self.expression(found[1], depth - 1) + ")" * (found[1] not in "pk"), template)  # fmt: skip

    def any_expression(self) -> str:
        """An expression of any type."""
        return self.expression(self._random.choice(list(GIVES)), self._random.choice((1, 1, 2, 2, 3, 4)))

    def _pattern(self) -> str:
        parts = [
            self._random.choice(_PIECES)
            + self._random.choice(["", "", "", "?", "{1,2}", *(["+", "*", "+?"] if number < _ENDLESS else [])])
            for number in range(self._random.randint(1, 4))
        ]
        self._random.shuffle(parts)
        start, end = self._random.choice(["", "", "^", "(?i)"]), self._random.choice(["", "", "$"])
        return start + self._random.choice(["", "", "|"]).join(parts) + end

    def _like(self) -> str:
        return "".join(self._random.choice(["%", "_", "a", "b", "é", "\\\\%", "\\\\_", "-", "0", "^"]) for _ in range(self._random.randint(0, 4)))  # fmt: skip

    def table(self) -> pa.Table:
        """Rows of two columns of each type."""
        columns: dict[str, pa.Array] = {}
        for place in "12":
            columns["s" + place] = pa.array([self._string() for _ in range(_ROWS)], pa.string())
            columns["i" + place] = self._column(INTS, pa.int32(), lambda: self._random.randint(-20, 20))
            columns["l" + place] = self._column(BIGINTS, pa.int64(), lambda: self._random.randint(-(10**10), 10**10))
            columns["d" + place] = self._column(DOUBLES, pa.float64(), lambda: self._random.uniform(-100, 100))
            columns["b" + place] = self._column([None, True, False], pa.bool_(), lambda: True)
            days = self._column(DAYS, pa.int32(), lambda: self._random.randint(-200_000, 200_000))
            columns["dt" + place] = days.cast(pa.date32())
            micros = self._column(TIMES, pa.int64(), lambda: self._random.randint(-(10**16), 10**17))
            columns["t" + place] = micros.cast(pa.timestamp("us", "UTC"))
            cents = [Decimal(n).scaleb(-2) for n in (0, 1, -1, 150, 9999999999, -9999999999, 12799)]
            columns["dc" + place] = self._column([None, *cents], pa.decimal128(10, 2), lambda: Decimal("3.14"))
            columns["w" + place] = decimals(38, 18, self._random, _ROWS)
            doubles = self._column(DOUBLES, pa.float64(), lambda: self._random.uniform(-100, 100))
            columns["f" + place] = doubles.cast(pa.float32(), safe=False)
            arrays = [[self._string() for _ in range(self._random.randint(0, 3))] for _ in range(_ROWS)]
            columns["arr" + place] = pa.array([a if self._random.random() < 0.9 else None for a in arrays])
        return pa.table(columns)

    def _column(self, hostile: list[Any], kind: pa.DataType, other: Any) -> pa.Array:
        return pa.array([self._random.choice(hostile) if self._random.random() < 0.6 else other() for _ in range(_ROWS)], kind)  # fmt: skip

    def _string(self) -> str | None:
        roll = self._random.random()
        if roll < 0.3:
            return self._random.choice(STRINGS)
        if roll < 0.5:
            return self._time()
        if roll < 0.6:
            return str(self._random.choice([self._random.randint(-1000, 1000), self._random.uniform(-10, 10)]))
        return "".join(self._random.choice(_LETTERS) for _ in range(self._random.randint(0, 6)))

    def _time(self) -> str:
        draw = self._random.randint
        year = self._random.choice(["1582", "1583", "2020", "2021", "9999", "1900", str(draw(0, 9999)).zfill(4)])
        date = f"{year}-{draw(0, 13):02}-{draw(0, 32):02}"
        clock = f"{draw(0, 24):02}:{draw(0, 60):02}:{draw(0, 60):02}"
        fraction = self._random.choice(["", "", ".1", f".{draw(0, 999):03}", f".{draw(0, 999999):06}", ".1234567"])
        zone = self._random.choice(["", "", "Z", "+00:00", "-00:30", "+05:30", "-18:00", "+17:59", " UTC", "+1:00"])
        return self._random.choice([date, date.replace("-", ""), f"{date}T{clock}{fraction}{zone}", f"{date} {clock}{fraction}{zone}"])  # fmt: skip


def differences(spark: Any, seed: int, seconds: float) -> list[str]:
    """What the native pass gave and Spark did not, of expressions drawn for so many seconds; stops at the first.

    Each round has a seed of its own, one more than the round before, which is told with what was found.
    """
    until = time.monotonic() + seconds
    first = seed
    while time.monotonic() < until or seed == first:
        table, expressions = drawn(seed)
        found = _problems(spark, table, expressions)
        if found:
            path = keep(*_shrunk(spark, table, expressions), seed, found)
            return [*(f"seed {seed}: {line}" for line in found), f"kept in {path}"]
        seed += 1
    print(f"seeds {first} to {seed - 1}: {_EXPRESSIONS} expressions each", flush=True)
    return []


def drawn(seed: int) -> tuple[pa.Table, list[str]]:
    """The rows and the expressions of a round."""
    dice = Dice(seed)
    expressions = [dice.any_expression() for _ in range(_EXPRESSIONS)]
    return dice.table(), expressions


def _planned(frame: Any, expression: str) -> bool:
    """Whether Spark plans it at all: of some constants it raises right then, now and then of `nullable` already."""
    try:
        frame.selectExpr(expression)
    except (PySparkException, Py4JJavaError):
        return False
    return True


def _problems(spark: Any, table: pa.Table, expressions: list[str]) -> list[str]:
    """What differs, or what was raised while it was looked for."""
    try:
        frame = spark.createDataFrame(table)
        return different(spark, table, [one for one in expressions if _planned(frame, one)], all_known=False)
    except Exception as error:  # noqa: BLE001  an error is something that was found
        return [f"{type(error).__name__}: {str(error)[:2000]}"]


def _shrunk(spark: Any, table: pa.Table, expressions: list[str]) -> tuple[pa.Table, list[str]]:
    """One of the expressions and few of the rows that still give a problem; all, if it takes all of them."""
    alone = next((one for one in expressions if _problems(spark, table, [one])), None)
    if alone is None:
        return table, expressions
    while table.num_rows > 1:
        middle = table.num_rows // 2
        halves = (table.slice(0, middle), table.slice(middle))
        half = next((half for half in halves if _problems(spark, half, [alone])), None)
        if half is None:
            break
        table = half
    named = [name for name in table.column_names if re.search(rf"\b{name}\b", alone)]
    return table.select(named or table.column_names[:1]), [alone]


def keep(table: pa.Table, expressions: list[str], seed: int, problems: list[str]) -> Path:
    """Writes it where the tests find it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    rows = base64.b64encode(sink.getvalue()).decode()
    shown = repr(table.slice(0, 3).to_pydict()) if table.num_rows <= 3 else f"{table.num_rows} rows"
    stored = {"seed": seed, "problems": problems, "expressions": expressions, "shown": shown, "rows": rows}
    text = json.dumps(stored, indent=1)
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"{sha256(text.encode()).hexdigest()[:12]}.json"
    path.write_text(text + "\n")
    return path


def kept(folder: Path) -> list[tuple[pa.Table, list[str]]]:
    """All that were found once: rows, and the expressions over them."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [(pa.ipc.open_stream(base64.b64decode(one["rows"])).read_all(), one["expressions"]) for one in found]

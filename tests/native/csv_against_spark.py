"""Lines of CSV as the native pass reads them, beside what Spark's own reader of files has for the same lines."""

from __future__ import annotations

import json
import random
import struct
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.native.parse_csv import CsvParser
from anabranch.native.parse_csv_shape import CsvShape, csv_refused

NUMBERS = """
0 -0 +0 1 -1 +1 007 -007 127 128 -128 -129 32767 32768 2147483647 2147483648 -2147483648 -2147483649 999999999999999999
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 1.0 1. .5 -.5 . - -- +- 1- 1-1 1.5.2
0.1 -0.0 -0.1 3.14159 123456789.123456789 0.30000000000000004 1e3 1E3 1e-3 1e999 4.9e-324 1d 1f 1D 1L 0x10 1_000 1,000
NaN nan Inf -Inf Infinity -Infinity +Infinity inf 9007199254740993 16777217 8388608.5 99999999999999999999.5 12.345
12.3456 1234567.89 99999.99 100000.00 0.005 0.015 ١٢ 1٢ 1e 5e+ 00000000000000000001.50000000000000000001
""".split()  # noqa: SIM905  a list of a word per line is no easier to read
TIMES = """
2026-01-02 2026-1-2 2026-02-30 2026-02-29 2024-02-29 1582-10-10 0001-01-01 9999-12-31 10000-01-01 +12026-01-02
2026 2026-01 20260102 2026-01-02T03:04:05 2026-01-02T03:04:05Z 2026-01-02T03:04:05.1 2026-01-02T03:04:05.123456
2026-01-02T03:04:05.123456789 2026-01-02T03:04:05.1234567Z 2026-01-02T03:04:05+01:00 2026-01-02T03:04:05-17:30
2026-01-02T03:04:05+18:00 2026-01-02T24:00:00 2026-01-02T23:59:60 2026-01-02T3:4:5 2026-01-02T03:04 2026-01-02T03
2026-03-29T02:30:00 2026-01-02T03:04:05[UTC] 2026-01-02T03:04:05UTC 2026-01-02T03:04:05GMT+1 12:34:56 epoch now today
-2026-01-02
""".split()  # noqa: SIM905
TIMES += ["2026-01-02 03:04:05", "2026-01-02 03:04:05.5 Z", "2026-01-02 ", " 2026-01-02", "2026-01-02 03:04:05+01"]
WORDS = ["true", "false", "TRUE", "True", "tRuE", "fal\u017fe", "t", "yes", "1", "0", " true", "true "]
TEXTS = ["a", "", " ", "  a  ", "\t", "a\tb", "é", "😀", "\u2028", "\u00a0", "\ufeff", "\ufeffx", "\0", "a\0b", "\x01"]
TEXTS += ["\x1f", "\x7f", "\x85", "\x0b", "\x0c", "NA", "null", "NULL", "N/A", "-", "'a'", "'a,b'", "#", "#a", "a#"]
TEXTS += ['"', '""', '"""', '"a"', '"a', 'a"', 'a"b', '"a"b', '"a" ', ' "a"', '"a""b"', '"a\\"b"', '","', '"a,b"']
TEXTS += ["\\", "\\\\", "\\n", '"\\"', '"\\\\"', '"a\\', '"a;b"', '"a|b"', '"a\tb"', '" "', '"1"', '"-5"', '"NA"']
TEXTS += ['"2026-01-02"', '"true"', "x" * 50, '"' + "y" * 50 + '"']
POOL = [*NUMBERS, *TIMES, *WORDS, *TEXTS]

TYPES = ["boolean", "byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp"]
TYPES += ["timestamp_ntz", "decimal(7,2)", "decimal(38,18)", "decimal(5,0)", "decimal(2,2)", "string", "string"]

OPTIONS: list[dict[str, str]] = [
    {},
    {},
    {"sep": ";"},
    {"sep": "\\t"},
    {"delimiter": "|", "quote": "'"},
    {"escape": '"'},
    {"quote": ""},
    {"quote": "", "escape": ""},
    {"nullValue": "NA"},
    {"nullValue": "-", "emptyValue": "NA"},
    {"emptyValue": "x"},
    {"comment": "#"},
    {"comment": "#", "mode": "DROPMALFORMED"},
    {"mode": "DROPMALFORMED"},
    {"columnPruning": "false"},
    {"timeZone": "Europe/Berlin"},
    {"unescapedQuoteHandling": "STOP_AT_CLOSING_QUOTE", "preferDate": "false"},
    {"enableDateTimeParsingFallback": "false"},
]

#: What is not certain of the records of a case: a line that Spark has nothing or something else for.
CORRUPT = "_corrupt_record"


@dataclass(frozen=True)
class Case:
    """A schema as pairs of names and types, those that are needed, options and lines."""

    columns: Sequence[tuple[str, str]]
    needed: tuple[str, ...]
    lines: Sequence[bytes]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> dict[str, Any]:
        fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in self.columns]
        return {"type": "struct", "fields": fields}

    @property
    def shape(self) -> CsvShape:
        return CsvShape(json.dumps(self.schema), self.needed, self.options)


def parsed(case: Case) -> tuple[list[Any], list[bool]]:
    """The records of all lines read together, and which lines are doubted."""
    found = CsvParser(case.shape).parse(pa.array(case.lines, pa.binary()))
    doubt = found.doubt.to_pylist() if found.doubt else [False] * len(case.lines)
    return [None if row is None else tuple(map(exact, row.values())) for row in found.records.to_pylist()], doubt


def exact(value: Any) -> Any:
    """A value that is equal to no other."""
    return struct.pack(">d", value).hex() if isinstance(value, float) else value


def by_spark(spark: Any, folder: Path, case: Case, lines: Sequence[bytes]) -> list[Any]:
    """The rows that Spark reads in a file of lines."""
    from pyspark.sql.types import StructType

    path = folder / "lines.csv"
    path.write_bytes(b"\n" + b"\n".join(lines) + b"\n")
    frame = spark.read.schema(StructType.fromJson(case.schema)).options(**case.options).csv(str(path))
    columns = [name for name, _ in case.columns if name in case.needed]
    rows = [row for batch in frame.select(columns)._collect_as_arrow() for row in batch.to_pylist()]
    return [tuple(map(exact, row.values())) for row in rows]


def differences(spark: Any, case: Case) -> tuple[list[str], float]:
    """How the lines of a case are read differently, and the share of them that are read natively."""
    assert not csv_refused(case.shape), csv_refused(case.shape)
    records, doubt = parsed(case)
    certain = [n for n, doubted in enumerate(doubt) if not doubted]
    with tempfile.TemporaryDirectory() as folder:
        there = by_spark(spark, Path(folder), case, [case.lines[n] for n in certain])
    here = [(case.lines[n], records[n]) for n in certain if records[n] is not None]
    about = json.dumps([case.columns, case.needed, dict(case.options)])
    found = [
        f"{about} {line!r} is {ours}, not {theirs}"
        for (line, ours), theirs in zip(here, there, strict=False)
        if ours != theirs
    ]
    if len(here) != len(there) and not found:
        found.append(f"{about} {len(here)} records, not {len(there)}: {case.lines!r}")
    return found, len(here) / max(1, len(case.lines))


def lines_differ(spark: Any, seed: int, seconds: float) -> bool:
    """Compares random lines for so long, or until something is found."""
    ends = time.monotonic() + seconds
    read = total = 0
    while time.monotonic() < ends:
        for number in range(20):
            case = random_case(random.Random(f"{seed} {number}"))
            found, share = differences(spark, case)
            total, read = total + len(case.lines), read + round(share * len(case.lines))
            if found:
                print(f"seed {seed}: {len(found)} lines of CSV differ; {found[0]}")
                return True
        print(f"seed {seed}: {total} lines of CSV so far, {read} of them read natively", flush=True)
        seed += 1
    return False


def random_case(dice: random.Random, lines: int = 300) -> Case:
    """Columns of random types, and lines of values that are at home in them, or not."""
    options = dice.choice(OPTIONS)
    columns = [(f"c{i}", dice.choice(TYPES)) for i in range(dice.choice([1, 2, 3, 3, 4, 7]))]
    if dice.random() < 0.7:
        columns.insert(dice.randrange(len(columns) + 1), (CORRUPT, "string"))
    own = [name for name, _ in columns if name != CORRUPT]
    needed = dice.sample(own, dice.randint(1, len(own))) if dice.random() < 0.4 else own
    if (CORRUPT, "string") in columns:
        needed = [*needed, CORRUPT]
    separator = {"\\t": "\t"}.get(options.get("sep", ""), options.get("sep", options.get("delimiter", ",")))
    quote = options.get("quote", '"')
    found = [_line(dice, [t for n, t in columns if n != CORRUPT], separator, quote) for _ in range(lines)]
    return Case(columns, tuple(needed), found, options)


def _line(dice: random.Random, types: Sequence[str], separator: str, quote: str) -> bytes:
    if dice.random() < 0.03:
        return dice.choice(
            [b"", b" ", b"\t", b"\xff", b"\xef\xbb\xbf", b"\x00", separator.encode() * len(types), b"#,,"]
        )
    values = [_value(dice, kind, quote) for kind in types]
    if dice.random() < 0.05:
        values = values[: dice.randrange(len(values) + 1)] + ["more"] * dice.randrange(3)
    line = separator.join(values).encode("utf-8", "surrogatepass")
    if dice.random() < 0.02:
        place = dice.randrange(len(line) + 1)
        line = line[:place] + dice.choice([b"\xff", b"\xc3", b'"', b",", b"\\", b" "]) + line[place:]
    return line.replace(b"\n", b"").replace(b"\r", b"")


def _value(dice: random.Random, kind: str, quote: str) -> str:
    if dice.random() < 0.06:
        return dice.choice(POOL)
    if dice.random() < 0.06:
        return ""
    home = {"boolean": WORDS[:4], "date": TIMES[:6], "timestamp": TIMES[13:20], "timestamp_ntz": TIMES[13:17]}
    if kind == "string":
        value = dice.choice([*TEXTS[:4], "plain", "two words", "é", "NA", "a\tb", "x" * dice.randrange(30)])
    elif kind in home:
        value = dice.choice(home[kind])
    else:
        digits = str(dice.randrange(10 ** dice.randint(1, 12)))
        value = dice.choice(["", "", "-"]) + digits
        if kind in ("float", "double") or (kind.startswith("decimal") and dice.random() < 0.5):
            value += f".{dice.randrange(10 ** dice.randint(1, 9))}"
        if dice.random() < 0.1:
            value = dice.choice(NUMBERS)
    return quote + value + quote if dice.random() < 0.2 else value


def by_hand() -> list[Case]:
    """Each odd value by itself as each type, beside another; and with each option."""
    cases = []
    texts = [value.encode("utf-8", "surrogatepass").replace(b"\n", b"").replace(b"\r", b"") for value in POOL]
    for kind in dict.fromkeys(TYPES):
        columns = [("a", kind), ("b", "string"), (CORRUPT, "string")]
        around = [b'"' + one + b'"' for one in texts if b'"' not in one]
        lines = [one + b",x" for one in [*texts, *around] if one.count(b",") == 0 or one.startswith(b'"')]
        cases.append(Case(columns, ("a", "b", CORRUPT), lines))
    cases.append(Case([("a", "string")], ("a",), texts))
    plain = [("a", "string"), ("b", "string"), (CORRUPT, "string")]
    for options in OPTIONS:
        separator = {"\\t": "\t"}.get(options.get("sep", ""), options.get("sep", options.get("delimiter", ",")))
        lines = [one + separator.encode() + other for one in texts[-60:] for other in (b"x", b"", b'""')]
        cases.append(Case(plain, ("a", "b", CORRUPT), lines, options))
    return cases

"""Documents and schemas for the tests of the parser: hostile ones by hand, and random ones without end."""

# ruff: noqa: E501  (tables of values)
from __future__ import annotations

import json
import random
import re
import struct as struct_
from collections.abc import Callable
from decimal import Decimal
from typing import Any

LEAVES = [
    "boolean",
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "date",
    "timestamp",
    "timestamp_ntz",
]
LEAVES += ["decimal(10,2)", "decimal(38,0)", "decimal(38,18)", "decimal(38,38)", "decimal(1,0)", "decimal(5,5)"]

#: For decimals and floats: at the edges of types, halfway between two floats, in every way to write them.
EXACT = [
    "99999999.99", "-99999999.99", "100000000", "100000000.00", "99999999.995", "99999999.994", "0.005", "-0.005", "1.50", "1.500",
    "1.5000000000", "0.00", "0.000", "-0.00", "9", "10", "-9", "-10", "0.99999", "-0.99999", "0.999999", "0.999995", "0.9999949", "1.00000",
    "9" * 38, "-" + "9" * 38, "1" + "0" * 38, "9" * 39, "0." + "9" * 38, "0." + "9" * 39, "9" * 20 + "." + "9" * 18,
    "9" * 20 + "." + "9" * 19, "1" + "0" * 20, "1e20", "1e19", "12345678901234567890.123456789012345678", "0." + "0" * 37 + "1", "1e-38",
    "1e-39", "5e-39", "1.0e1", "15e-1", "150E-2", "0.15e+1", "1e7", "1e8", "0e30", "0e60", "0e100", "0e-60", "0." + "0" * 60,
    "1." + "0" * 37, "1." + "0" * 38, "16777217", "16777219", "16777217.0", "33554434", "33554435", "1.00000017881393432617187499",
    "1.00000017881393432617187500", "1.00000017881393432617187501", "1.000000059604644775390625", "1.0000000596046447753906249999",
    "1.000000178813934326171875000000000000001", "3.4028234e38", "3.4028235e38", "3.40282356e38", "3.40282357e38", "3.5e38",
    "1.1754943508222875e-38", "1.4e-45", "7.0064923216240853e-46", "7.0064923216240854e-46", "7e-46", "1e-50", "8589934591.5",
    "9223371761976868864", "9223371761976868863", "9223371761976868865", "922337176197686886400000", "900719925474099200000",
    "1152921573326323712", "1152921573326323713", "1152921573326323711", "115292157332632371200", "576460786663161855", "576460786663161856",
    "576460786663161857", "899999999999999999", "900000000000000001", "999999999999999999", "1000000000000000000", "340282356779733661637539395458142568447",
    "340282356779733661637539395458142568448", "0.1", "0.3", "123.456", "1e10", "-1e-10", '"1.5"', '"-1.5"', '"+1.5"', '"1,5"', '"1,000"', '",1"', '"1."', '".5"',
    '"007"', '"1e3"', '"1E-1"', '"1e"', '" 1"', '"1 "', '"-"', '"."', '"+"', '"1.5.5"', '"NaN"', '"Infinity"', '"٣"', '"1_0"', '"0x1"', '"1d"',
    '"1f"', '"99999999.99"', '"99999999.999"', '"-0"', '"0e60"', '"1\\u0000"', '"\\u0031"', '"1\\n"',
]  # fmt: skip

#: Odd as names, and odd to the paths of other engines.
NAMES = ["a", "b", "c", "A2", "user id", "x.y", "x/y", "ä", 'q"t', "[]", "$", "*", "", "_corrupt_record", "\0n", "a'b"]

TIMES = [
    "2026-01-02", "2026-1-2", "2026-02-29", "2024-02-29", "2026-02-30", "2026-13-01", "2026-00-10", "0000-01-01",
    "0001-01-01", "1582-10-10", "1582-12-31", "1583-01-01", "9999-12-31", "10000-01-01", "+2026-01-02", "-0001-01-01",
    "2026-01-02T03:04:05", "2026-01-02 03:04:05", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05z",
    "2026-01-02t03:04:05Z", "2026-01-02T03:04:05.1Z", "2026-01-02T03:04:05.12Z", "2026-01-02T03:04:05.123Z",
    "2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05.1234567Z", "2026-01-02T03:04:05.123456789Z",
    "2026-01-02T03:04:05.Z", "2026-01-02T03:04:05.", "2026-01-02T03:04:05.123456", "2026-01-02 03:04:05.1",
    "2026-01-02T03:04Z", "2026-01-02T03:04", "2026-01-02T03", "2026-01-02T", "2026-01-02T03:04:05+01:00",
    "2026-01-02T03:04:05-18:00", "2026-01-02T03:04:05+18:00", "2026-01-02T03:04:05+17:59", "2026-01-02T03:04:05-17:59",
    "2026-01-02T03:04:05-00:30", "2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05-00:00", "2026-01-02T03:04:05+19:00",
    "2026-01-02T03:04:05+1:00", "2026-01-02T03:04:05+0100", "2026-01-02T03:04:05+01", "2026-01-02T03:04:05+05:45",
    "2026-01-02T03:04:05 UTC", "2026-01-02T03:04:05UTC", "2026-01-02T03:04:05 Europe/Berlin",
    "2026-01-02T03:04:05GMT+1",
    "2026-01-02T24:00:00Z", "2026-01-02T23:59:60Z", "2026-01-02T23:60:00Z", "2026-12-31T23:59:59.999999-17:59",
    "1583-01-01T00:00:00.000001Z", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999-17:59",
    "1583-01-01T00:00:00+17:59", "1969-12-31T23:59:59.999999Z", "1600-02-29T00:00:00Z", "1700-02-29T00:00:00Z",
    " 2026-01-02", "2026-01-02 ", "2026-01-02T03:04:05Z ", "2026-01-02T03:04:05 Z", "2026-01-02\n", "20260102", "12345",
    "T03:04:05Z", "03:04:05", "now", "today", "epoch", "2026-01-02T03:04:05.12Z[UTC]", "٢٠٢٦-01-02", "2026-01-02T",
    "2026-001", "2026-W01-1", "2026-03-29T02:30:00", "1e3", "", " ",
]  # fmt: skip

NUMBERS = [
    "0", "-0", "1", "-1", "15", "127", "128", "-128", "-129", "200", "255", "256", "32767", "32768", "-32769", "65535",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9007199254740992", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "0.0", "-0.0", "0e0", "-0e-5",
    "1.0", "1.5", "-1.5", "0.1", "0.30000000000000004", "1e3", "1E3", "1e+3", "1e-3", "1.7976931348623157e308",
    "1.7976931348623159e308", "1e308", "1e309", "-1e400", "4.9e-324", "2.4703282292062327e-324", "5e-324",
    "2.2250738585072011e-308", "2.2250738585072014e-308", "1e-400", "-1e-400", "1e-99999999999", "1e99999999999",
    "0e99999999999", "179769313486231580793728971405301e276", "8.41e21", "9.5367431640625e-7", "2.0e-3",
    "0.1000000000000000055511151231257827021181583404541015625", "123456789.123456789e-20", "1" + "0" * 307,
    "1" + "0" * 400, "0." + "0" * 400 + "1", "9" * 999, "9" * 1001, "0." + "1" * 1200, "1e" + "0" * 1200,
    "01", "-01", "00", "1.", ".5", "+1", "-", "1e", "1e+", "0x10", "1_000", "1d", "1f", "NaN", "-NaN", "Infinity",
    "-Infinity", "+Infinity", "Inf", "-Inf", "nan", "inf", "INF", "+INF", "-INF",
]  # fmt: skip

STRINGS = [
    '""', '" "', '"x"', '"15"', '"1.5"', '"true"', '"null"', '"NaN"', '"Infinity"', '"-INF"', '"ä€😀"',
    '"\\ud83d\\ude00"',
    '"\\ud83d"', '"\\ude00"', '"\\ude00\\ud83d"', '"\\u0000"', '"\\u00e4"', '"\\/"', '"\\b\\f\\n\\r\\t\\"\\\\"',
    '"\\x"',
    '"\\u12"', '"\\U0041"', "\"a'b\"", '"a\tb"', '"a\nb"', '"a\rb"', '"\x7f"', '"\u2028"', '"\ufeff"', '"\x00"',
    '"\ud800"',
    '"{\\"a\\":1}"', '"Info, NaN: Inf"', '"a, ]"', '"//"', '"/* */"', "'x'", "x", '"x', 'x"', '"\ufffd"', '"\\ufffe"',
    '"\U0010ffff"', '"AQI="',
]  # fmt: skip

OTHERS = [
    "true", "false", "null", "True", "nul", "TRUE", "[]", "{}", "[null]", "[1]", '["x"]', "[1,]", "[,1]", "[1 2]",
    "[[]]",
    "[{}]", '[{"a":1}]', '[{"a":1},null,{"a":null}]', '[1,"x"]', '{"a":1}', '{"a":{"a":1}}', '{"a":1,"a":2}',
    '{"a":1,}', '{"x":[1,{"y":NaN}]}', "[1.0,2]", "[-0]", "[-0.0]", '["2026-01-02",null]', '["2026-02-30"]', "",
]  # fmt: skip

WHOLE: list[bytes | None] = [
    None, b"", b" ", b"\t\r\n ", b"\x0b", b"\x00", b"\xc2\xa0", b"\xef\xbb\xbf", b"\xef\xbb\xbf{}",
    b'\xef\xbb\xbf{"a":1}',
    b"null", b"true", b"1", b'"x"', b"[]", b"[{}]", b'[{"a":1}]', b"{}", b" {} ", b"\n{}\r\n", b"{}{}", b"{} {}",
    b"{}\n{}",
    b'{"a":1}{"a":2}', b'{"a":1}\n{"a":2}', b'{"a":1', b',"b":2}', b'{"a":1}}', b'{"a":1}]', b'{"a":1} x', b'{"a":1},',
    b'{"a":1}//c', b'/*c*/{"a":1}', b'{"a"/**/:1}', b'# c\n{"a":1}', b"{'a':1}", b"{a:1}", b'{"a" 1}', b'{"a":}',
    b"{,}",
    b'{"a":1,}', b'{"a":1,,"b":2}', b'{"a":1 "b":2}', b'{ "a" : 1 }', b'{\n"a":\r\n1\t}', b'{"a":\x0b1}',
    b'{"a":\xc2\xa01}',
    b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b'{"\\u0061":2}', b'{"a":null,"a":2}', b'{"a":2,"a":null}', b'{"A":1}',
    b'{"a":1,"A":2}', b'{"":1}', b'{"a\\u0000":1}', b'{"a\\u0000b":1,"a":2}', b'{"a":"\xff"}', b'{"a":"\xc3"}',
    b'{"\xff":1}',
    b'{"a":"\xed\xa0\x80"}', b'{"a":"\xf4\x90\x80\x80"}', b'{"a":"\xc0\x80"}', b'\xff\xfe{\x00}\x00', b"{\x00}\x00",
    b'{"a":1}\x00', b'{"a":1}\x1a', b'{"a":1}\xef\xbb\xbf', b'{"_corrupt_record":"x"}', b'{"_corrupt_record":1,"a":1}',
    b'{"z":' + b"[" * 998 + b"]" * 998 + b"}", b'{"z":' + b"[" * 999 + b"]" * 999 + b"}",
    b'{"z":' + b"[" * 1000 + b"]" * 1000 + b',"a":1}', b'{"z":' + b'{"z":' * 1100 + b"1" + b"}" * 1100 + b"}",
    b'{"a":1,"z":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":1,"z":[' + b"{}," * 3000 + b"{}]}",
    b'{"a":1,"' + b"n" * 49_990 + b'":1}', b'{"a":1,"' + b"n" * 50_001 + b'":1}',
    b'{"a":1,"' + b'\\"' * 50_001 + b'":1}',
    b'{"a":1,"z":"' + b"s" * 60_000 + b'"}', b'{"b":"' + b"s" * 3_000_000 + b'"}', b'{"a":1,"z":' + b"9" * 1001 + b"}",
    b'{"a":1,"z":NaN}', b'{"a":1,"z":"NaN"}', b'{"a":1,"z":[Infinity]}', b'{"a":1,"z":-Inf}', b'{"a":1,"z":1e999}',
    b'{"a":1,"z":"\\ud800"}', b'{"a":1,"z":\'x\'}', b'{"a":1,"z":[1,]}', b'{"a":1,"z":{"q":1,"q":2}}',
    b'{"a":1,"z":01}',
]  # fmt: skip

PLACES = [
    '{"a":%s}', '{"b":"x","a":%s,"c":1}', '{"s":{"a":%s}}', '{"l":[%s]}', '{"l":[null,%s]}', '{"z":%s,"b":"y"}',
    '{"ls":[{"a":%s},{}]}',
]  # fmt: skip


def struct(*fields: tuple[str, Any]) -> dict[str, Any]:
    """A schema as Spark's JSON has it."""
    return {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields]}


def array(element: Any) -> dict[str, Any]:
    """The type of a list."""
    return {"type": "array", "elementType": element, "containsNull": True}


def by_hand() -> list[bytes | None]:
    """Each odd value in each of several places, and each odd document."""
    documents = list(WHOLE)
    for value in [*map(json.dumps, TIMES), *NUMBERS, *EXACT, *STRINGS, *OTHERS]:
        for place in ('{"a":%s}', '{"b":"x","a":%s,"c":1}', '{"s":{"a":%s}}', '{"l":[%s]}', '{"l":[null,%s]}',
    '{"z":%s,"b":"y"}',
                      '{"ls":[{"a":%s},{}]}'):  # fmt: skip
            documents.append((place % value).encode("utf-8", "surrogatepass"))
    return documents


def schemas_by_hand() -> list[dict[str, Any]]:
    """Schemas that have the places of `by_hand`: one for each type."""
    schemas = []
    for kind in LEAVES:
        inner = struct(("a", kind))
        schemas.append(struct(("a", kind), ("b", "string"), ("s", inner), ("l", array(kind)), ("ls", array(inner))))
    return schemas


def random_schema(dice: random.Random) -> dict[str, Any]:
    """A struct of a few fields, some of them nested."""

    def kind(depth: int) -> Any:
        roll = dice.random()
        if depth < 3 and roll < 0.15:
            return array(kind(depth + 1))
        if depth < 3 and roll < 0.35:
            return some_fields(depth + 1)
        return dice.choice(LEAVES)

    def some_fields(depth: int) -> dict[str, Any]:
        return struct(*((name, kind(depth)) for name in dice.sample(NAMES, dice.randint(1, 6))))

    return some_fields(0)


def random_document(schema: dict[str, Any], dice: random.Random) -> bytes:
    """Mostly one that fits the schema, with a few odd values; sometimes cut, doubled or changed in a byte."""
    oddity = dice.choice((0.0, 0.0, 0.02, 0.1, 0.4))
    text = _value(schema, dice, oddity).encode("utf-8", "surrogatepass")
    while dice.random() < oddity:
        text = dice.choice(_MUTATIONS)(text, dice)
    return text


def faulty_document(schema: dict[str, Any], dice: random.Random) -> bytes:
    """One without odd bytes; often cut, or with values of the wrong type."""
    roll = dice.random()
    text = _fitting(schema, dice, 0.0 if roll < 0.2 else dice.choice((0.02, 0.1, 0.3)))
    if roll > 0.6:
        text = text[: dice.randint(0, len(text))]
    return text.encode("utf-8", "surrogatepass")


def _fitting(kind: Any, dice: random.Random, faults: float) -> str:
    """A value of a type, or with some probability of another one."""
    if dice.random() < faults:
        plain = ("1", "-7", "0", "2.5", "1e3", "300", "70000", "3000000000", "9223372036854775808", "true", '""', '"x"')
        nested = ('"N/A"', '"15"', "[]", "[1]", "{}", '{"a":1}', '["x",1]', '[{"a":1},2]', '{"b":{"a":"x"}}', '"a\\"}"')
        return dice.choice((*plain, *nested, json.dumps(dice.choice(NAMES))))
    if dice.random() < 0.05:
        return "null"
    if isinstance(kind, str):
        return _leaf(kind, dice)
    if kind["type"] == "array":
        return "[" + ", ".join(_fitting(kind["elementType"], dice, faults) for _ in range(dice.randrange(4))) + "]"
    parts = [f"{json.dumps(f['name'])}: {_fitting(f['type'], dice, faults)}" for f in kind["fields"]]
    if dice.random() < 0.3:
        parts.insert(dice.randint(0, len(parts)), f'"z": {_anything(dice, 0, 0.0)}')
    return "{" + ", ".join(dice.sample(parts, dice.randint(0, len(parts))) if dice.random() < 0.2 else parts) + "}"


def _value(kind: Any, dice: random.Random, oddity: float) -> str:
    if dice.random() < oddity:
        return dice.choice((*NUMBERS, *EXACT, *STRINGS, *OTHERS, *map(json.dumps, TIMES)))
    if dice.random() < 0.05:
        return "null"
    space = dice.choice(("", "", "", " ", "\n ", "\t"))
    if isinstance(kind, str):
        return space + _leaf(kind, dice)
    if kind["type"] == "array":
        return "[" + ",".join(_value(kind["elementType"], dice, oddity) for _ in range(dice.randrange(4))) + space + "]"
    fields = [field for field in kind["fields"] if dice.random() < 0.9]
    if dice.random() < 0.1:
        dice.shuffle(fields)
    if dice.random() < oddity and fields:
        fields.append(dice.choice(fields))
    parts = [f"{_name(field['name'], dice)}:{space}{_value(field['type'], dice, oddity)}" for field in fields]
    if dice.random() < 0.2:
        parts.insert(dice.randint(0, len(parts)), f'"{dice.choice(("z", "zz", "B"))}":{_anything(dice, 0, oddity)}')
    return "{" + ("," + space).join(parts) + space + "}"


def _name(name: str, dice: random.Random) -> str:
    if dice.random() < 0.03:
        return '"' + "".join(f"\\u{ord(letter):04x}" for letter in name) + '"'
    return json.dumps(name, ensure_ascii=dice.random() < 0.5)


def _leaf(kind: str, dice: random.Random) -> str:
    sizes = {"byte": 7, "short": 15, "integer": 31, "long": 63}
    if kind in sizes:
        limit = 2 ** dice.randint(1, sizes[kind])
        return str(dice.randint(-limit, limit - 1))
    if kind == "boolean":
        return dice.choice(("true", "false"))
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        return _decimal(int(found[1]), int(found[2]), dice)
    if kind == "float" and dice.random() < 0.5:
        return repr(struct_.unpack("<f", struct_.pack("<I", dice.getrandbits(32) & 0xFF7FFFFF))[0])
    if kind in ("float", "double"):
        return dice.choice(
            (
                repr(dice.uniform(-1e3, 1e3)),
                repr(dice.uniform(-1, 1) * 10.0 ** dice.randint(-320, 308)),
                str(dice.randint(-(10**18), 10**18)),
                f"{dice.uniform(0, 1):.{dice.randint(0, 40)}f}",
                f"{dice.randint(0, 10**25)}.{dice.randint(0, 10**20)}e{dice.randint(-330, 280)}",
            )
        )
    if kind == "string":
        odd = (34, 92, 47, 10, 0, 127, 0x20AC, 0x1F600)
        letters = [chr(dice.choice((*odd, dice.randint(32, 126)))) for _ in range(dice.randrange(12))]
        return json.dumps("".join(letters), ensure_ascii=dice.random() < 0.5)
    day = f"{dice.randint(1580, 2500):04d}-{dice.randint(1, 12):02d}-{dice.randint(1, dice.choice((28, 31))):02d}"
    if kind == "date":
        return f'"{day}"'
    fraction = dice.choice(("", f".{dice.randrange(10 ** dice.randint(1, 10))}"))
    zone = dice.choice(("", "Z", f"{dice.choice('+-')}{dice.randrange(19):02d}:{dice.randrange(60):02d}"))
    zone = "" if kind == "timestamp_ntz" and dice.random() < 0.9 else zone
    time = f"{dice.randrange(24):02d}:{dice.randrange(60):02d}:{dice.randrange(60):02d}"
    return f'"{day}{dice.choice("T ")}{time}{fraction}{zone}"'


def _decimal(precision: int, scale: int, dice: random.Random) -> str:
    """Mostly one that fits."""
    digits = dice.randint(0, dice.choice((precision, precision, precision, precision + 2)))
    number = Decimal(dice.randrange(10**digits) * dice.choice((1, 1, -1))).scaleb(
        -dice.randint(0, scale + dice.choice((0, 0, 1)))
    )
    shown = dice.choice((f"{number:f}", f"{number:f}", str(number)))
    return f'"{shown}"' if dice.random() < 0.1 else shown


def _anything(dice: random.Random, depth: int, oddity: float) -> str:
    roll = dice.random()
    if dice.random() < oddity:
        return dice.choice((*NUMBERS, *STRINGS, *OTHERS))
    if depth > 4 or roll < 0.6:
        return _leaf(dice.choice(LEAVES), dice)
    parts = [_anything(dice, depth + 1, oddity) for _ in range(dice.randrange(4))]
    if roll < 0.8:
        return "[" + ",".join(parts) + "]"
    return "{" + ",".join(f'"{dice.choice("abz")}":{part}' for part in parts) + "}"


def _at(text: bytes, dice: random.Random) -> int:
    return dice.randint(0, max(0, len(text) - 1))


_BYTES = [bytes([number]) for number in b"{}[]\",:\\/'\n\r\t \x00\x0b#-+.eE019nNtfuI"]
_BYTES += [b"\xff", b"\xc3", b"\xef\xbb\xbf", b"//", b"/*"]


def _put(text: bytes, dice: random.Random) -> bytes:
    at = _at(text, dice)
    return text[:at] + dice.choice(_BYTES) + text[at:]


def _swap(text: bytes, dice: random.Random) -> bytes:
    at = _at(text, dice)
    return text[:at] + dice.choice(_BYTES) + text[at + 1 :]


def _drop(text: bytes, dice: random.Random) -> bytes:
    at = _at(text, dice)
    return text[:at] + text[at + dice.randint(1, 4) :]


def _again(text: bytes, dice: random.Random) -> bytes:
    start, end = sorted((_at(text, dice), _at(text, dice)))
    return text[:end] + text[start:end] + text[end:]


_MUTATIONS: list[Callable[[bytes, random.Random], bytes]] = [
    _put,
    _swap,
    _drop,
    _again,
    lambda text, dice: text[: _at(text, dice)],
    lambda text, dice: text + dice.choice((text, b"\n" + text, b" ", b"\n", b"x", b",", b"}")),
]

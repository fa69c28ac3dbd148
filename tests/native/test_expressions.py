"""Expressions as SQL: none raises, no doubt is null, and what is not known is refused."""

from __future__ import annotations

import re
from functools import reduce
from itertools import product

import pyarrow as pa
import pytest

from anabranch.engine.catalyst_tree import _value
from anabranch.engine.chains import Defined, Expression, Generation, Projection, Selection
from anabranch.engine.native_sql import _filters_first
from anabranch.native.expressions import TABLE, compile_expr, known_type, sql_type
from anabranch.native.expressions_numbers import check_order, in_full
from anabranch.native.expressions_patterns import pattern
from anabranch.native.tree import Expr, NotKnown
from native.decimal_cases import decimal_of, unscaled
from native.expression_cases import BIGINTS, DAYS, DOUBLES, INTS, STRINGS, TIMES
from native.expressions_against_spark import database

_EDGES = [2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, -(2**63) + 2, -9223372022400000001]
_COLUMNS = {
    "string": pa.array(STRINGS),
    "int": pa.array(INTS, pa.int32()),
    "bigint": pa.array(BIGINTS, pa.int64()),
    "double": pa.array(DOUBLES, pa.float64()),
    "float": pa.array(DOUBLES, pa.float64()).cast(pa.float32(), safe=False),
    "boolean": pa.array([None, True, False]),
    "date": pa.array(DAYS, pa.int32()).cast(pa.date32()),
    "timestamp": pa.array(
        [*TIMES, 2**63 - 1, 2**63 - 2, -(2**63), -(2**63) + 1, -(2**63) + 2, -9223372022400000001], pa.timestamp("us")
    ),
    "decimal(10,2)": pa.array([None, 0, 99999999, -99999999], pa.decimal128(10, 2)),
    "decimal(38,2)": pa.array([None, *(decimal_of(n, 2) for n in unscaled(38))], pa.decimal128(38, 2)),
    "decimal(38,18)": pa.array([None, *(decimal_of(n, 18) for n in unscaled(38))], pa.decimal128(38, 18)),
    "array<string>": pa.array([None, [], ["a"], [None], ["a", None, "b"]], pa.list_(pa.string())),
}


def _attribute(kind: str, number: int) -> Expr:
    return Expr("AttributeReference", kind, name=f"{kind}{number}")


def _literal(value: object, kind: str) -> Expr:
    return Expr("Literal", kind, value=value)


def _rows() -> pa.Table:
    """Every value of a type beside others of every type, two columns of each."""
    n = 500
    columns = {}
    for kind, values in _COLUMNS.items():
        for number, step in ((0, 1), (1, 7)):
            places = [(i * step + i // len(values)) % len(values) for i in range(n)]
            columns[f"{kind}{number}"] = values.take(pa.array(places))
    return pa.table(columns)


#: What each kind is called with: its result, then its arguments; 'x' and #1 are literals.
_CALLS = """
    Add Subtract Multiply Remainder | int int int | bigint bigint bigint | double double double | float float float
    Add Subtract | decimal(11,2) decimal(10,2) decimal(10,2)
    Multiply | decimal(21,4) decimal(10,2) decimal(10,2)
    Divide | double double double
    IntegralDivide | bigint bigint bigint
    Pmod | int int int | bigint bigint bigint
    UnaryMinus UnaryPositive Abs | int int | bigint bigint | double double
    Floor Ceil | bigint double | bigint bigint
    Add Subtract | decimal(38,17) decimal(38,18) decimal(38,18) | decimal(38,2) decimal(38,2) decimal(38,2)
    Multiply | decimal(38,6) decimal(38,18) decimal(38,18)
    UnaryMinus Abs | decimal(38,2) decimal(38,2) | decimal(10,2) decimal(10,2)
    Floor Ceil | decimal(38,0) decimal(38,2) | decimal(9,0) decimal(10,2)
    Round | double double #2 | decimal(10,1) decimal(10,2) #1 | int int #0 | decimal(37,0) decimal(38,2) #0
    BitwiseAnd BitwiseOr BitwiseXor | int int int | bigint bigint bigint
    BitwiseNot | int int
    AtLeastNNonNulls | boolean double string
    Greatest Least | decimal(38,18) decimal(38,18) decimal(38,18)
    Cast | string decimal(38,2) | int decimal(38,18) | double decimal(38,18) | float decimal(10,2) | decimal(10,2) decimal(38,18)
    Cast | decimal(10,2) double | decimal(12,9) float | decimal(38,18) decimal(38,2)
    StringLPad StringRPad | string string #5 'xy'
    StringRepeat | string string #2
    StringLocate | int string string #1
    SubstringIndex | string string '-' #2 | string string '-' #-2
    TimestampAddInterval | timestamp timestamp #5
    Cast | timestamp double | double timestamp
    StringTranslate | string string 'ab' 'x'
    Reverse | string string
    Sha1 | string binary
    DateFormatClass | string timestamp 'yyyy-MM-dd HH:mm:ss.SSS'
    FromUnixTime | string bigint 'yyyy-MM-dd HH:mm:ss'
    AddMonths | date date int
    Sqrt | double double
    IsNaN | boolean double | boolean float
    And Or | boolean boolean boolean
    With | boolean boolean string
    Not | boolean boolean
    IsNull IsNotNull | boolean string | boolean array<string> | boolean double
    EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet | boolean string string
    EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet | boolean double double
    EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet | boolean date date
    EqualTo EqualNullSafe LessThan LessThanOrEqual GreaterThan GreaterThanOrEqual In InSet | boolean timestamp timestamp
    EqualTo EqualNullSafe LessThan In | boolean decimal(10,2) decimal(10,2) | boolean bigint bigint | boolean boolean boolean
    If CaseWhen | string boolean string string | double boolean double double | array<string> boolean array<string> array<string>
    CaseWhen | date boolean date
    Coalesce | string string string | timestamp timestamp timestamp | array<string> array<string> array<string>
    Greatest Least | string string string | int int int | date date date | timestamp timestamp timestamp
    Cast | int string | bigint string | double string | float string | boolean string | date string | timestamp string
    Cast | decimal(10,2) string | string int | string bigint | string boolean | string date | string timestamp | int bigint
    Cast | bigint int | int double | bigint double | float double | double float | boolean int | int boolean | double bigint
    Cast | double int | decimal(10,2) int | decimal(10,2) bigint | int decimal(10,2) | double decimal(10,2)
    Cast | decimal(20,4) decimal(10,2) | timestamp bigint | bigint timestamp | date timestamp | timestamp date
    Upper Lower StringTrim StringTrimLeft StringTrimRight | string string
    StringTrim | string string 'ab'
    Length OctetLength | int string
    Substring | string string int int | string string #-2 #5 | string string #0 int
    Concat | string string string
    ConcatWs | string '-' string string
    StartsWith EndsWith Contains | boolean string string
    StringReplace | string string string string
    StringInstr | int string string
    Like RLike | boolean string 'a%b_c' | boolean string '%'
    RegExpReplace | string string '[a-c]+' 'x' #1
    RegExpExtract | string string '([a-c])-([0-9])?' #2
    StringSplit | array<string> string ',' #-1
    Md5 | string binary
    Sha2 | string binary #256
    Year Quarter Month DayOfMonth DayOfYear WeekOfYear DayOfWeek WeekDay UnixDate | int date
    LastDay | date date
    Hour Minute Second | int timestamp
    TruncDate | date date 'week' | date date 'YEAR'
    TruncTimestamp | timestamp 'week' timestamp | timestamp 'MILLISECOND' timestamp
    DateAdd DateSub | date date int
    DateDiff | int date date
    DateFromUnixDate | date int
    SecondsToTimestamp MillisToTimestamp MicrosToTimestamp | timestamp bigint | timestamp int
    UnixSeconds UnixMillis UnixMicros | bigint timestamp
    UnixTimestamp ToUnixTimestamp | bigint timestamp 'yyyy' | bigint string 'yyyy-MM-dd'
    GetTimestamp | timestamp string 'yyyy-MM-dd HH:mm:ss' | timestamp string 'yyyyMMdd' | timestamp string 'yyyy-MM-dd HH:mm:ss.SSSXXX'
    CreateNamedStruct | struct<x:string> 'x' string
    CreateArray | array<string> string string | array<double> double
    Size | int array<string>
    GetArrayItem ElementAt | string array<string> int
    ArrayContains | boolean array<string> string
"""  # noqa: E501


def _argument(word: str, number: int) -> Expr:
    if word.startswith("'"):
        return _literal(word.strip("'"), "string")
    if word.startswith("#"):
        return _literal(int(word[1:]), "int")
    if word == "binary":
        return Expr("Cast", "binary", (_attribute("string", number % 2),))
    return _attribute(word, number % 2)


def _calls() -> list[Expr]:
    found = []
    for line in _CALLS.strip().splitlines():
        kinds, *calls = line.split(" | ")
        for kind, call in product(kinds.split(), calls):
            result, *words = re.findall(r"'[^']*'|\S+", call)
            arguments = tuple(_argument(word, number) for number, word in enumerate(words))
            found.append(
                Expr(kind, result, arguments, detail={"zone": "UTC", "fails": "true", "mode": "ANSI", "least": "2"})
            )
    return found


def test_every_kind_is_called() -> None:
    of_structs = {"GetStructField", "GetArrayStructFields"}  # in the tests against Spark
    assert set(TABLE) - {call.kind for call in _calls()} == {"Literal"} | of_structs


def test_nothing_raises_and_no_doubt_is_null() -> None:
    table = _rows()
    columns = {name: f'"{name}"' for name in table.column_names}
    connection = database()
    connection.register("records", table)
    for call in _calls():
        # Within a second call, which takes what the first one gave, doubted or not.
        again = Expr("Coalesce", call.type, (call, call)) if known_type(call.type) else call
        for expr in (call, again):
            one = compile_expr(expr, columns)
            found = connection.sql(f"SELECT {one.sql} AS v, {one.doubt or 'FALSE'} AS d, typeof(v) AS t FROM records")
            rows = found.to_arrow_table()
            assert not rows.column("d").null_count, call
            typed = connection.sql(f"SELECT typeof(CAST(NULL AS {sql_type(call.type)}))").fetchall()
            assert rows.column("t")[0].as_py() == typed[0][0], call


def test_branch_that_is_not_known_is_doubted_where_taken() -> None:
    strange = Expr("StructsToJson", "string")
    choice = Expr("If", "string", (_attribute("boolean", 0), strange, _literal("a", "string")))
    one = compile_expr(choice, {"boolean0": "b"})
    found = database().sql(f"SELECT {one.sql}, {one.doubt} FROM (VALUES (TRUE), (FALSE), (NULL)) AS t(b)").fetchall()
    assert found == [(None, True), ("a", False), ("a", False)]


def test_condition_that_is_not_known_is_refused() -> None:
    strange = Expr("StructsToJson", "boolean")
    with pytest.raises(NotKnown, match="calls `StructsToJson`"):
        compile_expr(Expr("If", "int", (strange, _literal(1, "int"), _literal(2, "int"))), {})


def test_chance_is_refused_in_a_branch_too() -> None:
    chance = Expr("Rand", "double", detail={"never": "is not deterministic"})
    choice = Expr("If", "double", (_attribute("boolean", 0), chance, _literal(1.0, "double")))
    with pytest.raises(NotKnown, match="not deterministic"):
        compile_expr(choice, {"boolean0": "b"})


def test_guarded_cast_does_not_doubt_what_it_does_not_see() -> None:
    text = _attribute("string", 0)
    number = Expr("Cast", "int", (text,), detail={"zone": "UTC"})
    is_x = Expr("EqualTo", "boolean", (text, _literal("x", "string")))
    choice = Expr("If", "int", (is_x, _literal(0, "int"), number))
    one = compile_expr(choice, {"string0": "s"})
    found = database().sql(f"SELECT {one.sql}, {one.doubt} FROM (VALUES ('x'), ('12'), ('y')) AS t(s)").fetchall()
    assert found == [(0, False), (12, False), (None, True)]


def test_size_grows_with_depth_and_not_with_its_power() -> None:
    expr = _attribute("int", 0)
    for _ in range(60):
        expr = Expr("Add", "int", (expr, _literal(1, "int")))
    one = compile_expr(expr, {"int0": "i"})
    assert len(one.sql) + len(one.doubt or "") < 200_000
    with pytest.raises(NotKnown, match="too long"):
        compile_expr(_deep(40), {"int0": "i"})


def _deep(depth: int) -> Expr:
    expr = _attribute("int", 0)
    for _ in range(depth):
        expr = Expr("Pmod", "int", (expr, expr))
    return expr


_REFUSED = r"""a{,3} a*+ a** \bword [a&&b] [[a]] (?=a) (a)\1 (?<n>a) x{1001} (a*)* a||b \p{L} é [z-a] (?m)^a a{3}{4}
    ( [ \ \x41 ((a{99}){99}){99} [a-\d] [] [^] a{2,1} (?i)(?s)a \Qa\E ^* a&b"""


@pytest.mark.parametrize("java", ["", *_REFUSED.split()])
def test_regular_expressions_that_may_differ_are_refused(java: str) -> None:
    with pytest.raises(NotKnown, match="regular expression"):
        pattern(java)


_OTHER_TYPES = """map<string,int>; string collate UTF8_LCASE; char(3); varchar(3); struct<a:int,A:int>
    ; struct<>; interval day; variant; array<void>; decimal(3,5); struct<a:b:int>; array<int; int>"""


@pytest.mark.parametrize("kind", [kind.strip() for kind in _OTHER_TYPES.split(";")])
def test_types_that_differ_are_not_known(kind: str) -> None:
    assert not known_type(kind)


def test_types() -> None:
    assert sql_type("struct<a b:array<timestamp>>") == 'STRUCT("a b" TIMESTAMP[])'


def test_column_with_a_zone_is_read_in_utc() -> None:
    one = compile_expr(Expr("Hour", "int", (_attribute("timestamp", 0),), detail={"zone": "UTC"}), {"timestamp0": "t"})
    query = f"SELECT {one.sql}, {one.doubt} FROM (VALUES (TIMESTAMPTZ '2020-01-01 05:00:00+02:00')) AS v(t)"
    assert database().sql(query).fetchall() == [(3, False)]


def test_what_spark_computes_beforehand_is_doubted_beforehand() -> None:
    x, zero, is_set = _attribute("int", 0), _literal(0, "int"), _attribute("boolean", 0)
    rest = Expr("Remainder", "int", (_literal(10, "int"), x))
    one, other = (Expr("EqualTo", "boolean", (rest, _literal(n, "int"))) for n in (1, 2))
    guard = Expr("Not", "boolean", (Expr("EqualTo", "boolean", (x, zero)),))
    named = Expr("With", "boolean", (one, rest))
    in_branch = Expr("If", "boolean", (guard, named, _literal(False, "boolean")))
    factored = [Expr("And", "boolean", (left, one)) for left in (guard, is_set)]
    columns = {x.name: "x", is_set.name: "b"}
    doubted = {
        "guarded": Expr("And", "boolean", (guard, one)),
        "named": Expr("And", "boolean", (guard, named)),
        "named in a branch": Expr("And", "boolean", (is_set, in_branch)),
        "on both sides": Expr("Or", "boolean", tuple(factored)),
        "on one side": Expr("Or", "boolean", (factored[0], Expr("And", "boolean", (is_set, other)))),
    }
    found = {
        name: database().sql(f"SELECT {compile_expr(expr, columns).doubt} FROM (SELECT 0::INTEGER AS x, FALSE AS b)")
        for name, expr in doubted.items()
    }
    assert [name for name, one in found.items() if one.fetchall() == [(True,)]] == ["named", "on both sides"]


def _total(*of: Expr) -> Expr:
    return reduce(lambda left, right: Expr("Add", left.type, (left, right)), of)


def test_floats_are_not_added_in_two_orders() -> None:
    a, b, c, named, halved = (Expr("AttributeReference", "double", name=name) for name in ("a", "b", "c", "n", "h"))
    names = {"n": _total(a, b), "h": Expr("Abs", "double", (a,))}
    known: dict[str, str] = {}
    fine = [
        *(_total(a, b, c), Expr("Abs", "double", (_total(a, b, c),)), _total(c, b), _total(b, c), _total(a, b, b)),
        *(_total(named, c), _total(b, halved, c), _total(b, names["h"], c)),
    ]
    for one in fine:
        check_order(one, names.get, known)
    for other in (_total(c, b, a), _total(c, named), _total(c, names["h"], b)):
        with pytest.raises(NotKnown):
            check_order(Expr("Abs", "double", (other,)), names.get, known)


def test_whole_numbers_are_doubted_through_the_names_of_sums() -> None:
    """Spark puts the constant last, and `x + y` overflows."""
    x, y, named = (Expr("AttributeReference", "int", name=name) for name in "xyn")
    names = {"n": _total(x, _literal(5, "int"))}
    full = in_full(Expr("Abs", "int", (_total(named, y),)), names.get)
    assert full == Expr("Abs", "int", (_total(x, _literal(5, "int"), y),))
    doubt = compile_expr(full, {"x": "x", "y": "y"}).doubt
    row = "(SELECT -2147483645::INTEGER AS x, -5::INTEGER AS y)"
    assert database().sql(f"SELECT {doubt} FROM {row}").fetchall() == [(True,)]
    names |= {str(i): _total(*[Expr("AttributeReference", "int", name=str(i - 1))] * 2) for i in range(1, 40)}
    with pytest.raises(NotKnown, match="too many"):
        in_full(_total(Expr("AttributeReference", "int", name="39"), x), names.get)


def test_a_constant_that_may_not_be_utf_8_is_not_known() -> None:
    assert _value("a\ufffd", "string") == (None, False)
    assert _value("é", "string") == ("é", True)


def test_filters_stand_before_generators_whose_elements_they_do_not_ask_for() -> None:
    def of(*numbers: int) -> Expression:
        return Expression(None, frozenset(numbers), deterministic=True, python=False)

    shown = Projection((Defined(3, None, of(1)),), ())
    exploded = Generation(None, of(1), "Explode", of_map=False, outer=False, added=((2, None),))
    plain, element, computed = (Selection(None, of(number)) for number in (1, 2, 3))
    assert _filters_first([exploded, shown, element, plain]) == [plain, exploded, shown, element]
    assert _filters_first([exploded, shown, computed]) == [exploded, shown, computed]
    assert _filters_first([shown, plain, computed]) == [shown, plain, computed]

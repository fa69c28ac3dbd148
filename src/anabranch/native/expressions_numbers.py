"""Arithmetic. Whole numbers are computed in a wider type, so that nothing overflows before it is doubted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha1

from anabranch.native.expressions_decimals import arithmetic, rounding, signed, towards
from anabranch.native.expressions_sql import (
    FLOATS,
    INTEGERS,
    Entry,
    Of,
    decimal_of,
    either,
    plain,
    require,
    sql_type,
    unknown,
    unless,
    walk,
    when,
)
from anabranch.native.tree import Compiled, Expr, NotKnown

#: What a name stands for, if it is one of a column that is computed.
Names = Callable[[str], Expr | None]

#: Numbers in a sum: with more, it takes longer to look through it than to leave it to Spark.
_MOST_OPERANDS = 200


def limits(kind: str) -> tuple[int, int]:
    """The least and the largest whole number of a type."""
    bits = INTEGERS[kind]
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _wide(kind: str) -> str:
    """A type in which the product of two numbers of a type fits."""
    return "HUGEINT" if kind == "bigint" else "BIGINT"


def whole(template: str, expr: Expr, of: Of, doubt: str = "") -> Compiled:
    """An operation on whole numbers: doubted where the result does not fit."""
    require(expr, (expr.type,))
    given = [of(child) for child in expr.children]
    words = [f"CAST({one.sql} AS {_wide(expr.type)})" for one in given]
    result = template.format(*words)
    least, largest = limits(expr.type)
    fits = unless(f"{result} BETWEEN {least} AND {largest}")
    own = doubt.format(*(one.sql for one in given)) if doubt else None
    sql = f"TRY_CAST({result} AS {sql_type(expr.type)})"
    return Compiled(sql, either(*(one.doubt for one in given), own, fits))


def _operation(sign: str) -> Entry:
    template = f"({{0}} {sign} {{1}})"
    floats = plain(template, FLOATS, same=True)

    def entry(expr: Expr, of: Of) -> Compiled:
        if expr.type in INTEGERS:
            given = whole(template, expr, of)
            return Compiled(given.sql, either(given.doubt, _in_any_order(expr, of)))
        if expr.type in FLOATS:
            return floats(expr, of)
        return arithmetic(sign, expr, of)

    return entry


def _in_any_order(expr: Expr, of: Of) -> str | None:
    """Doubt where a sum or a product of several could overflow on the way: Spark's optimizer puts constants last."""
    if expr.kind == "Subtract" or not any(child.kind == expr.kind for child in expr.children):
        return None
    operands = _flat(expr)
    largest = limits(expr.type)[1]
    each = largest // len(operands) if expr.kind == "Add" else int(largest ** (1 / len(operands)))
    sizes = [f"abs(CAST({of(one).sql} AS HUGEINT)) <= {each}" for one in operands]
    return either(*(unless(size) for size in sizes))


def _flat(expr: Expr) -> list[Expr]:
    return [one for child in expr.children for one in (_flat(child) if child.kind == expr.kind else [child])]


def check_order(expr: Expr, names: Names, known: dict[str, str]) -> None:
    """Refuse a sum or a product of numbers that are in another order in one that is `known`.

    Spark takes the two for the same, and computes one of them; those of floats are not the same. It looks through the
    `names` of columns that are computed before.
    """
    marks: dict[str, str] = {}
    for one in walk(expr):
        if one.kind in ("Add", "Multiply") and one.type not in INTEGERS and _is_long(one, names):
            key = f"{one.kind} {sorted(_mark(operand, names, marks) for operand in _operands(one, names))}"
            found = _mark(one, names, marks)
            if known.setdefault(key, found) != found:
                raise NotKnown(f"calls `{one.kind}` of the same numbers in two orders")


def in_full(expr: Expr, names: Names) -> Expr:
    """An expression in which a sum of whole numbers has those that it is made of under other names."""
    if expr.kind in ("Add", "Multiply") and expr.type in INTEGERS and _is_long(expr, names):
        _operands(expr, names)  # refused if there are too many
        children = [_meant(child, names, expr.kind) for child in expr.children]
    else:
        children = list(expr.children)
    return replace(expr, children=tuple(in_full(child, names) for child in children)) if children else expr


def _is_long(expr: Expr, names: Names) -> bool:
    return any(_meant(child, names, expr.kind).kind == expr.kind for child in expr.children)


def _meant(expr: Expr, names: Names, kind: str) -> Expr:
    """What a name stands for, if that is of a kind; otherwise the expression itself."""
    meant = names(expr.name) if expr.kind == "AttributeReference" else None
    return meant if meant and meant.kind == kind else expr


def _operands(expr: Expr, names: Names) -> list[Expr]:
    found: list[Expr] = []
    waiting = [expr]
    while waiting:
        one = waiting.pop()
        if one.kind == expr.kind:
            waiting += [_meant(child, names, expr.kind) for child in one.children]
        else:
            found.append(one)
        if len(found) + len(waiting) > _MOST_OPERANDS:
            raise NotKnown(f"calls `{expr.kind}` of too many numbers")
    return found


def _mark(expr: Expr, names: Names, marks: dict[str, str]) -> str:
    """The same for the same expression, whatever parts of it have names; `marks` are those of names."""
    if expr.kind == "AttributeReference" and (meant := names(expr.name)):
        if expr.name not in marks:
            marks[expr.name] = _mark(meant, names, marks)
        return marks[expr.name]
    inner = [_mark(child, names, marks) for child in expr.children]
    return sha1(f"{replace(expr, children=())} {inner}".encode(), usedforsecurity=False).hexdigest()


_by_zero = when("{1} = 0")


def _divided(whole_template: str, float_template: str | None, doubt: str) -> Entry:
    def entry(expr: Expr, of: Of) -> Compiled:
        if expr.type in INTEGERS:
            return whole(whole_template, expr, of, doubt)
        if expr.type in FLOATS and float_template:
            return plain(float_template, FLOATS, doubt=doubt, same=True)(expr, of)
        raise unknown(expr)

    return entry


def _one(whole_template: str, float_template: str) -> Entry:
    def entry(expr: Expr, of: Of) -> Compiled:
        if expr.type in INTEGERS:
            return whole(whole_template, expr, of)
        if decimal_of(expr.type):
            return signed(float_template, expr, of)
        return plain(float_template, FLOATS)(expr, of)

    return entry


def _rounded(function: str) -> Entry:
    doubles = plain(
        f"TRY_CAST({function}({{0}}) AS BIGINT)",
        FLOATS,
        # Spark gives the nearest number there is for a double that no bigint is near to, and 0 for NaN.
        doubt=unless("abs({0}) < 9e18"),
    )

    def entry(expr: Expr, of: Of) -> Compiled:
        if decimal_of(expr.type):
            return towards(function, expr, of)
        if expr.type != "bigint":
            raise unknown(expr)
        return of(expr.children[0]) if expr.children[0].type == "bigint" else doubles(expr, of)

    return entry


NUMBERS: Mapping[str, Entry] = {
    "Add": _operation("+"),
    "Subtract": _operation("-"),
    "Multiply": _operation("*"),
    "Divide": plain("({0} / {1})", ("double",), doubt=_by_zero),
    "IntegralDivide": _divided("({0} // NULLIF({1}, 0))", None, _by_zero),
    "Remainder": _divided("({0} % NULLIF({1}, 0))", "({0} % {1})", _by_zero),
    # Of a negative divisor the sum may overflow in Spark.
    "Pmod": _divided("((({0} % NULLIF({1}, 0)) + {1}) % NULLIF({1}, 0))", None, when("{1} <= 0")),
    "UnaryMinus": _one("(-{0})", "(-{0})"),
    "UnaryPositive": plain("{0}", (*INTEGERS, *FLOATS)),
    "Abs": _one("abs({0})", "abs({0})"),
    "Floor": _rounded("floor"),
    "Ceil": _rounded("ceil"),
    "Round": rounding,
    "BitwiseAnd": plain("({0} & {1})", INTEGERS, same=True),
    "BitwiseOr": plain("({0} | {1})", INTEGERS, same=True),
    "BitwiseXor": plain("xor({0}, {1})", INTEGERS, same=True),
    "BitwiseNot": plain("(~{0})", INTEGERS),
    "Sqrt": plain("sqrt({0})", ("double",), doubt=when("{0} < 0")),
    "IsNaN": plain("COALESCE(isnan({0}), FALSE)", FLOATS),
}

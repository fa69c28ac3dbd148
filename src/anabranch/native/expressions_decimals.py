"""Decimals. Exact or in doubt: what Spark would round, or what would not fit, is left to it, but for a plain rounding.

Spark's types of results are those of the expression; DuckDB's are other ones, so every operand is given a type in which
nothing can overflow before it is doubted. Both round halves away from zero.
"""

from __future__ import annotations

from anabranch.native.expressions_sql import Of, decimal_of, either, sql_type, unknown, unless
from anabranch.native.tree import Compiled, Expr

#: Precision and scale.
Room = tuple[int, int]

#: Digits that a decimal has at most, in Spark and in DuckDB.
_MOST = 38

#: Digits of a decimal that Spark can change the sign of.
_SIGNED = 34

#: Doubles are doubted from here on, and where they are this near to the middle between two results: the product with a
#: power of ten is off by less.
_LARGEST, _NEAR = "1e11", "1e-4"


def _kind(room: Room) -> str:
    return f"DECIMAL({room[0]},{room[1]})"


def fitted(sql: str, old: Room, new: Room) -> Compiled:
    """A decimal with another precision and scale; in doubt where that is not the same number."""
    value = f"TRY_CAST({sql} AS {_kind(new)})"
    if new[1] >= old[1] and new[0] - new[1] >= old[0] - old[1]:
        return Compiled(value)
    return Compiled(value, f"({sql} IS DISTINCT FROM TRY_CAST({value} AS {_kind(old)}))")


def rounded(sql: str, new: Room) -> Compiled:
    """A decimal with another precision and scale, rounded; in doubt where it does not fit."""
    value = f"TRY_CAST({sql} AS {_kind(new)})"
    return Compiled(value, f"({sql} IS NOT NULL AND {value} IS NULL)")


def near_no_middle(sql: str, scale: int) -> str:
    """Doubt of a double that is rounded to so many digits: Spark rounds the decimal number that it is shown as."""
    size = f"abs({sql} * 1e{scale})"
    return unless(f"({size} < {_LARGEST} AND abs({size} - floor({size}) - 0.5) > {_NEAR})")


def from_double(sql: str, new: Room) -> Compiled | None:
    """The decimal of a double."""
    if new[1] > 9:
        return None
    found = rounded(f"CAST({sql} AS DOUBLE)", new)
    return Compiled(found.sql, either(found.doubt, near_no_middle(f"CAST({sql} AS DOUBLE)", new[1])))


def shown(sql: str, room: Room, *, plain: bool) -> str | None:
    """A decimal as Spark shows it; None where that is with an exponent, or where DuckDB has no way to show it."""
    if not plain and room[1] > 6:
        return None
    if room[0] == room[1]:  # DuckDB leaves the zero before the point out
        if room[0] == _MOST:
            return None
        sql = f"CAST({sql} AS {_kind((room[0] + 1, room[1]))})"
    return f"CAST({sql} AS VARCHAR)"


def arithmetic(sign: str, expr: Expr, of: Of) -> Compiled:
    """A sum, a difference or a product of two decimals."""
    rooms = [decimal_of(child.type) for child in expr.children]
    result = decimal_of(expr.type)
    if result is None or len(rooms) != 2 or rooms[0] is None or rooms[1] is None:
        raise unknown(expr)
    (p1, s1), (p2, s2) = rooms[0], rooms[1]
    if sign == "*":
        asked = (p1 + p2 + 1, s1 + s2)
        first = max(p1, 19)  # of two narrow decimals, DuckDB's product is a narrow one, and may overflow
        second = p2
        if first + second > _MOST:
            second = min(p2, 19)
            first = _MOST - second
        narrow = ((first, s1), (second, s2))
        found = (first + second, s1 + s2)
    else:
        asked = (max(p1 - s1, p2 - s2) + max(s1, s2) + 1, max(s1, s2))
        each = min(result[0], _MOST - 1)
        narrow = ((each, result[1]), (each, result[1]))
        found = (each + 1, result[1])
    if any(scale > precision for precision, scale in narrow) or (asked != result and result[0] != _MOST):
        raise unknown(expr)
    given = [of(child) for child in expr.children]
    words = [
        fitted(one.sql, *both) for one, both in zip(given, zip((rooms[0], rooms[1]), narrow, strict=True), strict=True)
    ]
    last = fitted(f"({words[0].sql} {sign} {words[1].sql})", found, result)
    doubt = last.doubt if asked != result else None  # there is room for every result
    return Compiled(last.sql, either(*(one.doubt for one in (*given, *words)), doubt))


def towards(function: str, expr: Expr, of: Of) -> Compiled:
    """The whole number below or above a decimal."""
    child = of(expr.children[0])
    room, result = decimal_of(expr.children[0].type), decimal_of(expr.type)
    if room is None or result is None or result[1] != 0:
        raise unknown(expr)
    if room[1] == 0:
        return Compiled(f"TRY_CAST({child.sql} AS {_kind(result)})", child.doubt)
    found = rounded(f"{function}({_roomy(child.sql, room)})", result)
    return Compiled(found.sql, either(child.doubt, found.doubt))


def _roomy(sql: str, room: Room) -> str:
    """With room for one digit more before the point, where there can be one."""
    return f"CAST({sql} AS {_kind((room[0] + 1, room[1]))})" if room[0] < _MOST else sql


def rounding(expr: Expr, of: Of) -> Compiled:
    """`round` to a constant number of digits behind the point."""
    subject, digits = expr.children
    number = digits.value
    if digits.kind != "Literal" or not isinstance(number, int) or number < 0:
        raise unknown(expr)
    child = of(subject)
    room, result = decimal_of(subject.type), decimal_of(expr.type)
    if room and result:
        found = rounded(child.sql, result)
        return Compiled(found.sql, either(child.doubt, found.doubt))
    if subject.type in ("tinyint", "smallint", "int", "bigint"):
        return child
    if subject.type != "double" or number > 9:
        raise unknown(expr)
    whole = f"round({child.sql} * 1e{number})"
    # The quotient of two whole numbers without an error is the double next to the decimal number.
    sql = f"(CASE WHEN {whole} = 0 THEN 0.0::DOUBLE ELSE {whole} / 1e{number} END)"
    return Compiled(sql, either(child.doubt, near_no_middle(child.sql, number)))


def signed(template: str, expr: Expr, of: Of) -> Compiled:
    """The opposite or the size of a decimal, which has the same type. Spark rounds both to 34 digits."""
    child = of(expr.children[0])
    room = decimal_of(expr.type)
    if room is None or expr.children[0].type != expr.type or room[1] > _SIGNED:
        raise unknown(expr)
    doubt = fitted(child.sql, room, (min(room[0], _SIGNED), room[1])).doubt
    return Compiled(f"CAST({template.format(child.sql)} AS {sql_type(expr.type)})", either(child.doubt, doubt))

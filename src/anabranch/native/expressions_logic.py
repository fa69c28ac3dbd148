"""Conditions, comparisons, and the choice between branches. SQL's logic of three values is Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from anabranch.native.expressions_sql import (
    FLOATS,
    ORDERED,
    Entry,
    Of,
    either,
    guarded,
    plain,
    require,
    sql_type,
    unknown,
    walk,
)
from anabranch.native.tree import Compiled, Expr, NotKnown

_COMPARED = (*ORDERED, "decimal")
_SIGNS = ("EqualTo", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual")


def branch(expr: Expr, of: Of) -> Compiled:
    """What a row gets that takes a branch; a branch that is not known is one that no row without doubt takes."""
    try:
        return of(expr)
    except NotKnown:
        # Left to Spark, chance and clocks would be asked for some rows only.
        if any("never" in one.detail for one in walk(expr)):
            raise
        return Compiled(f"CAST(NULL AS {sql_type(expr.type)})", "TRUE")


def _and(expr: Expr, of: Of) -> Compiled:
    left, right = (of(child) for child in expr.children)
    # Spark does not look at the right side where the left one is false.
    doubt = guarded(f"({left.sql} IS DISTINCT FROM FALSE)", right.doubt)
    return Compiled(f"({left.sql} AND {right.sql})", either(left.doubt, doubt, *_beforehand(expr, of)))


def _or(expr: Expr, of: Of) -> Compiled:
    left, right = (of(child) for child in expr.children)
    doubt = guarded(f"({left.sql} IS DISTINCT FROM TRUE)", right.doubt)
    return Compiled(f"({left.sql} OR {right.sql})", either(left.doubt, doubt, *_beforehand(expr, of)))


def _beforehand(expr: Expr, of: Of) -> list[str | None]:
    """Doubts of what Spark's optimizer takes out of the right side, and computes whatever the left one is.

    That is what `With` names, and conditions that are on both sides: `a AND b OR c AND b` becomes `b AND (a OR c)`.
    """
    left, right = expr.children
    there = {_meaning(one) for one in _conditions(left)}
    both = [one for one in _conditions(right) if _meaning(one) in there]
    return [of(one).doubt for one in (*both, *_named(right))]


def _conditions(expr: Expr) -> Iterator[Expr]:
    if expr.kind not in ("And", "Or", "Not"):
        yield expr
        return
    for child in expr.children:
        yield from _conditions(child)


def _meaning(expr: Expr) -> str:
    """The same for conditions that Spark takes for the same, and for some others: sides and signs are left out."""
    inner = (one for one in walk(expr) if one.kind not in _SIGNS)
    return repr(sorted(repr(replace(one, children=())) for one in inner))


def _named(expr: Expr) -> Iterator[Expr]:
    """What Spark computes before the expression; in a branch it does not."""
    if expr.kind == "With":
        yield from expr.children[1:]
    always = expr.children[:1] if expr.kind in ("If", "CaseWhen", "Coalesce") else expr.children
    for child in always:
        yield from _named(child)


def _with(expr: Expr, of: Of) -> Compiled:
    """An expression in which some others, which follow it, have names."""
    return of(expr.children[0])


def _in(expr: Expr, of: Of) -> Compiled:
    require(expr, _COMPARED, same=True)
    value, *among = (of(child) for child in expr.children)
    if not among:
        raise unknown(expr)  # empty lists: null or false, by a setting
    listed = ", ".join(one.sql for one in among)
    return Compiled(f"({value.sql} IN ({listed}))", either(value.doubt, *(one.doubt for one in among)))


def _case(expr: Expr, of: Of) -> Compiled:
    children = list(expr.children)
    last = children.pop() if len(children) % 2 else None
    conditions = [of(child) for child in children[::2]]
    values = [branch(child, of) for child in children[1::2]]
    other = branch(last, of) if last else Compiled(f"CAST(NULL AS {sql_type(expr.type)})")
    if last and all(one.doubt == "TRUE" for one in (*values, other)):
        raise _reason_of(children[1], of)
    arms = " ".join(f"WHEN {c.sql} THEN {v.sql}" for c, v in zip(conditions, values, strict=True))
    doubt = other.doubt
    for condition, value in reversed(list(zip(conditions, values, strict=True))):
        if value.doubt or doubt:
            doubt = f"(CASE WHEN {condition.sql} THEN {value.doubt or 'FALSE'} ELSE {doubt or 'FALSE'} END)"
        doubt = either(condition.doubt, doubt)
    return Compiled(f"(CASE {arms} ELSE {other.sql} END)", doubt)


def _reason_of(expr: Expr, of: Of) -> NotKnown:
    try:
        of(expr)
    except NotKnown as reason:
        return reason
    return unknown(expr)


def _coalesce(expr: Expr, of: Of) -> Compiled:
    first, *others = expr.children
    given = [of(first), *(branch(other, of) for other in others)]
    doubt = given[-1].doubt
    for one in reversed(given[:-1]):
        doubt = either(one.doubt, guarded(f"({one.sql} IS NULL)", doubt))
    return Compiled(f"COALESCE({', '.join(one.sql for one in given)})", doubt)


def _null_check(sql: str) -> Entry:
    def entry(expr: Expr, of: Of) -> Compiled:
        child = of(expr.children[0])
        return Compiled(sql.format(child.sql), child.doubt)

    return entry


def _at_least(expr: Expr, of: Of) -> Compiled:
    """Whether so many are neither null nor NaN: what `dropna` asks."""
    given = [of(child) for child in expr.children]
    counted = [
        f"CAST({one.sql} IS NOT NULL{f' AND NOT isnan({one.sql})' if child.type in FLOATS else ''} AS INTEGER)"
        for one, child in zip(given, expr.children, strict=True)
    ]
    sql = f"(COALESCE({' + '.join(counted) or '0'}, 0) >= {int(expr.detail['least'])})"
    return Compiled(sql, either(*(one.doubt for one in given)))


def _extreme(function: str) -> Entry:
    def entry(expr: Expr, of: Of) -> Compiled:
        # Not of floats: which of 0.0 and -0.0 is the larger differs.
        require(expr, [kind for kind in _COMPARED if kind not in ("float", "double", "boolean")], same=True)
        given = [of(child) for child in expr.children]
        sql = f"{function}({', '.join(one.sql for one in given)})"
        return Compiled(sql, either(*(one.doubt for one in given)))

    return entry


LOGIC: Mapping[str, Entry] = {
    "And": _and,
    "Or": _or,
    "Not": plain("(NOT {0})", ("boolean",)),
    "IsNull": _null_check("({0} IS NULL)"),
    "IsNotNull": _null_check("({0} IS NOT NULL)"),
    "EqualTo": plain("({0} = {1})", _COMPARED, same=True),
    "EqualNullSafe": plain("({0} IS NOT DISTINCT FROM {1})", _COMPARED, same=True),
    "LessThan": plain("({0} < {1})", _COMPARED, same=True),
    "LessThanOrEqual": plain("({0} <= {1})", _COMPARED, same=True),
    "GreaterThan": plain("({0} > {1})", _COMPARED, same=True),
    "GreaterThanOrEqual": plain("({0} >= {1})", _COMPARED, same=True),
    "In": _in,
    "InSet": _in,
    "If": _case,  # Catalyst has the children in the same order: condition, value, other value
    "CaseWhen": _case,
    "Coalesce": _coalesce,
    "With": _with,
    "AtLeastNNonNulls": _at_least,
    "Greatest": _extreme("greatest"),
    "Least": _extreme("least"),
}

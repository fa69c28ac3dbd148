"""Decimals of every shape, floats, and the expressions over them that are compared with Spark."""

# ruff: noqa: E501  (tables of values)
from __future__ import annotations

import random
from decimal import Decimal
from itertools import combinations_with_replacement, product

import pyarrow as pa

from native.expression_cases import Frame

ROOMS = [(1, 0), (5, 5), (10, 2), (18, 0), (18, 18), (19, 4), (28, 2), (37, 18), (38, 0), (38, 6), (38, 18), (38, 37), (38, 38)]  # fmt: skip
_ROWS = 250


def unscaled(precision: int) -> list[int]:
    """Zero, units, halves, powers of ten, and the largest there is, each with both signs."""
    largest = 10**precision - 1
    sizes = {0, 1, 2, 4, 5, 6, 9, largest, largest - 1, largest // 2, largest // 9 * 5, 10 ** (precision - 1)}
    sizes |= {n * 10**k for k in range(precision) for n in (1, 5, 15, 25, 49, 95)}
    return [sign * size for size in sizes if size <= largest for sign in (1, -1)]


def decimals(precision: int, scale: int, dice: random.Random, rows: int = _ROWS) -> pa.Array:
    """Hostile ones and random ones of a type."""
    hostile = [None, *unscaled(precision)]
    drawn = [
        dice.choice(hostile) if dice.random() < 0.6 else dice.choice((1, -1)) * dice.randrange(10 ** dice.randint(0, precision))
        for _ in range(rows)
    ]  # fmt: skip
    return pa.array([None if n is None else decimal_of(n, scale) for n in drawn], pa.decimal128(precision, scale))


def decimal_of(n: int, scale: int) -> Decimal:
    """Without the context of Python's decimals, which rounds to 28 digits."""
    return Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale))


def _name(room: tuple[int, int], which: str) -> str:
    return f"d{room[0]}_{room[1]}{which}"


def _table() -> pa.Table:
    dice = random.Random(38)
    columns = {_name(room, which): decimals(*room, dice) for room in ROOMS for which in "ab"}
    doubles = [
        None, 0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 0.005, 1.005, 2.675, 12.345, 0.1, 99999999.994, 99999999.995, 1e15, 1e-7, 4.35, -0.004,
        -0.3, 1.0000000000000002, 9.999999, 123456789.125, float("nan"), float("inf"), 2.0e-3, 1e22, 1e23,
    ]  # fmt: skip
    drawn = [dice.choice(doubles) if dice.random() < 0.4 else round(dice.uniform(-1000, 1000), dice.randint(0, 9)) for _ in range(_ROWS)]  # fmt: skip
    return pa.table({**columns, "x": pa.array(drawn, pa.float64()), "y": pa.array(drawn, pa.float32())})


TABLE = _table()


def _arithmetic() -> tuple[str, ...]:
    pairs = list(combinations_with_replacement(ROOMS, 2))
    sums = [f"{_name(one, 'a')} {sign} {_name(other, 'b')}" for one, other in pairs for sign in "+-*"]
    return tuple(sums)


def _casts() -> tuple[str, ...]:
    casts = [f"cast({_name(one, 'a')} as decimal({p},{s}))" for one, (p, s) in product(ROOMS, ROOMS) if one != (p, s)]
    return (*casts, *(f"try_cast({_name(one, 'b')} as decimal(9,3))" for one in ROOMS))


def _one_or_two() -> tuple[str, ...]:
    found = []
    for room in ROOMS:
        a, b = _name(room, "a"), _name(room, "b")
        found += [f"-{a}", f"abs({a})", f"floor({a})", f"ceil({a})", f"{a} = {b}", f"{a} <=> {b}", f"{a} < {b}", f"{a} >= {b}", f"greatest({a}, {b})"]  # fmt: skip
        found += [f"cast({a} as {kind})" for kind in ("string", "int", "bigint", "double", "float", "tinyint")]
        found += [f"round({a}, {n})" for n in (0, 1, 2, 5, 20)]
        found += [f"{a} in ({b}, 1.5, 0)", f"{a} > 0", f"{a} = 1", f"{a} + 1", f"{a} * 2", f"coalesce({a}, {b}, 0)", f"cast(cast({a} as string) as decimal(38,10))"]  # fmt: skip
        found += [f"array_contains(array({a}, {b}), {b})", f"least({a}, {b})", f"nullif({a}, {b})", f"if({a} > {b}, {a}, {b})"]  # fmt: skip
    for x in "xy":
        found += [f"cast({x} as decimal({p},{s}))" for p, s in ((10, 2), (5, 0), (38, 9), (9, 9), (3, 1), (38, 18))]
        found += [f"round({x}, {n})" for n in (0, 1, 2, 3, 6, 9)]
    return tuple(found)


#: What is known to be left to Spark among them is not looked for.
FRAMES = {
    "sums and products": Frame(TABLE, _arithmetic()),
    "casts": Frame(TABLE, _casts()),
    "one or two": Frame(TABLE, _one_or_two()),
}

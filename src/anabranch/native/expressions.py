"""Expressions of Spark as SQL of DuckDB: one entry per kind of node, in the tables of the files beside this one.

Every entry gives SQL that raises for no value, and a doubt that is true wherever Spark could raise or give something
else. Timestamps are `TIMESTAMP`, microseconds in UTC: columns are given and results are read as such. A column that is
`TIMESTAMPTZ` is cast, row by row, and only right where the session of DuckDB is in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.native.expressions_casts import CASTS
from anabranch.native.expressions_logic import LOGIC
from anabranch.native.expressions_nested import NESTED
from anabranch.native.expressions_numbers import NUMBERS
from anabranch.native.expressions_sql import Entry, known_type, literal, sql_type, unknown, without_zone
from anabranch.native.expressions_text import TEXT
from anabranch.native.expressions_time import TIME
from anabranch.native.tree import Compiled, Expr, NotKnown

__all__ = ["TABLE", "compile_expr", "known_type", "sql_type"]

#: Catalyst's kinds, and how each is compiled; an `AttributeReference` besides.
TABLE: Mapping[str, Entry] = {"Literal": literal, **LOGIC, **CASTS, **NUMBERS, **TEXT, **TIME, **NESTED}

#: Letters of SQL, of a value or a doubt: what is longer costs more to plan than Spark costs to run.
_LONGEST = 200_000


def compile_expr(expr: Expr, columns: Mapping[str, str]) -> Compiled:
    """An expression in SQL; `columns` has the SQL of each attribute by its number. `NotKnown`: Spark has to compute it.

    >>> column = Expr("AttributeReference", "int", name="1")
    >>> compile_expr(Expr("IsNull", "boolean", (column,)), {"1": "a"})
    Compiled(sql='(a IS NULL)', doubt=None)
    """

    def of(one: Expr) -> Compiled:
        if never := one.detail.get("never"):
            raise NotKnown(never)
        if one.kind == "AttributeReference":
            sql_type(one.type)
            if one.name not in columns:
                raise NotKnown("reads a column that is not known here")
            return Compiled(without_zone(one.type, columns[one.name]))
        entry = TABLE.get(one.kind)
        if entry is None:
            raise unknown(one)
        compiled = entry(one, of)
        if len(compiled.sql) + len(compiled.doubt or "") > _LONGEST:
            raise NotKnown("is too long an expression")
        return compiled

    return of(expr)

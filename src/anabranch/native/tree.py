"""An expression of Spark as a plain tree: what the native pass knows of it, without a JVM.

`engine.catalyst_tree` makes such a tree from Catalyst's; `expressions` turns it into SQL of DuckDB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Expr:
    """One node.

    `kind` is the name of Catalyst's class, `type` Spark's catalog string of what it gives. An `AttributeReference` has
    in `name` the number by which plans know it; a `GetStructField` the name of the field. `value` is what a `Literal`
    holds, as Python has it. Whatever else matters to the meaning of a node (eval mode, time zone, a pattern) is in
    `detail`.
    """

    kind: str
    type: str
    children: tuple[Expr, ...] = ()
    name: str = ""
    value: object = None
    detail: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compiled:
    """SQL of DuckDB for an expression.

    Where `doubt` is true for a row, the value need not be Spark's: the record that it comes from is then computed by
    Spark. None: it is Spark's for every row. `doubt` is never null.
    """

    sql: str
    doubt: str | None = None


class NotKnown(Exception):
    """An expression that is not in the table; the text says which and why, for `plan`."""

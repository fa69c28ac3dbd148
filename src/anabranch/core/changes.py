"""Changes of rows that are applied to a table by key: what `create_auto_cdc_flow` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

#: Columns that a staged change has beside those of its row: what it is ordered by, and whether it deletes its key or
#: empties the table.
SEQUENCE, DELETES, TRUNCATES = "__anabranch_sequence", "__anabranch_deletes", "__anabranch_truncates"

#: Columns of a table that keeps history: the sequence from which a row was valid, and the one from which it was not.
START_AT, END_AT = "__START_AT", "__END_AT"

#: A condition, a column or an ordering as the user gave it: SQL text, the name of a column, or a Spark Column. The
#: engine turns it into a Column. Never compared: `==` between Columns is another Column.
Expression = Any


@dataclass(frozen=True, slots=True)
class Changes:
    """How the rows of a flow's source change its target.

    With `snapshot` each state of the source is a whole table, and the changes are what differs from the state before;
    `sequence_by` is then None.

    >>> Changes("orders_feed", keys=("id",), sequence_by="at", scd_type=2).keeps_history
    True
    """

    source: str | Callable[..., Any] = field(
        compare=False
    )  # a function gives snapshots: (latest_version) -> (df, version)
    keys: tuple[Expression, ...] = field(compare=False)  # column names or Columns, at least one
    sequence_by: Expression = field(default=None, compare=False)
    deletes: Expression = field(default=None, compare=False)  # rows for which this is true delete their key
    truncates: Expression = field(default=None, compare=False)  # a row for which this is true empties the table
    columns: tuple[Expression, ...] | None = field(default=None, compare=False)  # None stands for all of the source
    except_columns: tuple[Expression, ...] = field(default=(), compare=False)
    scd_type: int = 1  # 1 keeps the newest row of a key, 2 keeps every one with the time it was valid
    track_history: tuple[Expression, ...] | None = field(default=None, compare=False)  # None stands for all columns
    track_history_except: tuple[Expression, ...] = field(default=(), compare=False)
    ignore_null_updates: bool = False  # a null in a change leaves the column as it is
    ignore_null_columns: tuple[Expression, ...] | None = field(default=None, compare=False)  # None stands for all
    ignore_null_except: tuple[Expression, ...] = field(default=(), compare=False)
    snapshot: bool = False

    @property
    def keeps_history(self) -> bool:
        """Whether the target has `__START_AT` and `__END_AT`."""
        return self.scd_type == 2


@dataclass(frozen=True, slots=True)
class Merge:
    """What a sink must know to apply staged changes, in names of columns; a receipt carries it.

    `tracked` are the columns of which a change begins a new row of history; `keep_when_null` are those that a null
    leaves as they are.
    """

    keys: tuple[str, ...]
    history: bool = False
    tracked: tuple[str, ...] = ()
    keep_when_null: tuple[str, ...] = ()

    @classmethod
    def from_record(cls, raw: Mapping[str, Any]) -> Merge:
        """What `dataclasses.asdict` and JSON have made of one.

        >>> Merge.from_record({"keys": ["id"], "history": False, "tracked": [], "keep_when_null": []})
        Merge(keys=('id',), history=False, tracked=(), keep_when_null=())
        """
        return cls(tuple(raw["keys"]), raw["history"], tuple(raw["tracked"]), tuple(raw["keep_when_null"]))

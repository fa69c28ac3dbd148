"""Rules on all rows of a table together: keys that occur twice, found before the epoch is decided.

The staged keys are compared with those of the table as it stands; rows in which a column of the key is null do not
count, as in SQL. Nothing of a table is read that has no such rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from anabranch.connectors.contract import Sink, WholeTable
from anabranch.core.declarations import Action, Unique
from anabranch.core.epoch import Receipt
from anabranch.core.names import quoted
from anabranch.core.quality import SAMPLES, FlowQuality
from anabranch.errors import DataError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset as ds


def repeated(sinks: Mapping[str, Sink], receipts: Iterable[Receipt]) -> list[FlowQuality]:
    """How many staged rows repeat a key; raises for a rule that gives the epoch up."""
    found: list[FlowQuality] = []
    for receipt in receipts:
        sink = sinks[receipt.sink]
        if not isinstance(sink, WholeTable) or not sink.unique or not receipt.files:
            continue
        there = None if receipt.replace else sink.rows()
        staged = sink.staged_rows(receipt)
        counts = {rule.name: _surplus(rule, receipt, staged, there) for rule in sink.unique}
        found.append(FlowQuality(receipt.sink, "", receipt.rows, counts))
    return found


def _surplus(rule: Unique, receipt: Receipt, staged: ds.Dataset, there: ds.Dataset | None) -> int:
    """The staged rows whose key another row has, but for one that is the first of its key."""
    import duckdb

    columns = spelled(rule.columns, staged.schema.names)
    with closing(duckdb.connect(config={"threads": 1})) as database:
        database.register("staged", staged)
        keys = ", ".join(map(quoted, columns))
        known = " AND ".join(f"{quoted(c)} IS NOT NULL" for c in columns)
        database.execute(f"CREATE TABLE fresh AS SELECT {keys}, count(*) AS n FROM staged WHERE {known} GROUP BY ALL")
        database.execute(f"CREATE TABLE old AS SELECT {keys} FROM fresh LIMIT 0")
        if there is not None and set(columns) <= set(there.schema.names):
            _look_up(database, columns, there)
        same = " AND ".join(f"f.{quoted(c)} = o.{quoted(c)}" for c in columns)
        database.execute(
            f"""CREATE TABLE surplus AS SELECT f.*, f.n - (o.{quoted(columns[0])} IS NULL)::INT AS too_many
                FROM fresh f LEFT JOIN (SELECT DISTINCT * FROM old) o ON {same}"""
        )
        ((number,),) = database.execute("SELECT coalesce(sum(too_many), 0)::BIGINT FROM surplus").fetchall()
        if number and rule.action is Action.FAIL:
            chosen = f"SELECT {keys} FROM surplus WHERE too_many > 0 ORDER BY ALL LIMIT {SAMPLES}"
            raise _failed(rule, receipt, number, database.sql(chosen).to_arrow_table().to_pylist())
        return int(number)


def _look_up(database: duckdb.DuckDBPyConnection, columns: Sequence[str], there: ds.Dataset) -> None:
    """Which of the fresh keys the table has; batch by batch, so that its size does not matter."""
    same = " AND ".join(f"f.{quoted(c)} = b.{quoted(c)}" for c in columns)
    keys = ", ".join(f"f.{quoted(c)}" for c in columns)
    for batch in there.scanner(columns=list(columns), filter=_possible(database, columns)).to_batches():
        if batch.num_rows:
            database.register("batch", batch)
            database.execute(f"INSERT INTO old SELECT {keys} FROM fresh f SEMI JOIN batch b ON {same}")
            database.unregister("batch")


def _possible(database: duckdb.DuckDBPyConnection, columns: Sequence[str]) -> ds.Expression:
    """What a row with one of the fresh keys fulfils, for the files that can be left out."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    bounds = ", ".join(f"min({quoted(c)}) AS low_{i}, max({quoted(c)}) AS high_{i}" for i, c in enumerate(columns))
    found: pa.Table = database.sql(f"SELECT {bounds} FROM fresh").to_arrow_table()
    possible = ds.scalar(True)
    for i, column in enumerate(columns):
        low, high = found[f"low_{i}"][0], found[f"high_{i}"][0]
        ordered = pa.types.is_integer(low.type) or pa.types.is_string(low.type) or pa.types.is_temporal(low.type)
        if ordered and low.is_valid:
            possible = possible & (ds.field(column) >= low) & (ds.field(column) <= high)
    return possible


def spelled(columns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Columns as the table spells them: Spark does not tell case apart.

    >>> spelled(["ID"], ["id", "at"])
    ('id',)
    """
    folded = {name.lower(): name for name in names}
    return tuple(folded.get(column.lower(), column) for column in columns)


def _failed(rule: Unique, receipt: Receipt, number: int, keys: Sequence[Mapping[str, Any]]) -> DataError:
    rows = [json.dumps(key, default=str, ensure_ascii=False) for key in keys]
    return DataError(
        "EXPECTATION_FAILED",
        f'{number} of {receipt.rows} rows for "{receipt.sink}" break "{rule.name}": another row has the same '
        f"{', '.join(rule.columns)}; nothing of the epoch was written. The first: {'; '.join(rows)}",
        where=rule.where,
        hint="drop repeated rows in the flow (dropDuplicatesWithinWatermark), upsert by key, "
        'or count them only: action="warn"',
        details={"dataset": receipt.sink, "rule": rule.name, "rows": rows},
    )

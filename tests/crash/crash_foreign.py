"""What others do to the same tables."""

from __future__ import annotations

import pyarrow as pa
from crash_harness import Lake
from crash_model import FOREIGN
from deltalake import DeltaTable, write_deltalake


def append(lake: Lake, table: str, name: str) -> None:
    """One row of somebody else's."""
    other = {"code": ["E1"]} if table == "errors" else {"ms": pa.array([1], pa.int64())}
    write_deltalake(str(lake.table(table)), pa.table({"id": [f"{FOREIGN}-{name}"], **other}), mode="append")


def optimize(lake: Lake, table: str, _name: str) -> None:
    """Many small files become one: an OPTIMIZE."""
    DeltaTable(str(lake.table(table))).optimize.compact()


def vacuum(lake: Lake, table: str, _name: str) -> None:
    """With the age that Delta insists on."""
    DeltaTable(str(lake.table(table))).vacuum(dry_run=False, full=True)


def vacuum_all(lake: Lake, table: str) -> None:
    """With Delta's safety off: whatever the newest version does not need is gone, staged files too."""
    DeltaTable(str(lake.table(table))).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


def all_of_it(lake: Lake, table: str, name: str) -> None:
    for act in (append, optimize, vacuum):
        act(lake, table, name)

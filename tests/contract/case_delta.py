"""Delta tables under the contract."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from contract_case import FOREIGN, SCHEMA, Case
from deltalake import DeltaTable, write_deltalake

from anabranch.connectors.contract import SinkSpec


class DeltaCase(Case):
    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        return SinkSpec("out", str(folder / "tables" / "out"), "p-1", str(folder))

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        if not DeltaTable.is_deltatable(spec.location):
            return []
        rows = DeltaTable(spec.location).to_pyarrow_table().to_pylist()
        return [{name: value for name, value in row.items() if value is not None} for row in rows]

    def foreign(self, spec: SinkSpec) -> bool:
        write_deltalake(spec.location, pa.Table.from_pylist([FOREIGN], schema=SCHEMA), mode="append")
        return True

    @contextlib.contextmanager
    def refusing(self, spec: SinkSpec) -> Iterator[None]:
        """The log is gone for a while."""
        log, aside = Path(spec.location) / "_delta_log", Path(spec.location) / "_aside"
        shutil.move(log, aside)
        try:
            yield
        finally:
            shutil.move(aside, log)


CASE = DeltaCase("delta", __name__)

"""The sink of examples/sink_package under the contract; `test_sink_package` copies this beside the contract's suite."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract_case import FOREIGN, Case

from anabranch.connectors.contract import SinkSpec


class SqliteCase(Case):
    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        return SinkSpec("out", "sqlite://out", "p-1", str(folder), {"file": str(folder / "copy.db")})

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(spec.options["file"])) as db:
            db.row_factory = sqlite3.Row
            return [{k: row[k] for k in row.keys() if row[k] is not None} for row in db.execute("SELECT * FROM out")]  # noqa: SIM118

    def foreign(self, spec: SinkSpec) -> bool:
        with contextlib.closing(sqlite3.connect(spec.options["file"])) as db:
            db.execute("INSERT INTO out (id, name) VALUES (?, ?)", tuple(FOREIGN.values()))
            db.commit()
        return True

    @contextlib.contextmanager
    def refusing(self, spec: SinkSpec) -> Iterator[None]:
        """The table is gone for a while."""
        with contextlib.closing(sqlite3.connect(spec.options["file"])) as db:
            db.execute("ALTER TABLE out RENAME TO aside")
            yield
            db.execute("ALTER TABLE aside RENAME TO out")


CASE = SqliteCase("sqlite", __name__)

"""Postgres tables under the contract, with a real server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from contract_case import FOREIGN, Case
from psycopg.rows import dict_row

from anabranch.connectors.contract import SinkSpec


class PostgresCase(Case):
    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        url = request.getfixturevalue("postgres_url")
        return SinkSpec("out", "postgres://out", "p-1", str(folder), options={"url": url})

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        with psycopg.connect(spec.options["url"], row_factory=dict_row) as database:
            if database.execute("SELECT to_regclass('out') AS there").fetchone() == {"there": None}:
                return []
            found = database.execute("SELECT * FROM out").fetchall()
        return [{name: value for name, value in row.items() if value is not None} for row in found]

    def foreign(self, spec: SinkSpec) -> bool:
        with psycopg.connect(spec.options["url"]) as database:
            database.execute("INSERT INTO out (id, name) VALUES (%(id)s, %(name)s)", FOREIGN)
        return True

    @contextlib.contextmanager
    def refusing(self, spec: SinkSpec) -> Iterator[None]:
        """The table has another name for a while."""
        with psycopg.connect(spec.options["url"], autocommit=True) as database:
            database.execute("ALTER TABLE out RENAME TO hidden")
            try:
                yield
            finally:
                database.execute("ALTER TABLE hidden RENAME TO out")


CASE = PostgresCase("postgres", __name__)

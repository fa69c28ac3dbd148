"""Iceberg tables in an SQLite catalogue under the contract."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from contract_case import FOREIGN, SCHEMA, Case
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.iceberg_catalog import CATALOG


def catalog(spec: SinkSpec) -> SqlCatalog:
    """The catalogue as somebody else opens it."""
    return SqlCatalog(CATALOG, uri=f"sqlite:///{spec.storage}/iceberg.db")


class IcebergCase(Case):
    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        return SinkSpec("out", str(folder / "tables" / "out"), "p-1", str(folder))

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        try:
            rows = catalog(spec).load_table("default.out").scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return [{name: value for name, value in row.items() if value is not None} for row in rows]

    def foreign(self, spec: SinkSpec) -> bool:
        catalog(spec).load_table("default.out").append(pa.Table.from_pylist([FOREIGN], schema=SCHEMA))
        return True

    @contextlib.contextmanager
    def refusing(self, spec: SinkSpec) -> Iterator[None]:
        """Metadata cannot be written for a while."""
        metadata, aside = Path(spec.location) / "metadata", Path(spec.location) / "aside"
        shutil.move(metadata, aside)
        metadata.write_text("in the way")
        try:
            yield
        finally:
            metadata.unlink()
            shutil.move(aside, metadata)


CASE = IcebergCase("iceberg", __name__)

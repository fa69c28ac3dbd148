"""Folders of files under the contract; JSON and CSV share all but the last step, see `test_file_sink`."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contract_case import FOREIGN, SCHEMA, Case

from anabranch.connectors.contract import SinkSpec


class FilesCase(Case):
    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        return SinkSpec("out", str(folder / "tables" / "out"), "p-1", str(folder))

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        found = [
            row for path in sorted(Path(spec.location).glob("*.parquet")) for row in pq.read_table(path).to_pylist()
        ]
        return [{name: value for name, value in row.items() if value is not None} for row in found]

    def foreign(self, spec: SinkSpec) -> bool:
        number = len(list(Path(spec.location).glob("foreign-*")))
        table = pa.Table.from_pylist([FOREIGN], schema=SCHEMA)
        pq.write_table(table, Path(spec.location) / f"foreign-{number}.parquet")
        return True

    @contextlib.contextmanager
    def refusing(self, spec: SinkSpec) -> Iterator[None]:
        """The manifests are gone for a while."""
        manifests, aside = Path(spec.location) / "_manifest", Path(spec.location) / "_aside"
        shutil.move(manifests, aside)
        try:
            yield
        finally:
            shutil.move(aside, manifests)


CASE = FilesCase("parquet", __name__)

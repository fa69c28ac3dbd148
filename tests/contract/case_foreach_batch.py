"""Functions as sinks under the contract: this one adds the rows to a file, which is what it is known by."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from contract_case import Case

from anabranch.connectors.contract import Sink, SinkSpec


class FunctionCase(Case):
    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        return SinkSpec("out", f"{folder}/staged/out", "p-1", str(folder), options={"to": str(folder / "rows.jsonl")})

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        file = Path(spec.options["to"])
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @contextlib.contextmanager
    def refusing(self, spec: SinkSpec) -> Iterator[None]:
        """A folder in the place of the file."""
        file = Path(spec.options["to"])
        kept = file.read_bytes() if file.exists() else None
        file.unlink(missing_ok=True)
        file.mkdir()
        try:
            yield
        finally:
            file.rmdir()
            if kept is not None:
                file.write_bytes(kept)

    def open(self, spec: SinkSpec) -> Sink:
        def add(paths: Sequence[str], schema: str, epoch: int) -> None:
            rows = [row for path in paths for row in pq.read_table(path).to_pylist()]
            with Path(spec.options["to"]).open("a") as file:
                for row in rows:
                    file.write(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n")

        return super().open(replace(spec, handler=add))


CASE = FunctionCase("foreach_batch", __name__)

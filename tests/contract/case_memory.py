"""Rows in memory under the contract; what a killed process had is gone with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from contract_case import Case

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.memory import memory_table


class MemoryCase(Case):
    survives = False

    def target(self, request: pytest.FixtureRequest, folder: Path) -> SinkSpec:
        return SinkSpec("out", "memory://out", "p-1", str(folder))

    def rows(self, spec: SinkSpec) -> list[dict[str, Any]]:
        rows = memory_table(spec.storage, spec.name).to_pylist()
        return [{name: value for name, value in row.items() if value is not None} for row in rows]


CASE = MemoryCase("memory", __name__)

"""The cases that are there, and a target for each test."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from contract_case import SCHEMA, Case, Trial, cases


@pytest.fixture(params=cases(), ids=lambda case: case.format)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def trial(case: Case, request: pytest.FixtureRequest, tmp_path: Path) -> Trial:
    """A sink that is ready for rows, on a target that nobody else uses."""
    spec = case.target(request, tmp_path)
    sink = case.open(spec)
    sink.prepare(SCHEMA)
    return Trial(case, spec, sink)

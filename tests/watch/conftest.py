"""What the tests of watching share. Modules beside this one are imported by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent / each) for each in (".", "../servers", "../ui")]


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    """Runs wait for those who watch them as long as it takes: here it is found out what is sent, on any machine.

    A test of impatience sets its own.
    """
    from anabranch.watch import attached, open_lineage_transport, spans

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attached, "MAKING", 120.0)
        patch.setattr(attached, "PATIENCE", 120.0)
        patch.setattr(open_lineage_transport, "TIMEOUT", 100.0)
        patch.setattr(spans, "TIMEOUT", 100.0)
        yield


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Makes a project with a ledger and a history, a clock that is turned by hand, and these lines in its file."""
    from detected_shop import Shop

    made: list[Shop] = []

    def make(lines: str) -> Shop:
        made.append(Shop(tmp_path / "shop", lines, monkeypatch))
        return made[-1]

    yield make
    for each in made:
        each.close()

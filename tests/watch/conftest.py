"""What the tests of watching share. Modules beside this one are imported by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent / each) for each in (".", "../servers", "../ui")]


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

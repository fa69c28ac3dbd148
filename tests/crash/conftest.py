"""What the crash tests share; the modules beside this one can be imported by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

if TYPE_CHECKING:
    from crash_harness import Lake


@pytest.fixture
def new_lake(tmp_path: Path) -> Iterator[Callable[..., Lake]]:
    """Makes projects; their processes end with the test."""
    from crash_harness import Lake

    made: list[Lake] = []

    def make(**how: Any) -> Lake:
        made.append(Lake(tmp_path / f"project-{len(made)}", **how))
        return made[-1]

    yield make
    for lake in made:
        lake.end()


@pytest.fixture
def lake(new_lake: Callable[..., Lake]) -> Lake:
    """A project with nothing in it yet."""
    return new_lake()

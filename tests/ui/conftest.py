"""What the tests of the page share. Modules beside this one and those of the crash tests are imported by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "crash")]


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project after several runs, with dead letters and hostile values; nobody changes it."""
    from ui_shop import make_shop

    return make_shop(tmp_path_factory.mktemp("ui") / "shop")

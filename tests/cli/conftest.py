"""The command as a process of its own sees it: no Spark that other tests have started in this one."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def no_log_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names Spark's log when there is one; what other tests have left must not show up."""
    session = sys.modules.get("anabranch.engine.session")
    if session is not None:
        monkeypatch.setattr(session, "_log", None)

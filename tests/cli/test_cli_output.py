"""Text and JSON output."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.output import Facts, JsonOutput, Table, TextOutput, json_value
from anabranch.errors import ProjectError, ProjectErrors

ROWS = [{"table": "orders", "rows": 12, "last": None}, {"table": "e", "rows": 3000, "last": "a\nb"}]


class Terminal(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_table_off_a_terminal_is_aligned_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().show(ROWS)
    assert capsys.readouterr().out == "table   rows  last\norders    12  -\ne       3000  a\\nb\n"


def test_facts_lines_and_empty_tables(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().show({}, "head", Facts({"a": 1, "long": [True]}), Table([], empty="no rows"))
    assert capsys.readouterr().out == "head\na     1\nlong  [true]\nno rows\n"


def test_the_shape_decides_when_no_parts_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    TextOutput().show({"name": "x"})
    assert capsys.readouterr().out == "name  x\n"


def test_notes_and_events_go_to_stderr_and_are_silent_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        out = TextOutput(quiet)
        out.note("note")
        out.event({}, [("info", "green")])
        out.event({}, [("warning", "")], level="warn")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "note\ninfo\nwarning\nwarning\n"


def test_on_a_terminal_there_are_colours_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    seen = {}
    for no_color in ("", "1"):
        monkeypatch.setenv("NO_COLOR", no_color)
        monkeypatch.setattr(sys, "stdout", Terminal())
        TextOutput().show([{"check": "java", "state": "fail"}])
        seen[no_color] = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1;31mfail" in seen[""]
    assert "fail" in seen["1"]
    assert "\x1b[1;31m" not in seen["1"]


def test_markup_in_data_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    TextOutput().show([{"[red]c[/red]": "[bold]x[/bold] :smile:"}])
    assert "[bold]x[/bold] :smile:" in sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert "[red]c[/red]" in sys.stdout.getvalue()  # type: ignore[attr-defined]


def test_json_shows_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    JsonOutput().show({"at": datetime(2026, 3, 1, tzinfo=UTC), "p": Path("/x"), "d": Decimal("1.50")}, "not shown")
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"at": "2026-03-01T00:00:00+00:00", "p": "/x", "d": "1.50"}
    assert captured.err == ""


def test_json_events_are_lines_and_an_error_after_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    out = JsonOutput()
    out.event({"event": "a"}, [("a", "")])
    out.error(ProjectErrors([ProjectError("CODE", "message", hint="do this")]))
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"event": "a"}
    assert second["error"]["code"] == "PROJECT_INVALID"
    assert second["error"]["problems"][0]["hint"] == "do this"


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes() | st.decimals(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=10,
)


@given(VALUES)
def test_every_value_becomes_strict_json(value: Any) -> None:
    json.loads(json.dumps(json_value(value), allow_nan=False))

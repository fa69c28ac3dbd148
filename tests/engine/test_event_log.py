"""Events written down: in order, put aside when the file is large, and never the reason why a run fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.core.events import ChannelFailed, Event, Notice, ViewKept
from anabranch.engine import event_log
from anabranch.engine.event_log import NAME, recorded


def test_every_event_is_a_line(tmp_path: Path) -> None:
    heard: list[Event] = []
    listen = recorded(heard.append, tmp_path / "logs")
    for event in (Notice("hello"), ViewKept("v", "why"), ChannelFailed("c", "CODE", "text")):
        listen(event)
    lines = [json.loads(line) for line in (tmp_path / "logs" / NAME).read_text().splitlines()]
    assert [line["event"] for line in lines] == ["view_kept", "channel_failed"]
    assert lines[1] | {"at": 0, "process": 0} == {
        "at": 0,
        "process": 0,
        "event": "channel_failed",
        "level": "error",
        "channel": "c",
        "code": "CODE",
        "message": "text",
    }
    assert len(heard) == 3


def test_a_large_file_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_LARGEST", 100)
    listen = recorded(lambda _: None, tmp_path)
    for n in range(5):
        listen(ViewKept(f"v{n}", "x" * 60))
    assert len((tmp_path / NAME).read_text().splitlines()) == 1
    assert len((tmp_path / "events.1.jsonl").read_text().splitlines()) == 1


def test_a_disk_that_refuses_them_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    heard: list[Event] = []
    listen = recorded(heard.append, tmp_path / "logs")
    listen(ViewKept("v", "why"))
    listen(ViewKept("v", "why"))
    assert [type(e).__name__ for e in heard] == ["ViewKept", "Notice", "ViewKept"]

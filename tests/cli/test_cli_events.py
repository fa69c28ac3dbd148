"""`anabranch events`: filters, JSON lines, following what comes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.cli.main import main
from anabranch.core.events import ChannelFailed, EpochPublished, Event
from anabranch.core.events_data import SinkTold, ViewKept
from anabranch.store.history import History
from anabranch.store.history_writer import HistoryWriter

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes events of a run of a project, which is the current folder."""
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "pipeline.py").touch()
    monkeypatch.chdir(tmp_path)

    def written(*events: Event) -> None:
        writer = HistoryWriter(History.of(tmp_path / "lake").path, "shop", keep_seconds=1e9, tell=pytest.fail)
        for event in events:
            writer.put(event)
        writer.close("done")

    return written


EVENTS = (
    EpochPublished("requests", 1, 0, {"orders": 10}),
    SinkTold("alerts", "3 rows\x1b[2J kept"),
    ChannelFailed("requests", "SINK_DOWN", "no answer", "a.py:3"),
)


def test_lines_for_people(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(*EVENTS)
    assert main(["events"]) == 0
    captured = capsys.readouterr()
    said = [line[21:] for line in captured.out.splitlines()]
    assert said == [
        "info   requests  epoch 0  published  10 rows -> orders 10",
        "warn   alerts  3 rows\\x1b[2J kept",
        "error  requests  failed  no answer (SINK_DOWN)  a.py:3",
    ]
    assert captured.out[:2] == "20"
    assert captured.err == ""


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        (["--level", "warn"], ["sink_told", "channel_failed"]),
        (["--channel", "requests"], ["epoch_published", "channel_failed"]),
        (["--dataset", "orders"], ["epoch_published"]),
        (["--since", "1 hour", "-n", "1"], ["channel_failed"]),
        (["--since", "2999-01-01"], []),
    ],
)
def test_filters_in_lines_for_programs(
    write: Write, options: list[str], kinds: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write(*EVENTS)
    assert main(["events", "--json", *options]) == 0
    assert [json.loads(line)["kind"] for line in capsys.readouterr().out.splitlines()] == kinds


@pytest.mark.parametrize("options", [["--since", "soon"], ["--level", "fatal"]])
def test_options_that_make_no_sense(write: Write, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events", *options]) == 2
    assert "(USAGE)" in capsys.readouterr().err


def test_before_the_first_run(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["events"]) == 0
    assert capsys.readouterr().err == "no events\n"


def test_a_damaged_history_has_a_way_out(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(*EVENTS)
    History.of(tmp_path / "lake").path.write_bytes(b"hello" * 2000)
    assert main(["events"]) == 1
    captured = capsys.readouterr()
    assert "(HISTORY_DAMAGED)" in captured.err
    assert "hint: nothing but looking back needs it" in captured.err


def test_following_shows_what_comes_and_ends_with_ctrl_c(write: Write, tmp_path: Path) -> None:
    write(EVENTS[0])
    code = (
        "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from anabranch.cli.main import main\nsys.exit(main(['events', '--follow', '--json', '--level', 'warn']))\n"
    )
    with (tmp_path / "out").open("w") as out:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=out, stderr=subprocess.PIPE, text=True)
    seen: list[str] = []
    try:
        until = time.monotonic() + 120
        while len(seen) < 2 and time.monotonic() < until:
            write(ViewKept("v", "not asked for"), EVENTS[1])
            time.sleep(0.1)
            seen = (tmp_path / "out").read_text().splitlines()
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    records = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert len(records) >= 2
    assert {r["kind"] for r in records} == {"sink_told"}
    sequences = [r["sequence"] for r in records]
    assert sequences == list(dict.fromkeys(sorted(sequences)))

"""What a run draws on a real pseudo-terminal, what a pipe gets instead, and `status --watch`."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from fcntl import ioctl
from pathlib import Path

import pytest

from anabranch.engine.opened import open_project
from anabranch.load.project import read_project
from anabranch.store.ledger import OutputRecord

#: A run without Spark: the events of one, each waited for until the table was drawn with it.
RUN = """
import sys, time
from anabranch.cli.output import TextOutput
from anabranch.cli.live import can_draw
from anabranch.cli.progress import watching
from anabranch.core.events import *
from anabranch.core.events_data import SinkTold
from anabranch.core.quality import FlowQuality

written, write = [], sys.stderr.write
sys.stderr.write = lambda text: (written.append(text), write(text))[1]

def drawn():
    before = len(written)
    while can_draw(sys.__stderr__) and sum("\\x1b[2K" in text for text in written[before:]) < 2:
        time.sleep(0.01)

def work(listen):
    listen(Notice("starting Spark ..."))
    drawn()
    listen(RunStarted("shop", ("requests",)))
    quality = (FlowQuality("orders", "web", 102, {"positive": 2}, dropped=2, breaking=2),)
    for epoch in range(3):
        rows = {"orders": 100, "errors": 5}
        listen(EpochPublished("requests", 1, epoch, rows, {"stage": 0.2, "apply": 0.1}, 0.01, quality))
        listen(ChannelProgress("requests", epoch, 107, 10.0, 20.0, (SourceProgress("Kafka", 107, 7, "offsets"),)))
        drawn()
    listen(SinkTold("alerts", "3 rows\\x1b[2J kept"))
    print("said by the pipeline's own code")
    if "fail" in sys.argv:
        listen(ChannelFailed("requests", "SINK_DOWN", "no answer"))
        listen(RunFailed("shop", "SINK_DOWN", "no answer", 3, 315, 1.5))
        raise SystemExit(1)
    if "stop" in sys.argv:
        raise KeyboardInterrupt
    listen(RunFinished("shop", 3, 315, 1.5))

with watching(TextOutput()) as listener:
    work(listener)
"""

SHOW_CURSOR, HIDE_CURSOR = b"\x1b[?25h", b"\x1b[?25l"


def on_terminal(
    arguments: list[str], until: Callable[[bytes], bool] = lambda _: False, **extra: str
) -> tuple[int, bytes]:
    """The exit code and everything written to a terminal of 100 columns; Ctrl-C once `until` holds."""
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        environment: Mapping[str, str] = {**inherited, "TERM": "xterm-256color", **extra}
        os.execve(sys.executable, [sys.executable, *arguments], environment)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    seen, asked, deadline = b"", False, time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                seen += os.read(terminal, 65536)
            if not asked and until(seen):
                os.write(terminal, b"\x03")
                asked = True
    except OSError:
        pass  # the other side has gone, which is how a terminal ends
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen


def after_the_table(seen: bytes) -> str:
    """What stays on the screen: everything after the table was wiped away for the last time."""
    return seen.rpartition(b"\x1b[2K")[2].decode()


def plain(text: str) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).rstrip() for line in text.splitlines()]


def test_a_terminal_gets_a_table_that_gives_way_to_a_summary() -> None:
    code, seen = on_terminal(["-c", RUN])
    assert code == 0
    text = "\n".join(plain(seen.decode()))
    for drawn in (
        "starting Spark ...",
        "rows/s",
        "7 offsets",
        "0.30 s: stage 0.20 apply 0.10",
        "broke a rule",
        "dropped",
    ):
        assert drawn in text
    assert seen.count(b"\x1b[1A\x1b[2K") > 10  # drawn again in place
    assert seen.rindex(SHOW_CURSOR) > seen.rindex(HIDE_CURSOR)
    assert "epoch 0  published" not in text  # lines of events only where they warn
    assert r"alerts  3 rows\x1b[2J kept" in text
    assert "said by the pipeline's own code" in text
    assert plain(after_the_table(seen)) == [
        "shop  done  3 epochs  315 rows  1.50 s  6 dropped, 0 quarantined",
        "  read     requests           321 in 3 epochs, 7 offsets behind",
        "  written  orders             300  6 of 306 broke a rule, 6 dropped",
        "  written  errors              15",
        "  torn window for plain readers at most 10 ms",
    ]


def test_a_run_that_fails_leaves_the_terminal_clean_and_says_where_to_look() -> None:
    code, seen = on_terminal(["-c", RUN, "fail"])
    assert code == 1
    assert seen.rindex(SHOW_CURSOR) > seen.rindex(HIDE_CURSOR)
    lines = plain(after_the_table(seen))
    assert lines[0] == "shop  failed  3 epochs  315 rows  1.50 s"
    assert lines[-3:] == [
        "  failed   requests  no answer (SINK_DOWN)",
        "  see      anabranch explain SINK_DOWN",
        "  see      anabranch events --level error",
    ]


def test_an_interrupted_run_leaves_the_terminal_clean() -> None:
    _, seen = on_terminal(["-c", RUN, "stop"])
    assert seen.rindex(SHOW_CURSOR) > seen.rindex(HIDE_CURSOR)
    assert "  written  orders             300  6 of 306 broke a rule, 6 dropped" in plain(after_the_table(seen))


def test_a_terminal_that_cannot_draw_gets_lines() -> None:
    _, seen = on_terminal(["-c", RUN], TERM="dumb")
    assert b"requests  epoch 0  published" in seen
    assert b"\x1b[1A" not in seen


def test_no_colours_where_they_are_not_wanted() -> None:
    _, seen = on_terminal(["-c", RUN], NO_COLOR="1")
    assert b"\x1b[32m" not in seen
    assert b"broke a rule" in seen


def test_a_pipe_gets_plain_lines() -> None:
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stderr
    assert "\r" not in done.stderr
    assert done.stdout == "said by the pipeline's own code\n"
    lines = done.stderr.splitlines()
    assert lines[:2] == ["starting Spark ...", "shop  running 1 channel: requests"]
    assert sum("published" in line for line in lines) == 3
    assert lines[-1] == "  torn window for plain readers at most 10 ms"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "pipeline.py").touch()
    with open_project(read_project(tmp_path), create=True) as opened:
        opened.ledger.ensure_channel(opened.pipeline.pipeline_id, "requests", [OutputRecord("orders", "delta", "o")])
    return tmp_path


WATCH = ["-m", "anabranch.cli.main", "status", "--watch", "-p"]


def test_status_on_a_terminal_is_drawn_in_place_until_ctrl_c(shop: Path) -> None:
    code, seen = on_terminal([*WATCH, str(shop)], until=lambda seen: b"Ctrl-C ends it" in seen)
    assert code == 0
    assert b"requests" in seen
    assert b"Traceback" not in seen


def test_status_for_programs_is_a_line_whenever_something_changed(shop: Path) -> None:
    process = subprocess.Popen([sys.executable, *WATCH, str(shop), "--json"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        first = json.loads(process.stdout.readline())
        with open_project(read_project(shop)) as opened:
            outputs = [OutputRecord("errors", "delta", "e")]
            opened.ledger.ensure_channel(opened.pipeline.pipeline_id, "others", outputs)
        second = json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()
    assert [c["channel"] for c in first["channels"]] == ["requests"]
    assert [c["channel"] for c in second["channels"]] == ["others", "requests"]

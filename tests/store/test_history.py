"""The history: written beside the work, readable during and after it, and never a reason why a run fails."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from anabranch.core.events import ChannelFailed, ChannelProgress, EpochPublished, Event, SourceProgress
from anabranch.core.events_data import SinkTold, ViewKept
from anabranch.core.hidden import keep_hidden
from anabranch.core.quality import FlowQuality
from anabranch.errors import StateError
from anabranch.store import history_writer
from anabranch.store.history import History
from anabranch.store.history_writer import HistoryWriter

DAY = 86400.0


class Lake:
    """A storage folder with its history."""

    def __init__(self, root: Path) -> None:
        self.history = History.of(root)
        self.path = self.history.path
        self.told: list[str] = []

    def writer(self, keep: float = 30 * DAY) -> HistoryWriter:
        return HistoryWriter(self.path, "shop", keep_seconds=keep, tell=self.told.append)

    def write(self, *events: Event, outcome: str = "done") -> str:
        writer = self.writer()
        for event in events:
            writer.put(event)
        writer.close(outcome)
        return writer.run


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def published(epoch: int, rows: int = 10, channel: str = "requests") -> EpochPublished:
    quality = (FlowQuality("orders", "web", rows + 2, {"positive": 2}, dropped=2, breaking=2),)
    return EpochPublished(channel, 1, epoch, {"orders": rows, "x.y": 1}, {"stage": 0.2, "apply": 0.1}, 0.01, quality)


def test_before_the_first_run_there_is_nothing_to_read(lake: Lake) -> None:
    assert (lake.history.events(), lake.history.runs(), lake.history.newest()) == ([], [], 0)
    assert not lake.path.exists()


def test_an_event_with_everything_known_of_it(lake: Lake) -> None:
    before = time.time()
    run = lake.write(ChannelFailed("requests", "SINK_DOWN", "no\nanswer", "a.py:3"))
    (found,) = lake.history.events()
    assert before - 1 < found.at < time.time() + 1
    assert (found.run, found.level, found.kind, found.sequence) == (run, "error", "channel_failed", 1)
    assert (found.pipeline, found.channel, found.place) == ("shop", "requests", "a.py:3")
    assert found.message == "requests  failed  no\nanswer (SINK_DOWN)"
    assert found.details["code"] == "SINK_DOWN"
    assert len(found.id) == 32


def test_filters_and_following(lake: Lake) -> None:
    lake.write(
        published(0), SinkTold("alerts", "3 rows kept"), ViewKept("totals", "same"), ChannelFailed("c", "X", "m")
    )
    kinds = [e.kind for e in lake.history.events()]
    assert kinds == ["epoch_published", "sink_told", "view_kept", "channel_failed"]
    assert [e.kind for e in lake.history.events(level="warn")] == ["sink_told", "channel_failed"]
    assert [e.kind for e in lake.history.events(level="error")] == ["channel_failed"]
    assert [e.kind for e in lake.history.events(dataset="alerts")] == ["sink_told"]
    assert [e.kind for e in lake.history.events(dataset="x.y")] == ["epoch_published"]
    assert [e.kind for e in lake.history.events(channel="c")] == ["channel_failed"]
    assert [e.kind for e in lake.history.events(kinds=["view_kept", "sink_told"])] == ["sink_told", "view_kept"]
    assert [e.sequence for e in lake.history.events(limit=2)] == [3, 4]
    assert [e.sequence for e in lake.history.events(after=1, limit=2)] == [2, 3]
    assert lake.history.events(since=time.time() + 60) == []
    assert lake.history.newest() == 4


def test_rows_quality_steps_and_rates_over_time(lake: Lake) -> None:
    source = SourceProgress("Kafka", 5, 7, "offsets")
    lake.write(published(0), published(1, 20), ChannelProgress("requests", 1, 5, 2.0, None, (source, source)))
    points = lake.history.rows_over_time("orders")
    assert [(p.epoch, p.rows, p.judged, p.broke, p.dropped) for p in points] == [(0, 10, 12, 2, 2), (1, 20, 22, 2, 2)]
    assert [(p.rows, p.judged) for p in lake.history.rows_over_time("x.y")] == [(1, 0), (1, 0)]
    assert lake.history.rows_over_time("unknown") == []
    steps = lake.history.steps_over_time("requests", limit=1)
    assert [(p.epoch, p.times, p.window, p.rows) for p in steps] == [(1, {"stage": 0.2, "apply": 0.1}, 0.01, 21)]
    (rate,) = lake.history.progress_over_time()
    assert (rate.rows, rate.input_rate, rate.process_rate, rate.behind) == (5, 2.0, None, {"offsets": 14})


def test_runs_and_how_they_ended(lake: Lake) -> None:
    lake.write(published(0), published(1))
    writer = lake.writer()
    writer.close("failed", "SINK_DOWN", "no answer")
    failed, done = lake.history.runs()
    assert (failed.outcome, failed.code, failed.message, failed.run) == ("failed", "SINK_DOWN", "no answer", writer.run)
    assert (done.outcome, done.epochs, done.rows, done.pid) == ("done", 2, 22, os.getpid())
    assert done.ended is not None
    assert 0 <= done.seconds < 300
    assert lake.history.runs(outcome="done") == [done]
    assert lake.history.run(failed.run) == failed


def wait_for(condition: object) -> None:
    until = time.monotonic() + 120
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_run_is_seen_while_it_works_and_after_it_was_killed(lake: Lake) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom anabranch.core.events_data import ViewKept\n"
        "from anabranch.store.history_writer import HistoryWriter\n"
        "writer = HistoryWriter(Path(sys.argv[1]), 'shop', keep_seconds=9e9, tell=print)\n"
        "writer.put(ViewKept('v', 'why'))\ntime.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(lake.path)])
    try:
        wait_for(lake.history.events)
        (run,) = lake.history.runs()
        assert (run.outcome, run.pid, run.ended) == ("running", process.pid, None)
        assert lake.history.runs(outcome="died") == []
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (run,) = lake.history.runs()
    assert run.outcome == "died"
    assert run.seconds < 60
    assert lake.history.runs(outcome="died") == [run]
    assert [e.kind for e in lake.history.events()] == ["view_kept"]


def test_the_reader_needs_no_heavy_package() -> None:
    code = (
        "import sys\nimport anabranch.store.history\n"
        "heavy = [n for n in ('pyspark', 'sqlalchemy', 'pyarrow', 'duckdb', 'deltalake') if n in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_several_writers_at_once(lake: Lake) -> None:
    def work(number: int) -> None:
        lake.write(*(ViewKept(f"v{number}", str(n)) for n in range(200)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lake.history.events(limit=10_000)
    assert len(found) == 800
    for number in range(4):
        assert [int(e.details["reason"]) for e in found if e.dataset == f"v{number}"] == list(range(200))
    assert [r.outcome for r in lake.history.runs()] == ["done"] * 4
    assert lake.told == []


def test_a_queue_that_is_full_drops_the_oldest_and_says_how_many(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_writer, "MOST_WAITING", 5)
    writer = lake.writer()
    wait_for(lake.history.runs)
    held = sqlite3.connect(lake.path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")  # as a writer that takes its time would
    for n in range(12):
        writer.put(ViewKept("v", str(n)))
    held.execute("ROLLBACK")
    held.close()
    writer.close("done")
    found = lake.history.events()
    dropped = sum(e.details["count"] for e in found if e.kind == "events_dropped")
    kept = [int(e.details["reason"]) for e in found if e.kind == "view_kept"]
    assert dropped + len(kept) == 12
    assert dropped >= 1
    assert kept == sorted(kept)
    assert kept[-5:] == [7, 8, 9, 10, 11]


def test_the_end_of_a_run_does_not_wait_for_ever_and_says_so(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_writer, "_LAST", 0.1)
    writer = lake.writer()
    wait_for(lake.history.runs)
    held = sqlite3.connect(lake.path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    writer.close("done")
    held.close()
    assert len(lake.told) == 1
    assert "its last events were not written within 0.1 seconds" in lake.told[0]


def test_a_disk_that_refuses_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "_anabranch").write_text("in the way")
    lake = Lake(tmp_path)
    lake.write(*(ViewKept("v", "why") for _ in range(3)))
    assert len(lake.told) == 1
    assert str(lake.path) in lake.told[0]


def test_when_the_disk_takes_them_again_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_writer, "_TRY_AGAIN", 0.0)
    in_the_way = tmp_path / "_anabranch"
    in_the_way.write_text("")
    lake = Lake(tmp_path)
    writer = lake.writer()
    writer.put(ViewKept("v", "early"))
    wait_for(lambda: lake.told)
    in_the_way.unlink()
    writer.put(ViewKept("v", "late"))
    writer.close("done")
    assert [e.details["reason"] for e in lake.history.events()] == ["early", "late"]
    assert len(lake.told) == 1


@pytest.mark.parametrize("damage", ["not a database", "cut off", "zeros inside", "foreign"])
def test_a_damaged_history_is_put_aside_and_a_new_one_begun(lake: Lake, damage: str) -> None:
    lake.write(*(ViewKept("v", "x" * 500) for _ in range(200)))
    size = lake.path.stat().st_size
    match damage:
        case "not a database":
            lake.path.write_bytes(b"hello" * 1000)
        case "cut off":
            os.truncate(lake.path, size // 2)
        case "zeros inside":
            with lake.path.open("r+b") as file:
                file.seek(4096)
                file.write(b"\0" * (size - 4096))
        case _:
            lake.path.unlink()
            other = sqlite3.connect(lake.path)
            other.execute("CREATE TABLE events (a)")
            other.execute("PRAGMA user_version = 1")
            other.close()
    with pytest.raises(StateError) as raised:
        assert not [lake.history.events(limit=1000), lake.history.runs()]
    assert raised.value.code == "HISTORY_DAMAGED"
    lake.write(ViewKept("v", "new"))
    assert [e.details["reason"] for e in lake.history.events(limit=1000)] == ["new"]
    assert [r.outcome for r in lake.history.runs()] == ["done"]
    (aside,) = (path for path in lake.path.parent.glob("history.db.damaged-*") if not path.name.endswith("-wal"))
    assert lake.told == [t for t in lake.told if aside.name in t]
    assert len(lake.told) == 1


def test_old_events_and_runs_are_removed_in_bounded_steps(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_writer, "_OLD_AT_ONCE", 10)
    lake.write(*(ViewKept("v", "old") for _ in range(35)))
    with sqlite3.connect(lake.path) as connection:
        connection.execute("UPDATE events SET at = at - 100000")
        connection.execute("UPDATE runs SET started = started - 100000, seen = seen - 100000")
    connection.close()
    writer = lake.writer(keep=DAY)
    writer.put(ViewKept("v", "new"))
    wait_for(lambda: {e.details["reason"] for e in lake.history.events()} == {"new"})
    wait_for(lambda: [r.run for r in lake.history.runs()] == [writer.run])
    writer.close("done")
    assert lake.history.newest() == 36  # numbers are not used again


def test_secrets_are_not_written(lake: Lake) -> None:
    keep_hidden("tulip-4711")
    lake.write(ChannelFailed("c", "X", 'no "tulip-4711" at postgresql://ann:sesame@db/x'))
    (found,) = lake.history.events()
    assert found.details["message"] == 'no "***" at postgresql://ann:***@db/x'
    assert b"tulip-4711" not in lake.path.read_bytes()
    assert "tulip" not in found.message


def test_put_takes_microseconds(lake: Lake) -> None:
    writer = lake.writer()
    event = published(0)
    took = []
    for _ in range(2000):
        began = time.perf_counter()
        writer.put(event)
        took.append(time.perf_counter() - began)
    writer.close("done")
    assert sorted(took)[1000] < 0.000_1
    assert len(lake.history.events(limit=5000)) == 2000


def test_details_are_json_whatever_an_event_holds(lake: Lake) -> None:
    lake.write(ViewKept("v", Path("/a/b")))  # type: ignore[arg-type]
    assert json.dumps(lake.history.events()[0].details) == '{"view": "v", "reason": "/a/b"}'


def test_a_folder_that_may_only_be_read(lake: Lake) -> None:
    lake.write(ViewKept("v", "why"))
    lake.path.parent.chmod(0o555)
    try:
        assert len(lake.history.events()) == 1
    finally:
        lake.path.parent.chmod(0o755)

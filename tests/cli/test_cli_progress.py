"""Events as lines."""

from __future__ import annotations

import json

import pytest

from anabranch.cli.output import JsonOutput, TextOutput
from anabranch.cli.progress import progress
from anabranch.core import events, events_data
from anabranch.core.event_kinds import vocabulary
from anabranch.core.event_words import sentence
from anabranch.core.profile import ColumnProfile, TableProfile

EVENTS = {
    events.Notice("starting Spark ..."): "starting Spark ...",
    events.RunStarted("shop", ("requests",)): "shop  running 1 channel: requests",
    events.RunFinished("shop", 3, 9000, 4.5): "shop  done  3 epochs  9,000 rows  4.50 s",
    events.EpochRecovered("requests", 2, ("a", "b")): "requests  epoch 2  recovered  finished in a, b",
    events.EpochRecovered("requests", 2, ()): "requests  epoch 2  recovered  was in every output already",
    events.EpochRestaged(
        "requests", 2, ("a",), "short file"
    ): "requests  epoch 2  restaged  a staged again: short file",
    events.EpochDiscarded("requests", 2, "no\nroom"): (
        "requests  epoch 2  discarded, nothing of it is visible: no\\nroom"
    ),
    events_data.SinkTold("alerts", "3 rows kept: no\nanswer"): "alerts  3 rows kept: no\\nanswer",
    events_data.Compacted("a", 40, 0.5): "a  put 40 small files together  0.50 s",
    events_data.LeftoversRemoved("a", 2, 3_500_000): "a  removed 2 leftover files, 3.3 MiB",
    events_data.OutputsRemoved(
        "requests", ("a",)
    ): "requests  no longer declared, left as they are: a; to remove: anabranch drop NAME",
    events_data.FilesKept("requests", ("/in/a", "/in/b"), "changed"): "requests  files kept  /in/a and 1 more changed",
    events_data.SourceMaySkip("requests", "rows may be missing"): "requests  rows may be missing",
    events_data.WatermarkShared("requests", "a and b share one"): "requests  a and b share one",
    events.ChannelFailed("requests", "SINK_DOWN", "no answer"): "requests  failed  no answer (SINK_DOWN)",
    events.ChannelRetried("requests", "SINK_DOWN", "no answer", 1, 5.0): (
        "requests  failed for now  no answer (SINK_DOWN); attempt 2 in 5 s"
    ),
    events_data.QueryChanged("orders", "a.py:3"): (
        "orders  its query changed (a.py:3): the rows it has are those of the old one; to rebuild them: "
        "anabranch run --full-refresh orders"
    ),
    events.NotSent("open_lineage", "no answer"): "open_lineage  no answer",
    events_data.LineageChanged("requests", "orders", 4, ("total",), "{}"): (
        "orders  column lineage changed: total, from epoch 4 on"
    ),
    events_data.LineageChanged("requests", "orders", 4, (), "{}"): "orders  lineage changed, from epoch 4 on",
    events_data.ProfileFailed("requests", 4, "orders", "MemoryError: no room"): (
        "orders  epoch 4  its rows were written, but not profiled: MemoryError: no room"
    ),
    events.EventsDropped(3): "3 events came too fast to be written down",
    events_data.ViewKept("totals", "nothing changed"): "totals  left as it is: nothing changed",
}

PUBLISHED = events.EpochPublished(
    "requests",
    1,
    3,
    {"request_logs": 3000, "error_events": 512, "slow_requests": 88},
    {"read": 0.1, "stage": 0.25, "decide": 0.004, "apply": 0.06},
    0.021,
)
BACKFILLED = events_data.Backfilled("requests", 4, {"errors": 1200}, 0.5)  # its rows are not hashable
READ = events.ChannelProgress("requests", 3, 3000, 150.2, None, (events.SourceProgress("Kafka", 3000, 12, "offsets"),))
FAILED = events.RunFailed("shop", "SINK_DOWN", "no\nanswer", 2, 6000, 4.5)
PROFILED = events_data.ColumnsProfiled(
    "requests", 1, 4, "orders", TableProfile(3000, {"id": ColumnProfile("number", 3000)})
)
ALL = [*EVENTS, PROFILED, PUBLISHED, BACKFILLED, READ, FAILED]


@pytest.mark.parametrize(("event", "line"), EVENTS.items(), ids=lambda x: x.kind if isinstance(x, events.Event) else "")
def test_one_line_per_event(event: events.Event, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    progress(TextOutput())(event)
    captured = capsys.readouterr()
    assert captured.err == line + "\n"
    assert captured.out == ""


def test_a_published_epoch_says_rows_times_and_the_torn_window(capsys: pytest.CaptureFixture[str]) -> None:
    progress(TextOutput())(PUBLISHED)
    assert capsys.readouterr().err == (
        "requests  epoch 3  published  3,600 rows -> request_logs 3,000 · error_events 512 · slow_requests 88"
        "  0.41 s (read 0.10 stage 0.25 decide 0.00 apply 0.06)  torn window for plain readers 21 ms\n"
    )


def test_what_an_output_was_given_of_the_past(capsys: pytest.CaptureFixture[str]) -> None:
    progress(TextOutput())(BACKFILLED)
    assert capsys.readouterr().err == "requests  epoch 4  backfilled  errors 1,200  0.50 s\n"


def test_one_table_alone_cannot_be_torn(capsys: pytest.CaptureFixture[str]) -> None:
    progress(TextOutput())(events.EpochPublished("c", 1, 0, {"a": 1}, {}, 0.001))
    assert capsys.readouterr().err == "c  epoch 0  published  1 row -> a 1\n"


def test_every_kind_of_event_has_words_of_its_own() -> None:
    assert {event.kind for event in ALL} == set(vocabulary())
    assert sentence(READ) == "requests  read 3,000 rows  150 rows/s in  12 offsets behind"
    assert sentence(PROFILED) == "orders  epoch 4  profiled 1 column of 3,000 rows"
    assert sentence(FAILED) == "shop  failed  2 epochs  6,000 rows  4.50 s: no\nanswer (SINK_DOWN)"


def test_lines_leave_out_how_fast_it_reads(capsys: pytest.CaptureFixture[str]) -> None:
    progress(TextOutput())(READ)
    assert capsys.readouterr().err == ""


def test_at_the_end_a_summary_of_what_was_read_written_and_torn(capsys: pytest.CaptureFixture[str]) -> None:
    listen = progress(TextOutput())
    for event in (PUBLISHED, READ, events.RunFinished("shop", 1, 3600, 4.5)):
        listen(event)
    assert capsys.readouterr().err.splitlines()[2:] == [
        "  read     requests              3,000 in 1 epoch, 12 offsets behind",
        "  written  request_logs          3,000",
        "  written  error_events            512",
        "  written  slow_requests            88",
        "  torn window for plain readers at most 21 ms",
    ]


def test_a_run_that_failed_says_what_to_look_at(capsys: pytest.CaptureFixture[str]) -> None:
    listen = progress(TextOutput())
    listen(events.ChannelFailed("requests", "SINK_DOWN", "no\nanswer"))
    listen(FAILED)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "shop  failed  2 epochs  6,000 rows  4.50 s",
        "  failed   requests  no\\nanswer (SINK_DOWN)",
        "  see      anabranch explain SINK_DOWN",
        "  see      anabranch events --level error",
    ]


def test_as_json_every_event_is_a_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    listen = progress(JsonOutput())
    for event in ALL:
        listen(event)
    captured = capsys.readouterr()
    records = [json.loads(line) for line in captured.out.splitlines()]
    assert [r["event"] for r in records] == [e.kind for e in ALL]
    assert captured.err == ""

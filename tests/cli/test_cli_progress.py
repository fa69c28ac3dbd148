"""Events as lines."""

from __future__ import annotations

import json

import pytest

from anabranch.cli.output import JsonOutput, TextOutput
from anabranch.cli.progress import progress
from anabranch.core import events

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
    events.LeftoversRemoved("a", 2, 3_500_000): "a  removed 2 leftover files, 3.3 MiB",
    events.OutputsRemoved(
        "requests", ("a",)
    ): "requests  no longer declared, left as they are: a; to remove: anabranch drop NAME",
    events.WatermarkShared("requests", "a and b share one"): "requests  a and b share one",
    events.ChannelFailed("requests", "SINK_DOWN", "no answer"): "requests  failed  no answer (SINK_DOWN)",
    events.ChannelRetried("requests", "SINK_DOWN", "no answer", 1, 5.0): (
        "requests  failed for now  no answer (SINK_DOWN); attempt 2 in 5 s"
    ),
    events.QueryChanged("orders", "a.py:3"): (
        "orders  its query changed (a.py:3): the rows it has are those of the old one; to rebuild them: "
        "anabranch run --full-refresh orders"
    ),
    events.ViewKept("totals", "nothing changed"): "totals  left as it is: nothing changed",
}

PUBLISHED = events.EpochPublished(
    "requests",
    1,
    3,
    {"request_logs": 3000, "error_events": 512, "slow_requests": 88},
    {"read": 0.1, "stage": 0.25, "decide": 0.004, "apply": 0.06},
    0.021,
)
BACKFILLED = events.Backfilled("requests", 4, {"errors": 1200}, 0.5)  # its rows are not hashable


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
    covered = {event.kind for event in [*EVENTS, PUBLISHED, BACKFILLED]}
    assert covered == set(events.vocabulary())


def test_as_json_every_event_is_a_line_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    listen = progress(JsonOutput())
    for event in [*EVENTS, PUBLISHED, BACKFILLED]:
        listen(event)
    captured = capsys.readouterr()
    records = [json.loads(line) for line in captured.out.splitlines()]
    assert [r["event"] for r in records] == [e.kind for e in [*EVENTS, PUBLISHED, BACKFILLED]]
    assert captured.err == ""

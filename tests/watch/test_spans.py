"""Spans: a trace for each epoch, made of what its event says; and collectors that are broken."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from http_listener import nobody
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from otlp_receiver import Collector
from watched_lake import Lake

from anabranch.core.events import ChannelFailed, EpochDiscarded, EpochPublished, Event, NotSent
from anabranch.core.hidden import keep_hidden
from anabranch.errors import SinkError
from anabranch.watch import spans
from anabranch.watch.attached import attached
from anabranch.watch.spans import Spans

SECOND = 1_000_000_000
PUBLISHED = EpochPublished(
    "requests",
    2,
    7,
    {"orders": 9, "errors": 1},
    {"stage": 4.0, "decide": 1.0, "apply": 3.0, "publish": 0.5},
    0.25,
    applied={"orders": (0.0, 2.0), "errors": (0.5, 3.0)},
)


def made(*events: Event, error: BaseException | None = None) -> list[Any]:
    """The spans of a run with these events; each happened a hundred seconds after the one before."""
    exporter = InMemorySpanExporter()
    watcher = Spans("shop", "etl", exporter, pytest.fail, "here")
    watcher.begin(900.0)
    for number, event in enumerate(events, 1):
        watcher.take(900.0 + 100 * number, event)
    watcher.end(2000.0, error, 1.0)
    assert watcher.lost() == 0
    return list(exporter.get_finished_spans())


def times(span: Any) -> tuple[float, float]:
    return span.start_time / SECOND, span.end_time / SECOND


def test_an_epoch_is_a_trace_with_its_steps_one_after_the_other() -> None:
    found = made(PUBLISHED)
    assert {s.name: times(s) for s in found if s.name not in ("apply sink", "run")} == {
        "epoch": (991.5, 1000.0),
        "stage": (991.5, 995.5),
        "decide": (995.5, 996.5),
        "apply": (996.5, 999.5),
        "publish": (999.5, 1000.0),
    }
    by_name = {s.name: s for s in found}
    root, run, apply = by_name["epoch"], by_name["run"], by_name["apply"]
    assert root.parent is None
    assert [link.context.span_id for link in root.links] == [run.context.span_id]
    assert root.context.trace_id != run.context.trace_id
    assert {s.context.trace_id for s in found if s is not run} == {root.context.trace_id}
    assert {s.parent.span_id for s in found if s.name in ("stage", "decide", "apply", "publish")} == {
        root.context.span_id
    }
    sinks = {s.attributes["anabranch.sink"]: s for s in found if s.name == "apply sink"}
    assert {name: times(s) for name, s in sinks.items()} == {"orders": (996.5, 998.5), "errors": (997.0, 999.5)}
    assert {s.parent.span_id for s in sinks.values()} == {apply.context.span_id}
    assert sinks["orders"].attributes["anabranch.rows"] == 9
    assert dict(root.attributes) == {
        "anabranch.pipeline": "shop",
        "anabranch.channel": "requests",
        "anabranch.generation": 2,
        "anabranch.epoch": 7,
        "anabranch.rows": 10,
        "anabranch.window_seconds": 0.25,
    }
    assert root.resource.attributes["service.name"] == "etl"


def test_every_epoch_is_a_trace_of_its_own() -> None:
    found = [s for s in made(PUBLISHED, PUBLISHED) if s.name == "epoch"]
    assert len({s.context.trace_id for s in found}) == 2


def test_an_epoch_without_times() -> None:
    found = {s.name: s for s in made(EpochPublished("requests", 1, 0, {}))}
    assert {*found} == {"run", "epoch"}
    assert times(found["epoch"]) == (1000.0, 1000.0)


def test_what_went_wrong_is_in_the_span_of_the_run() -> None:
    keep_hidden("pw-2718")
    events = EpochDiscarded("requests", 4, "why pw-2718"), ChannelFailed("requests", "SINK_DOWN", "no answer")
    (run,) = made(*events, error=SinkError("SINK_DOWN", "no answer of pw-2718", hint="wait"))
    assert times(run) == (900.0, 2000.0)
    assert [e.name for e in run.events] == ["epoch_discarded", "channel_failed"]
    assert "***" in run.events[0].attributes["message"]
    assert (run.status.status_code.name, "pw-2718" in run.status.description) == ("ERROR", False)


def test_a_run_that_went_well_says_so() -> None:
    (run,) = made()
    assert run.status.status_code.name == "UNSET"


def run_to(tmp_path: Path, endpoint: str, epochs: int = 2) -> list[NotSent]:
    heard: list[Event] = []
    lake = Lake(tmp_path, f'spans: {{endpoint: "{endpoint}", service: etl}}\n')
    with attached(lake.project, heard.append) as listen:
        for _ in range(epochs):
            listen(PUBLISHED)
    assert [e for e in heard if not isinstance(e, NotSent)] == [PUBLISHED] * epochs
    return [e for e in heard if isinstance(e, NotSent)]


def test_to_a_real_collector(tmp_path: Path) -> None:
    with Collector() as collector:
        told = run_to(tmp_path, collector.url)
        assert told == []
        assert {*collector.paths} == {"/v1/traces"}
        found = collector.spans
        assert sorted(s.name for s in found if s.name != "apply sink") == sorted(
            [*["epoch", "stage", "decide", "apply", "publish"] * 2, "run"]
        )
        run = next(s for s in found if s.name == "run")
        roots = [s for s in found if s.name == "epoch"]
        assert {link.span_id for s in roots for link in s.links} == {run.span_id}
        said = {a.key: a.value.int_value for a in roots[0].attributes}
        assert (said["anabranch.epoch"], said["anabranch.rows"]) == (7, 10)
        (resource,) = {
            a.value.string_value
            for r in collector.requests[0].resource_spans
            for a in r.resource.attributes
            if a.key == "service.name"
        }
        assert resource == "etl"


@pytest.mark.parametrize("answer", [500, 404, "hang"])
def test_a_collector_that_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], answer: Any
) -> None:
    """One that hangs is waited for as long as its own time-out says: had it none, nothing would be told of it."""
    monkeypatch.setattr(spans, "TIMEOUT", 0.5)
    with Collector(answer) as collector:
        told = run_to(tmp_path, collector.url)
    assert [t.lost for t in told] == [0, 2 * 7 + 1]
    assert f"{collector.url}/v1/traces did not take them" in told[0].message
    assert capfd.readouterr().err == ""


def test_nobody_listens_for_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "TIMEOUT", 0.5)
    with nobody() as address:
        told = run_to(tmp_path, address)
    assert [t.lost for t in told] == [0, 2 * 7 + 1]


def test_a_collector_that_comes_back_gets_what_it_missed(tmp_path: Path) -> None:
    heard: list[Event] = []
    with Collector(404) as collector:
        lake = Lake(tmp_path, f'spans: {{endpoint: "{collector.url}"}}\n')
        with attached(lake.project, heard.append) as listen:
            listen(PUBLISHED)
            end = time.monotonic() + 120
            while not any(isinstance(e, NotSent) for e in heard):
                assert time.monotonic() < end
                time.sleep(0.01)
            collector.answer = 200
        assert sorted(s.name for s in collector.spans if s.name != "apply sink") == sorted(
            ["epoch", "stage", "decide", "apply", "publish", "run"]
        )
    assert [e.lost for e in heard if isinstance(e, NotSent)] == [0]


def test_the_oldest_go_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(InMemorySpanExporter):
        def export(self, found: Any) -> Any:
            from opentelemetry.sdk.trace.export import SpanExportResult

            return SpanExportResult.FAILURE

    monkeypatch.setattr(spans, "MOST_WAITING", 10)
    complaints: list[Any] = []
    watcher = Spans("shop", "etl", Refusing(), complaints.append, "here")
    for _ in range(5):
        watcher.take(1000.0, PUBLISHED)
    assert watcher.lost() == 35
    assert len(watcher._done.spans) == 10
    assert complaints == ["here did not take them"]


def test_spans_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "anabranch.watch.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    told = run_to(tmp_path, "http://127.0.0.1:1")
    assert "pip install 'anabranch[spans]'" in told[0].message

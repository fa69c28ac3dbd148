"""Metrics: what Prometheus reads of a project, and that its counters never go back."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families
from ui_served import client
from watched_lake import Lake

from anabranch.cli.main import main
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.core.events import (
    ChannelFailed,
    ChannelProgress,
    EpochDiscarded,
    EpochPublished,
    NotSent,
    RunStarted,
    SourceProgress,
)
from anabranch.core.hidden import keep_hidden
from anabranch.core.places import ChannelParts, Judged
from anabranch.core.quality import FlowQuality
from anabranch.store.figures import count_epochs
from anabranch.store.history_file import connect_to_write
from anabranch.watch import metrics
from anabranch.watch.counting import Counting
from anabranch.watch.metrics import Meter

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(meter: Meter) -> Samples:
    """Every sample, by its name and labels, as Prometheus' own parser reads it."""
    text, kind = meter.text()
    assert kind.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((f"anabranch_{name}", tuple(sorted({"pipeline": "shop", **labels}.items()))))


def names(found: Samples) -> set[str]:
    return {name for name, _ in found}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def meter(lake: Lake) -> Iterator[Meter]:
    made = Meter(lake.project)
    yield made
    made.close()


QUALITY = (
    FlowQuality("orders", "web", 12, {"has_id": 2, "positive": 1}, dropped=1, quarantined=2, breaking=3),
    FlowQuality("orders", "", 9, {"one_per_id": 4}),
)
RULES = tuple(
    Judged("orders", rule, action)
    for rule, action in [("has_id", "quarantine"), ("positive", "drop"), ("one_per_id", "warn")]
)


def test_before_the_first_run(meter: Meter) -> None:
    found = scraped(meter)
    assert value(found, "run_up") == 0
    assert value(found, "readable", what="ledger") == 1
    assert value(found, "readable", what="history") == 1
    assert not {n for n in names(found) if n.endswith("_total")}


def test_rows_quality_dead_letters_and_the_commit_window(lake: Lake, meter: Meter) -> None:
    lake.tell(RunStarted("shop", ("requests",), (ChannelParts("requests", rules=RULES),)))
    before = time.time()
    lake.publish("requests", {"orders": 9, "orders_quarantine": 2}, quality=QUALITY, window=0.02, epochs=3)
    found = scraped(meter)
    assert value(found, "rows_written_total", channel="requests", dataset="orders") == 27
    assert value(found, "bytes_written_total", channel="requests", dataset="orders_quarantine") == 60
    assert value(found, "epochs_published_total", channel="requests") == 3
    assert value(found, "last_epoch", channel="requests") == 2
    assert value(found, "generation", channel="requests") == 1
    assert before - 1 < (value(found, "last_published_timestamp_seconds", channel="requests") or 0) < time.time() + 1
    assert value(found, "expectation_failed_total", dataset="orders", rule="has_id", action="quarantine") == 6
    assert value(found, "expectation_failed_total", dataset="orders", rule="positive", action="drop") == 3
    assert value(found, "expectation_failed_total", dataset="orders", rule="one_per_id", action="warn") == 12
    assert value(found, "dead_letters_total", dataset="orders") == 6
    assert value(found, "rows_dropped_total", dataset="orders") == 3
    assert value(found, "rows_judged_total", dataset="orders") == 36
    assert value(found, "commit_window_seconds_count", channel="requests") == 3
    assert value(found, "commit_window_seconds_sum", channel="requests") == pytest.approx(0.06)
    assert value(found, "commit_window_seconds_bucket", channel="requests", le="0.01") == 0
    assert value(found, "commit_window_seconds_bucket", channel="requests", le="0.025") == 3
    assert value(found, "commit_window_seconds_bucket", channel="requests", le="+Inf") == 3


def test_step_times_failures_and_runs_come_from_events(lake: Lake, meter: Meter) -> None:
    times = {"stage": 0.2, "apply": 0.03, "publish": 400.0}
    lake.tell(
        RunStarted("shop", ("requests",)),
        EpochPublished("requests", 1, 0, {"orders": 3}, times),
        EpochPublished("requests", 1, 1, {"orders": 3}, times),
        EpochDiscarded("requests", 2, "staging failed"),
        ChannelFailed("requests", "SINK_DOWN", "no answer"),
        NotSent("spans", "first"),
        NotSent("spans", "the rest", 7),
        outcome="failed",
    )
    found = scraped(meter)
    assert value(found, "step_seconds_count", channel="requests", step="stage") == 2
    assert value(found, "step_seconds_sum", channel="requests", step="apply") == pytest.approx(0.06)
    assert value(found, "step_seconds_bucket", channel="requests", step="stage", le="0.1") == 0
    assert value(found, "step_seconds_bucket", channel="requests", step="stage", le="0.25") == 2
    assert value(found, "step_seconds_bucket", channel="requests", step="publish", le="300.0") == 0
    assert value(found, "step_seconds_bucket", channel="requests", step="publish", le="+Inf") == 2
    assert value(found, "epochs_discarded_total", channel="requests") == 1
    assert value(found, "channel_failures_total", channel="requests", code="SINK_DOWN") == 1
    assert value(found, "runs_started_total") == 1
    assert value(found, "runs_ended_total", outcome="failed") == 1
    assert value(found, "not_sent_total", to="spans") == 7


def progress(rows: int, *sources: SourceProgress, rate: float | None = 5.0) -> ChannelProgress:
    return ChannelProgress("requests", 1, rows, rate, None, sources)


def test_lag_is_what_was_told_last(lake: Lake, meter: Meter) -> None:
    keep_hidden("s3cr3t-topic")
    lake.tell(
        progress(4, SourceProgress("kafka a", 4, 12, "offsets"), SourceProgress("gone", 4, 3, "offsets")),
        progress(
            6, SourceProgress("kafka a", 4, 2, "offsets"), SourceProgress("s3cr3t-topic", 1, 4, "files"), rate=None
        ),
    )
    found = scraped(meter)
    assert value(found, "lag_offsets", channel="requests", source="kafka a") == 2
    assert value(found, "lag_offsets", channel="requests", source="gone") is None
    assert value(found, "lag_files", channel="requests", source="***") == 4
    assert value(found, "rows_read_total", channel="requests") == 10
    assert value(found, "input_rows_per_second", channel="requests") is None
    lake.tell(progress(1, SourceProgress("kafka a", 4, 1, "offsets")))
    assert value(scraped(meter), "lag_files", channel="requests", source="***") is None


def test_a_run_at_work_is_up(lake: Lake, meter: Meter) -> None:
    lake.publish("requests", {"orders": 1})
    assert value(scraped(meter), "run_up") == 0
    with lake.opened() as opened:
        lease = opened.ledger.acquire(opened.pipeline.pipeline_id, "requests", seconds=60)
        found = scraped(meter)
        opened.ledger.release(lease)
    assert value(found, "run_up") == 1
    assert value(found, "channel_up", channel="requests") == 1
    assert value(scraped(meter), "channel_up", channel="requests") == 0


def test_an_epoch_that_is_open_is_not_the_newest(lake: Lake, meter: Meter) -> None:
    lake.publish("requests", {"orders": 1}, epochs=3)
    with lake.opened() as opened:
        pipeline = opened.pipeline.pipeline_id
        lease = opened.ledger.acquire(pipeline, "requests", seconds=60)
        opened.ledger.decide(
            lease, EpochKey(pipeline, "requests", 1, 3), [Receipt("orders", (), "{}")], offsets="{}", times={}
        )
        opened.ledger.release(lease)
    found = scraped(meter)
    assert value(found, "last_epoch", channel="requests") == 2
    assert value(found, "open_epochs", channel="requests") == 1
    assert value(found, "epochs_published_total", channel="requests") == 3
    begin_again(lake, "requests")
    found = scraped(meter)
    assert (value(found, "generation", channel="requests"), value(found, "last_epoch", channel="requests")) == (2, 2)


def counted(lake: Lake) -> None:
    """What a run does at its end."""
    watcher = Counting(lake.project)
    watcher.end(0.0, None, 1.0)


def forget(lake: Lake) -> None:
    """What retention does to ledger and history."""
    with lake.opened() as opened:
        for channel in opened.ledger.channels(opened.pipeline.pipeline_id):
            opened.ledger.prune(opened.pipeline.pipeline_id, channel.channel, published_before=time.time() + 1)
    with closing(connect_to_write(lake.history.path)) as connection:
        connection.execute("DELETE FROM events")
        connection.execute("DELETE FROM runs")


def begin_again(lake: Lake, channel: str) -> None:
    """What a reset does."""
    with lake.opened() as opened:
        lease = opened.ledger.acquire(opened.pipeline.pipeline_id, channel, seconds=60)
        opened.ledger.new_generation(lease)
        opened.ledger.release(lease)
    lake.next_epoch[channel] = 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.sampled_from(["a", "b"]), st.integers(0, 5)),
        st.tuples(st.sampled_from(["count", "count and forget", "serve again"]), st.none(), st.none()),
        st.tuples(st.just("reset"), st.sampled_from(["a", "b"]), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_counters_are_exact_and_never_go_back(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple]) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    meter, before, true = Meter(lake.project), dict[tuple, float](), {"a": 0, "b": 0}
    for what, channel, rows in steps:
        if what == "publish":
            lake.publish(channel, {f"of_{channel}": rows}, window=0.1 * rows, epochs=2)
            lake.tell(EpochPublished(channel, 1, 0, {}, {"stage": 0.1}))
            true[channel] += 2 * rows
        elif what == "reset" and channel in lake.next_epoch:
            begin_again(lake, channel)
        elif what.startswith("count"):
            counted(lake)
            if what.endswith("forget") and lake.history.path.exists():
                forget(lake)
        elif what == "serve again":
            meter.close()
            meter = Meter(lake.project)
        found = {k: v for k, v in scraped(meter).items() if k[0].endswith(("_total", "_count", "_sum", "_bucket"))}
        assert {k for k, v in before.items() if found.get(k, -1) < v} == set()
        before = found
        for name in lake.next_epoch:
            assert value(found, "rows_written_total", channel=name, dataset=f"of_{name}") == true[name]
    meter.close()


def test_epochs_are_counted_once_by_two_runs_at_once(lake: Lake, meter: Meter) -> None:
    lake.publish("requests", {"orders": 1}, epochs=40)
    threads = [threading.Thread(target=counted, args=[lake]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert value(scraped(meter), "rows_written_total", channel="requests", dataset="orders") == 40


def test_a_mark_that_moved_meanwhile_is_respected(lake: Lake, meter: Meter) -> None:
    lake.publish("requests", {"orders": 1}, epochs=3)
    with lake.opened() as opened, closing(connect_to_write(lake.history.path)) as connection:
        records = opened.ledger.published_after(opened.pipeline.pipeline_id, "requests", 0, -1, limit=10)
        assert (count_epochs(connection, "requests", records[:2]), count_epochs(connection, "requests", records)) == (
            2,
            1,
        )
    assert value(scraped(meter), "epochs_published_total", channel="requests") == 3


def test_a_look_reads_a_bounded_number_of_epochs(lake: Lake, meter: Meter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_MOST", 5)
    lake.publish("requests", {"orders": 1}, epochs=12)
    assert value(scraped(meter), "epochs_published_total", channel="requests") == 5
    counted(lake)
    assert value(scraped(meter), "epochs_published_total", channel="requests") == 12


def test_a_damaged_ledger_takes_its_counters_along_and_nothing_else(lake: Lake, meter: Meter) -> None:
    lake.publish("requests", {"orders": 1})
    lake.tell(EpochDiscarded("requests", 2, "why"))
    Path(lake.project.ledger).rename(lake.root / "aside")
    Path(lake.project.ledger).write_bytes(b"x" * 5000)
    found = scraped(meter)
    assert value(found, "readable", what="ledger") == 0
    assert value(found, "epochs_discarded_total", channel="requests") == 1
    assert "anabranch_rows_written_total" not in names(found)
    Path(lake.project.ledger).unlink()
    (lake.root / "aside").rename(lake.project.ledger)
    assert value(scraped(meter), "rows_written_total", channel="requests", dataset="orders") == 1


def test_without_its_history_no_counter_is_less_than_it_was(lake: Lake, meter: Meter) -> None:
    lake.publish("requests", {"orders": 1}, epochs=2)
    counted(lake)
    lake.publish("requests", {"orders": 1})
    content = lake.history.path.read_bytes()
    for beside in lake.history.path.parent.glob("history.db*"):
        beside.unlink()
    lake.history.path.write_bytes(b"hello" * 1000)
    found = scraped(meter)
    assert value(found, "readable", what="history") == 0
    assert not {n for n in names(found) if n.endswith("_total")}
    assert value(found, "last_epoch", channel="requests") == 2
    lake.history.path.write_bytes(content)
    assert value(scraped(meter), "rows_written_total", channel="requests", dataset="orders") == 3


def test_a_history_of_an_older_version(lake: Lake, meter: Meter) -> None:
    lake.publish("requests", {"orders": 1})
    lake.tell(EpochDiscarded("requests", 2, "why"))
    with sqlite3.connect(lake.history.path) as connection:
        connection.execute("DROP TABLE figures")
        connection.execute("PRAGMA user_version = 1")
    assert value(scraped(meter), "rows_written_total", channel="requests", dataset="orders") == 1
    lake.tell(EpochDiscarded("requests", 2, "why"))
    assert value(scraped(meter), "epochs_discarded_total", channel="requests") == 1


def test_served_beside_the_page(lake: Lake) -> None:
    lake.publish("requests", {"orders": 4})
    with client(lake.root) as page:
        answer = page.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert not answer.cookies
        samples = [s for f in text_string_to_metric_families(answer.text) for s in f.samples]
        assert [s.value for s in samples if s.name == "anabranch_rows_written_total"] == [4]
        asked = {"Accept": "application/openmetrics-text; version=1.0.0"}
        opened = page.get("/metrics", headers=asked)
        assert opened.headers["content-type"].startswith("application/openmetrics-text")
        assert {f.name for f in parse_open(opened.text)} >= {"anabranch_rows_written", "anabranch_run_up"}
        assert page.get("/metrics", headers={"Host": "evil.example"}).status_code == 421


def test_the_verb(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.publish("requests", {"orders": 4})
    assert main(["metrics", "--project", str(lake.root)]) == 0
    families = {f.name: f for f in text_string_to_metric_families(capsys.readouterr().out)}
    assert families["anabranch_rows_written"].samples[0].value == 4
    assert main(["metrics", "--json", "--project", str(lake.root)]) == 0
    document = json.loads(capsys.readouterr().out)
    labels = {"pipeline": "shop", "channel": "requests", "dataset": "orders"}
    assert {"name": "anabranch_rows_written_total", "labels": labels, "value": 4} in document["metrics"]


def test_without_the_package(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["metrics", "--project", str(lake.root)]) == 2
    assert "anabranch[metrics]" in capsys.readouterr().err
    with client(lake.root) as page:
        answer = page.get("/metrics")
    assert (answer.status_code, "anabranch[metrics]" in answer.text) == (501, True)

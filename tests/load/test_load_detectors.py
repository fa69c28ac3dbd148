"""Detectors and targets of alerts as they are written: what they become, and every fault at its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.schema import json_schema
from anabranch.core.alert_targets import Command, LogFile, Terminal, Webhook
from anabranch.core.detectors import Interruption, Lag, PartitionSkew, Period, Severity, Skew, Sla
from anabranch.errors import ProjectErrors
from anabranch.load.project import examine_project, read_project
from anabranch.load.python_files import examine_pipeline

FLOWS = """from anabranch import pipelines as dp


@dp.table
@dp.expect_or_quarantine("has_id", "id IS NOT NULL")
def orders():
    return spark.readStream.table("events")


@dp.append_flow(target="orders")
def more():
    return spark.readStream.table("others")
"""


def project(folder: Path, lines: str, flows: str = FLOWS) -> Path:
    (folder / "pipeline.py").write_text(flows)
    (folder / "anabranch.yml").write_text(f"name: shop\n{lines}")
    return folder


def declared(folder: Path, lines: str = "", flows: str = FLOWS) -> tuple[Any, ...]:
    loaded = examine_pipeline(read_project(project(folder, lines, flows)), with_spark=False)
    assert [p.message for p in loaded.problems] == []
    return loaded.pipeline.detectors


def test_every_kind_with_nothing_but_what_it_is_on(tmp_path: Path) -> None:
    lines = "detectors:\n" + "".join(f"- {{kind: {kind}, on: orders}}\n" for kind in ("interruption", "skew", "lag"))
    stopped, skew, lag = declared(tmp_path, lines)
    assert (stopped.name, stopped.on, stopped.within, stopped.lulls) == ("interruption of orders", "orders", None, True)
    assert stopped.where.line == 3
    assert (skew.over, skew.tolerance) == ("runs", 0.5)
    assert (lag.unit, lag.most, lag.percentile) == ("time", None, None)


def test_everything_that_may_be_said(tmp_path: Path) -> None:
    lines = """
detectors:
  - {kind: interruption, on: orders, within: 10 minutes, lulls: none, severity: error, name: dry}
  - kind: skew
    on: orders
    over: 1 hour
    tolerance: 30%
    at_least: 10
    since: 2026-01-01
    periods: [{from: 2026-11-20, until: 2026-12-01, tolerance: 300%}, {from: 2026-12-24, until: 2026-12-27}]
  - {kind: skew, on: orders, over: partitions, ratio: 1.5, within: 2 hours}
  - {kind: skew, on: more, over: source, at_least: 0}
  - {kind: lag, on: orders, unit: offsets, most: 500, percentile: 90, ask: {kafka.bootstrap.servers: "b:9092"}}
  - {kind: lag, on: more, most: 5 minutes}
  - {kind: sla, on: orders, processing: 1 minute, event_time: 5 minutes, rows: oldest, percentile: 95}
  - {kind: sla, on: more, processing: 2 hours, per: run}
  - {kind: interruption, on: orders_quarantine}
"""
    dry, skew, parts, source, lag, by_time, slow, late, run, aside = declared(tmp_path, lines)
    assert dry == Interruption("dry", "orders", dry.where, Severity.ERROR, 600.0, lulls=False)
    assert isinstance(skew, Skew)
    assert (skew.over, skew.tolerance, skew.at_least, skew.since) == (3600.0, 0.3, 10, 1767225600.0)
    assert skew.periods == (Period(1795132800.0, 1796083200.0, 3.0), Period(1798070400.0, 1798329600.0, None))
    assert isinstance(parts, PartitionSkew)
    assert (parts.of, parts.ratio, parts.within, parts.at_least) == ("partitions", 1.5, 7200.0, 100)
    assert (source.of, source.at_least, source.on) == ("source", 0, "more")
    assert isinstance(lag, Lag)
    assert (lag.most, lag.percentile, lag.ask) == (500.0, 90.0, {"kafka.bootstrap.servers": "b:9092"})
    assert (by_time.unit, by_time.most) == ("time", 300.0)
    assert isinstance(slow, Sla)
    assert (slow.name, slow.measure, slow.promise) == ("sla of orders (processing)", "processing", 60.0)
    assert (late.name, late.measure, late.rows, late.percentile) == (
        "sla of orders (event time)",
        "event_time",
        "oldest",
        95.0,
    )
    assert (run.per, run.name) == ("run", "sla of more")
    assert aside.on == "orders_quarantine"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{kind: lagg, on: orders}", "must be 'interruption', 'skew', 'lag' or 'sla'"),
        ("{kind: lag}", "detectors.0.on: missing field"),
        ("{kind: lag, on: orders, mots: 5}", "unknown field"),
        ("{kind: lag, on: orders, within: 5 minutes}", "has no meaning for lag"),
        ("{kind: lag, on: orders, unit: offsets}", "how many offsets may wait"),
        ("{kind: lag, on: orders, unit: offsets, most: 5 minutes}", "must be a number of offsets"),
        ("{kind: lag, on: orders, most: 500}", "must be a duration"),
        ("{kind: lag, on: orders, most: -1, unit: offsets}", "must not be negative"),
        ("{kind: lag, on: orders, most: .nan, unit: offsets}", "must be a number"),
        ("{kind: lag, on: orders, percentile: 0}", "more than 0 and at most 100"),
        ("{kind: lag, on: orders, percentile: 101}", "more than 0 and at most 100"),
        ("{kind: lag, on: orders, percentile: true}", "must be a number"),
        ("{kind: interruption, on: orders, within: 0 seconds}", "must be longer than nothing"),
        ("{kind: interruption, on: orders, within: 10}", '"10" has no unit'),
        ("{kind: interruption, on: orders, lulls: maybe}", "must be allowed or none"),
        ("{kind: interruption, on: orders, severity: bad}", "must be 'warn' or 'error'"),
        ("{kind: skew, on: orders, tolerance: 0}", "must be more than nothing"),
        ("{kind: skew, on: orders, tolerance: lots}", "must be a number"),
        ("{kind: skew, on: orders, over: 5 seconds}", "at least a minute"),
        ("{kind: skew, on: orders, over: moons}", "must be runs, epochs"),
        ("{kind: skew, on: orders, ratio: 0.5}", "has no meaning with over: runs"),
        ("{kind: skew, on: orders, over: partitions, tolerance: 5%}", "has no meaning with over: partitions"),
        ("{kind: skew, on: orders, since: yesterday}", '"yesterday" is no date'),
        ("{kind: skew, on: orders, periods: [{from: 2026-02-01, until: 2026-01-01}]}", "ends before it begins"),
        ("{kind: skew, on: orders, at_least: -5}", "greater than or equal to 0"),
        ("{kind: sla, on: orders}", "nothing is promised"),
        ("{kind: sla, on: orders, processing: 5 minutes, rows: oldest}", "without event_time"),
        ("{kind: sla, on: orders, event_time: 5 minutes, per: run}", "must be epoch for event_time"),
    ],
)
def test_faults_are_told_at_their_line(tmp_path: Path, entry: str, message: str) -> None:
    found = examine_project(project(tmp_path, f"storage: lake\ndetectors:\n  - {entry}\n")).problems
    assert [message in p.message for p in found] == [True], [p.message for p in found]
    assert found[0].where is not None
    assert (Path(found[0].where.file).name, found[0].where.line) == ("anabranch.yml", 4)
    assert found[0].hint


@pytest.mark.parametrize(
    ("lines", "code", "line"),
    [
        ("detectors:\n- {kind: lag, on: ordes}\n", "DETECTOR_ON_NOTHING", 3),
        ("detectors:\n- {kind: lag, on: orders}\n- {kind: lag, on: orders}\n", "PROJECT_DECLARED_TWICE", 4),
    ],
)
def test_what_is_on_nothing_or_there_twice(tmp_path: Path, lines: str, code: str, line: int) -> None:
    loaded = examine_pipeline(read_project(project(tmp_path, lines)), with_spark=False)
    (found,) = loaded.problems
    assert (found.code, found.where and found.where.line) == (code, line)
    assert found.hint


def test_in_python_by_the_same_keys(tmp_path: Path) -> None:
    more = (
        '\ndp.detect("lag", on="orders", unit="offsets", most=500)\n\ndp.detect("interruption", "more", lulls="none")\n'
    )
    lag, stopped = declared(tmp_path, flows=FLOWS + more)
    assert (lag.most, lag.where.line, Path(lag.where.file).name) == (500.0, 14, "pipeline.py")
    assert (stopped.on, stopped.lulls) == ("more", False)


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("dp.detect()", "PROJECT_MISSING_ARGUMENT", "kind is missing"),
        ('dp.detect("lag")', "PROJECT_MISSING_ARGUMENT", "on is missing"),
        ('dp.detect("lag", on="orders", limit=5)', "PROJECT_UNKNOWN_ARGUMENT", '"limit"'),
        ('dp.detect("lag", on="orders", most=[5])', "PROJECT_BAD_ARGUMENT", "most: must be a number"),
        ('dp.detect("sla", on="orders", within="5 s")', "PROJECT_BAD_ARGUMENT", "within: has no meaning for sla"),
        ('dp.detect("lag", on="nothing")', "DETECTOR_ON_NOTHING", "which nothing declares"),
    ],
)
def test_faults_in_python(tmp_path: Path, call: str, code: str, message: str) -> None:
    loaded = examine_pipeline(read_project(project(tmp_path, "", f"{FLOWS}\n\n{call}\n")), with_spark=False)
    assert (code, True) in [(p.code, message in p.message) for p in loaded.problems]
    assert {p.where and p.where.line for p in loaded.problems} == {15}


def test_targets(tmp_path: Path) -> None:
    lines = """alerts:
  - to: terminal
  - {to: log, path: logs/alerts.log, least: error}
  - {to: webhook, url: "https://h/${env:HOOK}", headers: {X-Team: ops}, timeout: 3 seconds}
  - {to: webhook, url: "https://other/", name: pager}
  - {to: webhook, url: "https://third/"}
  - {to: command, command: [notify-send, -u, critical]}
"""
    found = read_project(project(tmp_path, lines)).alerts
    assert [t.name for t in found] == ["terminal", "log", "webhook", "pager", "webhook-2", "command"]
    terminal, log, hook, *_, command = found
    assert isinstance(terminal, Terminal)
    assert isinstance(log, LogFile)
    assert (log.path, log.least) == (str(tmp_path / "logs/alerts.log"), Severity.ERROR)
    assert isinstance(hook, Webhook)
    assert (hook.url, hook.headers, hook.timeout) == ("https://h/${env:HOOK}", {"X-Team": "ops"}, 3.0)
    assert isinstance(command, Command)
    assert command.words == ("notify-send", "-u", "critical")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{to: pigeon}", "must be 'terminal', 'log', 'webhook' or 'command'"),
        ("{to: webhook}", "url: missing field"),
        ("{to: webhook, url: example.com}", "is no address"),
        ("{to: log, path: a, url: b}", "has no meaning for log"),
        ("{to: command, command: []}", "at least 1"),
        ("{to: command, command: rm -rf}", "must be a list"),
        ("{to: terminal, colour: red}", "unknown field"),
    ],
)
def test_faults_of_targets(tmp_path: Path, entry: str, message: str) -> None:
    with pytest.raises(ProjectErrors) as told:
        read_project(project(tmp_path, f"alerts:\n  - {entry}\n"))
    (found,) = told.value.problems
    assert message in found.message
    assert found.where is not None
    assert found.where.line == 3


def test_two_targets_of_one_name(tmp_path: Path) -> None:
    lines = "alerts:\n- {to: terminal, name: a}\n- {to: log, path: x, name: a}\n"
    assert {p.code for p in examine_project(project(tmp_path, lines)).problems} == {"PROJECT_DECLARED_TWICE"}


def test_editors_know_the_keys() -> None:
    keys = json_schema()["$defs"]["DetectorSpec"]["properties"]
    assert {"on", "kind", "within", "most", "processing"} <= set(keys)

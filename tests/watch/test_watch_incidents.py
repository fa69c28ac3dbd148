"""Incidents open once and close once, whoever watches and however often; targets are told, or told later."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from webhook_receiver import Receiver

from anabranch.core.alert_targets import Command, LogFile, Target, Terminal, Webhook
from anabranch.core.detectors import Detector, Finding, Interruption, Judged, Severity
from anabranch.core.where import Where
from anabranch.errors import StateError
from anabranch.watch.alerts import Refused, deliver
from anabranch.watch.incidents import CLAIM, Incidents

HERE = Where("anabranch.yml", 7)
ORDERS = Interruption("orders stopped", "orders", HERE)
BAD = Judged(Finding("no rows", 700.0, 600.0, {"reason": "died"}))
GOOD = Judged()
UNKNOWN = Judged(unknown="nobody tells")
DAY = 86400.0


@dataclass
class Desk:
    """Somebody who watches one detector."""

    path: Path
    targets: Sequence[Target] = (Terminal(),)
    shown: list[dict[str, Any]] = field(default_factory=list)

    @property
    def incidents(self) -> Incidents:
        return Incidents(self.path, "shop")

    def look(self, judged: Judged, now: float, detector: Detector = ORDERS) -> list[Refused]:
        self.incidents.settle([detector], lambda *_: judged, self.targets, now, 30 * DAY)
        return self.deliver()

    def deliver(self) -> list[Refused]:
        return deliver(self.incidents, self.targets, self.path.parent, self.shown.append)

    @property
    def phases(self) -> list[str]:
        return [alert["alert"] for alert in self.shown]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "history.db")


def test_one_alert_when_it_begins_and_one_when_it_ends(desk: Desk) -> None:
    now = time.time()
    for step, judged in enumerate([GOOD, BAD, BAD, UNKNOWN, BAD, GOOD, GOOD, UNKNOWN]):
        desk.look(judged, now + step)
    assert desk.phases == ["opened", "closed"]
    (found,) = desk.incidents.recent()
    assert (found.opened, found.seen, found.closed) == (now + 1, now + 4, now + 5)
    assert desk.shown[0]["facts"] == {"reason": "died"}
    assert desk.shown[1]["ending"] == "it is over"


def test_what_is_not_known_neither_opens_nor_closes(desk: Desk) -> None:
    desk.look(UNKNOWN, time.time())
    assert desk.incidents.open() == []
    desk.look(BAD, time.time())
    desk.look(UNKNOWN, time.time())
    assert len(desk.incidents.open()) == 1


def test_a_watcher_that_starts_again_does_not_alert_again(desk: Desk) -> None:
    desk.look(BAD, time.time())
    again = Desk(desk.path)
    again.look(BAD, time.time())
    assert (desk.phases, again.phases) == (["opened"], [])
    assert [i.message for i in again.incidents.open()] == ["no rows"]


def test_a_look_that_is_older_than_what_is_written_changes_nothing(desk: Desk) -> None:
    now = time.time()
    desk.look(BAD, now)
    Desk(desk.path).look(GOOD, now - 1)
    assert len(desk.incidents.open()) == 1


def test_notes_are_handed_to_the_next_look(desk: Desk) -> None:
    got: list[Mapping[str, Any]] = []

    def judge(_: Detector, note: Mapping[str, Any]) -> Judged:
        got.append(note)
        return Judged(note={"count": note.get("count", 0) + 1})

    for step in range(3):
        desk.incidents.settle([ORDERS], judge, (), 100.0 + step, DAY)
    assert got == [{}, {"count": 1}, {"count": 2}]


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([BAD, GOOD, UNKNOWN])), max_size=25))
def test_every_incident_is_told_once_whoever_looks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Judged]]
) -> None:
    """Three watchers in any order see the same: as many openings as the state went from good to bad."""
    path = tmp_path_factory.mktemp("desk") / "history.db"
    desks, now = [Desk(path) for _ in range(3)], time.time()
    opened = closed = 0
    is_open = False
    for step, (who, judged) in enumerate(steps):
        desks[who].look(judged, now + step)
        if judged is BAD and not is_open:
            opened, is_open = opened + 1, True
        elif judged is GOOD and is_open:
            closed, is_open = closed + 1, False
    told = [phase for each in desks for phase in each.phases]
    assert (told.count("opened"), told.count("closed")) == (opened, closed)
    assert len(Incidents(path, "shop").open()) == is_open


def watch_at_once(path: str, log: str) -> None:
    """What a process of its own does: it watches once it is told to."""
    desk = Desk(Path(path), [LogFile("log", log)])
    print("ready", flush=True)
    sys.stdin.readline()
    for step in range(10):
        desk.look(BAD if step < 9 else GOOD, time.time())


def test_two_processes_at_once_tell_of_an_incident_once(tmp_path: Path) -> None:
    log = tmp_path / "alerts.log"
    command = [sys.executable, __file__, str(tmp_path / "history.db"), str(log)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    for each in both:
        assert each.stdout
        assert each.stdout.readline() == "ready\n"
    for each in both:
        assert each.stdin
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in both:
        each.communicate(timeout=240)
    assert [each.returncode for each in both] == [0, 0]
    Desk(tmp_path / "history.db", [LogFile("log", str(log))]).deliver()  # an end that waited for its begin to be told
    phases: dict[str, list[str]] = {}
    for line in log.read_text().splitlines():
        incident, _, phase = json.loads(line)["key"].rpartition("/")
        phases.setdefault(incident, []).append(phase)
    # One may end while the other still finds something: that is another incident, told once as well.
    assert phases
    assert {*map(tuple, phases.values())} == {("opened", "closed")}


def test_threads_that_deliver_at_once_send_each_alert_once(tmp_path: Path) -> None:
    with Receiver() as receiver:
        target = Webhook("hook", receiver.url)
        desk = Desk(tmp_path / "history.db", [target])
        desk.incidents.settle([ORDERS], lambda *_: BAD, [target], time.time(), DAY)
        threads = [threading.Thread(target=Desk(desk.path, [target]).deliver) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(receiver.requests) == 1


# Targets


def test_a_webhook_gets_json_and_its_secrets_are_shown_to_nobody(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCH_TOKEN", "orchid-4711")
    with Receiver() as receiver:
        desk.targets = [Webhook("hook", receiver.url, {"Authorization": "Bearer ${env:WATCH_TOKEN}"})]
        now = time.time()
        desk.look(Judged(Finding("it said orchid-4711", 1.0, 0.0)), now)
        desk.look(GOOD, time.time())
        (_, headers, body), (_, second, end) = receiver.requests
    assert headers["Authorization"] == "Bearer orchid-4711"
    keys = headers["Idempotency-Key"], second["Idempotency-Key"]
    assert keys == (f"shop/1-{int(now)}/opened", f"shop/1-{int(now)}/closed")
    assert (body["alert"], body["on"], body["severity"], body["where"]) == (
        "opened",
        "orders",
        "warn",
        "anabranch.yml:7",
    )
    assert end["closed"]
    assert "orchid" not in json.dumps(body["facts"])
    assert "orchid" not in end["message"]  # by then it was known to be one


def test_a_webhook_that_is_busy_is_tried_again_at_once(desk: Desk) -> None:
    with Receiver(answers=[503]) as receiver:
        desk.targets = [Webhook("hook", receiver.url)]
        assert desk.look(BAD, time.time()) == []
        assert len(receiver.requests) == 2


def test_a_target_that_fails_is_told_next_time_and_the_others_are_told_now(desk: Desk, tmp_path: Path) -> None:
    log = tmp_path / "deep" / "alerts.log"
    with Receiver(always=403) as receiver:
        desk.targets = [Webhook("hook", receiver.url), LogFile("log", str(log)), Terminal()]
        (refused,) = desk.look(BAD, time.time())
        assert refused.target == "hook"
        assert "it answered 403" in refused.reason
        desk.look(GOOD, time.time())  # the end has to wait for the begin
        assert {body["alert"] for _, _, body in receiver.requests} == {"opened"}
        assert [json.loads(line)["alert"] for line in log.read_text().splitlines()] == ["opened", "closed"]
        assert desk.phases == ["opened", "closed"]
        receiver.always = 200
        assert desk.deliver() == []
        assert [body["alert"] for _, _, body in receiver.requests][-2:] == ["opened", "closed"]
        assert desk.deliver() == []
        assert len(receiver.taken) == 2


def test_a_webhook_that_hangs_keeps_nothing_from_others_for_long(desk: Desk) -> None:
    with Receiver(always="hang") as receiver:
        desk.targets = [Webhook("hook", receiver.url, timeout=0.1), Terminal()]
        (refused,) = desk.look(BAD, time.time())
        assert "no answer" in refused.reason
        assert desk.phases == ["opened"]


def test_a_command_reads_the_alert_and_no_shell_looks_at_its_words(desk: Desk, tmp_path: Path) -> None:
    out, hostile = tmp_path / "out.json", "$(touch owned); `touch owned` > owned"
    code = "import sys, json, pathlib; p = pathlib.Path(sys.argv[1]); p.write_text(sys.stdin.read() + sys.argv[2])"
    desk.targets = [Command("page", (sys.executable, "-c", code, str(out), hostile))]
    assert desk.look(BAD, time.time()) == []
    record, _, rest = out.read_text().partition("$")
    assert json.loads(record)["detector"] == "orders stopped"
    assert f"${rest}" == hostile
    assert not list(tmp_path.glob("owned"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((sys.executable, "-c", "import sys; sys.exit('no pager')"), "it ended with 1: no pager"),
        ((sys.executable, "-c", "import time; time.sleep(60)"), "it was not done after 0.2 seconds"),
        (("/no/such/program",), "it cannot be started: No such file or directory"),
    ],
)
def test_a_command_that_fails(desk: Desk, words: tuple[str, ...], reason: str) -> None:
    timeout = 0.2 if "sleep" in words[-1] else 120.0
    desk.targets = [Command("page", words, timeout)]
    (refused,) = desk.look(BAD, time.time())
    assert reason in refused.reason
    assert len(desk.incidents.waiting(time.time())) == 1


def test_targets_may_want_the_worst_only(desk: Desk) -> None:
    desk.targets = [Terminal(least=Severity.ERROR)]
    desk.look(BAD, time.time())
    desk.look(GOOD, time.time())
    assert desk.phases == []
    worse = Interruption("worse", "orders", HERE, Severity.ERROR)
    desk.look(BAD, time.time(), worse)
    assert desk.phases == ["opened"]


def test_what_a_dead_watcher_had_claimed_is_told_by_another_after_a_while(desk: Desk) -> None:
    now = time.time()
    desk.incidents.settle([ORDERS], lambda *_: BAD, desk.targets, now, DAY)
    (waiting,) = desk.incidents.waiting(now)
    assert desk.incidents.claim(waiting.alert, now)  # and then it is killed
    assert not desk.incidents.claim(waiting.alert, now + 1)
    assert desk.incidents.waiting(now + 1) == []
    later = now + CLAIM + 1
    assert [w.alert for w in desk.incidents.waiting(later)] == [waiting.alert]
    assert desk.incidents.claim(waiting.alert, later)


def test_alerts_that_nobody_took_for_a_day_are_no_news_and_old_incidents_are_forgotten(desk: Desk) -> None:
    now = time.time()
    desk.incidents.settle([ORDERS], lambda *_: BAD, desk.targets, now, DAY)
    assert desk.incidents.waiting(now + DAY + 1) == []
    desk.incidents.settle([ORDERS], lambda *_: GOOD, desk.targets, now + DAY, DAY)
    assert len(desk.incidents.recent()) == 1
    desk.incidents.settle([ORDERS], lambda *_: GOOD, desk.targets, now + 3 * DAY, DAY)
    assert desk.incidents.recent() == []


def test_reading_needs_no_watcher_and_a_folder_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    nowhere = Incidents(tmp_path / "none" / "history.db", "shop")
    assert (nowhere.open(), nowhere.path.parent.exists()) == ([], False)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StateError) as told:
        Incidents(tmp_path / "file" / "history.db", "shop").settle([ORDERS], lambda *_: BAD, (), 1.0, DAY)
    assert told.value.code == "INCIDENTS_NOT_WRITTEN"
    assert stat.S_ISREG((tmp_path / "file").stat().st_mode)


def test_a_judge_that_fails_leaves_everything_as_it_was(desk: Desk) -> None:
    desk.look(BAD, time.time())

    def judge(*_: Any) -> Judged:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        desk.incidents.settle([ORDERS], judge, (), time.time(), DAY)
    assert len(desk.incidents.open()) == 1


def test_a_history_that_others_write_to_keeps_its_tables(desk: Desk) -> None:
    from anabranch.store.history import History
    from anabranch.store.history_writer import HistoryWriter

    desk.look(BAD, time.time())
    writer = HistoryWriter(desk.path, "shop", keep_seconds=DAY, tell=pytest.fail)
    writer.close("done")
    assert [run.outcome for run in History(desk.path).runs()] == ["done"]
    assert len(desk.incidents.open()) == 1
    with sqlite3.connect(desk.path) as connection:
        assert connection.execute("SELECT count(*) FROM incidents").fetchone() == (1,)


if __name__ == "__main__":
    watch_at_once(*sys.argv[1:])

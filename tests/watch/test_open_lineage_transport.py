"""Ways to tell lineage that are broken in every way they can be: no run fails of it or waits for it."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from http_listener import nobody
from watched_lake import Lake
from webhook_receiver import Receiver

from anabranch.core.events import EpochPublished, Event, NotSent, RunStarted
from anabranch.core.places import ChannelParts
from anabranch.watch import attached as attaching
from anabranch.watch import beside, open_lineage_transport
from anabranch.watch.attached import attached
from anabranch.watch.open_lineage_transport import FileTransport, HttpTransport

STARTED = RunStarted("shop", ("requests",), (ChannelParts("requests"),))
EPOCHS = [EpochPublished("requests", 1, number, {"orders": 1}) for number in range(3)]
ALL = 2 + len(EPOCHS) + 2  # events of one run


def run(tmp_path: Path, said: str) -> list[NotSent]:
    """A run of three epochs whose lineage goes where the project file says: what was told."""
    heard: list[Event] = []
    lake = Lake(tmp_path, f"open_lineage: {said}\n")
    with attached(lake.project, heard.append) as listen:
        for event in (STARTED, *EPOCHS):
            listen(event)
    assert [e for e in heard if not isinstance(e, NotSent)] == [STARTED, *EPOCHS]
    return [e for e in heard if isinstance(e, NotSent)]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again soon."""
    monkeypatch.setattr(open_lineage_transport, "_LEAST", 0.02)


@pytest.fixture
def impatient(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a run one second is left for what waits, and all the rest for the thread to come to it."""
    monkeypatch.setattr(beside, "_A_MOMENT", attaching.PATIENCE - 1.0)


def received(receiver: Receiver) -> list[str]:
    return [body["eventType"] for _, _, body in receiver.requests]


def test_events_are_posted_in_their_order_with_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEAGE_TOKEN", "tulip-and-rose")
    with Receiver() as receiver:
        told = run(tmp_path, f'{{url: "{receiver.url}", token: "${{env:LINEAGE_TOKEN}}"}}')
        assert told == []
        assert received(receiver) == ["START", "START", *["RUNNING"] * 3, "COMPLETE", "COMPLETE"]
        assert {h["Authorization"] for _, h, _ in receiver.requests} == {"Bearer tulip-and-rose"}
        assert {h["Content-Type"] for _, h, _ in receiver.requests} == {"application/json"}


@pytest.mark.usefixtures("quick")
def test_a_server_that_fails_for_a_moment_gets_every_event_once(tmp_path: Path) -> None:
    with Receiver(answers=[500, 429]) as receiver:
        told = run(tmp_path, f'{{url: "{receiver.url}"}}')
        assert [t.lost for t in told] == [0]
        assert "answered 500" in told[0].message
        assert received(receiver)[2:] == ["START", "START", *["RUNNING"] * 3, "COMPLETE", "COMPLETE"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("answer", [500, "hang", "drip"])
def test_a_server_that_never_takes_one(tmp_path: Path, answer: Any) -> None:
    with Receiver(always=answer) as receiver:
        began = time.monotonic()
        told = run(tmp_path, f'{{url: "{receiver.url}"}}')
        assert time.monotonic() - began < 60  # an answer is waited for longer
    assert told[-1].lost == ALL
    assert len(told) <= 2  # a server that hangs is found out about after the run


@pytest.mark.usefixtures("quick")
def test_nobody_listens(tmp_path: Path) -> None:
    with nobody() as address:
        told = run(tmp_path, f'{{url: "{address}/"}}')
    assert "refused" in told[0].message
    assert [t.lost for t in told] == [0, ALL]


def test_an_answer_that_means_never_is_not_asked_for_again(tmp_path: Path) -> None:
    with Receiver(always=401) as receiver:
        told = run(tmp_path, f'{{url: "{receiver.url}"}}')
        assert len(receiver.requests) == ALL
    assert [t.lost for t in told] == [0, ALL]


def test_a_token_is_not_carried_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINEAGE_TOKEN", "tulip-and-rose")
    with Receiver() as elsewhere, Receiver(always=(307, {"Location": elsewhere.url})) as receiver:
        told = run(tmp_path, f'{{url: "{receiver.url}", token: "${{env:LINEAGE_TOKEN}}"}}')
        assert elsewhere.requests == []
    assert told[-1].lost == ALL


def test_a_secret_that_is_not_there(tmp_path: Path) -> None:
    told = run(tmp_path, '{url: "http://127.0.0.1:1/", token: "${env:NOT_SET_ANYWHERE}"}')
    assert "NOT_SET_ANYWHERE is not set" in told[0].message


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    told = run(tmp_path, "{file: /dev/full}")
    assert [t.lost for t in told] == [0, ALL]
    assert "No space left on device" in told[0].message


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    told = run(tmp_path, "{file: anabranch.yml/lineage.jsonl}")
    assert "anabranch.yml" in told[0].message


def test_a_line_that_was_torn_is_ended_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    transport = FileTransport(tmp_path / "a.jsonl", complaints.append)
    write = open_lineage_transport.os.write
    monkeypatch.setattr(open_lineage_transport.os, "write", lambda file, content: write(file, content[:5]))
    transport.send({"a": 1})
    assert (transport.lost(), [c.strerror for c in complaints]) == (1, ["No space left on device"])
    monkeypatch.setattr(open_lineage_transport.os, "write", write)
    transport.send({"b": 2})
    assert (tmp_path / "a.jsonl").read_text() == '{"a":\n{"b": 2}\n'


def test_when_too_many_wait_the_oldest_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_lineage_transport, "MOST_WAITING", 3)
    monkeypatch.setattr(open_lineage_transport, "_LEAST", 600.0)  # until it is closed
    complaints: list[Any] = []
    with Receiver(answers=[503]) as receiver:
        first = threading.Event()
        transport = HttpTransport(receiver.url, None, lambda why: (complaints.append(why), first.set()))
        transport.send({"n": 0})
        assert first.wait(120)
        monkeypatch.setattr(open_lineage_transport, "_LEAST", 0.02)
        for number in range(1, 10):
            transport.send({"n": number})
        transport.close(120.0)
        assert [body["n"] for _, _, body in receiver.requests[1:]] == [7, 8, 9]
    assert transport.lost() == 7
    assert len(complaints) == 1


class _Garbage(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.wfile.write(b"\x00\xff no HTTP\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 its name there
        """Say nothing."""


@pytest.mark.usefixtures("quick")
def test_a_server_that_speaks_something_else(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Garbage)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    told = run(tmp_path, json.dumps({"url": f"http://127.0.0.1:{server.server_address[1]}/"}))
    server.shutdown()
    server.server_close()
    assert told[-1].lost == ALL

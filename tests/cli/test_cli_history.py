"""`anabranch history`: runs and how they ended; what `status` adds of them."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli.main import main
from anabranch.core.events import ChannelProgress, EpochPublished, SourceProgress
from anabranch.engine.opened import open_project
from anabranch.load.project import read_project
from anabranch.store.history import History
from anabranch.store.history_writer import HistoryWriter
from anabranch.store.ledger import OutputRecord


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A project with a run that is done, one that failed and one that was killed."""
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "pipeline.py").touch()
    monkeypatch.chdir(tmp_path)
    history = History.of(tmp_path / "lake")
    done = HistoryWriter(history.path, "shop", keep_seconds=1e9, tell=pytest.fail)
    done.put(EpochPublished("requests", 1, 0, {"orders": 10}))
    source = SourceProgress("Kafka", 10, 7, "offsets")
    done.put(ChannelProgress("requests", 0, 10, 4.0, 5.4, (source,)))
    done.close("done")
    failed = HistoryWriter(history.path, "shop", keep_seconds=1e9, tell=pytest.fail, selection="--refresh orders")
    failed.close("failed", "SINK_DOWN", "no answer")
    code = (
        "import os, signal, sys, time\nfrom pathlib import Path\n"
        "from anabranch.store.history import History\nfrom anabranch.store.history_writer import HistoryWriter\n"
        "path = Path(sys.argv[1])\nwriter = HistoryWriter(path, 'shop', keep_seconds=1e9, tell=print)\n"
        "while not History(path).run(writer.run):\n    time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(history.path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    return history


@pytest.mark.usefixtures("shop")
def test_runs_newest_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["outcome"], r["epochs"], r["rows"], r["code"]) for r in rows] == [
        ("died", 0, 0, None),
        ("failed", 0, 0, "SINK_DOWN"),
        ("done", 1, 10, None),
    ]
    assert main(["history"]) == 0
    head, died, failed, _ = capsys.readouterr().out.splitlines()
    assert head.split() == ["run", "started", "outcome", "seconds", "epochs", "rows", "selection", "code", "message"]
    assert died.split()[0] == rows[0]["run"][:8]
    assert failed.endswith("--refresh orders  SINK_DOWN  no answer")


@pytest.mark.usefixtures("shop")
def test_only_those_that_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--failed", "--json", "-n", "1"]) == 0
    assert [r["outcome"] for r in json.loads(capsys.readouterr().out)] == ["died"]


def test_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "pipeline.py").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["history"]) == 0
    assert capsys.readouterr().out == "no runs yet\n"


def test_status_says_how_the_last_run_ended_and_how_fast_channels_read(
    shop: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_project(read_project(tmp_path), create=True) as opened:
        pipeline = opened.pipeline.pipeline_id
        opened.ledger.ensure_channel(pipeline, "requests", [OutputRecord("orders", "delta", "orders")])
    assert main(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["last_run"]["outcome"] == "died"
    assert [(c["rows_per_second"], c["lag"]) for c in document["channels"]] == [(5, "7 offsets")]
    shop.path.write_bytes(b"hello" * 2000)
    assert main(["status"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("channel   running")
    assert "(HISTORY_DAMAGED)" in captured.err


def test_a_run_of_another_machine_counts_as_dead_when_it_was_not_seen_for_long(shop: History) -> None:
    elsewhere = json.dumps({"host": "other", "boot": "b", "pid": 1, "started": "2"})
    with sqlite3.connect(shop.path) as connection:
        connection.execute("UPDATE runs SET process = ?, seen = seen + 1000 WHERE ended IS NULL", (elsewhere,))
    connection.close()
    assert shop.runs()[0].outcome == "running"
    with sqlite3.connect(shop.path) as connection:
        connection.execute("UPDATE runs SET seen = seen - 1100 WHERE ended IS NULL")
    connection.close()
    assert shop.runs()[0].outcome == "died"

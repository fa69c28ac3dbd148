"""What rules found, shown to people and to programs: while a run goes on, and from the ledger afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.cli.main import main
from anabranch.cli.output import JsonOutput, TextOutput
from anabranch.cli.progress import progress
from anabranch.core.epoch import EpochKey
from anabranch.core.events import EpochPublished, RunFinished
from anabranch.core.quality import FlowQuality
from anabranch.engine.commit import apply, decide, publish
from anabranch.engine.opened import open_project
from anabranch.load.project import read_project
from anabranch.store.ledger import OutputRecord
from memory_sink import MemorySink, MemoryTable

BAD = (
    FlowQuality("orders", "app", 40, {"positive": 0, "has_id": 1}, 1, breaking=1),
    FlowQuality("orders", "web", 60, {"positive": 2, "has_id": 0}, 0, 2, breaking=2),
    FlowQuality("users", "users", 7, {"has_name": 0}),
    FlowQuality("users", "", 7, {"one_per_id": 3}),
)
WORDS = (
    "orders: 3 of 100 rows broke a rule (positive 2, has_id 1), 1 dropped, 2 quarantined",
    "users: 3 repeat a key (one_per_id 3)",
)
GOOD = (FlowQuality("orders", "web", 5, {"positive": 0}),)


def published(epoch: int, quality: tuple[FlowQuality, ...]) -> EpochPublished:
    return EpochPublished("shop", 1, epoch, {"orders": 97}, {}, 0.0, quality)


def test_an_epoch_tells_which_rules_were_broken_and_a_run_what_was_kept_out(capsys: pytest.CaptureFixture[str]) -> None:
    listen = progress(TextOutput())
    for event in (published(0, BAD), published(1, GOOD), published(2, BAD), RunFinished("shop", 3, 291, 1.5)):
        listen(event)
    first, good, again, end, *summary = capsys.readouterr().err.splitlines()
    assert first == "shop  epoch 0  published  97 rows -> orders 97  " + "  ".join(WORDS)
    assert good == "shop  epoch 1  published  97 rows -> orders 97"
    assert again.endswith("  ".join(WORDS))
    assert end == "shop  done  3 epochs  291 rows  1.50 s  2 dropped, 4 quarantined"
    assert summary[0].split("  ", 2)[1] == "written"
    assert summary[0].endswith("orders           291  6 of 205 broke a rule, 2 dropped, 4 quarantined")


def test_programs_get_the_counts_too(capsys: pytest.CaptureFixture[str]) -> None:
    listen = progress(JsonOutput())
    for event in (published(0, BAD), RunFinished("shop", 1, 97, 1.5)):
        listen(event)
    epoch, end = map(json.loads, capsys.readouterr().out.splitlines())
    assert epoch["quality"][1]["broken"] == {"positive": 2, "has_id": 0}
    assert (end["rows"], end["dropped"], end["quarantined"]) == (97, 1, 2)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with three published epochs; the rules of the first and the last were broken."""
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").touch()
    monkeypatch.chdir(tmp_path)
    with open_project(read_project(tmp_path), create=True) as opened:
        pipeline = opened.pipeline.pipeline_id
        opened.ledger.ensure_channel(pipeline, "shop", [OutputRecord("orders", "memory", "orders")])
        lease = opened.ledger.acquire(pipeline, "shop", seconds=60.0)
        sink = MemorySink("orders", MemoryTable())
        for number, quality in enumerate((BAD, GOOD, BAD)):
            key = EpochKey(pipeline, "shop", 1, number)
            receipt = sink.receipt(key, [sink.write(key, lease.token, range(97))])
            record = decide(opened.ledger, lease, key, [receipt], offsets=str(number), times={}, quality=quality)
            apply(opened.ledger, lease, record, {"orders": sink})
            publish(opened.ledger, lease, key, window=0.0, times={})
        opened.ledger.release(lease)
    return tmp_path


SUMS = [
    {
        "dataset": "orders",
        "rows": 205,
        "broke_a_rule": 6,
        "dropped": 2,
        "quarantined": 4,
        "by_rule": {"positive": 4, "has_id": 2},
    },
    {
        "dataset": "users",
        "rows": 14,
        "broke_a_rule": 0,
        "dropped": 0,
        "quarantined": 0,
        "by_rule": {"one_per_id": 6},
    },
]


@pytest.mark.usefixtures("shop")
def test_status_sums_up_the_last_epochs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quality"] == SUMS
    assert main(["status"]) == 0
    text = capsys.readouterr().out
    assert "rules, over the last 20 epochs of each channel\ndataset  rows  broke_a_rule  dropped  quarantined" in text
    assert 'orders    205             6        2            4  {"positive": 4, "has_id": 2}' in text


@pytest.mark.usefixtures("shop")
def test_epochs_say_what_each_of_them_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["epochs", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [[(q["dataset"], q["broke_a_rule"]) for q in row["quality"]] for row in rows] == [
        [("orders", 3), ("users", 0)],
        [("orders", 0)],
        [("orders", 3), ("users", 0)],
    ]
    assert main(["epochs"]) == 0
    head, newest, good, _ = capsys.readouterr().out.splitlines()
    assert head.split()[-1] == "broken"
    assert newest.endswith("; ".join(WORDS))
    assert good.endswith("-")

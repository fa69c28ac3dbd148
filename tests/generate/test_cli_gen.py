"""The command `gen`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch.cli.main import main
from anabranch.generate.entities import SHIPPING
from anabranch.generate.run import Made, Wanted, generate
from anabranch.generate.to_files import FolderTarget


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_inside_a_project_it_fills_the_landing_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "shop" / "deeper").mkdir(parents=True)
    (here / "shop" / "anabranch.yml").write_text("name: shop\n")
    assert main(["gen", "--rows", "1000", "-p", "shop/deeper"]) == 0
    said = capsys.readouterr()
    assert {p.name for p in (here / "shop" / "landing").iterdir()} == {e.name for e in SHIPPING}
    lines = said.out.splitlines()
    assert lines[0].split() == ["entity", "rows", "written", "files", "bytes"]
    assert [line.split()[0] for line in lines[1:]] == [e.name for e in SHIPPING]
    assert lines[-1].split()[:4] == ["shipment_scan_event", "1000", "1000", "1"]
    assert "--start 1000 goes on" in said.err


def test_json_has_the_counts_of_faults(capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "gen",
        "shipment_scan_event",
        "--out",
        "o",
        "--rows",
        "2000",
        "--faults",
        "malformed=0.1,skew=0.5",
        "--json",
    ]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    (entity,) = found["entities"]
    assert (found["where"], found["rows"], entity["rows"]) == ("o", 2000, 2000)
    assert set(entity["faults"]) == {"malformed", "skew"}
    texts = [t for p in Path("o/shipment_scan_event").glob("ship*.json") for t in p.read_text().splitlines()]
    assert sum(not t.endswith("]}") for t in texts) == entity["faults"]["malformed"] > 100


def test_the_same_command_again_changes_nothing_and_another_division_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["gen", "--out", "o", "--rows", "3000", "--files", "2"]
    assert main(command) == 0
    before = {p: p.read_bytes() for p in here.rglob("*.*")}
    assert main(command) == 0
    assert {p: p.read_bytes() for p in here.rglob("*.*")} == before
    assert main(["gen", "--out", "o", "--rows", "3000"]) == 2
    assert "GEN_ROWS_THERE_ALREADY" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in here.rglob("*.*")} == before
    assert main(["gen", "--out", "o", "--rows", "3000", "--start", "3000"]) == 0


def test_request_events_go_where_the_quickstart_reads(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "shop"]) == 0
    os.chdir("shop")
    assert main(["gen", "--shape", "requests", "--rows", "500"]) == 2
    assert "GEN_ROWS_THERE_ALREADY" in capsys.readouterr().err
    assert main(["gen", "--shape", "requests", "--rows", "500", "--start", "3000"]) == 0
    lines = [t for p in sorted(Path("landing").glob("*.json")) for t in p.read_text().splitlines()]
    assert [json.loads(t)["eventId"] for t in lines] == [f"evt-{n:010d}" for n in range(3_500)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["shipmet", "--out", "o"], 'did you mean "shipment"?'),
        (["request_event", "--out", "o"], "entities of medallion"),
        (["--shape", "request", "--out", "o"], 'did you mean "requests"?'),
        (["--rows", "0", "--out", "o"], "--rows from 1"),
        (["--rows", "-5", "--out", "o"], "--rows from 1"),
        (["--rows", "2000000000", "--out", "o"], "at most 1,000,000,000"),
        (["--start", "-1", "--out", "o"], "--start from 0"),
        (["--files", "0", "--out", "o"], "--files from 1"),
        (["--rows", "3", "--files", "4", "--out", "o"], "--files from 1"),
        (["--rate", "0", "--out", "o"], "more than 0"),
        (["--rate", "nan", "--out", "o"], "more than 0"),
        (["--seconds", "3", "--out", "o"], "goes with --rate"),
        (["--rate", "5", "--seconds", "inf", "--out", "o"], "more than 0"),
        (["--faults", "lat=0.1", "--out", "o"], 'did you mean "late"?'),
        (["--faults", "late", "--out", "o"], "for example late=0.01"),
        (["--faults", "late=1.5", "--out", "o"], "from 0 to 1"),
        (["--faults", "late=nan", "--out", "o"], "from 0 to 1"),
        (["--faults", "late=0.6,drift=0.6", "--out", "o"], "at most one of them"),
        (["--kafka", "localhost:1", "--out", "o"], "exclude each other"),
        (["--topic-prefix", "x", "--out", "o"], "--kafka"),
        ([], "--out FOLDER writes anywhere"),
        (["--out", "file"], "GEN_CANNOT_WRITE"),
        (["--out", "file/below"], "GEN_CANNOT_WRITE"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_cannot_be_is_refused_with_a_way_out(
    arguments: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "file").write_text("in the way")
    assert main(["gen", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert [p.name for p in here.iterdir()] == ["file"]


def test_at_a_rate_every_slice_waits_for_its_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    wanted = Wanted([e for e in SHIPPING if e.form == "lines"], rows=1_000, files=10, rate=100.0)
    made: dict[str, Made] = {}
    monkeypatch.setattr("anabranch.generate.run.time", SimpleNamespace(monotonic=lambda: 7.0))  # writing takes none
    generate(wanted, FolderTarget(here), made, wait=waits.append)
    assert waits == [float(number) for number in range(10)]
    assert made["shipment_scan_event"].files == 10


def test_an_interrupt_ends_what_goes_at_a_rate_with_whole_files(here: Path) -> None:
    command = [sys.executable, "-m", "anabranch.cli.main", "gen", "shipment_scan_event"]
    process = subprocess.Popen(
        [*command, "--out", "o", "--rate", "50", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        folder = here / "o" / "shipment_scan_event"
        while not (folder.is_dir() and any(folder.glob("*.json"))):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0
    found = json.loads(out)
    assert found["stopped"] is True
    written = [t for p in folder.iterdir() for t in p.read_text().splitlines()]
    assert len(written) == found["entities"][0]["written"] >= 50
    assert all(json.loads(t) for t in written)

"""What `doctor` finds on this machine and on broken ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.doctor import available_memory
from anabranch.cli.main import main


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def java(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that says it is 17, so that the test does not depend on the machine's."""
    path = here / "jdk" / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\necho 'openjdk version \"17.0.15\"' >&2\n")
    path.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(here / "jdk"))
    return path


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", "--json", *arguments])
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] == (code == 0)
    return code, {finding["check"]: finding for finding in answer["checks"]}


def test_a_machine_in_order_exits_0_and_jars_not_fetched_yet_are_a_warning(
    java: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = findings(capsys)
    assert code == 0
    assert found["java"] == {"check": "java", "state": "ok", "found": f"17.0.15 ({java})", "hint": None}
    assert found["jars"]["state"] == "warn"
    assert found["pyspark"]["found"].startswith("4.1.")
    assert "project" not in found


def test_without_java_it_exits_2_and_says_what_to_install(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(here))
    code, found = findings(capsys)
    assert code == 2
    assert found["java"]["state"] == "fail"
    assert "openjdk-17" in found["java"]["hint"]
    assert main(["doctor"]) == 2
    shown = capsys.readouterr().out
    assert "hint (java): install Java 17" in shown


def test_the_project_and_its_folders_are_looked_at(java: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "shop", "-q"]) == 0
    capsys.readouterr()
    code, found = findings(capsys, "-p", "shop")
    assert code == 0
    assert found["project"]["state"] == found["storage"]["state"] == found["ledger"]["state"] == "ok"


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_storage_that_may_not_be_written_fails(java: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "shop"])
    capsys.readouterr()
    (here / "shop").chmod(0o555)
    code, found = findings(capsys, "-p", "shop")
    (here / "shop").chmod(0o755)
    assert code == 2
    assert found["storage"]["state"] == "fail"


def test_a_storage_below_a_file_fails(java: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "shop"])
    capsys.readouterr()
    (here / "shop" / "lake").write_text("")
    code, found = findings(capsys, "-p", "shop")
    assert code == 2
    assert found["storage"]["state"] == found["ledger"]["state"] == "fail"


def test_a_broken_project_fails_and_points_to_check(java: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "anabranch.yml").write_text("name: [")
    code, found = findings(capsys)
    assert code == 2
    assert found["project"]["hint"] == "`anabranch check` shows them"
    code, found = findings(capsys, "-p", "nowhere")
    assert (code, found["project"]["state"]) == (2, "fail")


def test_memory_is_more_than_nothing_and_less_than_the_machine_has() -> None:
    assert 0 < available_memory() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

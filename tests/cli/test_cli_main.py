"""The frame: exit codes, global options, start-up, pipes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer

from anabranch import errors
from anabranch.cli import main as frame
from anabranch.cli.main import main
from anabranch.cli.verb import Invocation, add_verb

HEAVY = ("pyspark", "py4j", "pyarrow", "deltalake", "sqlalchemy", "duckdb", "pandas", "numpy")


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> dict[str, BaseException]:
    """The verb `fail` raises what is put under `error`."""
    box: dict[str, BaseException] = {}
    app = typer.Typer(rich_markup_mode=None)

    def fail(at: Invocation) -> None:
        """Fail."""
        raise box["error"]

    def other(at: Invocation) -> None:
        """Show what was said."""
        at.out.show({"project": at.project, "json": at.json, "debug": at.debug, "v": at.verbose, "q": at.quiet})

    frame.add_shared(app, [], "A test.")
    add_verb(app, fail)
    add_verb(app, other, name="o")
    monkeypatch.setattr(frame, "app", app)
    return box


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.AnabranchError("C", "m"), 1),
        (errors.ProjectError("C", "m"), 2),
        (errors.SetupError("C", "m"), 2),
        (errors.UserCodeError("C", "m"), 1),
        (errors.DataError("C", "m"), 4),
        (errors.CommitUnknown("C", "m"), 5),
        (errors.LockHeld("C", "m"), 6),
        (errors.Interrupted("C", "m"), 130),
        (KeyboardInterrupt(), 130),
        (typer.Exit(3), 3),
        (typer.Abort(), 1),
        (ValueError("odd"), 1),
        (BaseException("very odd"), 1),
        (PermissionError(13, "Permission denied", "/x"), 1),
    ],
)
def test_exit_codes(error: BaseException, code: int, raising: dict[str, BaseException]) -> None:
    raising["error"] = error
    assert main(["fail"]) == code


def test_an_unexpected_error_says_what_to_do_and_shows_a_traceback_only_with_debug(
    raising: dict[str, BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising["error"] = ValueError("odd")
    main(["fail"])
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ValueError: odd (INTERNAL)\n")
    assert "--debug" in captured.err
    assert "Traceback" not in captured.err
    main(["fail", "--debug"])
    assert "Traceback" in capsys.readouterr().err


def test_after_spark_was_started_the_place_of_its_log_is_told(
    raising: dict[str, BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.engine import session

    raising["error"] = errors.UserCodeError("C", "m")
    monkeypatch.setattr(session, "_log", None)
    main(["fail"])
    assert "log" not in capsys.readouterr().err
    monkeypatch.setattr(session, "_log", Path("/lake/spark.log"))
    main(["fail"])
    assert capsys.readouterr().err.endswith("Spark's log: /lake/spark.log\n")


def test_an_error_as_json_is_one_document_on_stdout(
    raising: dict[str, BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising["error"] = errors.LockHeld("LOCK", "held", hint="wait")
    assert main(["fail", "--json"]) == 6
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["hint"] == "wait"
    assert captured.err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "-p", "x", "--debug", "o"],
        ["o", "--json", "--project", "x", "--debug"],
        ["-p", "y", "--debug", "o", "--spec=x", "--json"],
    ],
)
def test_shared_options_may_stand_before_or_after_the_verb(
    arguments: list[str], raising: dict[str, BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 0
    expected = {"project": "x", "json": True, "debug": True, "v": False, "q": False}
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize("arguments", [["chekc"], ["check", "--jsn"], ["check", "too", "many"], ["-p"]])
def test_usage_errors_exit_2_in_text_and_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert "(USAGE)" in captured.err
    assert "--help" in captured.err
    assert captured.out == ""
    assert main(["--json", *arguments]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "USAGE"


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    help_text = capsys.readouterr().out
    for verb in ("init", "check", "doctor", "explain"):
        assert f"\n  {verb} " in help_text
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("anabranch 0.")


def run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **extra},
        timeout=240,
    )


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom anabranch.cli.main import main\nmain(['--help'])\nmain(['explain', '--list'])\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_completion_completes_and_prints_its_script() -> None:
    words = {"_ANABRANCH_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert run(COMP_WORDS="anabranch ch", **words).stdout.split() == ["check"]
    words["COMP_CWORD"] = "2"
    assert run(COMP_WORDS="anabranch explain INIT_F", **words).stdout.split() == ["INIT_FOLDER_NOT_EMPTY"]
    assert "_ANABRANCH_COMPLETE" in run(_ANABRANCH_COMPLETE="source_bash").stdout


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", "explain", "--list"], stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == b""


def test_a_terminal_without_utf8_gets_escapes_instead_of_an_error() -> None:
    code = (
        "from anabranch.cli.main import main\nfrom anabranch.cli.output import TextOutput\n"
        "main(['--version'])\nTextOutput().show('a \\u00b7 b')\n"
    )
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.stdout.splitlines()[1] == "a \\xb7 b"


def test_ctrl_c_exits_130_without_a_traceback(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        # A shell's background jobs ignore SIGINT, and so would what they start.
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import pathlib, sys, time, typer\nfrom anabranch.cli import main as frame\n"
        "from anabranch.cli.verb import add_verb\napp = typer.Typer()\n"
        "def hang(at) -> None:\n"
        f"    pathlib.Path({str(ready)!r}).touch()\n"
        "    time.sleep(600)\n"
        "frame.add_shared(app, [], 'A test.')\nadd_verb(app, hang)\nframe.app = app\nsys.exit(frame.main(['hang']))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not ready.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert ready.exists()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert err.startswith("error: interrupted (INTERRUPTED)\n")
    assert "Traceback" not in err

"""A short soak, without Spark, at every run of the tests; `make soak` is the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


def test_a_short_soak() -> None:
    program = Path(__file__).with_name("soak.py")
    arguments = ["--rounds", "15", "--seed", "4", "--spark-every", "0"]
    done = subprocess.run([sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=840)
    assert done.returncode == 0, done.stdout + done.stderr
    table = dict(line.split("  ", 1) for line in done.stdout.splitlines() if "  " in line)
    found = {name: table[name].strip() for name in ("rows lost", "rows twice", "torn cuts", "cuts that went back")}
    assert set(found.values()) == {"0"}
    assert int(table["killed"].split(",")[0]) >= 10

"""The tutorial of the medallion template: its commands are typed, its files written, what it shows is compared."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.main import main

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "medallion.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def follow(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Do what the page says, from an empty folder; what it shows and is not so."""
    differs, said = [], ""
    with contextlib.chdir(folder):
        for language, text in BLOCKS:
            if language == "sh":
                said = _typed(text, capsys)
            elif language == "text":
                if said.split() != text.split():
                    differs.append(f"page:\n{text}\nsaid:\n{said}")
            else:  # a file, named in its first line
                Path(re.split(r"^(?:#|--) ", text.splitlines()[0])[1]).write_text(text)
    return differs


def _typed(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The commands of a block: ours here, in the session there is, and a block of others in a shell."""
    said = ""
    if not any(line.startswith("anabranch ") for line in text.splitlines()):
        subprocess.run(["sh", "-e", "-c", text], check=True)
        return said
    for line in text.splitlines():
        verb, *words = shlex.split(line)
        if verb == "cd":
            os.chdir(words[0])
            continue
        capsys.readouterr()
        code = main(words)
        said, errors = capsys.readouterr()
        assert (verb, code) == ("anabranch", 0), f"{line}\n{errors}"
    return said


def test_the_tutorial_is_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: Any) -> None:
    assert follow(tmp_path, capsys) == []
    assert [language for language, _ in BLOCKS].count("text") == 7

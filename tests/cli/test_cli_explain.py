"""The long texts of errors: every code has one."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

import anabranch
from anabranch import errors
from anabranch.cli.explain import all_texts
from anabranch.cli.main import main

SOURCE = Path(anabranch.__file__).parent
#: Calls whose text in capitals is no code.
NOT_ERRORS = {"get", "getenv", "pop", "setdefault", "startswith", "sysconf", "replace"}
SHAPE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


def codes_used() -> set[str]:
    """What is given to an error, or to a function of ours that makes one, as its code."""
    return {code for path in SOURCE.rglob("*.py") for code in codes_in(path.read_text())}


def codes_in(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            single = hasattr(errors, called) or called == "UsageProblem"
            yield from (t for t in texts if called not in NOT_ERRORS and SHAPE.fullmatch(t))
            yield from (t for t in texts[:1] if single and t.isupper())


def test_codes_are_found_whatever_makes_the_error() -> None:
    assert {"USAGE", "INIT_FOLDER_NOT_EMPTY", "PROJECT_INVALID", "INTERNAL", "INTERRUPTED"} <= codes_used()


def test_every_code_that_is_used_has_a_text() -> None:
    assert sorted(codes_used() - set(all_texts())) == []


def test_every_text_belongs_to_a_code_that_is_used() -> None:
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    assert sorted(code for code in all_texts() if f'"{code}"' not in source) == []


def test_no_code_has_two_texts_and_none_is_short() -> None:
    markdown = files("anabranch").joinpath("error_codes.md").read_text()
    headings = re.findall(r"^## .*$", markdown, flags=re.MULTILINE)
    assert len(headings) == len(set(headings)) == len(all_texts())
    assert [code for code, text in all_texts().items() if len(text) < 60] == []


def test_explain_prints_the_text_however_the_code_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "init-folder-not-empty"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("INIT_FOLDER_NOT_EMPTY\n\n")
    assert all_texts()["INIT_FOLDER_NOT_EMPTY"] in out


def test_an_unknown_code_gets_the_closest_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "USAGGE"]) == 2
    assert 'did you mean "USAGE"?' in capsys.readouterr().err
    assert main(["explain"]) == 2
    assert "--list" in capsys.readouterr().err


def test_list_shows_every_code_with_its_first_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["code"] for row in rows} == set(all_texts())
    assert all(row["summary"] for row in rows)

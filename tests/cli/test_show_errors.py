"""Errors as people read them, word for word."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from anabranch.cli.show_errors import error_lines
from anabranch.core.where import Where
from anabranch.errors import ProjectError, ProjectErrors, SetupError

PIPELINE = """\
from anabranch import pipelines as dp


@dp.table
def errors():
\treturn spark.readStream.table("reqests")
"""


def text(error: ProjectError | ProjectErrors | SetupError) -> str:
    return "\n".join("".join(piece for piece, _ in line) for line in error_lines(error)) + "\n"


def expected(block: str) -> str:
    return textwrap.dedent(block).lstrip("\n")


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pipeline.py"
    path.write_text(PIPELINE)
    return path


def test_place_snippet_caret_hint_and_help(pipeline: Path) -> None:
    error = ProjectError(
        "PROJECT_UNKNOWN_INPUT",
        'flow "errors" reads "reqests", which nothing creates',
        where=Where(str(pipeline), 5, 5),
        hint='did you mean "requests"?',
    )
    assert text(error) == expected(
        """
        pipeline.py:5:5  flow "errors" reads "reqests", which nothing creates (PROJECT_UNKNOWN_INPUT)
          3 |
          4 | @dp.table
          5 | def errors():
            |     ^
        hint: did you mean "requests"?
        help: anabranch explain PROJECT_UNKNOWN_INPUT
        """
    )


def test_without_a_column_the_caret_stands_under_the_first_word_also_after_a_tab(pipeline: Path) -> None:
    assert text(ProjectError("SOME_CODE", "no", where=Where(str(pipeline), 6))) == expected(
        """
        pipeline.py:6  no (SOME_CODE)
          4 | @dp.table
          5 | def errors():
          6 |     return spark.readStream.table("reqests")
            |     ^
        help: anabranch explain SOME_CODE
        """
    )


def test_without_a_place(pipeline: Path) -> None:
    assert text(SetupError("JAVA_MISSING", "no Java", hint="install Java 17")) == expected(
        """
        error: no Java (JAVA_MISSING)
        hint: install Java 17
        help: anabranch explain JAVA_MISSING
        """
    )


def test_all_problems_together_in_the_order_of_the_files(pipeline: Path) -> None:
    yaml = pipeline.with_name("anabranch.yml")
    yaml.write_text("name: x\nstorag: y\n")
    late = ProjectError("TWO", "second", where=Where(str(pipeline), 4))
    early = ProjectError("ONE", "first", where=Where(str(yaml), 2, 1))
    assert text(ProjectErrors([late, early])) == expected(
        """
        anabranch.yml:2:1  first (ONE)
          1 | name: x
          2 | storag: y
            | ^
        help: anabranch explain ONE

        pipeline.py:4  second (TWO)
          2 |
          3 |
          4 | @dp.table
            | ^
        help: anabranch explain TWO

        2 problems found
        """
    )


@pytest.mark.parametrize("where", [Where("gone.py", 3, 1), Where("pipeline.py", 99), Where("pipeline.py")])
def test_a_place_that_cannot_be_read_is_named_all_the_same(pipeline: Path, where: Where) -> None:
    assert (
        text(ProjectError("SOME_CODE", "no", where=where))
        == f"{where}  no (SOME_CODE)\nhelp: anabranch explain SOME_CODE\n"
    )


def test_a_file_outside_the_current_folder_keeps_its_full_path(pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pipeline.parent / "below").mkdir()
    monkeypatch.chdir(pipeline.parent / "below")
    assert text(ProjectError("SOME_CODE", "no", where=Where(str(pipeline), 1))).startswith(f"{pipeline}:1  no")


def test_a_very_long_line_is_cut_around_the_column(pipeline: Path) -> None:
    pipeline.write_text("x" * 5000 + "BAD" + "y" * 5000 + "\n")
    lines = text(ProjectError("SOME_CODE", "no", where=Where(str(pipeline), 1, 5001))).splitlines()
    assert len(lines[1]) < 140
    assert lines[1].index("BAD") == lines[2].index("^")


def test_text_from_files_cannot_move_the_cursor(pipeline: Path) -> None:
    pipeline.write_bytes(b"a\x1b[2J\xff\n")
    shown = text(ProjectError("SOME_CODE", "bad \x1b[31m", where=Where(str(pipeline), 1), hint="\x07"))
    assert "\x1b" not in shown
    assert "\x07" not in shown


def test_paths_in_a_message_are_shortened_too_but_not_inside_urls(pipeline: Path) -> None:
    message = f"first at {pipeline}:4, in {pipeline.parent}, see file://{pipeline}"
    shown = text(SetupError("SOME_CODE", message, hint=f'look at "{pipeline}"'))
    assert f"first at pipeline.py:4, in {pipeline.parent}, see file://{pipeline} (SOME_CODE)" in shown
    assert 'hint: look at "pipeline.py"' in shown


def test_more_lines_of_a_message_are_indented_below_the_first(pipeline: Path) -> None:
    assert text(SetupError("SOME_CODE", "first\nsecond")) == expected(
        """
        error: first (SOME_CODE)
          second
        help: anabranch explain SOME_CODE
        """
    )

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from anabranch.load.durations import parse_duration
from anabranch.load.yaml_file import YamlFile, read_yaml


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mode: str
    depth: int = 0


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    sinks: list[Inner] = []
    labels: dict[str, str] = {}


def found(tmp_path: Path, text: str) -> list[tuple[str, str, str]]:
    file = read(tmp_path, text)
    return [(p.code, str(p.where).replace(f"{tmp_path}/", ""), p.message) for p in file.problems]


def read(tmp_path: Path, text: str) -> YamlFile[Outer]:
    path = tmp_path / "file.yml"
    path.write_text(text, encoding="utf-8")
    return read_yaml(path, Outer)


def test_a_right_file_has_values_and_places(tmp_path: Path) -> None:
    file = read(tmp_path, "name: x\nsinks:\n  - mode: append\n")
    assert file.problems == ()
    assert file.value == Outer(name="x", sinks=[Inner(mode="append")])
    assert file.where("sinks", 0, "mode").line == 3
    assert file.where("sinks", 0, "mode").column == 11


def test_all_problems_are_found_at_once_with_line_and_column(tmp_path: Path) -> None:
    text = "nam: x\nsinks:\n  - mod: append\n    depth: deep\n  - {mode: 3}\nlabels: [a]\n"
    assert found(tmp_path, text) == [
        ("PROJECT_MISSING_FIELD", "file.yml:1:1", "name: missing field"),
        ("PROJECT_MISSING_FIELD", "file.yml:3:5", "sinks.0.mode: missing field"),
        ("PROJECT_BAD_VALUE", "file.yml:4:12", "sinks.0.depth: must be a whole number, not 'deep'"),
        ("PROJECT_UNKNOWN_FIELD", "file.yml:3:5", "sinks.0.mod: unknown field"),
        ("PROJECT_BAD_VALUE", "file.yml:5:12", "sinks.1.mode: must be text, not 3"),
        ("PROJECT_BAD_VALUE", "file.yml:6:9", "labels: must be a mapping of names to values, not ['a']"),
        ("PROJECT_UNKNOWN_FIELD", "file.yml:1:1", "nam: unknown field"),
    ]


def test_an_unknown_field_names_the_nearest_one(tmp_path: Path) -> None:
    problems = read(tmp_path, "name: x\nsinks: [{mode: a, dept: 1}]\nzzz: 1\n").problems
    assert [p.hint for p in problems] == ['did you mean "depth"?', "known fields: name, sinks, labels"]


def test_the_rest_makes_sense_without_the_faulty_parts(tmp_path: Path) -> None:
    file = read(tmp_path, "name: x\nzzz: 1\nsinks: [{mode: a, dept: 1}, {mode: b}]\n")
    assert len(file.problems) == 2
    assert file.value == Outer(name="x", sinks=[Inner(mode="a"), Inner(mode="b")])


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("name: x\n  sinks: y\n", "file.yml:2:8"),
        ("name: [x\n", "file.yml:2:1"),
        ("name: x\n\tsinks: y\n", "file.yml:2:1"),
        ("name: !secret x\n", "file.yml:1:7"),
        ("name: x\n---\nname: y\n", "file.yml:2:1"),
        ("name: 0x_\n", "file.yml:1:7"),
        ("name: *nowhere\n", "file.yml:1:7"),
    ],
)
def test_what_is_no_yaml_says_where(tmp_path: Path, text: str, where: str) -> None:
    [(code, place, message)] = found(tmp_path, text)
    assert (code, place) == ("PROJECT_YAML_SYNTAX", where)
    assert message.startswith("not valid YAML: ")


def test_odd_files(tmp_path: Path) -> None:
    assert found(tmp_path, "") == [("PROJECT_MISSING_FIELD", "file.yml:1:1", "name: missing field")]
    assert [code for code, *_ in found(tmp_path, "- a\n")] == ["PROJECT_BAD_VALUE"]
    assert found(tmp_path, "name: 2026-99-99\n") == [], "dates stay text"
    path = tmp_path / "bytes.yml"
    path.write_bytes(b"name: \xff\xfe\n")
    assert [p.code for p in read_yaml(path, Outer).problems] == ["PROJECT_YAML_SYNTAX"]
    assert [p.code for p in read_yaml(tmp_path / "none.yml", Outer).problems] == ["PROJECT_FILE_UNREADABLE"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "file.yml"
    path.write_text("name: x")
    path.chmod(0)
    assert [p.code for p in read_yaml(path, Outer).problems] == ["PROJECT_FILE_UNREADABLE"]


def test_a_field_written_twice(tmp_path: Path) -> None:
    assert found(tmp_path, "name: x\nlabels:\n  a: b\n  a: c\n") == [
        ("PROJECT_REPEATED_FIELD", "file.yml:4:3", "a: written twice, first at line 3")
    ]


def test_aliases_and_merges_are_followed(tmp_path: Path) -> None:
    file = read(tmp_path, "name: &n x\nlabels: &l {a: *n}\nsinks: []\n")
    assert file.value == Outer(name="x", labels={"a": "x"})


@given(st.text(max_size=60))
def test_no_text_makes_reading_fail(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    file = read_yaml(path, Outer)
    assert file.value is not None or file.problems


@given(st.integers(0, 10**6), st.sampled_from([("s", 1), ("minutes", 60), ("Hours", 3600), ("days", 86400)]))
def test_durations(number: int, unit: tuple[str, int]) -> None:
    assert parse_duration(f"{number}{unit[0]}") == parse_duration(f" {number}  {unit[0]} ") == number * unit[1]


@pytest.mark.parametrize("text", ["", "ten seconds", "10 parsecs", "-1 s", "10", "1 s 2", "1..5 s", "s"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match=r"unit|duration"):
        parse_duration(text)
